"""A compiled catalog as lines of JSON, and back: vocabulary and tables at once, the parsed files when somebody asks why.

Constraints and candidates are named by position, masks are hexadecimal, records are lists. `selector.cache` keeps the lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selector import derive
from selector.conditions import All
from selector.constraints import Constraint, Test
from selector.nodes import FALSE, TRUE, Accept, Atom, Node
from selector.tables import Check, OrderTable, PolicyTable, Step, Tables
from selector.vocabulary import Vocabulary

__all__ = ["read_tables", "read_vocabulary", "tables_line", "vocabulary_line"]


def dump(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, check_circular=False)


# -- vocabulary -------------------------------------------------------------------------------------------------------


def vocabulary_line(vocabulary: Vocabulary) -> str:
    """A vocabulary with the places of its axes."""
    marks = [None if a.at is None else list(a.at) for a in vocabulary.axes]
    packs = {a.name: a.pack for a in vocabulary.axes if a.pack is not None}
    return dump([vocabulary.raw, packs, marks])


def read_vocabulary(line: str) -> Vocabulary:
    """The vocabulary of a line. Raises ValueError, TypeError or LookupError for a line that is none."""
    from selector.errors import Mark

    raw, packs, marks = json.loads(line)
    at = {name: Mark(*mark) for name, mark in zip(raw["axes"], marks) if mark is not None}
    return Vocabulary(raw, packs=packs, marks=at)


# -- writing ----------------------------------------------------------------------------------------------------------


class _Writer:
    """Interns constraints; equal ones are written once."""

    def __init__(self) -> None:
        self.constraints: list[Any] = []
        self._known: dict[Constraint, int] = {}

    def constraint(self, constraint: Constraint) -> int:
        k = self._known.get(constraint)
        if k is None:
            k = self._known[constraint] = len(self.constraints)
            clauses = [[[op, _operand(op, operand)] for op, operand in c] for c in constraint.clauses]
            self.constraints.append([clauses, constraint.required, constraint.given])
        return k

    def atom(self, atom: Atom | Accept) -> list[Any]:
        if isinstance(atom, Accept):
            return [atom.candidate, atom.negated]
        return [atom.axis, self.constraint(atom.constraint), atom.negated, atom.strict]


def _operand(op: str, operand: Any) -> Any:
    if op in ("in", "not_in"):
        return list(operand)
    return operand


def _node(node: Node) -> Any:
    if node == TRUE:
        return True
    if node == FALSE:
        return False
    return [node.conj, f"{node.bits:x}", [_node(k) for k in node.kids]]


def _expression(expr: derive.Expr | None) -> Any:
    if expr is None:
        return None
    name = type(expr).__name__
    if isinstance(expr, derive.Operation):
        return [name, expr.op, [_expression(o) for o in expr.operands]]
    if isinstance(expr, derive.Case):
        entries = [[_node(e.definite), _node(e.possible), _expression(e.result)] for e in expr.entries]
        return [name, entries, _expression(expr.otherwise)]
    if isinstance(expr, derive.Tag):
        return [name, expr.axis, sorted(expr.members)]
    return [name, *expr]


def tables_line(tables: Tables) -> str:
    """The tables without their vocabulary."""
    writer = _Writer()
    atoms = [writer.atom(a) for a in tables.atoms]
    checks = [[[writer.constraint(a.constraint), f"{m:x}"] for a, m in found] for found in tables.checks]
    return dump([
        list(tables.ids),
        f"{tables.listed:x}",
        f"{tables.closed:x}",
        writer.constraints,
        atoms,
        checks,
        [[s.axis.index, s.same_as, _node(s.ignored), _expression(s.expr)] for s in tables.steps],
        [[_node(n), f"{m:x}", strict] for n, m, strict in tables.clauses],
        [[p.name, _node(p.node), [[_node(o.node), o.members] for o in p.order], f"{p.closed:x}"] for p in tables.policy],
        [[i, [_node(n) for n in nodes]] for i, nodes in tables.adjust.items()],
        tables.accept_order,
    ])  # fmt: skip


# -- reading ----------------------------------------------------------------------------------------------------------


def read_tables(line: str, vocabulary: Vocabulary) -> Tables:
    """The tables of a line. Raises ValueError, TypeError or LookupError for a line that is none."""
    ids, listed, closed, known, atoms, checks, steps, clauses, policy, adjust, accepts = json.loads(line)
    constraints = [_read_constraint(c) for c in known]
    return Tables(
        vocabulary,
        ids,
        listed=int(listed, 16),
        closed=int(closed, 16),
        atoms=[_read_atom(a, constraints) for a in atoms],
        steps=[
            Step(vocabulary.axes[i], same_as, _read_node(ignored), None if expr is None else _read(expr))
            for i, same_as, ignored, expr in steps
        ],
        checks=[
            [Check(Atom(i, constraints[k], True, True), int(mask, 16)) for k, mask in found]
            for i, found in enumerate(checks)
        ],
        clauses=[(_read_node(node), int(mask, 16), strict) for node, mask, strict in clauses],
        policy=[
            PolicyTable(
                name,
                _read_node(node),
                tuple(OrderTable(_read_node(n), tuple(members)) for n, members in order),
                int(excluded, 16),
            )
            for name, node, order, excluded in policy
        ],
        adjust={i: tuple(_read_node(n) for n in nodes) for i, nodes in adjust},
        accept_order=accepts,
    )


def _value(raw: Any) -> Any:
    """A canonical value: the only lists among them are pairs."""
    return tuple(raw) if type(raw) is list else raw


def _read_operand(op: str, raw: Any) -> Any:
    if op in ("in", "not_in"):
        return frozenset([_value(v) for v in raw])
    if op == "package":
        return (raw[0], None if raw[1] is None else tuple(raw[1]))
    return raw


def _read_constraint(raw: Sequence[Any]) -> Constraint:
    clauses, required, given = raw
    return Constraint(
        tuple(tuple(Test(op, _read_operand(op, operand)) for op, operand in c) for c in clauses),
        required=required,
        given=given,
    )


def _read_atom(raw: Sequence[Any], constraints: Sequence[Constraint]) -> Atom | Accept:
    if len(raw) == 2:
        return Accept(*raw)
    axis, k, negated, strict = raw
    return Atom(axis, constraints[k], negated, strict)


def _read_node(raw: Any) -> Node:
    if raw is True:
        return TRUE
    if raw is False:
        return FALSE
    conj, bits, kids = raw
    return Node(conj, int(bits, 16), tuple(_read_node(k) for k in kids))


def _read_case(raw: Sequence[Any]) -> derive.Case:
    # the condition itself is for explanations, which read the whole program
    entries = tuple(
        derive.CaseEntry(_read_node(definite), _read_node(possible), _read(result), All(()))
        for definite, possible, result in raw[1]
    )
    return derive.Case(entries, _read(raw[2]))


_EXPRESSIONS: Mapping[str, Callable[[Sequence[Any]], derive.Expr]] = {
    "Literal": lambda raw: derive.Literal(_value(raw[1])),
    "Ref": lambda raw: derive.Ref(raw[1]),
    "Operation": lambda raw: derive.Operation(raw[1], tuple(_read(o) for o in raw[2])),
    "Element": lambda raw: derive.Element(raw[1], raw[2]),
    "Tag": lambda raw: derive.Tag(raw[1], frozenset(raw[2])),
    "Table": lambda raw: derive.Table(
        raw[1], tuple((_value(k), _value(v)) for k, v in raw[2]), _value(raw[3])
    ),
    "Case": _read_case,
}


def _read(raw: Sequence[Any]) -> derive.Expr:
    return _EXPRESSIONS[raw[0]](raw)
