"""A catalog specialised for one environment: the hot path.

Facts of the environment are constants here: refused candidates are gone, settled atoms are folded away, axes that nothing
reads any more are skipped. What is left for a request is an OR of look-ups, a few derived values and a few trees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector import derive
from selector.nodes import FALSE, TRUE, Accept, Atom, Node, bits_of, evaluate, simplify
from selector.vocabulary import MISSING

if TYPE_CHECKING:
    from selector.environment import Environment
    from selector.program import Program
    from selector.request import Request

__all__ = ["Bound", "Decision"]

#: Values remembered for one axis, shapes remembered for one environment, orders remembered for one policy.
KEPT = 4096


class Decision(NamedTuple):
    """The outcome for one request: accepted candidates in order (positions), the policy rule's position, excluded ones."""

    ranked: tuple[int, ...]
    excluded: tuple[int, ...]
    policy: int


class _Axis(NamedTuple):
    """A live axis: its table of (refused, atoms) by value, and how to fill it."""

    axis: int
    memo: dict[Any, tuple[int, int]]
    refusing: tuple[tuple[Atom, int], ...]
    atoms: tuple[tuple[int, Atom], ...]


class _Late(NamedTuple):
    """An axis whose value depends on others: `same_as`, `applies_when`, or an expression."""

    axis: int
    table: _Axis | None
    same_as: int | None
    ignored: Node
    neutral: Any
    expr: Any


class Bound:
    """Decides requests on one environment. Not changed after construction but for its bounded memos."""

    def __init__(self, program: Program, environment: Environment, *, strict: bool = False) -> None:
        self.program = program
        self.environment = environment
        self.strict = strict
        self.facts = environment.values(program.vocabulary)
        self._fold()

    # -- specialising -------------------------------------------------------------------------------------------------

    def _fold(self) -> None:
        program = self.program
        constants: dict[int, Any] = {}
        known = true = refused = 0
        late: list[tuple[Any, Node, Any]] = []
        for step in program.steps:
            i = step.axis.index
            ignored = simplify(step.ignored, known, true)
            expr = None if step.expr is None else derive.specialise(step.expr, known, true, constants)
            settled = False
            value: Any = None
            if ignored == TRUE:
                settled, value = True, step.axis.neutral
            elif ignored == FALSE and isinstance(expr, derive.Literal):
                settled, value = True, expr.constant
            elif ignored == FALSE and step.expr is None and i in self.facts:
                value = self.facts[i]
                settled = value is not MISSING or step.same_as is None or step.same_as in constants
                if settled and value is MISSING:
                    value = None if step.same_as is None else constants[step.same_as]
            if settled:
                constants[i] = value
                for bit, atom in program.atoms_of.get(i, ()):
                    known |= bit
                    if atom.true_for(value):
                        true |= bit
                for check in program.checks[i]:
                    if check.atom.true_for(value):
                        refused |= check.mask
            elif expr is not None or ignored != FALSE or step.same_as is not None:
                late.append((step, ignored, expr))
        clauses: list[tuple[Node, int]] = []
        for node, mask, only_strict in program.clauses:
            if only_strict and not self.strict:
                continue
            folded = simplify(node, known, true)
            if folded == TRUE:
                refused |= mask
            elif folded != FALSE:
                clauses.append((folded, mask))
        # A candidate that is gone is accepted by nobody: settle the atoms about it too.
        gone = refused
        for i, candidate in enumerate(program.candidates):
            if gone >> i & 1 and not program.adjust[i]:
                denied = program.table.existing(Accept(candidate.id, True))
                known |= denied | program.table.existing(Accept(candidate.id, False))
                true |= denied
        again: list[tuple[Node, int]] = []
        for node, mask in clauses:
            folded = simplify(node, known, true)
            if folded == TRUE:
                refused |= mask
            elif folded != FALSE:
                again.append((folded, mask))
        self.known, self.true, self.refused, self.constants = known, true, refused, constants
        self.alive = program.everyone & ~refused
        self.clauses = [(n, m & self.alive) for n, m in again if m & self.alive]
        self.adjusting = [i for i in range(len(program.candidates)) if program.adjust[i]]
        self._policies()
        self._live(late)
        self._arrange(late)

    def _policies(self) -> None:
        self.policies: list[tuple[Node, int, tuple[tuple[Node, tuple[int, ...]], ...]]] = []
        for k, policy in enumerate(self.program.policy):
            node = simplify(policy.node, self.known, self.true)
            if node == FALSE:
                continue
            order = tuple(
                (folded, entry.members)
                for entry in policy.order
                for folded in (simplify(entry.node, self.known, self.true),)
                if folded != FALSE
            )
            self.policies.append((node, k, order))
            if node == TRUE:
                break
        self._orders: dict[tuple[int, int, int], Decision] = {}

    def _live(self, late: list[tuple[Any, Node, Any]]) -> None:
        """Which atoms and which values anything still reads."""
        bits = 0
        for node, _ in self.clauses:
            bits |= bits_of(node)
        for node, _, order in self.policies:
            bits |= bits_of(node)
            for inner, _ in order:
                bits |= bits_of(inner)
        values: set[int] = set()
        tables = {
            i
            for i, checks in enumerate(self.program.checks)
            if i not in self.constants and any(c.mask & self.alive for c in checks)
        }
        by_bit = {bit: atom.axis for atoms in self.program.atoms_of.values() for bit, atom in atoms}
        self.late_needed: list[tuple[Any, Node, Any]] = []
        for step, ignored, expr in reversed(late):
            i = step.axis.index
            mine = 0
            for bit, _ in self.program.atoms_of.get(i, ()):
                mine |= bit
            if not (mine & bits or i in tables or i in values):
                continue
            self.late_needed.append((step, ignored, expr))
            bits |= bits_of(ignored)
            if expr is not None:
                read, _ = derive.inputs(expr)
                values |= read
                bits |= _expression_bits(expr)
            elif step.same_as is not None:
                values.add(step.same_as)
        self.late_needed.reverse()
        self.bits = bits
        self.read = values
        self.tables = tables | {
            by_bit[1 << k]
            for k in _positions(bits)
            if 1 << k in by_bit and by_bit[1 << k] not in self.constants
        }

    def _axis(self, i: int) -> _Axis | None:
        if i not in self.tables:
            return None
        refusing = tuple((c.atom, c.mask & self.alive) for c in self.program.checks[i] if c.mask & self.alive)
        atoms = tuple((bit, atom) for bit, atom in self.program.atoms_of.get(i, ()) if bit & self.bits)
        return _Axis(i, {}, refusing, atoms)

    def _arrange(self, late: list[tuple[Any, Node, Any]]) -> None:
        lately = {step.axis.index for step, _, _ in late}
        self.plain = {i: a for i in self.tables - lately for a in (self._axis(i),) if a is not None}
        self.late = [
            _Late(s.axis.index, self._axis(s.axis.index), s.same_as, ignored, s.axis.neutral, expr)
            for s, ignored, expr in self.late_needed
        ]
        self.values = list(self.program.defaults)
        for i, value in (*self.facts.items(), *self.constants.items()):
            self.values[i] = value
        referred = {
            self.program.position[a.candidate] for a in self.program.table.atoms if isinstance(a, Accept)
        }
        self.accept_order = [
            i for i in self.program.accept_order if i in referred and self._accept_bits_of(i) & self.bits
        ]
        self.accept_bits = 0
        for i in self.accept_order:
            self.accept_bits |= self._accept_bits_of(i)
        self.early = [(n, m) for n, m in self.clauses if not bits_of(n) & self.accept_bits]
        self.dependent = [(n, m) for n, m in self.clauses if bits_of(n) & self.accept_bits]
        self.flat = [(n.bits, m) for n, m in self.early if n.conj and not n.kids]
        self.trees = [(compile_node(n), m) for n, m in self.early if not (n.conj and not n.kids)]
        self._shapes: dict[tuple[int, ...], tuple[int, int, tuple[_Axis | None, ...]]] = {}

    def _accept_bits_of(self, i: int) -> int:
        ident = self.program.candidates[i].id
        return self.program.table.existing(Accept(ident, False)) | self.program.table.existing(
            Accept(ident, True)
        )

    # -- deciding -----------------------------------------------------------------------------------------------------

    def _shape(self, axes: tuple[int, ...]) -> tuple[int, int, tuple[_Axis | None, ...]]:
        """For requests that give these fields: what all other plain axes contribute by their defaults."""
        refused = self.refused
        atoms = self.true
        for i, axis in self.plain.items():
            if i not in axes:
                more, bits = self._entry(axis, self.values[i])
                refused |= more
                atoms |= bits
        shape = (refused, atoms, tuple(self.plain.get(i) for i in axes))
        if len(self._shapes) >= KEPT:
            self._shapes.clear()
        self._shapes[axes] = shape
        return shape

    @staticmethod
    def _entry(axis: _Axis, value: Any) -> tuple[int, int]:
        refused = bits = 0
        for atom, mask in axis.refusing:
            if atom.true_for(value):
                refused |= mask
        for bit, atom in axis.atoms:
            if atom.true_for(value):
                bits |= bit
        if len(axis.memo) >= KEPT:
            axis.memo.clear()
        entry = axis.memo[value] = (refused, bits)
        return entry

    def judge(self, axes: tuple[int, ...], values: tuple[Any, ...]) -> tuple[int, int]:
        """(refused candidates, true atoms) for a request's fields, before adjustments."""
        shape = self._shapes.get(axes)
        refused, atoms, tables = shape if shape is not None else self._shape(axes)
        for table, value in zip(tables, values, strict=False):
            if table is not None:
                entry = table.memo.get(value)
                if entry is None:
                    entry = self._entry(table, value)
                refused |= entry[0]
                atoms |= entry[1]
        if self.late:
            all_values = list(self.values)
            for i, value in zip(axes, values, strict=False):
                if i not in self.constants:
                    all_values[i] = value
            for index, table, same_as, ignored, neutral, expr in self.late:
                if ignored is not FALSE and evaluate(ignored, atoms):
                    value = neutral
                elif expr is not None:
                    value = expr.value(all_values, atoms)
                else:
                    value = all_values[index]
                    if value is MISSING:
                        value = all_values[same_as] if same_as is not None else None
                all_values[index] = value
                if table is not None:
                    entry = table.memo.get(value)
                    if entry is None:
                        entry = self._entry(table, value)
                    refused |= entry[0]
                    atoms |= entry[1]
        if self.accept_order:
            atoms |= self._accepted(axes, values, refused, atoms)
        for need, mask in self.flat:
            if atoms & need == need:
                refused |= mask
        for test, mask in self.trees:
            if test(atoms):
                refused |= mask
        for node, mask in self.dependent:
            if evaluate(node, atoms):
                refused |= mask
        return refused, atoms

    def _accepted(self, axes: tuple[int, ...], values: tuple[Any, ...], refused: int, atoms: int) -> int:
        found = 0
        for i in self.accept_order:
            if self.program.adjust[i]:
                accepted = self.accepts(i, axes, values)
            else:
                accepted = not refused >> i & 1
                if accepted:
                    bit = 1 << i
                    accepted = not any(m & bit and evaluate(n, atoms | found) for n, m in self.clauses)
            found |= self.program.accept_bit(i, accepted)
        return found

    def accepts(self, i: int, axes: tuple[int, ...], values: tuple[Any, ...]) -> bool:
        """Whether one candidate accepts a request, adjustments included."""
        fields = dict(zip(axes, values, strict=False))
        return self.program.accepts(i, self.program.template(self.facts, fields), strict=self.strict)

    def decide(self, request: Request) -> Decision:
        """Accepted candidates in the policy's order."""
        axes, values = request._axes, request._values
        refused, atoms = self.judge(axes, values)
        accepted = self.program.listed & ~refused
        if self.adjusting:
            accepted = self._adjusted(accepted, axes, values)
        return self.order(accepted, atoms)

    def _adjusted(self, accepted: int, axes: tuple[int, ...], values: tuple[Any, ...]) -> int:
        for i in self.adjusting:
            bit = 1 << i
            if self.accepts(i, axes, values):
                accepted |= bit & self.program.listed
            else:
                accepted &= ~bit
        return accepted

    def order(self, accepted: int, atoms: int) -> Decision:
        """The accepted candidates (a mask) in the order of the first policy rule that holds."""
        for k, (node, position, entries) in enumerate(self.policies):
            if node is TRUE or evaluate(node, atoms):
                chosen = 0
                for j, (inner, _) in enumerate(entries):
                    if inner is TRUE or evaluate(inner, atoms):
                        chosen |= 1 << j
                key = (k, chosen, accepted)
                known = self._orders.get(key)
                if known is None:
                    members = [m for j, (_, m) in enumerate(entries) if chosen >> j & 1]
                    spoken = self.program.policy[position].rule.unlisted == "excluded"
                    exclusive = self.program.everyone if spoken else 0
                    known = self._remember(key, accepted, members, exclusive, position)
                return known
        key = (-1, 0, accepted)
        return self._orders.get(key) or self._remember(key, accepted, [], self.program.closed, -1)

    def _remember(
        self,
        key: tuple[int, int, int],
        accepted: int,
        members: list[tuple[int, ...]],
        exclusive: int,
        position: int,
    ) -> Decision:
        """``exclusive``: the mask of candidates that are excluded where the order does not list them."""
        listed = dict.fromkeys(i for entry in members for i in entry)
        ranked = [i for i in listed if accepted >> i & 1]
        rest = [i for i in range(len(self.program.candidates)) if accepted >> i & 1 and i not in listed]
        last = [i for i in rest if not exclusive >> i & 1]
        decision = Decision(tuple(ranked + last), tuple(i for i in rest if exclusive >> i & 1), position)
        if len(self._orders) >= KEPT:
            self._orders.clear()
        self._orders[key] = decision
        return decision


def _expression_bits(expr: Any) -> int:
    found = 0
    if isinstance(expr, derive.Case):
        for entry in expr.entries:
            found |= bits_of(entry.definite) | bits_of(entry.possible) | _expression_bits(entry.result)
        found |= _expression_bits(expr.otherwise)
    elif isinstance(expr, derive.Operation):
        for operand in expr.operands:
            found |= _expression_bits(operand)
    return found


def _positions(bits: int) -> list[int]:
    return [k for k in range(bits.bit_length()) if bits >> k & 1]


def compile_node(node: Node) -> Callable[[int], bool]:
    """A tree as closures."""
    bits = node.bits
    kids = tuple(compile_node(k) for k in node.kids)
    if node.conj:
        if not kids:
            return lambda atoms: atoms & bits == bits
        if len(kids) == 1:
            only = kids[0]
            return lambda atoms: atoms & bits == bits and only(atoms)
        return lambda atoms: atoms & bits == bits and all(k(atoms) for k in kids)
    if not kids:
        return lambda atoms: atoms & bits != 0
    return lambda atoms: atoms & bits != 0 or any(k(atoms) for k in kids)


def facts_of(bound: Bound, fields: Mapping[int, Any]) -> list[Any]:
    """Raw values of all axes for explanations."""
    return bound.program.template(bound.facts, fields)
