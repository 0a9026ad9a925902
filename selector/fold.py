"""Specialising a catalog's tables for one environment.

Facts of the environment become constants: refused candidates are gone, settled atoms are folded away, axes that nothing
reads any more are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from selector import derive
from selector.nodes import FALSE, TRUE, Node, bits_of, simplify
from selector.vocabulary import MISSING

if TYPE_CHECKING:
    from selector.tables import Step, Tables

__all__ = ["Folded"]

#: An axis that needs computing: its step, where it does not apply, and its expression, both folded.
Late = tuple["Step", Node, Any]


class Folded:
    """The tables with an environment's facts (values by axis position) folded in."""

    def __init__(self, tables: Tables, facts: Mapping[int, Any], *, strict: bool) -> None:
        self.tables, self.facts, self.strict = tables, facts, strict
        self.constants: dict[int, Any] = {}
        #: Atoms that are settled, those of them that are true, and the candidates that are refused whatever is asked.
        self.known = self.true = self.refused = 0
        self.late: list[Late] = []
        for step in tables.steps:
            self._step(step)
        self.clauses = self._clauses()
        self.alive = tables.everyone & ~self.refused
        self.clauses = [(n, m & self.alive) for n, m in self.clauses if m & self.alive]
        #: Adjustments of candidates that are not refused anyway: an adjustment changes the request, never the machine.
        self.adjust = {i: nodes for i, nodes in tables.adjust.items() if self.alive >> i & 1}
        self.policies = self._policies()
        self._live()

    def _step(self, step: Step) -> None:
        i = step.axis.index
        ignored = simplify(step.ignored, self.known, self.true)
        expr = (
            None if step.expr is None else derive.specialise(step.expr, self.known, self.true, self.constants)
        )
        if ignored == TRUE:
            self._settle(i, step.axis.neutral)
        elif ignored == FALSE and isinstance(expr, derive.Literal):
            self._settle(i, expr.constant)
        elif (
            ignored == FALSE
            and step.expr is None
            and i in self.facts
            and (self.facts[i] is not MISSING or step.same_as is None or step.same_as in self.constants)
        ):
            value = self.facts[i]
            if value is MISSING:
                value = None if step.same_as is None else self.constants[step.same_as]
            self._settle(i, value)
        elif expr is not None or ignored != FALSE or step.same_as is not None:
            self.late.append((step, ignored, expr))

    def _settle(self, i: int, value: Any) -> None:
        self.constants[i] = value
        for bit, atom in self.tables.atoms_of.get(i, ()):
            self.known |= bit
            if atom.true_for(value):
                self.true |= bit
        for check in self.tables.checks[i]:
            if check.atom.true_for(value):
                self.refused |= check.mask

    def _clauses(self) -> list[tuple[Node, int]]:
        """The clauses that are still open; those that hold refuse at once."""
        found = [(n, m) for n, m, only_strict in self.tables.clauses if self.strict or not only_strict]
        found = self._open(found)
        # A candidate that is gone is accepted by nobody: settle the atoms about it, and look again.
        for i, (yes, no) in self.tables.accept_bits.items():
            if self.refused >> i & 1:
                self.known |= yes | no
                self.true |= no
        return self._open(found)

    def _open(self, clauses: list[tuple[Node, int]]) -> list[tuple[Node, int]]:
        found = []
        for node, mask in clauses:
            folded = simplify(node, self.known, self.true)
            if folded == TRUE:
                self.refused |= mask
            elif folded != FALSE:
                found.append((folded, mask))
        return found

    def _policies(self) -> list[tuple[Node, int, tuple[tuple[Node, tuple[int, ...]], ...]]]:
        """Rules that can still speak: condition, position, entries; none after one that always does."""
        found = []
        for k, policy in enumerate(self.tables.policy):
            node = simplify(policy.node, self.known, self.true)
            if node == FALSE:
                continue
            order = tuple(
                (folded, entry.members)
                for entry in policy.order
                for folded in (simplify(entry.node, self.known, self.true),)
                if folded != FALSE
            )
            found.append((node, k, order))
            if node == TRUE:
                break
        return found

    def _live(self) -> None:
        """Which atoms, and which values, anything still reads."""
        tables = self.tables
        bits = 0
        for node, _ in self.clauses:
            bits |= bits_of(node)
        for nodes in self.adjust.values():
            for node in nodes:
                bits |= bits_of(node)
        for node, _, order in self.policies:
            bits |= bits_of(node)
            for inner, _ in order:
                bits |= bits_of(inner)
        mine = {i: sum(bit for bit, _ in atoms) for i, atoms in tables.atoms_of.items()}
        refusing = {
            i
            for i, checks in enumerate(tables.checks)
            if i not in self.constants and any(c.mask & self.alive for c in checks)
        }
        read: set[int] = set()
        needed: list[Late] = []
        for step, ignored, expr in reversed(self.late):
            i = step.axis.index
            if not (mine.get(i, 0) & bits or i in refusing or i in read):
                continue
            needed.append((step, ignored, expr))
            bits |= bits_of(ignored)
            if expr is not None:
                values, _ = derive.inputs(expr)
                read |= values
                bits |= expression_bits(expr)
            elif step.same_as is not None:
                read.add(step.same_as)
        needed.reverse()
        #: All axes that need computing, those that nothing reads included.
        self.dependent = self.late
        self.lately = {step.axis.index for step, _, _ in self.late}
        self.late = needed
        #: Atoms that are read, and axes that have a table: those that refuse somebody or make such an atom true.
        self.bits = bits
        self.axes = refusing | {i for i, m in mine.items() if m & bits and i not in self.constants}


def expression_bits(expr: Any) -> int:
    """The atoms that an expression reads."""
    found = 0
    if isinstance(expr, derive.Case):
        for entry in expr.entries:
            found |= bits_of(entry.definite) | bits_of(entry.possible) | expression_bits(entry.result)
        found |= expression_bits(expr.otherwise)
    elif isinstance(expr, derive.Operation):
        for operand in expr.operands:
            found |= expression_bits(operand)
    return found
