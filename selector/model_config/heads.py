"""The heads of one attention layer: their numbers and sizes, latent or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from selector.model_config.facts import Value
from selector.model_config.section import MAX_SIZE, MAX_WIDTH, Found, Names, Section


def join_fields(*tables: Mapping[str, Names]) -> Mapping[str, Names]:
    """Tables of names as one; the names of earlier tables come first."""
    joined: dict[str, Names] = {}
    for table in tables:
        for quantity, names in table.items():
            joined[quantity] = (*joined.get(quantity, ()), *names)
    return joined


class Split(NamedTuple):
    """Tensor parallelism over `ways` ranks; an optional part is left whole where it cannot be split."""

    ways: int
    optional: bool


def read_heads(
    section: Section,
    fields: Mapping[str, Names],
    layer: int,
    layers: int,
    group: int | None,
    latent: bool,
    facts: Mapping[str, Value],
    split: Split,
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """The axes that describe the heads of layer `layer` of `layers` on one rank, and notes.

    `group` is the layer's own number of query heads a key/value head, `facts` what the architecture says
    already (before the split), `latent` whether a latent rank means that the kernel sees the latent
    vectors.

    Raises:
        ConfigError: a field is missing or impossible, or the heads cannot be split.
    """
    heads = _count(section, fields, "num_heads", layer, layers, facts)
    if heads is None:
        raise section.missing(fields.get("num_heads", ()), "the number of query heads cannot be known")
    rank = section.integer(fields.get("kv_lora_rank", ()))
    if rank is not None:
        return _latent_heads(section, fields, heads, rank, latent, split)
    kv_heads = _count(section, fields, "num_kv_heads", layer, layers, facts)
    if group is not None:
        if heads.number % group:
            raise section.fail(
                heads.field,
                f"{heads.number} is not a multiple of {group}, the heads in a group",
            )
        kv_heads = _Count(
            heads.number // group,
            heads.field,
            f"{heads.origin} / {group} heads in a group",
        )
    if kv_heads is None:
        kv_heads = _Count(heads.number, heads.field, f"{heads.origin} (no number of key/value heads)")
    if heads.number % kv_heads.number:
        raise section.fail(
            heads.field,
            f"{heads.number} is not a multiple of {kv_heads.number} key/value heads ({kv_heads.field})",
        )
    axes = {"head_size": _head_size(section, fields, heads, layer, layers)}
    value_size = section.each(fields.get("head_size_v", ()), layer, layers)
    if value_size is not None and value_size[0] != axes["head_size"].value:
        axes["head_size_v"] = Value(value_size[0], value_size[1].origin)
    counts, notes = _split(section, heads, kv_heads, split)
    return {**axes, **counts}, notes


class _Count(NamedTuple):
    number: int
    field: str
    origin: str


def _count(
    section: Section,
    fields: Mapping[str, Names],
    quantity: str,
    layer: int,
    layers: int,
    facts: Mapping[str, Value],
) -> _Count | None:
    """A number of heads: what the architecture says, else the field."""
    fact = facts.get(quantity)
    if fact is not None:
        number = section.whole(fact.value, quantity, 1, MAX_SIZE)
        return _Count(number, quantity, fact.origin)
    found = section.each(fields.get(quantity, ()), layer, layers)
    return None if found is None else _Count(found[0], found[1].field, found[1].origin)


def _head_size(
    section: Section, fields: Mapping[str, Names], heads: _Count, layer: int, layers: int
) -> Value:
    """`head_dim`, or the hidden size over the number of heads; some configurations write 0 for "derived"."""
    found = section.find(fields.get("head_size", ()))
    if found is not None and (isinstance(found.value, bool) or found.value != 0):
        size = section.each(fields.get("head_size", ()), layer, layers)
        assert size is not None
        return Value(size[0], size[1].origin)
    hidden = section.integer(fields.get("hidden_size", ()), 1, MAX_WIDTH)
    if hidden is None:
        raise section.missing(
            fields.get("head_size", ()),
            "and there is no hidden_size to derive it from",
        )
    width, source = hidden
    if width % heads.number:
        raise section.missing(
            fields.get("head_size", ()),
            f"and {source.field} {width} is not a multiple of {heads.field} {heads.number}, to derive it from",
        )
    size_from = width // heads.number
    if size_from > MAX_SIZE:
        raise section.fail(
            source.field,
            f"{width} over {heads.number} heads makes heads of {size_from} elements",
        )
    return Value(size_from, f"{source.origin} / {heads.field}")


def _latent_heads(
    section: Section,
    fields: Mapping[str, Names],
    heads: _Count,
    rank: tuple[int, Found],
    latent: bool,
    split: Split,
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Latent attention: the kernel sees one key/value head, the latent vector with its rotary part."""
    parts: dict[str, tuple[int, Found]] = {"kv_lora_rank": rank}
    for quantity in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        part = section.integer(fields.get(quantity, ()), 0)
        if part is None:
            if quantity == "qk_rope_head_dim" or not latent and quantity == "qk_nope_head_dim":
                raise section.missing(
                    fields.get(quantity, ()),
                    f"{rank[1].field} says that the attention is latent",
                )
            continue
        parts[quantity] = part
    rope, rope_found = parts["qk_rope_head_dim"]
    if not latent:
        nope, nope_found = parts["qk_nope_head_dim"]
        axes = {"head_size": Value(nope + rope, f"{nope_found.origin} + {rope_found.field}")}
        if "v_head_dim" in parts and parts["v_head_dim"][0] != nope + rope:
            axes["head_size_v"] = Value(parts["v_head_dim"][0], parts["v_head_dim"][1].origin)
        if nope + rope == 0:
            raise section.fail(nope_found.field, "and the rotary part are both 0")
        counts, notes = _split(section, heads, heads, split)
        return {**axes, **counts}, notes
    if rank[0] + rope > MAX_SIZE:
        raise section.fail(rank[1].field, f"{rank[0]} with a rotary part of {rope} is too wide")
    counts, notes = _split(section, heads, _Count(1, rank[1].field, "latent attention has one"), split)
    axes = {
        "head_size": Value(rank[0] + rope, f"{rank[1].origin} + {rope_found.field}"),
        "head_size_v": Value(rank[0], rank[1].origin),
        **counts,
        "mla": Value(True, rank[1].origin),
    }
    axes.update({quantity: Value(number, found.origin) for quantity, (number, found) in parts.items()})
    return axes, notes


def _split(
    section: Section, heads: _Count, kv_heads: _Count, split: Split
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Heads on one of `ways` ranks. Key/value heads that are fewer than the ranks are repeated."""
    ways = split.ways
    whole = {
        "num_heads": Value(heads.number, heads.origin),
        "num_kv_heads": Value(kv_heads.number, kv_heads.origin),
    }
    if ways == 1:
        return whole, ()
    wrong = None
    if heads.number % ways:
        wrong = heads, f"{heads.number} heads cannot be split over tp={ways} ranks"
    elif (
        kv_heads.number > ways and kv_heads.number % ways or kv_heads.number < ways and ways % kv_heads.number
    ):
        wrong = (
            kv_heads,
            f"{kv_heads.number} key/value heads cannot be split over tp={ways} ranks",
        )
    if wrong is not None:
        if split.optional:
            return whole, (f"{wrong[1]}: every rank has all of them",)
        raise section.fail(wrong[0].field, f"says that {wrong[1]}")
    by = f", split over tp={ways}"
    shared = max(kv_heads.number // ways, 1)
    return {
        "num_heads": Value(heads.number // ways, heads.origin + by),
        "num_kv_heads": Value(
            shared,
            kv_heads.origin + (by if kv_heads.number >= ways else f", repeated for tp={ways}"),
        ),
    }, ()
