"""`architectures.yaml`: the names of fields, the kinds of layer, and what an architecture does.

Everything that is particular to a model family stands in that file. This module knows the shape of the
file, not what is in it; a file that has another shape is refused with the place of every mistake.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from selector.locations import manifests_root
from selector.model_config.source import Json
from selector.stored import load_stored

#: Operators of a condition on a field.
OPERATORS = ("equal", "not", "given", "above", "ends")
#: Operators of a schedule: the keys each needs and may have, beside itself and `when`.
SCHEDULES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "words": ((), ("repeat",)),
    "letters": (("map",), ("repeat",)),
    "codes": (("map",), ()),
    "numbers": (("then", "else"), ("first",)),
    "period": (("offset", "then", "else"), ()),
    "from": (("then", "else"), ()),
    "blocks": (("no_op", "group", "then", "else"), ()),
    "all": ((), ()),
}


class Check(NamedTuple):
    """One part of a condition: `field`, one of `OPERATORS`, its operand."""

    field: str
    operator: str
    operand: Json


Condition = tuple[Check, ...]


class Fact(NamedTuple):
    """Axes that are set where `when` holds, of layers of the words in `layers` (empty: all)."""

    when: Condition
    layers: tuple[str, ...]
    axes: Mapping[str, Json]


class Schedule(NamedTuple):
    """Which layer is of which word: an operator, its operand (a field, mostly), the other keys."""

    operator: str
    operand: Json
    options: Mapping[str, Json]
    when: Condition


class Word(NamedTuple):
    """A kind of layer.

    `fields` names the field table tried first, `without_window` the kind of such a layer of a model whose
    sliding window is off; `attention` is false for layers that are counted and have none.
    """

    name: str
    kind: str
    fields: str | None
    without_window: str | None
    attention: bool
    axes: Mapping[str, Json]
    note: str | None


class Component(NamedTuple):
    """A part of a model: where it is described, and what holds for all its layers (`fixed`: come what may)."""

    name: str
    when: Condition
    sections: tuple[str, ...]
    flat: bool
    optional: bool
    fields: str
    kind: str | None
    scheduled: bool
    cache: bool
    fixed: tuple[str, ...]
    axes: Mapping[str, Json]


class Model(NamedTuple):
    """What is known of a model type."""

    name: str
    defaults: Mapping[str, Json]
    words: Mapping[str, str]
    schedules: tuple[Schedule, ...]
    facts: tuple[Fact, ...]
    fields: Mapping[str, tuple[str, ...]]
    latent: bool
    times: int
    note: str | None


class Scheme(NamedTuple):
    """A way to store the KV cache: number type, bits, and the name of that as a KV-cache dtype."""

    type: str
    bits: int
    dtype: str


class KVCache(NamedTuple):
    """How checkpoints say that their KV cache is quantised."""

    schemes: tuple[Scheme, ...]
    algorithms: Mapping[str, str]
    per_head: tuple[str, ...]
    per_tensor: tuple[str, ...]
    attention_targets: tuple[str, ...]


class PerLayer(NamedTuple):
    """The field with what is other for single layers. `without` in it lists what a layer goes without; where that
    is one of `attention`, the layer is of kind `word`.
    """

    field: str
    without: str
    attention: tuple[str, ...]
    word: str


class Architectures(NamedTuple):
    """The whole file. `words` has every spelling, `models` every model type.

    `pack_axes` are axes that not every pack has; what is known of them is told apart from the request.
    """

    components: tuple[Component, ...]
    inherited: frozenset[str]
    pack_axes: frozenset[str]
    fields: Mapping[str, Mapping[str, tuple[str, ...]]]
    words: Mapping[str, Word]
    schedules: tuple[Schedule, ...]
    facts: tuple[Fact, ...]
    dtypes: Mapping[str, str]
    kv_cache: KVCache
    per_layer: PerLayer
    models: Mapping[str, Model]


NOBODY = Model("", {}, {}, (), (), {}, True, 1, None)


def default_path() -> str:
    """The file among the manifests in use."""
    return os.path.join(manifests_root(), "architectures.yaml")


_loaded: dict[tuple[str, int, int], Architectures] = {}


def load_architectures(path: str | os.PathLike[str] | None = None) -> Architectures:
    """The file at `path` (or of this installation), read once for each version of it.

    Raises:
        ManifestError: the file has mistakes; all of them are in it.
    """
    name = os.fspath(default_path() if path is None else path)
    try:
        status = os.stat(name)
        key = (name, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError):
        return _read(name)
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = _read(name)
    return _loaded[key]


def _read(name: str) -> Architectures:
    from selector.model_config.decode import decode_architectures

    return decode_architectures(load_stored(name))
