"""The compiled catalog: bit masks of candidates, bits of atoms, and their specialisation for one environment.

`Program` is built once a catalog. Its `tables` are what `selector.bound` folds an environment's facts into, for the hot
path; `Program.trace` evaluates everything, for explanations. Both use the same nodes and expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector import derive
from selector.conditions import Condition, accepted_ids
from selector.conditions import parse as parse_condition
from selector.constraints import undeclared
from selector.nodes import FALSE, TRUE, Accept, Atom, AtomTable, Node, conjunction, evaluate
from selector.tables import Check, OrderTable, PolicyTable, Step, Tables
from selector.vocabulary import MISSING, Axis, Vocabulary

if TYPE_CHECKING:
    from selector.conditions import Path
    from selector.evidence import Evidence
    from selector.manifest import Adjustment, Candidate, Declared, Rule
    from selector.pack import PolicyRule

__all__ = ["Program", "Step", "Trace"]

#: Values of one axis, and whole evaluations, that are remembered.
KEPT, TRACES = 1024, 64


class RuleNode(NamedTuple):
    """A rule and the tree that is true when it applies."""

    rule: Rule
    node: Node


class AdjustNode(NamedTuple):
    """An adjustment and the tree that is true when it applies."""

    adjustment: Adjustment
    node: Node


class PolicyNode(NamedTuple):
    """A policy rule with its compiled conditions."""

    rule: PolicyRule
    node: Node
    order: tuple[OrderTable, ...]
    closed: int
    """Candidates that only an explicit choice reaches where the order does not list them."""


class Trace(NamedTuple):
    """Everything about one request on one environment: all values, all true atoms, the mask of refused candidates."""

    values: tuple[Any, ...]
    atoms: int
    refused: int


class Program:
    """Vocabulary, candidates and rules in compiled form. Immutable after construction."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        candidates: Sequence[Candidate],
        policy: Sequence[PolicyRule] = (),
        closed: frozenset[str] = frozenset(),
    ) -> None:
        self.vocabulary = vocabulary
        self.candidates = tuple(candidates)
        self.position = {c.id: i for i, c in enumerate(self.candidates)}
        self.everyone = (1 << len(self.candidates)) - 1
        self.listed = sum(1 << i for i, c in enumerate(self.candidates) if not c.abstract)
        #: Candidates of packs that exclude what no order lists; counts where no policy rule speaks.
        self.closed = self._of(closed)
        self.table = AtomTable()
        self.problems: list[tuple[str, Path, str, str | None]] = []
        self.steps = tuple(self._step(vocabulary.axes[i]) for i in vocabulary.order)
        self.checks: list[list[Check]] = [self._checks(axis) for axis in vocabulary.axes]
        self.rules: list[list[RuleNode]] = [[self._rule(r) for r in c.rules] for c in self.candidates]
        self.adjust: list[list[AdjustNode]] = [
            [AdjustNode(a, self.table.node(a.when, strict=False)) for a in c.adjust] for c in self.candidates
        ]
        #: Candidates that adjust requests.
        self.adjusting = tuple(i for i, found in enumerate(self.adjust) if found)
        self.defaults: list[Any] = [a.default for a in vocabulary.axes]
        for axis in vocabulary.axes:
            if axis.same_as is not None:
                self.defaults[axis.index] = MISSING
        self.policy = tuple(self._policy(rule) for rule in policy)
        self.clauses = self._clauses()
        self.atoms_of: dict[int, list[tuple[int, Atom]]] = {}
        for i, atom in enumerate(self.table.atoms):
            if isinstance(atom, Atom):
                self.atoms_of.setdefault(atom.axis, []).append((1 << i, atom))
        self.accept_order, self.accept_cycle = self._accept_order()
        self.tables = self._tables()
        #: By axis and value, the candidates refused and the atoms that are true.
        self._entries: list[dict[Any, tuple[int, int]]] = [{} for _ in vocabulary.axes]
        self._traces: dict[Any, Trace] = {}
        self._asks: dict[tuple[int, bool], tuple[int, ...]] = {}
        self._evidence: Evidence | None = None

    @property
    def evidence(self) -> Evidence:
        """The reasons, made as they are asked for."""
        if self._evidence is None:
            from selector.evidence import Evidence

            self._evidence = Evidence(self)
        return self._evidence

    # -- compiling ----------------------------------------------------------------------------------------------------

    def condition(self, raw: Any, axis: Axis, key: str) -> Condition:
        """A condition of the vocabulary; mistakes are kept in ``problems``."""
        return parse_condition(
            raw, self.vocabulary, lambda p, m, h: self.problems.append((axis.name, p, m, h)), (key,)
        )

    def _step(self, axis: Axis) -> Step:
        same_as = None
        if axis.same_as is not None:
            other = self.vocabulary.find(axis.same_as)
            if other is None:
                self.problems.append(
                    (axis.name, ("default", "same_as"), f"unknown axis {axis.same_as!r}", None)
                )
            else:
                same_as = other.index
        ignored = FALSE
        if axis.applies_when is not None:
            condition = self.condition(axis.applies_when, axis, "applies_when")
            ignored = self.table.node(condition, positive=False, strict=False)
        expr = None
        if axis.derive is not None:
            expr = derive.parse(
                axis.derive,
                axis,
                self.vocabulary,
                self.table,
                lambda p, m, h: self.problems.append((axis.name, p, m, h)),
                ("derive",),
            )
        return Step(axis, same_as, ignored, expr)

    def _checks(self, axis: Axis) -> list[Check]:
        silent = undeclared(axis)
        masks = {silent: self.everyone}
        for i, candidate in enumerate(self.candidates):
            declared = candidate.declared.get(axis.name)
            if declared is not None:
                masks[silent] &= ~(1 << i)
                masks[declared.constraint] = masks.get(declared.constraint, 0) | 1 << i
        return [
            Check(Atom(axis.index, c, True, True), mask)
            for c, mask in masks.items()
            if mask and (not c.is_any or c.required)
        ]

    def check_of(self, candidate: Candidate, axis: Axis) -> tuple[Atom, Declared | None]:
        """The refusing atom of one candidate on one axis, and the declaration it comes from."""
        declared = candidate.declared.get(axis.name)
        constraint = undeclared(axis) if declared is None else declared.constraint
        return Atom(axis.index, constraint, True, True), declared

    def _rule(self, rule: Rule) -> RuleNode:
        strict = rule.kind != "warn"
        parts = [
            self.table.node(rule.when, strict=strict),
            self.table.node(rule.unless, positive=False, strict=strict) if rule.unless is not None else TRUE,
            self.table.node(rule.require, positive=False, strict=strict)
            if rule.require is not None
            else TRUE,
            self.table.node(rule.until, positive=False, strict=strict) if rule.until is not None else TRUE,
        ]
        return RuleNode(rule, conjunction(parts))

    def _policy(self, rule: PolicyRule) -> PolicyNode:
        entries = []
        for entry in rule.order:
            parts = [self.table.node(entry.when, strict=False)]
            if entry.unless is not None:
                parts.append(self.table.node(entry.unless, positive=False, strict=False))
            members = tuple(
                i for i, c in enumerate(self.candidates) if entry.name in (c.id, c.backend) and not c.abstract
            )
            entries.append(OrderTable(conjunction(parts), members))
        return PolicyNode(
            rule, self.table.node(rule.when, strict=False), tuple(entries), self._of(rule.closed)
        )

    def _of(self, packs: Iterable[str]) -> int:
        """The candidates of some packs."""
        names = frozenset(packs)
        return sum(1 << i for i, c in enumerate(self.candidates) if c.pack in names)

    def _clauses(self) -> list[tuple[Node, int, bool]]:
        """Refusing trees with the candidates they refuse; equal trees share an entry. The flag: only in strict mode."""
        found: dict[tuple[Node, bool], int] = {}
        for i, rules in enumerate(self.rules):
            for rule, node in rules:
                if rule.kind == "warn" and not rule.strict:
                    continue
                key = (node, rule.kind == "warn")
                found[key] = found.get(key, 0) | 1 << i
        return [(node, mask, strict) for (node, strict), mask in found.items()]

    def _accept_order(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Candidates that others refer to, each after those it refers to itself; and a cycle, if there is one."""
        needs: dict[int, set[int]] = {}
        for i, candidate in enumerate(self.candidates):
            names = {n for r in candidate.rules for n in r.accepts()} | {
                a.use for a in candidate.adjust if a.use
            }
            for adjustment in candidate.adjust:
                names |= set(accepted_ids(adjustment.when))
            needs[i] = {self.position[n] for n in names if n in self.position}
        wanted = {a.candidate for a in self.table.atoms if isinstance(a, Accept)}
        order: dict[int, None] = {}
        state: dict[int, int] = {}
        cycle: list[str] = []

        def visit(i: int) -> None:
            if state.get(i) == 1:
                cycle.append(self.candidates[i].id)
                return
            if state.get(i) == 2:
                return
            state[i] = 1
            for j in sorted(needs[i]):
                visit(j)
            state[i] = 2
            order[i] = None

        for i in range(len(self.candidates)):
            visit(i)
        return tuple(i for i in order if self.candidates[i].id in wanted), tuple(cycle)

    def _tables(self) -> Tables:
        return Tables(
            self.vocabulary,
            [c.id for c in self.candidates],
            listed=self.listed,
            closed=self.closed,
            atoms=self.table.atoms,
            steps=self.steps,
            checks=self.checks,
            clauses=self.clauses,
            policy=[PolicyTable(p.rule.name, p.node, p.order, p.closed) for p in self.policy],
            adjust={i: tuple(a.node for a in found) for i, found in enumerate(self.adjust) if found},
            accept_order=self.accept_order,
        )

    # -- evaluating everything ----------------------------------------------------------------------------------------

    def entry(self, axis: int, value: Any) -> tuple[int, int]:
        """The candidates that refuse a value of an axis by their declarations, and the atoms that it makes true."""
        memo = self._entries[axis]
        found = memo.get(value)
        if found is None:
            refused = bits = 0
            for bit, atom in self.atoms_of.get(axis, ()):
                if atom.true_for(value):
                    bits |= bit
            for atom, mask in self.checks[axis]:
                if atom.true_for(value):
                    refused |= mask
            if len(memo) >= KEPT:
                memo.clear()
            found = memo[value] = (refused, bits)
        return found

    def template(self, facts: Mapping[int, Any], fields: Mapping[int, Any]) -> list[Any]:
        """Raw values of all axes: defaults, the environment's facts (by position), the request's fields."""
        values = list(self.defaults)
        for i, value in facts.items():
            values[i] = value
        for i, value in fields.items():
            values[i] = value
        return values

    def trace(
        self, raw: Sequence[Any], *, strict: bool = False, asked: tuple[int, ...] | None = None
    ) -> Trace:
        """Evaluate all axes, atoms and candidates (before adjustments) for raw values of all axes.

        ``asked``: of the candidates that others ask about, only these are judged (see `_asked`); the rest counts as not asked.
        """
        key = (tuple(raw), strict, asked)
        known = self._traces.get(key)
        if known is None:
            if len(self._traces) >= TRACES:
                self._traces.clear()
            known = self._traces[key] = self._trace(
                raw, strict, self.accept_order if asked is None else asked
            )
        return known

    def _trace(self, raw: Sequence[Any], strict: bool, asked: tuple[int, ...]) -> Trace:
        values = list(raw)
        atoms = refused = 0
        for step in self.steps:
            i = step.axis.index
            if step.ignored is not FALSE and evaluate(step.ignored, atoms):
                values[i] = step.axis.neutral
            elif step.expr is not None:
                values[i] = step.expr.value(values, atoms)
            elif values[i] is MISSING:
                values[i] = values[step.same_as] if step.same_as is not None else None
            more, bits = self.entry(i, values[i])
            refused |= more
            atoms |= bits
        for i in asked:
            if self.adjust[i]:
                accepted = self.accepts(i, raw, strict=strict)
            else:
                accepted = not refused >> i & 1 and not any(
                    evaluate(n, atoms) for r, n in self.rules[i] if r.kind != "warn" or (strict and r.strict)
                )
            atoms |= self.accept_bit(i, accepted)
        for node, mask, only_strict in self.clauses:
            if (strict or not only_strict) and evaluate(node, atoms):
                refused |= mask
        return Trace(tuple(values), atoms, refused)

    def accept_bit(self, i: int, accepted: bool) -> int:
        """The bit of the atom about a candidate's acceptance that is true."""
        return self.table.existing(Accept(self.candidates[i].id, not accepted))

    def _asked(self, i: int, adjusting: bool) -> tuple[int, ...] | None:
        """Whose acceptance the adjustments of candidate ``i``, or its rules, depend on, in order; None where nobody asks.

        Those that adjust requests answer for themselves, so what they ask is not looked into.
        """
        if not self.accept_order:
            return None
        known = self._asks.get((i, adjusting))
        if known is None:
            names = [n for a in self.candidates[i].adjust for n in accepted_ids(a.when)]
            if not adjusting:
                names = [n for r in self.candidates[i].rules for n in r.accepts()]
            wanted: set[int] = set()
            while names:
                j = self.position.get(names.pop())
                if j is not None and j not in wanted:
                    wanted.add(j)
                    if not self.adjust[j]:
                        names.extend(n for r in self.candidates[j].rules for n in r.accepts())
            known = self._asks[i, adjusting] = tuple(j for j in self.accept_order if j in wanted)
        return known

    def adjusted(
        self, i: int, raw: Sequence[Any], *, strict: bool = False
    ) -> tuple[list[Any], dict[int, tuple[Any, Any]], list[AdjustNode], str | None]:
        """A candidate's own view of a request: raw values, the changed fields (from, to), what applied, what runs."""
        changed = list(raw)
        applied: list[AdjustNode] = []
        use: str | None = None
        others = self._asked(i, True)
        asked = trace = self.trace(raw, strict=strict, asked=others)
        for entry in self.adjust[i]:
            if not evaluate(entry.node, trace.atoms):
                continue
            applied.append(entry)
            use = entry.adjustment.use or use
            if entry.adjustment.changes:
                for axis, value in entry.adjustment.changes:
                    changed[axis.index] = value
                trace = self.trace(changed, strict=strict, asked=others)
        touched = {axis.index for entry in applied for axis, _ in entry.adjustment.changes}
        changes = {
            k: (asked.values[k], trace.values[k])
            for k in sorted(touched)
            if asked.values[k] != trace.values[k]
        }
        if not changes and use is None:
            return list(raw), {}, [], None
        return changed, changes, applied, use

    def accepts(self, i: int, raw: Sequence[Any], *, strict: bool = False) -> bool:
        """Whether a candidate accepts a request, its own adjustments included."""
        others = self._asked(i, False)
        if not self.adjust[i]:
            return not self.trace(raw, strict=strict, asked=others).refused >> i & 1
        changed, changes, _, use = self.adjusted(i, raw, strict=strict)
        if strict and (use is not None or any(before is not None for before, _ in changes.values())):
            return False
        if self.trace(changed, strict=strict, asked=others).refused >> i & 1:
            return False
        if use is None:
            return True
        return use in self.position and self.accepts(self.position[use], changed, strict=strict)
