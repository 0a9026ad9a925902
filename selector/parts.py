"""What values of axes do: tables for plain axes, and parts of axes whose value depends on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from selector.closures import Test, Value
    from selector.nodes import Atom

__all__ = ["AxisTable", "Clause", "Entry", "Part", "PartStep", "parts_of"]

#: A tree that refuses: all of these atoms, this test besides (None: nothing more), the candidates refused.
Clause = tuple[int, "Test | None", int]
#: What a value of an axis does: candidates refused, atoms made true, clauses to look at.
Entry = tuple[int, int, tuple[Clause, ...]]


class AxisTable:
    """A live axis: what its values do, worked out value by value and remembered."""

    __slots__ = ("atoms", "memo", "refusing")

    def __init__(self, refusing: Sequence[tuple[Atom, int]], atoms: Sequence[tuple[int, Atom]]) -> None:
        self.memo: dict[Any, Entry] = {}
        self.refusing, self.atoms = tuple(refusing), tuple(atoms)


class Part:
    """Axes whose value depends on others, in order, and what they read of the rest: values by position, and atoms."""

    __slots__ = ("bits", "memos", "steps", "values")

    def __init__(self, steps: Sequence[PartStep]) -> None:
        self.steps = tuple(steps)
        self.bits = 0
        self.values: set[int] = set()
        for step in steps:
            self.bits |= step.bits
            self.values |= step.reads
        #: By the fields they read that a request gives: by what they read, what they contribute.
        self.memos: dict[tuple[int, ...], dict[Any, Entry]] = {}


class PartStep(NamedTuple):
    """One such axis: position, table, what it is the same as, where it is ignored, neutral, expression, what these read."""

    axis: int
    table: AxisTable | None
    same_as: int | None
    ignored: Test | None
    neutral: Any
    expr: Value | None
    reads: frozenset[int]
    bits: int


def parts_of(steps: Sequence[PartStep], atoms: Mapping[int, int]) -> tuple[Part, ...]:
    """Axes that depend on others, in parts: those worked out from values, by what they share; then those that atoms decide.

    Sizes have many values and what atoms decide has few, so the last part is remembered whatever the sizes are. What it
    reads by value of the others is worked out there again.
    """
    first: list[list[PartStep]] = []
    rest: dict[int, PartStep] = {}
    late = 0
    for step in steps:
        if len(step.reads) > 1 and not step.bits & late and not step.reads & rest.keys():
            made = [part for part in first if _share(step, part, atoms)]
            first = [part for part in first if part not in made]
            first.append([*(s for part in made for s in part), step])
        else:
            rest[step.axis] = step
            late |= atoms.get(step.axis, 0)
    for step in reversed(steps):
        if any(step.axis in other.reads for other in rest.values()):
            rest[step.axis] = step
    found = [{step.axis for step in part} for part in first] + [set(rest)]
    return tuple(Part([step for step in steps if step.axis in part]) for part in found if part)


def _share(step: PartStep, part: Sequence[PartStep], atoms: Mapping[int, int]) -> bool:
    """Whether an axis reads what a part reads or makes."""
    return any(step.reads & other.reads or step.bits & atoms.get(other.axis, 0) for other in part)
