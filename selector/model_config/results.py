"""What a model configuration says, as plain data."""

from __future__ import annotations

from typing import NamedTuple

from selector.model_config.source import Json


class LayerKind(NamedTuple):
    """Layers of a model that make the same request.

    `kind` is for people ("sliding attention"), `part` the part of the model (text, vision, ...), `indices`
    the layers' numbers in that part, from 0. `request` maps axes to values for one rank, `origin` each of
    these axes to where its value comes from. Layers without attention are counted: their `attention` is
    false and their request empty. `window` is the width of the sliding window in tokens. `extra` has axes
    that only some packs have, for those whose vocabulary knows them.
    """

    kind: str
    part: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    indices: tuple[int, ...]
    request: dict[str, Json]
    origin: dict[str, str]
    extra: dict[str, Json]
    notes: tuple[str, ...] = ()
    attention: bool = True
    window: int | None = None


class ModelConfig(NamedTuple):
    """What a configuration says.

    `known` is false for a model type that is read by its standard fields alone. `unread` holds optional parts
    (an image encoder, say) that the configuration does not describe well enough, each with the reason.
    """

    source: str
    architecture: str
    model_type: str
    known: bool
    layers: tuple[LayerKind, ...]
    notes: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
