"""How a checkpoint stores its KV cache, by `quantization_config` or the file that ModelOpt puts beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from selector.model_config.architectures import KVCache
from selector.model_config.errors import ConfigError, shown
from selector.model_config.section import MAX_SIZE
from selector.model_config.source import QUANTIZATION_NAME, Json, Source

_HINT = "give kv_cache_dtype to decide it yourself"


class CacheFormat(NamedTuple):
    """A KV-cache dtype that a checkpoint asks for; `per_head` tells whether it has a scale for each head."""

    dtype: str
    per_head: bool
    origin: str
    scales: str


def read_cache_format(source: Source, data: KVCache) -> CacheFormat | None:
    """What the checkpoint asks for, or None where its KV cache keeps the model's format.

    Quantised weights alone say nothing about the cache.

    Raises:
        ConfigError: it asks for a format that has no name here.
    """
    for file, path, config in _configs(source):
        reader = _Reader(source.name if file == "config.json" else file, file, path, data)
        found = reader.read(config)
        if found is not None:
            return found
    return None


def _configs(source: Source) -> Iterator[tuple[str, str, Mapping[str, Json]]]:
    """Every place a quantisation can be described in: the file, the path in it, and the mapping."""
    holders: list[tuple[str, Mapping[str, Json]]] = [("", source.data)]
    holders += [
        (f"{name}.", value)
        for name, value in source.data.items()
        if isinstance(value, dict) and name.endswith(("_config", "config"))
    ]
    for prefix, holder in holders:
        for name in ("quantization_config", "compression_config"):
            config = holder.get(name)
            if config is None:
                continue
            if not isinstance(config, dict):
                raise ConfigError(
                    source.name,
                    f"{prefix}{name}",
                    f"is {shown(config)}, expected a mapping",
                )
            yield "config.json", f"{prefix}{name}", config
    if source.quantization is not None:
        yield QUANTIZATION_NAME, "", source.quantization


class _Reader:
    """One description of a quantisation."""

    __slots__ = ("data", "file", "path", "place")

    def __init__(self, file: str, place: str, path: str, data: KVCache) -> None:
        self.file = file
        self.place = place
        self.path = path
        self.data = data

    def read(self, config: Mapping[str, Json]) -> CacheFormat | None:
        inner = config.get("quantization")
        parts: list[tuple[str, Mapping[str, Json]]] = [(self.path, config)]
        if isinstance(inner, dict):  # ModelOpt's older form nests once more
            parts.insert(0, (self._join(self.path, "quantization"), inner))
        for path, part in parts:
            found = self._scheme(part.get("kv_cache_scheme"), self._join(path, "kv_cache_scheme"))
            found = found or self._algorithm(
                part.get("kv_cache_quant_algo"), self._join(path, "kv_cache_quant_algo")
            )
            if found is not None:
                return found
        return self._groups(config.get("config_groups")) or self._layers(config)

    @staticmethod
    def _join(path: str, name: str) -> str:
        return f"{path}.{name}" if path else name

    def _fail(self, field: str, message: str, hint: str | None = None) -> ConfigError:
        return ConfigError(self.file, field, message, hint)

    def _scheme(self, scheme: Json, field: str) -> CacheFormat | None:
        """compressed-tensors' form: a number type, its bits, and what shares a scale."""
        if scheme is None or isinstance(scheme, str):
            return self._algorithm(scheme, field)
        if not isinstance(scheme, dict):
            raise self._fail(field, f"is {shown(scheme)}, expected a mapping")
        bits, kind, strategy = (
            scheme.get("num_bits"),
            scheme.get("type"),
            scheme.get("strategy"),
        )
        if isinstance(bits, bool) or not isinstance(bits, int) or not 0 < bits <= MAX_SIZE:
            raise self._fail(f"{field}.num_bits", f"is {shown(bits)}, expected a whole number", _HINT)
        for known in self.data.schemes:
            if known.bits == bits and known.type == kind:
                break
        else:
            raise self._fail(
                field,
                f"asks for {bits}-bit numbers of type {shown(kind)}, which have no name here",
                _HINT,
            )
        if strategy is not None and strategy not in (
            *self.data.per_head,
            *self.data.per_tensor,
        ):
            allowed = ", ".join((*self.data.per_tensor, *self.data.per_head))
            raise self._fail(
                f"{field}.strategy",
                f"is {shown(strategy)}, expected one of {allowed}",
                _HINT,
            )
        place = f"{self.place}: {field}"
        return CacheFormat(known.dtype, strategy in self.data.per_head, place, f"{place}.strategy")

    def _algorithm(self, name: Json, field: str) -> CacheFormat | None:
        """ModelOpt's form: the name of a format."""
        if name is None or (isinstance(name, str) and name.lower() in ("", "none")):
            return None
        dtype = self.data.algorithms.get(name.lower()) if isinstance(name, str) else None
        if dtype is None:
            raise self._fail(field, f"is {shown(name)}, which has no name here", _HINT)
        return CacheFormat(dtype, False, f"{self.place}: {field}", "")

    def _groups(self, groups: Json) -> CacheFormat | None:
        """A group whose targets are attention modules: its inputs are queries, keys and values."""
        field = self._join(self.path, "config_groups")
        if groups is None:
            return None
        if not isinstance(groups, dict):
            raise self._fail(field, f"is {shown(groups)}, expected a mapping")
        for name, group in groups.items():
            if not isinstance(group, dict):
                continue  # a preset's name, with the list of its targets: presets quantise linear layers
            targets = group.get("targets")
            if group.get("weights") is not None or not isinstance(targets, list):
                continue  # attention modules have no weights of their own
            if any(self._is_attention(target) for target in targets):
                found = self._scheme(group.get("input_activations"), f"{field}.{name}.input_activations")
                if found is not None:
                    return found
        return None

    def _is_attention(self, target: Json) -> bool:
        """A class ("LlamaAttention"), a module's path, or "re:" and a pattern that ends with its name."""
        if not isinstance(target, str):
            return False
        return target.rstrip("$*.)").endswith(self.data.attention_targets)

    def _layers(self, config: Mapping[str, Json]) -> CacheFormat | None:
        """Quark's form: a list of the projections that make the cache, and the format of their outputs."""
        export, table = config.get("export"), config.get("kv_cache_quant_config")
        if not isinstance(export, dict) or not export.get("kv_cache_group") or not isinstance(table, dict):
            return None
        for name, entry in table.items():
            tensors = entry.get("output_tensors") if isinstance(entry, dict) else None
            if isinstance(tensors, dict):
                field = f"{self._join(self.path, 'kv_cache_quant_config')}.{name}.output_tensors.dtype"
                return self._algorithm(tensors.get("dtype"), field)
        return None
