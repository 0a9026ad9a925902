"""The one translation of a compiled program: values, atoms, acceptance and rank as literals of a circuit.

It follows `Program.trace`, `Program.accepts` and `Bound.order` step by step, with every given value left open (or, for
facts and fields that are fixed, known). Everything in `selector.analysis` reasons about the literals made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector import derive
from selector.analysis import symbolic
from selector.analysis.circuit import FALSE, TRUE
from selector.analysis.numbers import NumVar
from selector.analysis.symbolic import Member, PackagesLeaf, PairLeaf, Sym
from selector.nodes import Accept, Atom, AtomTable, Node
from selector.vocabulary import MISSING, UNKNOWN

if TYPE_CHECKING:
    from selector.analysis.space import Given, Space
    from selector.conditions import Condition
    from selector.program import Program

__all__ = ["Order", "Refusal", "Translation", "View"]


class Refusal(NamedTuple):
    """One limit or rule of a candidate: ``kind`` is declared or the rule's kind, ``what`` an axis or a rule's position."""

    kind: str
    what: int
    literal: int


class Order(NamedTuple):
    """One policy rule (position -1: no rule speaks): where it decides, and its places: (holds, candidate, listed)."""

    position: int
    active: int
    places: tuple[tuple[int, int, int | None], ...]


class Translation:
    """A program over a space. ``facts`` and ``fields`` fix raw values by position; the others are the space's classes."""

    def __init__(
        self,
        space: Space,
        program: Program,
        *,
        facts: Mapping[int, Any] | None = None,
        fields: Mapping[int, Any] | None = None,
        strict: bool = False,
    ) -> None:
        self.space, self.program, self.strict = space, program, strict
        self.fixed = {**(facts or {}), **(fields or {})}
        self.kept: dict[tuple[int, int], tuple[Sym, int]] = {}
        self.raw: list[Sym] = [self._raw(i) for i in range(len(program.vocabulary.axes))]
        self.view = View(self, self.raw, strict, None)
        self._orders: tuple[Order, ...] | None = None
        self._wins: list[int] | None = None

    def _raw(self, i: int) -> Sym:
        axis = self.program.vocabulary.axes[i]
        if axis.derive is not None:
            return ()
        if i in self.fixed:
            return symbolic.constant(self.fixed[i])
        given = self.space.at.get((axis.name, None))
        if given is None:
            unknown = axis.of == "environment" and axis.raw.get("default") is None and axis.same_as is None
            return symbolic.constant(UNKNOWN if unknown else self.program.defaults[i])
        return symbolic.merged(self.space, ((g, self._class(given, k)) for k, g in enumerate(given.literals)))

    def _class(self, given: Given, k: int) -> Any:
        found = given.classes[k]
        axis = given.axis
        if found.kind == "absent":
            mine = self.program.vocabulary.by_name[axis.name]
            if mine.of == "environment" and mine.raw.get("default") is None:
                return UNKNOWN
            return self.program.defaults[mine.index]
        if found.kind != "value":
            return found.value
        if axis.type == "packages":
            names = (g for g in self.space.given if g.package is not None and g.axis.name == axis.name)
            return PackagesLeaf(
                {g.name: tuple((lit, c.value) for lit, c in zip(g.literals, g.classes)) for g in names}
            )
        if given.numeric:
            return Member(NumVar((axis.name, -1)), found.value)
        if axis.type == "pair" and not found.members:
            return PairLeaf((NumVar((axis.name, 0)), NumVar((axis.name, 1))), found.value)
        return found.value

    # -- what is asked of it ------------------------------------------------------------------------------------------

    def accepted(self, i: int) -> int:
        """The literal of: candidate ``i`` accepts (adjustments included)."""
        return self.view.acceptance(i)

    def condition(self, condition: Condition | None, *, positive: bool = True, strict: bool = False) -> int:
        """A condition that stands outside the program (its tests must be known to the space), compiled at a sense."""
        table = AtomTable()
        node = table.node(condition, positive=positive, strict=strict)
        return self.view.truth(node, table)

    @property
    def orders(self) -> tuple[Order, ...]:
        """The policy: one entry for each rule, and one for where none speaks."""
        if self._orders is None:
            self._orders = tuple(self._policy())
        return self._orders

    def _policy(self) -> list[Order]:
        program, circuit = self.program, self.space.circuit
        found: list[Order] = []
        rest = TRUE
        for k, node in enumerate(program.policy):
            here = self.view.truth(node.node)
            places: list[tuple[int, int, int | None]] = []
            for j, entry in enumerate(node.order):
                when = self.view.truth(entry.node)
                places += [(when, i, j) for i in entry.members]
            places += [(TRUE, i, None) for i in self.listed() if not node.closed >> i & 1]
            found.append(Order(k, circuit.both(rest, here), tuple(places)))
            rest = circuit.both(rest, -here)
        free = [(TRUE, i, None) for i in self.listed() if not program.closed >> i & 1]
        found.append(Order(-1, rest, tuple(free)))
        return found

    def listed(self) -> list[int]:
        """The candidates that are not abstract."""
        return [i for i in range(len(self.program.candidates)) if self.program.listed >> i & 1]

    @property
    def wins(self) -> list[int]:
        """For each candidate the literal of being selected."""
        if self._wins is None:
            circuit = self.space.circuit
            parts: list[list[int]] = [[] for _ in self.program.candidates]
            for order in self.orders:
                free = order.active
                for when, i, _ in order.places:
                    takes = circuit.both(when, self.accepted(i))
                    parts[i].append(circuit.both(free, takes))
                    free = circuit.both(free, -takes)
            self._wins = [circuit.disj(p) for p in parts]
        return self._wins

    @property
    def some(self) -> int:
        """The literal of: something is selected."""
        return self.space.circuit.disj(self.wins)

    def ranked(self, i: int) -> int:
        """The literal of: candidate ``i`` is accepted and has a place in the order that holds."""
        circuit = self.space.circuit
        return circuit.both(
            self.accepted(i),
            circuit.disj(
                circuit.both(order.active, circuit.disj(when for when, m, _ in order.places if m == i))
                for order in self.orders
            ),
        )


class View:
    """One evaluation of all axes: as asked, or as one candidate's adjustments change it."""

    def __init__(self, translation: Translation, raw: Sequence[Sym], strict: bool, base: View | None) -> None:
        self.translation, self.raw, self.strict = translation, list(raw), strict
        self.space, self.program = translation.space, translation.program
        self._accepted: dict[int, int] = {}
        self.values: list[Sym] = list(raw)
        for step in self.program.steps:
            i = step.axis.index
            found = self._step(step)
            self.values[i] = base.values[i] if base is not None and base.values[i] == found else found

    def _step(self, step: Any) -> Sym:
        space = self.space
        i = step.axis.index
        if step.expr is not None:
            value = self._expression(step.expr)
        else:
            parts: list[tuple[int, Any]] = []
            for guard, leaf in self.values[i]:
                if leaf is not MISSING:
                    parts.append((guard, leaf))
                elif step.same_as is None:
                    parts.append((guard, None))
                else:
                    parts += [(space.circuit.both(guard, g), v) for g, v in self.values[step.same_as]]
            value = symbolic.merged(space, parts)
        ignored = self.truth(step.ignored, among_axes=True)
        return symbolic.guarded(space, ignored, symbolic.constant(step.axis.neutral), value)

    def _expression(self, expr: derive.Expr) -> Sym:
        space = self.space
        if isinstance(expr, derive.Literal):
            return symbolic.constant(expr.constant)
        if isinstance(expr, derive.Ref):
            return self.values[expr.axis]
        if isinstance(expr, derive.Operation):
            return symbolic.operation(space, expr.op, [self._expression(o) for o in expr.operands])
        if isinstance(expr, derive.Element):
            return symbolic.element(space, self.values[expr.axis], expr.position)
        if isinstance(expr, derive.Table):
            return symbolic.table(space, self.values[expr.axis], expr)
        if isinstance(expr, derive.Tag):
            members = expr.members
            return symbolic.merged(
                space,
                ((g, UNKNOWN if v is UNKNOWN else v in members) for g, v in self.values[expr.axis]),
            )
        circuit = space.circuit
        parts: list[tuple[int, Any]] = []
        rest = TRUE
        for entry in expr.entries:
            definite = self.truth(entry.definite, among_axes=True)
            possible = self.truth(entry.possible, among_axes=True)
            here = circuit.both(rest, definite)
            if here != FALSE:
                parts += [(circuit.both(here, g), v) for g, v in self._expression(entry.result)]
            rest = circuit.both(rest, -definite)
            parts.append((circuit.both(rest, possible), UNKNOWN))
            rest = circuit.both(rest, -possible)
        if rest != FALSE:
            parts += [(circuit.both(rest, g), v) for g, v in self._expression(expr.otherwise)]
        return symbolic.merged(space, parts)

    # -- truth --------------------------------------------------------------------------------------------------------

    def truth(self, node: Node, table: AtomTable | None = None, *, among_axes: bool = False) -> int:
        """The literal of a tree. ``among_axes``: of the vocabulary, where no candidate can be asked."""
        atoms = self.program.table.atoms if table is None else table.atoms
        parts: list[int] = []
        bits, k = node.bits, 0
        while bits:
            low = (bits & -bits).bit_length() - 1
            parts.append(self._atom(atoms[low], low if table is None else -1, among_axes))
            bits &= bits - 1
            k += 1
        parts += [self.truth(kid, table, among_axes=among_axes) for kid in node.kids]
        return self.space.circuit.conj(parts) if node.conj else self.space.circuit.disj(parts)

    def _atom(self, atom: Atom | Accept, number: int, among_axes: bool) -> int:
        if isinstance(atom, Accept):
            i = self.program.position.get(atom.candidate)
            if i is None or among_axes:
                return FALSE
            accepted = self.acceptance(i)
            return -accepted if atom.negated else accepted
        value = self.values[atom.axis]
        if number < 0:
            return symbolic.truth(self.space, atom, value)
        kept = self.translation.kept
        known = kept.get((number, id(value)))
        if known is None:
            # the value is kept beside the answer, so that its id is not used again
            known = kept[number, id(value)] = (value, symbolic.truth(self.space, atom, value))
        return known[1]

    # -- candidates ---------------------------------------------------------------------------------------------------

    def refusals(self, i: int) -> list[Refusal]:
        """Every limit and rule of a candidate that can refuse, with its literal, adjustments left out."""
        program = self.program
        found = [
            Refusal("declared", axis, symbolic.truth(self.space, atom, self.values[atom.axis]))
            for axis, checks in enumerate(program.checks)
            for atom, mask in checks
            if mask >> i & 1
        ]
        for k, (rule, node) in enumerate(program.rules[i]):
            if rule.kind != "warn" or (self.strict and rule.strict):
                found.append(Refusal(rule.kind, k, self.truth(node)))
        return found

    def passes(self, i: int) -> int:
        """The literal of: no limit and no rule of a candidate refuses this view."""
        return self.space.circuit.conj(-r.literal for r in self.refusals(i))

    def acceptance(self, i: int) -> int:
        """The literal of: a candidate accepts, its adjustments applied."""
        found = self._accepted.get(i)
        if found is None:
            found = self._accepted[i] = self._acceptance(i) if self.program.adjust[i] else self.passes(i)
        return found

    def adjusted(self, i: int) -> tuple[View, dict[str, int], list[int]]:
        """(the view after a candidate's adjustments, what runs in its place with its literal, where each entry applies)."""
        circuit = self.space.circuit
        view: View = self
        raw = list(self.raw)
        use: dict[str, int] = {}
        applied: list[int] = []
        for entry in self.program.adjust[i]:
            here = view.truth(entry.node)
            applied.append(here)
            target = entry.adjustment.use
            if target is not None:
                use = {k: circuit.both(v, -here) for k, v in use.items()}
                use[target] = circuit.either(use.get(target, FALSE), here)
            if entry.adjustment.changes and here != FALSE:
                for axis, value in entry.adjustment.changes:
                    raw[axis.index] = symbolic.guarded(
                        self.space, here, symbolic.constant(value), raw[axis.index]
                    )
                view = View(self.translation, raw, self.strict, view)
        return view, use, applied

    def _acceptance(self, i: int) -> int:
        circuit = self.space.circuit
        view, use, _ = self.adjusted(i)
        parts = [view.passes(i)]
        if self.strict:
            touched = {axis.index for e in self.program.adjust[i] for axis, _ in e.adjustment.changes}
            parts += [-symbolic.differs(self.space, self.values[k], view.values[k]) for k in sorted(touched)]
            parts += [-literal for literal in use.values()]
        for target, literal in use.items():
            position = self.program.position.get(target)
            runs = FALSE if position is None else view.acceptance(position)
            parts.append(circuit.either(-literal, runs))
        return circuit.conj(parts)
