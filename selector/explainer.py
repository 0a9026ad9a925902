"""Every reason of every candidate for one environment, as JSON text, at a rate of thousands of requests a second.

Axes that the environment settles are settled once; the others are taken a few at a time, and what each combination of their
values refuses is kept. The result is that of `selector.evidence` over `Program.trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from selector.closures import Test, compile_expression, compile_node
from selector.fold import Folded
from selector.nodes import FALSE, TRUE, simplify
from selector.vocabulary import MISSING

if TYPE_CHECKING:
    from selector.program import Program
    from selector.request import Request

__all__ = ["Explainer"]

#: Combinations of values kept for one group of axes, and axes in a group that may vary.
KEPT, TOGETHER = 512, 2


class _Group:
    """Some consecutive axes: which of them vary, and by their values who refuses and why (joined JSON)."""

    __slots__ = ("axes", "memo", "pick")

    def __init__(self, axes: Sequence[int], varying: Sequence[int]) -> None:
        self.axes = tuple(axes)
        self.pick: Callable[[list[Any]], Any] | None = itemgetter(*varying) if varying else None
        self.memo: dict[Any, dict[int, str]] = {}


class Explainer:
    """Explains requests on one environment (facts by axis position)."""

    def __init__(self, program: Program, facts: Mapping[int, Any], *, strict: bool) -> None:
        self.program, self.facts, self.strict = program, facts, strict
        #: Whether traces need the whole program: it judges candidates that others ask about and that adjust requests.
        self.whole = any(program.adjust[i] for i in program.accept_order)
        folded = Folded(program.tables, facts, strict=strict)
        self.constants = folded.constants
        self.values = program.template(facts, self.constants)
        self.late = [
            (
                step.axis.index,
                step.same_as,
                None if ignored == FALSE else compile_node(ignored),
                step.axis.neutral,
                None if expr is None else compile_expression(expr),
            )
            for step, ignored, expr in folded.dependent
        ]
        depending = {late[0] for late in self.late}
        #: Axes that a request gives and nothing else changes.
        self.plain = frozenset(
            a.index
            for a in program.vocabulary.axes
            if a.index not in depending and a.index not in self.constants
        )
        #: What the constants refuse and make true.
        self.refused = self.atoms = 0
        for i, value in self.constants.items():
            refused, atoms = program.entry(i, value)
            self.refused |= refused
            self.atoms |= atoms
        #: Candidates that others ask about, each with what refuses it.
        self.asked = [
            (
                i,
                [
                    compile_node(simplify(node, folded.known, folded.true))
                    for rule, node in program.rules[i]
                    if rule.kind != "warn" or (strict and rule.strict)
                ],
            )
            for i in program.accept_order
        ]
        self._shapes: dict[tuple[int, ...], tuple[int, int]] = {}
        self.groups = self._groups()
        self.always: list[tuple[int, int]] = []
        self.clauses: list[tuple[Test, tuple[tuple[int, int], ...]]] = []
        for node, only_strict, where in program.evidence.clauses:
            folded_node = simplify(node, folded.known, folded.true) if not self.whole else node
            if folded_node == TRUE and (strict or not only_strict):
                self.always += where
            elif folded_node != FALSE and (strict or not only_strict):
                self.clauses.append((compile_node(folded_node), where))

    def _groups(self) -> list[_Group]:
        """The axes by which somebody refuses something, in order, a few varying ones together."""
        found: list[_Group] = []
        axes: list[int] = []
        varying: list[int] = []
        for i, checks in enumerate(self.program.checks):
            if not checks:
                continue
            if i not in self.constants:
                if len(varying) == TOGETHER:
                    found.append(_Group(axes, varying))
                    axes, varying = [], []
                varying.append(i)
            axes.append(i)
        if axes:
            found.append(_Group(axes, varying))
        return found

    def trace(self, request: Request) -> tuple[list[Any], int]:
        """The values of all axes, and the true atoms."""
        axes, given = request._axes, request._values
        program = self.program
        if self.whole:
            trace = program.trace(program.template(self.facts, dict(zip(axes, given))), strict=self.strict)
            return list(trace.values), trace.atoms
        values = self.values.copy()
        known = self._shapes.get(axes)
        refused, atoms = known if known is not None else self._shape(axes)
        for i, value in zip(axes, given):
            if i in self.constants:
                continue
            values[i] = value
            if i in self.plain:
                more, bits = program.entry(i, value)
                refused |= more
                atoms |= bits
        for i, same_as, ignored, neutral, expr in self.late:
            if ignored is not None and ignored(atoms):
                value = neutral
            elif expr is not None:
                value = expr(values, atoms)
            else:
                value = values[i]
                if value is MISSING:
                    value = values[same_as] if same_as is not None else None
            values[i] = value
            more, bits = program.entry(i, value)
            refused |= more
            atoms |= bits
        for i, tests in self.asked:
            accepted = not refused >> i & 1 and not any(holds(atoms) for holds in tests)
            atoms |= program.accept_bit(i, accepted)
        return values, atoms

    def _shape(self, axes: tuple[int, ...]) -> tuple[int, int]:
        """Who is refused and which atoms are true for requests that give these fields, whatever they give."""
        refused, atoms = self.refused, self.atoms
        given = frozenset(axes)
        for i in self.plain:
            if i not in given:
                more, bits = self.program.entry(i, self.values[i])
                refused |= more
                atoms |= bits
        if len(self._shapes) >= KEPT:
            self._shapes.clear()
        self._shapes[axes] = refused, atoms
        return refused, atoms

    def texts(self, request: Request) -> list[list[str]]:
        """By candidate, its reasons (before adjustments) as pieces of JSON."""
        program = self.program
        values, atoms = self.trace(request)
        found: list[list[str]] = [[] for _ in program.candidates]
        for group in self.groups:
            key = group.pick(values) if group.pick is not None else None
            told = group.memo.get(key)
            if told is None:
                told = self._told(group, key, values)
            for i, text in told.items():
                found[i].append(text)
        rules = self.always.copy()
        for holds, where in self.clauses:
            if holds(atoms):
                rules += where
        rules.sort()
        written = program.evidence.written
        for i, k in rules:
            found[i].append(written(i, k, values, atoms, strict=self.strict))
        return found

    def _told(self, group: _Group, key: Any, values: Sequence[Any]) -> dict[int, str]:
        pieces: dict[int, list[str]] = {}
        for axis in group.axes:
            for i, text in self.program.evidence.declared_texts(axis, values[axis]).items():
                pieces.setdefault(i, []).append(text)
        if len(group.memo) >= KEPT:
            group.memo.clear()
        found = group.memo[key] = {i: ", ".join(texts) for i, texts in pieces.items()}
        return found
