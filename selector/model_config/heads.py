"""The heads of one attention layer: their numbers and sizes, latent or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from selector.model_config.errors import ConfigError
from selector.model_config.facts import Value
from selector.model_config.section import MAX_SIZE, MAX_WIDTH, Found, Names, Section


def join_fields(*tables: Mapping[str, Names]) -> Mapping[str, Names]:
    """Tables of names as one; the names of earlier tables come first."""
    joined: dict[str, Names] = {}
    for table in tables:
        for quantity, names in table.items():
            joined[quantity] = (*joined.get(quantity, ()), *names)
    return joined


class Layer(NamedTuple):
    """Layer `number` of the `layers` that a section describes.

    `fields` has the names of quantities for layers of its kind, `usual` those that a message asks for; `group`
    is the layer's own number of query heads per key/value head.
    """

    section: Section
    fields: Mapping[str, Names]
    usual: Mapping[str, Names]
    number: int
    layers: int
    group: int | None

    def names(self, quantity: str) -> Names:
        """The names of a quantity."""
        return self.fields.get(quantity, ())

    def each(self, quantity: str) -> tuple[int, Found] | None:
        """The quantity of this layer, where one number or a list has it."""
        return self.section.each(self.names(quantity), self.number, self.layers)

    def size(self, quantity: str) -> tuple[int, Found] | None:
        """A size of this layer; some files write 0 for one that is derived or does not exist."""
        found = self.section.find(self.names(quantity))
        if found is None or (found.value == 0 and not isinstance(found.value, bool)):
            return None
        return self.each(quantity)

    def part(self, quantity: str, low: int, high: int = MAX_SIZE) -> tuple[int, Found] | None:
        """A quantity that all layers share."""
        return self.section.integer(self.names(quantity), low, high)

    def missing(self, quantity: str, hint: str) -> ConfigError:
        """The error that a quantity cannot be known."""
        return self.section.missing(self.usual.get(quantity, ()), hint)


class Split(NamedTuple):
    """Tensor parallelism over `ways` ranks; an optional part is left whole where it cannot be split."""

    ways: int
    optional: bool


Heads = tuple[dict[str, Value], tuple[str, ...]]


def read_heads(layer: Layer, latent: bool, facts: Mapping[str, Value], split: Split) -> Heads:
    """The axes that describe the heads of a layer on one rank, and notes.

    `facts` are what the architecture says already (before the split), `latent` whether a latent rank means
    that the kernel sees the latent vectors.

    Raises:
        ConfigError: a field is missing or impossible, or the heads cannot be split.
    """
    heads = _count(layer, "num_heads", facts)
    if heads is None:
        raise layer.missing("num_heads", "the number of query heads cannot be known")
    rank = layer.part("kv_lora_rank", 0)
    if rank is not None and rank[0] > 0:
        return _latent_heads(layer, heads, rank, latent, split)
    kv_heads = _kv_heads(layer, heads, facts)
    axes = {"head_size": _head_size(layer, heads)}
    value_size = layer.size("head_size_v")
    if value_size is not None and value_size[0] != axes["head_size"].value:
        axes["head_size_v"] = Value(value_size[0], value_size[1].origin)
    counts, notes = _split(layer.section, heads, kv_heads, split)
    return {**axes, **counts}, notes


class _Count(NamedTuple):
    number: int
    field: str
    origin: str


def _count(layer: Layer, quantity: str, facts: Mapping[str, Value]) -> _Count | None:
    """A number of heads: what the architecture says, else the field."""
    fact = facts.get(quantity)
    if fact is not None:
        return _Count(layer.section.whole(fact.value, quantity, 1, MAX_SIZE), quantity, fact.origin)
    found = layer.each(quantity)
    return None if found is None else _Count(found[0], found[1].field, found[1].origin)


def _kv_heads(layer: Layer, heads: _Count, facts: Mapping[str, Value]) -> _Count:
    """The key/value heads: by the layer's own groups, the field, or as many as query heads."""
    if layer.group is not None:
        if heads.number % layer.group:
            message = f"{heads.number} is not a multiple of {layer.group}, the heads in a group"
            raise layer.section.fail(heads.field, message)
        return _Count(
            heads.number // layer.group, heads.field, f"{heads.origin} / {layer.group} heads in a group"
        )
    kv_heads = _count(layer, "num_kv_heads", facts)
    if kv_heads is None:
        return _Count(heads.number, heads.field, f"{heads.origin} (no number of key/value heads)")
    if heads.number % kv_heads.number:
        message = f"{heads.number} is not a multiple of {kv_heads.number} key/value heads ({kv_heads.field})"
        raise layer.section.fail(heads.field, message)
    return kv_heads


def _head_size(layer: Layer, heads: _Count) -> Value:
    """`head_dim`, or the hidden size over the number of heads."""
    size = layer.size("head_size")
    if size is not None:
        return Value(size[0], size[1].origin)
    hidden = layer.part("hidden_size", 1, MAX_WIDTH)
    if hidden is None:
        raise layer.missing("head_size", "and there is no hidden_size to derive it from")
    width, source = hidden
    if width % heads.number:
        hint = f"and {source.field} {width} is no multiple of {heads.field} {heads.number}, to derive it from"
        raise layer.missing("head_size", hint)
    derived = width // heads.number
    if derived > MAX_SIZE:
        message = f"{width} over {heads.number} heads makes heads of {derived} elements"
        raise layer.section.fail(source.field, message)
    return Value(derived, f"{source.origin} / {heads.field}")


def _latent_heads(layer: Layer, heads: _Count, rank: tuple[int, Found], latent: bool, split: Split) -> Heads:
    """Latent attention: the kernel sees one key/value head, the latent vector with its rotary part."""
    parts: dict[str, tuple[int, Found]] = {"kv_lora_rank": rank}
    for quantity in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        part = layer.part(quantity, 0)
        if part is not None:
            parts[quantity] = part
        elif quantity == "qk_rope_head_dim" or (not latent and quantity == "qk_nope_head_dim"):
            raise layer.missing(quantity, f"{rank[1].field} says that the attention is latent")
    if not latent:
        return _expanded_heads(layer, heads, parts, split)
    rope, rope_found = parts["qk_rope_head_dim"]
    if rank[0] + rope > MAX_SIZE:
        raise layer.section.fail(rank[1].field, f"{rank[0]} with a rotary part of {rope} is too wide")
    one = _Count(1, rank[1].field, "latent attention has one")
    counts, notes = _split(layer.section, heads, one, split)
    axes = {
        "head_size": Value(rank[0] + rope, f"{rank[1].origin} + {rope_found.field}"),
        "head_size_v": Value(rank[0], rank[1].origin),
        **counts,
        "mla": Value(True, rank[1].origin),
    }
    axes.update({quantity: Value(number, found.origin) for quantity, (number, found) in parts.items()})
    return axes, notes


def _expanded_heads(
    layer: Layer, heads: _Count, parts: Mapping[str, tuple[int, Found]], split: Split
) -> Heads:
    """Latent vectors that are expanded to a key and a value for each query head before the attention."""
    (nope, found), (rope, rope_found) = parts["qk_nope_head_dim"], parts["qk_rope_head_dim"]
    size = layer.section.whole(nope + rope, f"{found.field} + {rope_found.field}", 1, MAX_SIZE)
    axes = {"head_size": Value(size, f"{found.origin} + {rope_found.field}")}
    value_size = parts.get("v_head_dim")
    if value_size is not None and value_size[0] not in (0, size):
        axes["head_size_v"] = Value(value_size[0], value_size[1].origin)
    counts, notes = _split(layer.section, heads, heads, split)
    return {**axes, **counts}, notes


def _split(section: Section, heads: _Count, kv_heads: _Count, split: Split) -> Heads:
    """Heads on one of `ways` ranks. Key/value heads that are fewer than the ranks are repeated."""
    ways = split.ways
    axes = {
        "num_heads": Value(heads.number, heads.origin),
        "num_kv_heads": Value(kv_heads.number, kv_heads.origin),
    }
    if ways == 1:
        return axes, ()
    uneven = kv_heads.number % ways if kv_heads.number >= ways else ways % kv_heads.number
    wrong: tuple[_Count, str] | None = None
    if heads.number % ways:
        wrong = heads, f"{heads.number} heads cannot be split over tp={ways} ranks"
    elif uneven:
        wrong = kv_heads, f"{kv_heads.number} key/value heads cannot be split over tp={ways} ranks"
    if wrong is not None:
        if split.optional:
            return axes, (f"{wrong[1]}: every rank has all of them",)
        raise section.fail(wrong[0].field, f"says that {wrong[1]}")
    by = f", split over tp={ways}"
    repeated = by if kv_heads.number >= ways else f", repeated for tp={ways}"
    return {
        "num_heads": Value(heads.number // ways, heads.origin + by),
        "num_kv_heads": Value(max(kv_heads.number // ways, 1), kv_heads.origin + repeated),
    }, ()
