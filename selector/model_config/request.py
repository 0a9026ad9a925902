"""The request that one kind of layer makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from selector.model_config.architectures import Architectures, Word
from selector.model_config.errors import ConfigError
from selector.model_config.facts import Value, conclusions
from selector.model_config.heads import Layer, Split, join_fields, read_heads
from selector.model_config.layers import DEFAULT
from selector.model_config.parts import Part
from selector.model_config.quantization import CacheFormat, read_cache_format
from selector.model_config.results import LayerKind
from selector.model_config.section import MAX_WIDTH, Names, Section
from selector.model_config.source import Json, Source

#: Origin of what the caller said.
YOU = "you"
_NO = Value(False, "")


class Asked(NamedTuple):
    """What the caller decides, in place of the configuration. `given` holds any further axes."""

    dtype: str | None
    kv_cache_dtype: str | None
    block_size: int | None
    tp: int
    given: Mapping[str, Json]


class Requests:
    """Requests of the layers of one model."""

    __slots__ = ("asked", "data", "note", "stored")

    def __init__(self, source: Source, data: Architectures, asked: Asked) -> None:
        self.data = data
        self.asked = asked
        self.note: tuple[str, ...] = ()
        try:
            self.stored: CacheFormat | None = read_cache_format(source, data.kv_cache)
        except ConfigError as error:
            if asked.kv_cache_dtype is None:
                raise
            self.stored = None
            self.note = (f"{error}; you decided otherwise",)

    def kind(self, part: Part, word: Word, layer: int) -> LayerKind:
        """The kind of layer `layer` of a part, with a count of 0.

        Raises:
            ConfigError: a field is missing or impossible; it is named.
        """
        name = part.component.name
        notes: tuple[str, ...] = () if word.note is None else (word.note,)
        if not word.attention:
            return LayerKind(word.kind, name, 0, (), {}, {}, {}, notes, attention=False)
        axes = {
            axis: Value(value, f"default of {name} layers") for axis, value in part.component.axes.items()
        }
        axes.update({axis: Value(value, _whence(part)) for axis, value in word.axes.items()})
        section, window = part.other.get(layer, (part.section, part.window))
        facts = self._facts(part, section, word)
        own = self.data.fields.get(word.fields or "", {}) if part.component.scheduled else {}
        fields = join_fields(own, part.fields)
        latent = all(model.latent for model in part.models)
        split = Split(self.asked.tp, part.component.optional)
        group, layers = part.plan.groups.get(layer), len(part.plan.words)
        described = Layer(section, fields, part.fields, layer, layers, group)
        heads, split_notes = read_heads(described, latent, facts, split)
        axes.update({axis: value for axis, value in facts.items() if axis not in heads})
        axes.update(heads)
        axes["dtype"] = part.dtype
        axes.update(self._sparse(part, fields, axes))
        if part.component.cache and axes.get("attn_type", _NO).value != "encoder_only":
            cache, cache_notes = self._cache()
            axes.update(cache)
            notes += cache_notes
        width = window.width if axes.get("sliding_window", _NO).value is True else None
        if width is not None and 0 < part.context <= width:
            notes += (f"the window of {width} tokens is no narrower than the context of {part.context}",)
        extra = {axis: axes.pop(axis).value for axis in sorted(self.data.pack_axes & axes.keys())}
        axes.update({axis: Value(value, YOU) for axis, value in self.asked.given.items()})
        return LayerKind(
            kind=_label(part, word, axes),
            part=name,
            count=0,
            indices=(),
            request={axis: value.value for axis, value in axes.items()},
            origin={axis: value.origin for axis, value in axes.items()},
            notes=split_notes + notes,
            window=width,
            extra=extra,
        )

    def _facts(self, part: Part, section: Section, word: Word) -> dict[str, Value]:
        """What fields say in any model, and then what the architecture is known to do."""
        general = self.data.facts if part.component.scheduled else ()
        facts = conclusions(general, section, word.name, None)
        for model in part.models:
            facts.update(conclusions(model.facts, section, word.name, f"architecture {model.name}"))
        return {axis: value for axis, value in facts.items() if axis not in part.component.fixed}

    def _sparse(self, part: Part, fields: Mapping[str, Names], axes: Mapping[str, Value]) -> dict[str, Value]:
        """An indexer. It serves every layer, unless the list of layers says which are sparse."""
        topk = part.section.integer(fields.get("index_topk", ()), 0, MAX_WIDTH)
        if topk is None or topk[0] == 0:
            return {}
        listed = any(word.axes.get("sparse") is True for word in part.plan.words)
        if listed and "sparse" not in axes:
            return {}
        sparse = axes.get("sparse", Value(True, topk[1].origin))
        return {"sparse": sparse, "index_topk": Value(topk[0], topk[1].origin)}

    def _cache(self) -> tuple[dict[str, Value], tuple[str, ...]]:
        """The KV cache: its format, its scales, the size of its blocks."""
        axes: dict[str, Value] = {}
        notes = self.note
        asked, stored = self.asked.kv_cache_dtype, self.stored
        if self.asked.block_size is not None:
            axes["block_size"] = Value(self.asked.block_size, YOU)
        if asked is not None:
            axes["kv_cache_dtype"] = Value(asked, YOU)
            if stored is not None and not self._same(asked, stored):
                notes += (
                    f"the checkpoint asks for a KV cache in {stored.dtype} ({stored.origin}); "
                    "you decided otherwise",
                )
                stored = None
        elif stored is not None:
            axes["kv_cache_dtype"] = Value(stored.dtype, stored.origin)
        if stored is not None and stored.per_head:
            axes["per_head_scales"] = Value(True, stored.scales)
        return axes, notes

    def _same(self, asked: str, stored: CacheFormat) -> bool:
        name = asked.removeprefix("torch.").lower()
        return self.data.kv_cache.algorithms.get(name, name) == stored.dtype


def _whence(part: Part) -> str:
    """What says of which kind a layer is: the list of layers, else the window that they all have."""
    found = part.window.found
    return found.origin if part.plan.origin == DEFAULT and found is not None else part.plan.origin


def _label(part: Part, word: Word, axes: Mapping[str, Value]) -> str:
    """What people call such a layer."""
    if axes.get("mla", _NO).value is True:
        words = [("sparse", "sparse"), ("sliding_window", "sliding")]
        return " ".join(["MLA", *(text for axis, text in words if axes.get(axis, _NO).value is True)])
    encoder = "encoder" if axes.get("attn_type", _NO).value == "encoder_only" else None
    name = part.component.kind or encoder
    if name is None or not part.component.scheduled:
        return word.kind
    return f"{name}, sliding" if axes.get("sliding_window", _NO).value is True else name
