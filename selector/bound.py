"""The hot path: a catalog folded for one environment decides requests.

What is left for a request is an OR of look-ups, a few derived values and a few trees. A tree is looked at only if a value
makes an atom true without which the tree cannot hold, so rules about features that nobody asked for cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from selector import derive
from selector.closures import Test, compile_expression, compile_node
from selector.decision import Decision, Order, members
from selector.fold import Folded, expression_bits
from selector.nodes import FALSE, TRUE, Node, bits_of
from selector.parts import AxisTable, Clause, Entry, Part, PartStep, parts_of
from selector.vocabulary import MISSING

if TYPE_CHECKING:
    from selector.environment import Environment
    from selector.program import Program
    from selector.request import Request
    from selector.tables import Tables

__all__ = ["Bound"]

#: Values remembered for one axis, shapes for one environment.
KEPT = 4096
#: Sets of given fields told apart by axes that depend on others.
FORMS = 16


class _Shape:
    """Requests that give the same fields: what all other plain axes contribute, the tables of these, what depends on them."""

    __slots__ = ("atoms", "clauses", "late", "refused", "tables")

    def __init__(
        self,
        refused: int,
        atoms: int,
        clauses: tuple[Clause, ...],
        tables: tuple[AxisTable | None, ...],
        late: tuple[tuple[Part, Callable[[tuple[Any, ...]], Any] | None, dict[Any, Entry]], ...],
    ) -> None:
        self.refused, self.atoms, self.clauses, self.tables = refused, atoms, clauses, tables
        #: Dependent axes, what takes the values that they read, and by these and the atoms they read what they contribute.
        self.late = late


class Bound:
    """Decides requests on one environment. Not changed after construction but for its bounded memos."""

    def __init__(
        self,
        tables: Tables,
        environment: Environment,
        program: Callable[[], Program],
        *,
        strict: bool = False,
    ) -> None:
        self.tables, self.environment, self.strict = tables, environment, strict
        #: The whole program; asked only where an adjustment applies.
        self.program = program
        self.facts = environment.values(tables.vocabulary)
        folded = Folded(tables, self.facts, strict=strict)
        self.refused, self.true, self.alive = folded.refused, folded.true, folded.alive
        self.adjust = tuple(
            (i, 1 << i, tuple(compile_node(n) for n in nodes)) for i, nodes in folded.adjust.items()
        )
        self._policies(folded)
        self._axes(folded)
        self._clauses(folded)

    def _policies(self, folded: Folded) -> None:
        policy = self.tables.policy
        self.orders = [Order(node, k, entries, policy[k].closed) for node, k, entries in folded.policies]
        if not self.orders or self.orders[-1].test is not None:
            self.orders.append(Order(TRUE, -1, (), self.tables.closed))

    def _axes(self, folded: Folded) -> None:
        tables = self.tables

        def made(i: int) -> AxisTable | None:
            if i not in folded.axes:
                return None
            refusing = [(c.atom, c.mask & self.alive) for c in tables.checks[i] if c.mask & self.alive]
            return AxisTable(refusing, [(b, a) for b, a in tables.atoms_of.get(i, ()) if b & folded.bits])

        found = {i: made(i) for i in sorted(folded.axes - folded.lately)}
        self.plain: dict[int, AxisTable] = {i: axis for i, axis in found.items() if axis is not None}
        steps = []
        for step, ignored, expr in folded.late:
            reads, bits = {step.axis.index}, bits_of(ignored)
            if expr is not None:
                reads |= derive.inputs(expr)[0]
                bits |= expression_bits(expr)
            elif step.same_as is not None:
                reads.add(step.same_as)
            steps.append(
                PartStep(
                    step.axis.index,
                    made(step.axis.index),
                    step.same_as,
                    None if ignored == FALSE else compile_node(ignored),
                    step.axis.neutral,
                    None if expr is None else compile_expression(expr),
                    frozenset(reads),
                    bits,
                )
            )
        #: Those whose value depends on others, in parts that are remembered apart.
        self.late = parts_of(steps, {i: sum(b for b, _ in atoms) for i, atoms in tables.atoms_of.items()})
        self.values: list[Any] = [
            MISSING if a.same_as is not None else a.default for a in tables.vocabulary.axes
        ]
        for i, value in (*self.facts.items(), *folded.constants.items()):
            self.values[i] = value
        self.constants = folded.constants

    def _clauses(self, folded: Folded) -> None:
        tables = self.tables
        asked = [i for i in tables.accept_order if sum(tables.accept_bits.get(i, (0, 0))) & folded.bits]
        accepts = 0
        for i in asked:
            yes, no = tables.accept_bits[i]
            accepts |= yes | no
        #: Candidates whose acceptance others ask about, each after those it asks about itself, with what refuses it.
        self.asked = tuple(
            (i, tuple(compile_node(n) for n, m in folded.clauses if m >> i & 1)) for i in asked
        )
        self.dependent = tuple((compile_node(n), m) for n, m in folded.clauses if bits_of(n) & accepts)
        #: By atom, the clauses that cannot hold without it; and all these atoms.
        self.by_atom: dict[int, list[Clause]] = {}
        self.triggers = 0
        self._shapes: dict[tuple[int, ...], _Shape] = {}
        self._defaults = self._default_entries()
        usual = self._usual()
        for node, mask in folded.clauses:
            if bits_of(node) & accepts:
                continue
            clause: Clause = (node.bits, _rest(node), mask) if node.conj else (0, compile_node(node), mask)
            for bit in triggers(node, usual):
                self.by_atom.setdefault(bit, []).append(clause)
        for bit in self.by_atom:
            self.triggers |= bit
        self._shapes = {}
        for part in self.late:
            part.memos.clear()
        for axis in (*self.plain.values(), *(step.table for part in self.late for step in part.steps)):
            if axis is not None:
                axis.memo.clear()
        self._defaults = self._default_entries()

    def _default_entries(self) -> tuple[tuple[int, Entry], ...]:
        """What plain axes contribute where a request does not give them, by position; those that contribute something."""
        found = ((i, self._entry(axis, self.values[i])) for i, axis in self.plain.items())
        return tuple((i, entry) for i, entry in found if entry != (0, 0, ()))

    def _usual(self) -> int:
        """The atoms that are true where nothing is asked."""
        atoms = self._shape(()).atoms
        for part in self.late:
            atoms |= self._later(part, (), (), atoms)[1]
        return atoms

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(self, request: Request) -> Decision:
        """What accepts a request, and the order of the first policy rule that holds."""
        axes, values = request._axes, request._values
        refused, atoms = self.judge(axes, values)
        accepted = self.tables.listed & ~refused
        if self.adjust:
            accepted = self._adjusted(accepted, atoms, axes, values)
        for order in self.orders:
            test = order.test
            if test is None or test(atoms):
                break
        if order.conditional:
            chosen = order.always
            for bit, holds in order.conditional:
                if holds(atoms):
                    chosen |= bit
            key: Any = (chosen, accepted)
        else:
            chosen, key = order.always, accepted
        known = order.decisions.get(key)
        return known if known is not None else order.decision(key, chosen, accepted)

    def judge(self, axes: tuple[int, ...], values: tuple[Any, ...]) -> tuple[int, int]:
        """(refused candidates, true atoms) for a request's fields, before adjustments."""
        shape = self._shapes.get(axes) or self._shape(axes)
        refused, atoms, clauses = shape.refused, shape.atoms, shape.clauses
        for table, value in zip(shape.tables, values):
            if table is not None:
                entry = table.memo.get(value)
                if entry is None:
                    entry = self._entry(table, value)
                refused |= entry[0]
                atoms |= entry[1]
                if entry[2]:
                    clauses += entry[2]
        for part, picked, memo in shape.late:
            key = atoms & part.bits if picked is None else (atoms & part.bits, picked(values))
            entry = memo.get(key)
            if entry is None:
                if len(memo) >= KEPT:
                    memo.clear()
                entry = memo[key] = self._later(part, axes, values, atoms)
            refused |= entry[0]
            atoms |= entry[1]
            if entry[2]:
                clauses += entry[2]
        if self.asked:
            atoms |= self._accepted(axes, values, refused, atoms)
            for holds, mask in self.dependent:
                if holds(atoms):
                    refused |= mask
        for need, test, mask in clauses:
            if atoms & need == need and (test is None or test(atoms)):
                refused |= mask
        return refused, atoms

    def _later(self, part: Part, axes: tuple[int, ...], values: tuple[Any, ...], atoms: int) -> Entry:
        """What axes contribute whose value depends on others."""
        refused = bits = 0
        clauses: tuple[Clause, ...] = ()
        found = self.values.copy()
        for i, value in zip(axes, values):
            if i not in self.constants:
                found[i] = value
        for index, table, same_as, ignored, neutral, expr, _, _ in part.steps:
            if ignored is not None and ignored(atoms):
                value = neutral
            elif expr is not None:
                value = expr(found, atoms)
            else:
                value = found[index]
                if value is MISSING:
                    value = found[same_as] if same_as is not None else None
            found[index] = value
            if table is not None:
                entry = table.memo.get(value) or self._entry(table, value)
                refused |= entry[0]
                bits |= entry[1]
                atoms |= entry[1]
                clauses += entry[2]
        return refused, bits, clauses

    def _shape(self, axes: tuple[int, ...]) -> _Shape:
        refused, atoms = self.refused, self.true
        clauses: tuple[Clause, ...] = ()
        for i, entry in self._defaults:
            if i not in axes:
                refused |= entry[0]
                atoms |= entry[1]
                clauses += entry[2]
        late = []
        for part in self.late:
            read = [k for k, i in enumerate(axes) if i in part.values]
            if len(part.memos) >= FORMS:
                part.memos.clear()
                self._shapes.clear()  # which keep them
            memo = part.memos.setdefault(tuple([axes[k] for k in read]), {})
            late.append((part, itemgetter(*read) if read else None, memo))
        tables = tuple(self.plain.get(i) for i in axes)
        shape = _Shape(refused, atoms, clauses, tables, tuple(late))
        if len(self._shapes) >= KEPT:
            self._shapes.clear()
        self._shapes[axes] = shape
        return shape

    def _entry(self, axis: AxisTable, value: Any) -> Entry:
        refused = bits = 0
        for atom, mask in axis.refusing:
            if atom.true_for(value):
                refused |= mask
        for bit, atom in axis.atoms:
            if atom.true_for(value):
                bits |= bit
        if len(axis.memo) >= KEPT:
            axis.memo.clear()
        entry = axis.memo[value] = (refused, bits, self._triggered(bits))
        return entry

    def _triggered(self, bits: int) -> tuple[Clause, ...]:
        """The clauses that wait for one of some atoms."""
        found: list[Clause] = []
        for i in members(bits & self.triggers):
            found += self.by_atom[1 << i]
        return tuple(found)

    def _accepted(self, axes: tuple[int, ...], values: tuple[Any, ...], refused: int, atoms: int) -> int:
        """The atoms about acceptance."""
        found = 0
        for i, refusing in self.asked:
            if i in self.tables.adjust:
                accepted = self.accepts(i, axes, values)
            else:
                accepted = not refused >> i & 1 and not any(holds(atoms | found) for holds in refusing)
            found |= self.tables.accept_bits[i][0 if accepted else 1]
        return found

    def _adjusted(self, accepted: int, atoms: int, axes: tuple[int, ...], values: tuple[Any, ...]) -> int:
        """The accepted candidates where those that adjust the request are judged on what they make of it."""
        for i, bit, tests in self.adjust:
            for applies in tests:
                if applies(atoms):
                    if self.accepts(i, axes, values):
                        accepted |= bit & self.tables.listed
                    else:
                        accepted &= ~bit
                    break
        return accepted

    def accepts(self, i: int, axes: tuple[int, ...], values: tuple[Any, ...]) -> bool:
        """Whether one candidate accepts a request, adjustments included."""
        program = self.program()
        raw = program.template(self.facts, dict(zip(axes, values)))
        return program.accepts(i, raw, strict=self.strict)


def _rest(node: Node) -> Test | None:
    """What a conjunction asks beside its own atoms."""
    return compile_node(Node(True, 0, node.kids)) if node.kids else None


def triggers(node: Node, usual: int) -> tuple[int, ...]:
    """Bits of which at least one is true where a tree (not TRUE or FALSE) holds; few, and few of them in ``usual``."""
    if not node.conj:
        found = dict.fromkeys(1 << i for i in members(node.bits))
        for kid in node.kids:
            found.update(dict.fromkeys(triggers(kid, usual)))
        return tuple(found)
    choices = [(1 << i,) for i in members(node.bits)] + [triggers(kid, usual) for kid in node.kids]
    return min(choices, key=lambda bits: (sum(1 for b in bits if b & usual), len(bits)))
