"""A model configuration as kinds of attention layers, each with the request it makes.

Reads `config.json` as published with models: nested text, vision and audio parts, mixed kinds of layers, latent and
sparse attention, quantised KV caches. What the fields are called and what an architecture does beyond its fields
stands in `manifests/architectures.yaml`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from selector.model_config.architectures import (
    NOBODY,
    Architectures,
    Component,
    Model,
    Word,
    load_architectures,
)
from selector.model_config.errors import ConfigError, shown
from selector.model_config.facts import Value, conclusions, holds
from selector.model_config.heads import Fields, Split, join_fields, read_heads
from selector.model_config.layers import Window, read_layers, read_window
from selector.model_config.quantization import CacheFormat, read_cache_format
from selector.model_config.section import (
    MAX_LAYERS,
    MAX_SIZE,
    MAX_WIDTH,
    Found,
    Section,
)
from selector.model_config.source import Json, Source, read_source

#: Origin of what the caller said.
YOU = "you"


class LayerKind(NamedTuple):
    """Layers of a model that make the same request.

    `kind` is for people ("sliding attention"), `part` the part of the model (text, vision, ...), `indices` the
    layers' numbers in that part from 0. `request` maps axes to values for one rank, `origin` each of these axes to
    where its value comes from. Layers without attention are counted; their `attention` is false and their request
    empty. `window` is the width of the sliding window in tokens.
    """

    kind: str
    part: str
    count: int
    indices: tuple[int, ...]
    request: dict[str, Json]
    origin: dict[str, str]
    notes: tuple[str, ...] = ()
    attention: bool = True
    window: int | None = None


class ModelConfig(NamedTuple):
    """What a configuration says. `known` is false for a model type that is read by its standard fields alone.

    `unread` holds optional parts (an image encoder, say) that the configuration does not describe well enough, with
    the reason.
    """

    source: str
    architecture: str
    model_type: str
    known: bool
    layers: tuple[LayerKind, ...]
    notes: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


class _Asked(NamedTuple):
    """What the caller decides, in place of the configuration."""

    dtype: str | None
    kv_cache_dtype: str | None
    block_size: int | None
    tp: int
    given: Mapping[str, Json]


def read_config(
    data: Mapping[str, object] | str | os.PathLike[str],
    *,
    dtype: str | None = None,
    kv_cache_dtype: str | None = None,
    block_size: int | None = None,
    tp: int = 1,
    given: Mapping[str, Json] | None = None,
    architectures: Architectures | None = None,
) -> ModelConfig:
    """The attention layers of a model.

    `data` is the content of a `config.json`, its path, or the directory it lies in. The other arguments are the
    caller's own choices: the format of activations and of the KV cache (`auto` leaves the latter to the
    configuration), the tokens of a cache block, the ranks of tensor parallelism, and any further axes, which hold for
    every attention layer.

    Raises:
        ConfigError: the configuration cannot be read or does not determine the requests; the field is named.
        ManifestError: the file of architectures has mistakes.
    """
    known = load_architectures() if architectures is None else architectures
    if isinstance(tp, bool) or not isinstance(tp, int) or not 1 <= tp <= MAX_SIZE:
        raise ConfigError(
            "tp", "", f"is {shown(tp)}, expected a number of ranks from 1 to {MAX_SIZE}"
        )
    asked = _Asked(
        dtype,
        None if kv_cache_dtype == "auto" else kv_cache_dtype,
        block_size,
        tp,
        dict(given or {}),
    )
    return _Reader(read_source(data), known, asked).read()


class _Part(NamedTuple):
    """A component of this model: its description, what is known of it, and what holds for all its layers."""

    component: Component
    section: Section
    models: tuple[Model, ...]
    fields: Mapping[str, tuple[str, ...]]
    window: Window
    context: tuple[int, Found] | None
    dtype: Value
    sparse_words: bool


class _Reader:
    """One reading of one configuration."""

    __slots__ = ("asked", "data", "known", "notes", "source", "top", "unread")

    def __init__(self, source: Source, data: Architectures, asked: _Asked) -> None:
        self.source = source
        self.data = data
        self.asked = asked
        self.notes: list[str] = []
        self.unread: list[tuple[str, str]] = []
        self.known = False
        model_type = self._model_type("", source.data)
        defaults = data.models.get(model_type, NOBODY).defaults
        self.top = Section(source.name, "", source.data, model_type, defaults)

    def read(self) -> ModelConfig:
        cache = None if self.asked.kv_cache_dtype is not None else self._cache_format()
        layers: list[LayerKind] = []
        for component in self.data.components:
            if not holds(component.when, self.top):
                continue
            try:
                section = self._section(component)
                if section is not None:
                    layers += self._layers(component, section, cache)
            except ConfigError as error:
                if not component.optional:
                    raise
                self.unread.append((component.name, str(error)))
        if not self.known:
            name = self.top.model_type or self._architecture() or "this architecture"
            self.notes.insert(
                0, f"{name} is not known here: read by its standard fields alone"
            )
        return ModelConfig(
            source=self.source.name,
            architecture=self._architecture(),
            model_type=self.top.model_type,
            known=self.known,
            layers=tuple(layers),
            notes=tuple(dict.fromkeys(self.notes)),
            unread=tuple(self.unread),
        )

    # -- parts ----------------------------------------------------------------------------------------------------

    def _architecture(self) -> str:
        names = self.source.data.get("architectures")
        first = names[0] if isinstance(names, list) and names else names
        return first if isinstance(first, str) else ""

    def _model_type(self, path: str, data: Mapping[str, Json]) -> str:
        name = data.get("model_type")
        if name is None:
            return ""
        if not isinstance(name, str):
            raise ConfigError(
                self.source.name,
                f"{path}model_type",
                f"is {shown(name)}, expected text",
            )
        return name

    def _section(self, component: Component) -> Section | None:
        """The nested configuration of a component, or the top where a component may be described there."""
        for path in component.sections:
            data = self.top.mapping(path)
            if data is None:
                continue
            model_type = self._model_type(f"{path}.", data)
            if component.optional and model_type == self.top.model_type:
                model_type = ""  # some parts bear the whole model's type, whose defaults are another part's
            elif not component.optional:
                model_type = model_type or self.top.model_type
            defaults = self.data.models.get(model_type, NOBODY).defaults
            inherited = self.data.inherited
            return Section(
                self.source.name, path, data, model_type, defaults, self.top, inherited
            )
        return self.top if component.flat else None

    def _models(self, section: Section, optional: bool) -> tuple[Model, ...]:
        """What is known of the whole model's type and, after it, of the section's own."""
        own = self.data.models.get(section.model_type)
        whole = None if optional else self.data.models.get(self.top.model_type)
        found = tuple(
            model
            for model in ((own,) if whole is own else (whole, own))
            if model is not None
        )
        self.known = self.known or bool(found) and not optional
        return found

    def _layers(
        self, component: Component, section: Section, cache: CacheFormat | None
    ) -> list[LayerKind]:
        models = self._models(section, component.optional)
        for model in models:
            if model.note is not None:
                self.notes.append(f"{model.name}: {model.note}")
        tables = [model.fields for model in models] + [
            self.data.fields[component.fields]
        ]
        fields = join_fields(*tables).table
        own = models[-1] if models else NOBODY
        layers, words, groups, window = self._schedule(component, section, fields, own)
        part = _Part(
            component=component,
            section=section,
            models=models,
            fields=fields,
            window=window,
            context=section.integer(fields.get("context", ()), 0, MAX_WIDTH)
            if window.width
            else None,
            dtype=self._dtype(section, fields),
            sparse_words=any(word.axes.get("sparse") is True for word in words),
        )
        kinds: dict[str, LayerKind] = {}
        indices: dict[str, list[int]] = {}
        tables_vary = any(isinstance(found.value, list) for found in self._counts(part))
        made: dict[tuple[str, int | None], LayerKind] = {}
        for layer, word in enumerate(words):
            same = (word.name, groups.get(layer))
            kind = None if tables_vary else made.get(same)
            if kind is None:
                kind = self._kind(part, word, layer, layers, groups.get(layer), cache)
                made[same] = kind
            key = repr((kind.kind, kind.request, kind.notes))
            kinds.setdefault(key, kind)
            indices.setdefault(key, []).append(layer)
        return [
            kind._replace(count=len(indices[key]), indices=tuple(indices[key]))
            for key, kind in kinds.items()
        ]

    def _counts(self, part: _Part) -> list[Found]:
        names = ("num_heads", "num_kv_heads", "head_size", "head_size_v")
        tables = [part.fields, *self.data.fields.values()]
        found = (
            part.section.find(table.get(name, ())) for table in tables for name in names
        )
        return [entry for entry in found if entry is not None]

    def _schedule(
        self,
        component: Component,
        section: Section,
        fields: Mapping[str, tuple[str, ...]],
        model: Model,
    ) -> tuple[int, Sequence[Word], Mapping[int, int], Window]:
        """The number of layers, the kind of each, their own groups of heads, and the window."""
        count = section.integer(fields.get("layers", ()), 0, MAX_LAYERS)
        if count is None:
            count = self._listed(section, fields)
        layers = count[0] * max(model.times, 1)
        if layers > MAX_LAYERS:
            raise section.fail(
                count[1].field, f"makes {layers} layers, expected {MAX_LAYERS} at most"
            )
        if not component.scheduled:
            word = Word(
                component.kind or component.name,
                component.kind or component.name,
                None,
                None,
                True,
                {},
                None,
            )
            return layers, [word] * layers, {}, Window(None, None)
        window = read_window(section, fields)
        plan = read_layers(section, layers, self.data, model, window)
        return layers, plan.words, plan.groups, window

    def _listed(
        self, section: Section, fields: Mapping[str, tuple[str, ...]]
    ) -> tuple[int, Found]:
        """The number of layers by a list that names each; newer files leave the number out."""
        for schedule in self.data.schedules:
            if (
                schedule.operator in ("words", "letters")
                and not schedule.options["repeat"]
            ):
                found = section.find((str(schedule.operand),))
                if (
                    found is not None
                    and isinstance(found.value, (list, str))
                    and found.value
                ):
                    return section.whole(
                        len(found.value), found.field, 1, MAX_LAYERS
                    ), found
        raise section.missing(
            fields.get("layers", ("layers",)), "the number of layers cannot be known"
        )

    def _dtype(self, section: Section, fields: Mapping[str, tuple[str, ...]]) -> Value:
        """The format of activations: the caller's, the section's, or that of any part of the model."""
        if self.asked.dtype is not None:
            return Value(
                self.data.dtypes.get(
                    self.asked.dtype.removeprefix("torch."), self.asked.dtype
                ),
                YOU,
            )
        names = fields.get("dtype", ())
        found = section.find(names)
        if found is None or found.value == "auto":
            found = self._dtype_of_another_part(names)
        if found is None:
            raise section.missing(
                names or ("dtype",), "give one, such as dtype=bfloat16"
            )
        name = found.value
        dtype = (
            self.data.dtypes.get(name.removeprefix("torch.").lower())
            if isinstance(name, str)
            else None
        )
        if dtype is None:
            known = ", ".join(dict.fromkeys(self.data.dtypes.values()))
            raise section.fail(
                found.field,
                f"is {shown(name)}, expected one of {known}",
                "give dtype to decide it",
            )
        return Value(dtype, found.origin)

    def _dtype_of_another_part(self, names: tuple[str, ...]) -> Found | None:
        for component in self.data.components:
            try:
                other = self._section(component)
            except ConfigError:
                continue  # told when that part is read
            found = None if other is None else other.find(names)
            if found is not None and found.value != "auto":
                return found
        return None

    def _cache_format(self) -> CacheFormat | None:
        return read_cache_format(self.source, self.data.kv_cache)

    # -- one kind of layer ----------------------------------------------------------------------------------------

    def _kind(
        self,
        part: _Part,
        word: Word,
        layer: int,
        layers: int,
        group: int | None,
        cache: CacheFormat | None,
    ) -> LayerKind:
        component, section = part.component, part.section
        if not word.attention:
            notes = () if word.note is None else (word.note,)
            return LayerKind(
                word.kind, component.name, 0, (), {}, {}, notes, attention=False
            )
        origin = f"{component.name} layers"
        axes = {axis: Value(value, origin) for axis, value in component.axes.items()}
        axes.update(
            {
                axis: Value(value, f"a {word.kind} layer")
                for axis, value in word.axes.items()
            }
        )
        facts = (
            conclusions(self.data.facts, section, word.name, None)
            if component.scheduled
            else {}
        )
        for model in part.models:
            facts.update(
                conclusions(
                    model.facts, section, word.name, f"architecture {model.name}"
                )
            )
        own = self.data.fields.get(word.fields or "", {}) if component.scheduled else {}
        fields = join_fields(own, part.fields)
        latent = all(model.latent for model in part.models)
        split = Split(self.asked.tp, component.optional)
        heads, notes = read_heads(
            section, fields, layer, layers, group, latent, facts, split
        )
        axes.update({axis: value for axis, value in facts.items() if axis not in heads})
        axes.update(heads)
        axes["dtype"] = part.dtype
        self._sparse(part, fields, axes)
        caches = component.cache and axes["attn_type"].value != "encoder_only"
        notes += self._cache(axes, cache) if caches else ()
        if word.axes.get("sliding_window") is True and part.window.width is not None:
            notes += self._window_notes(part)
            width: int | None = part.window.width
        else:
            width = None
        if word.note is not None:
            notes += (word.note,)
        axes.update(
            {axis: Value(value, YOU) for axis, value in self.asked.given.items()}
        )
        return LayerKind(
            kind=_label(component, word, axes),
            part=component.name,
            count=0,
            indices=(),
            request={axis: value.value for axis, value in axes.items()},
            origin={axis: value.origin for axis, value in axes.items()},
            notes=notes,
            window=width,
        )

    def _sparse(self, part: _Part, fields: Fields, axes: dict[str, Value]) -> None:
        """An indexer. It serves every layer, unless the list of layers says which."""
        if not part.component.scheduled:
            return
        topk = part.section.integer(fields["index_topk"], 0, MAX_WIDTH)
        if topk is None or topk[0] == 0:
            return
        if part.sparse_words and "sparse" not in axes:
            return
        axes.setdefault("sparse", Value(True, topk[1].origin))
        axes["index_topk"] = Value(topk[0], topk[1].origin)

    def _cache(
        self, axes: dict[str, Value], cache: CacheFormat | None
    ) -> tuple[str, ...]:
        """The KV cache: its format, its scales, the size of its blocks."""
        asked = self.asked
        if asked.block_size is not None:
            axes["block_size"] = Value(asked.block_size, YOU)
        if asked.kv_cache_dtype is not None:
            axes["kv_cache_dtype"] = Value(asked.kv_cache_dtype, YOU)
            try:
                stored = self._cache_format()
            except ConfigError as error:
                return (f"{error}; you decided otherwise",)
            if stored is None:
                return ()
            name = asked.kv_cache_dtype.removeprefix("torch.").lower()
            same = self.data.kv_cache.algorithms.get(name, name) == stored.dtype
            if same and not stored.per_head:
                return ()
            if same:
                axes["per_head_scales"] = Value(True, stored.scales)
                return ()
            return (
                f"the checkpoint asks for a KV cache in {stored.dtype} ({stored.origin}); you decided otherwise",
            )
        if cache is not None:
            axes["kv_cache_dtype"] = Value(cache.dtype, cache.origin)
            if cache.per_head:
                axes["per_head_scales"] = Value(True, cache.scales)
        return ()

    def _window_notes(self, part: _Part) -> tuple[str, ...]:
        width, context = part.window.width, part.context
        if width is not None and context is not None and width >= context[0] > 0:
            return (
                f"the window of {width} tokens is no narrower than the context of {context[0]}",
            )
        return ()


def _label(component: Component, word: Word, axes: Mapping[str, Value]) -> str:
    """What people call such a layer."""
    if axes.get("mla", Value(False, "")).value is True:
        parts = ["MLA"]
        parts += (
            ["sparse"] if axes.get("sparse", Value(False, "")).value is True else []
        )
        parts += (
            ["sliding"]
            if axes.get("sliding_window", Value(False, "")).value is True
            else []
        )
        return " ".join(parts)
    if component.scheduled and axes["attn_type"].value == "encoder_only":
        return (
            word.kind.replace("attention", "encoder attention")
            if "full" not in word.kind
            else "encoder"
        )
    return word.kind
