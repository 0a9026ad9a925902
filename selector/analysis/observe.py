"""What can tell the values of an axis apart: every test, tag, key and number that anything holds against them.

Tests on a derived axis reach the axes that it copies its value from; numbers that arithmetic reads are marked, because
classes of values are not enough for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from selector import derive
from selector.conditions import AxisTest, Condition, _walk
from selector.nodes import Atom

if TYPE_CHECKING:
    from selector.constraints import Constraint
    from selector.program import Program

__all__ = ["Observed", "observe"]


class Observed:
    """What tells the values of one axis apart. ``keys`` are values that are compared one by one."""

    def __init__(self) -> None:
        self.constraints: dict[Constraint, None] = {}
        self.keys: dict[Any, None] = {}
        self.tags: dict[frozenset[str], None] = {}
        self.arithmetic = False
        self.element = False
        self.copied_by: set[int] = set()

    def absorb(self, other: Observed) -> bool:
        """Add what another axis is told apart by; true if that was news."""
        before = self._size()
        self.constraints.update(other.constraints)
        self.keys.update(other.keys)
        self.tags.update(other.tags)
        self.arithmetic = self.arithmetic or other.arithmetic
        self.element = self.element or other.element
        return self._size() != before

    def _size(self) -> tuple[int, int, int, bool, bool]:
        return len(self.constraints), len(self.keys), len(self.tags), self.arithmetic, self.element


def observe(program: Program, conditions: Iterable[Condition] = ()) -> list[Observed]:
    """For each axis, by position: what a program, and further conditions, tell its values apart by."""
    found = [Observed() for _ in program.vocabulary.axes]
    for atom in program.table.atoms:
        if isinstance(atom, Atom):
            found[atom.axis].constraints[atom.constraint] = None
    for checks in program.checks:
        for check in checks:
            found[check.atom.axis].constraints[check.atom.constraint] = None
    for condition in conditions:
        for leaf in _walk(condition):
            if isinstance(leaf, AxisTest):
                found[leaf.axis.index].constraints[leaf.constraint] = None
    for entries in program.adjust:
        for entry in entries:
            for axis, value in entry.adjustment.changes:
                found[axis.index].keys[value] = None
    for step in program.steps:
        if step.same_as is not None:
            found[step.same_as].copied_by.add(step.axis.index)
        if step.expr is not None:
            _expression(step.expr, step.axis.index, found, number=False)
    _spread(found)
    return found


def _expression(expr: derive.Expr, target: int, found: list[Observed], *, number: bool) -> None:
    if isinstance(expr, derive.Ref):
        if number:
            found[expr.axis].arithmetic = True
        else:
            found[expr.axis].copied_by.add(target)
    elif isinstance(expr, derive.Operation):
        for operand in expr.operands:
            _expression(operand, target, found, number=True)
    elif isinstance(expr, derive.Element):
        found[expr.axis].element = True
    elif isinstance(expr, derive.Tag):
        found[expr.axis].tags[expr.members] = None
    elif isinstance(expr, derive.Table):
        found[expr.axis].keys.update(dict.fromkeys(key for key, _ in expr.entries))
    elif isinstance(expr, derive.Case):
        for entry in expr.entries:
            _expression(entry.result, target, found, number=number)
        _expression(expr.otherwise, target, found, number=number)


def _spread(found: list[Observed]) -> None:
    """Tests on a copy are tests on the original."""
    changed = True
    while changed:
        changed = False
        for observed in found:
            for copy in observed.copied_by:
                if observed.absorb(found[copy]):
                    changed = True
