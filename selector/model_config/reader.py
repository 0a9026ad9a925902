"""A model configuration as kinds of attention layers, each with the request it makes.

Reads `config.json` as published with models: nested text, vision and audio parts, mixed kinds of layers,
latent and sparse attention, quantised KV caches. What the fields are called, and what an architecture does
beyond its fields, stands in `manifests/architectures.yaml`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from selector.model_config.architectures import Architectures, load_architectures
from selector.model_config.errors import ConfigError, shown
from selector.model_config.facts import holds
from selector.model_config.parts import Part, Parts
from selector.model_config.request import Asked, Requests
from selector.model_config.results import LayerKind, ModelConfig
from selector.model_config.section import MAX_SIZE
from selector.model_config.source import Json, Source, read_source


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

    `data` is the content of a `config.json`, its path, or the directory it lies in. The other arguments are
    the caller's own choices: the format of activations and of the KV cache (`auto` leaves the latter to the
    configuration), the tokens of a cache block, the ranks of tensor parallelism, and any further axes, which
    hold for every attention layer.

    Raises:
        ConfigError: the configuration cannot be read or does not determine the requests; it names the field.
        ManifestError: the file of architectures has mistakes.
    """
    known = load_architectures() if architectures is None else architectures
    if isinstance(tp, bool) or not isinstance(tp, int) or not 1 <= tp <= MAX_SIZE:
        raise ConfigError("tp", "", f"is {shown(tp)}, expected a number of ranks from 1 to {MAX_SIZE}")
    cache = None if kv_cache_dtype == "auto" else kv_cache_dtype
    source = read_source(data)
    return _read(source, known, Asked(dtype, cache, block_size, tp, dict(given or {})))


def _read(source: Source, data: Architectures, asked: Asked) -> ModelConfig:
    parts = Parts(source, data, asked.dtype)
    requests = Requests(source, data, asked)
    layers: list[LayerKind] = []
    notes: list[str] = []
    unread: list[tuple[str, str]] = []
    known = False
    for component in data.components:
        if not holds(component.when, parts.top):
            continue
        try:
            section = parts.section(component)
            if section is None:
                continue
            part = parts.part(component, section)
            layers += _kinds(part, requests)
        except ConfigError as error:
            if not component.optional:
                raise
            unread.append((component.name, str(error)))
            continue
        notes += [f"{model.name}: {model.note}" for model in part.models if model.note is not None]
        known = known or (bool(part.models) and not component.optional)
    architecture = _architecture(source)
    if not known:
        name = parts.top.model_type or architecture or "this architecture"
        notes.insert(0, f"{name} is not known here: read by its standard fields alone")
    return ModelConfig(
        source=source.name,
        architecture=architecture,
        model_type=parts.top.model_type,
        known=known,
        layers=tuple(layers),
        notes=tuple(dict.fromkeys(notes)),
        unread=tuple(unread),
    )


def _kinds(part: Part, requests: Requests) -> list[LayerKind]:
    """The layers of a part, those with the same request together, in the order of their first layers."""
    made: dict[tuple[str, int | None], LayerKind] = {}
    kinds: dict[str, LayerKind] = {}
    indices: dict[str, list[int]] = {}
    for layer, word in enumerate(part.plan.words):
        same = (word.name, part.plan.groups.get(layer))
        own = part.varies or layer in part.other
        kind = None if own else made.get(same)
        if kind is None:
            kind = requests.kind(part, word, layer)
            if not own:
                made[same] = kind
        key = repr((kind.kind, kind.request, kind.notes))
        kinds.setdefault(key, kind)
        indices.setdefault(key, []).append(layer)
    return [
        kind._replace(count=len(indices[key]), indices=tuple(indices[key])) for key, kind in kinds.items()
    ]


def _architecture(source: Source) -> str:
    names = source.data.get("architectures")
    first = names[0] if isinstance(names, list) and names else names
    return first if isinstance(first, str) else ""
