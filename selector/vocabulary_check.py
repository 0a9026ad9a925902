"""What a vocabulary must not say: words that mean two axes or two values, and values taken from an axis of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from selector.vocabulary import Axis, Vocabulary

__all__ = ["Clash", "clashes"]

#: Keys of conditions that are no axes.
RESERVED = ("accepts", "all", "any", "not")


class Clash(NamedTuple):
    """A mistake: the axis, the path inside its entry (``key``: at the key itself), what is wrong, and what would be right."""

    axis: str
    path: tuple[str | int, ...]
    message: str
    hint: str | None = None


def clashes(vocabulary: Vocabulary) -> Iterator[Clash]:
    """Every mistake that no schema can see, axis by axis."""
    owners: dict[str, Axis] = {}
    for axis in vocabulary.axes:
        if axis.name in RESERVED:
            yield Clash(axis.name, (), f"an axis cannot be called {axis.name}: conditions use the word")
        for k, alias in enumerate(axis.aliases):
            other = vocabulary.by_name.get(alias) or owners.get(alias)
            if other is not None and other is not axis:
                yield Clash(
                    axis.name, ("aliases", k), f"{alias} means {other.name} already", "keep one of them"
                )
            owners.setdefault(alias, axis)
        if axis.min is not None and axis.max is not None and axis.min > axis.max:
            yield Clash(axis.name, ("min",), f"empty range: min {axis.min} is above max {axis.max}")
        yield from _spellings(axis)
        yield from _same_as(vocabulary, axis)


def _spellings(axis: Axis) -> Iterator[Clash]:
    table = axis.raw.get("values")
    if not isinstance(table, dict):
        return
    owners = {str(value): value for value in table}
    for value, entry in table.items():
        for k, alias in enumerate((entry or {}).get("aliases", ())):
            other = owners.setdefault(str(alias), value)
            if other != value:
                yield Clash(
                    axis.name,
                    ("values", value, "aliases", k),
                    f"{alias} means {other} already",
                    "keep one of them",
                )


def _same_as(vocabulary: Vocabulary, axis: Axis) -> Iterator[Clash]:
    if axis.same_as is None:
        return
    other = vocabulary.by_name.get(axis.same_as)
    path = ("default", "same_as")
    if other is None:
        near = vocabulary.nearest(axis.same_as)
        hint = f"did you mean {near}?" if near else None
        yield Clash(axis.name, path, f"no axis is called {axis.same_as!r}", hint)
        return
    kinds = {"flag": "mode"}
    if kinds.get(axis.type, axis.type) != kinds.get(other.type, other.type):
        yield Clash(
            axis.name, path, f"{axis.name} is of type {axis.type}, and {other.name} of type {other.type}"
        )
        return
    lacking = () if axis.open else tuple(v for v in other.values if v not in axis.values)
    if axis.type == "choice" and lacking:
        yield Clash(axis.name, path, f"{axis.name} has no value {lacking[0]}, which {other.name} can have")
