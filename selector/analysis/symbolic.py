"""Values that are not known yet: what an axis can be, each possibility under the literal that decides it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector import derive
from selector.analysis.circuit import FALSE, TRUE
from selector.analysis.numbers import NumOp, NumVar, Term, combine
from selector.constraints import Constraint, Test, _doubtful, _package_ok
from selector.vocabulary import UNKNOWN, PackageState

if TYPE_CHECKING:
    from selector.analysis.space import Space
    from selector.nodes import Atom

__all__ = ["Member", "PackagesLeaf", "PairLeaf", "Sym", "constant", "merged", "truth"]


class Member(NamedTuple):
    """Some number of one value class of an axis; ``value`` stands for all of them in tests."""

    term: NumVar
    value: int


class PairLeaf(NamedTuple):
    """Some pair that nothing names; ``value`` stands for all of them in tests."""

    terms: tuple[NumVar, NumVar]
    value: tuple[int, int]


class PackagesLeaf:
    """All packages: for each name the literals of its states."""

    __slots__ = ("states",)

    def __init__(self, states: Mapping[str, tuple[tuple[int, PackageState], ...]]) -> None:
        self.states = dict(states)


Leaf = Any
#: Possibilities that exclude each other and leave none out: (literal, leaf). A leaf is a value of the engine, or one of
#: Member, PairLeaf, PackagesLeaf, NumVar and NumOp.
Sym = tuple[tuple[int, Leaf], ...]


def constant(value: Any) -> Sym:
    """A value that is known."""
    return ((TRUE, value),)


def merged(space: Space, parts: Iterable[tuple[int, Leaf]]) -> Sym:
    """Possibilities with equal leaves joined, impossible ones left out."""
    found: dict[Any, tuple[Leaf, list[int]]] = {}
    for literal, leaf in parts:
        if literal != FALSE:
            key = (type(leaf), id(leaf) if isinstance(leaf, PackagesLeaf) else leaf)
            found.setdefault(key, (leaf, []))[1].append(literal)
    return tuple((space.circuit.disj(literals), leaf) for leaf, literals in found.values())


def guarded(space: Space, literal: int, then: Sym, otherwise: Sym) -> Sym:
    """``then`` where the literal holds, else ``otherwise``."""
    if literal == TRUE:
        return then
    if literal == FALSE or then == otherwise:
        return otherwise
    both = space.circuit.both
    return merged(
        space, [*((both(literal, g), v) for g, v in then), *((both(-literal, g), v) for g, v in otherwise)]
    )


# -- tests ------------------------------------------------------------------------------------------------------------


def truth(space: Space, atom: Atom, value: Sym) -> int:
    """The literal of an atom's truth for a value."""
    return space.circuit.disj(
        space.circuit.both(literal, _leaf(space, atom, leaf)) for literal, leaf in value
    )


def _leaf(space: Space, atom: Atom, leaf: Leaf) -> int:
    if isinstance(leaf, (NumVar, NumOp)):
        if atom.constraint.given is not None:
            return TRUE if atom.constraint.given != atom.negated else FALSE
        held = _numeric(space, atom.constraint, leaf)
        return -held if atom.negated else held
    if isinstance(leaf, PackagesLeaf):
        return _packages(space, atom, leaf)
    if isinstance(leaf, (Member, PairLeaf)):
        leaf = leaf.value
    return TRUE if atom.true_for(leaf) else FALSE


def _numeric(space: Space, constraint: Constraint, term: Term) -> int:
    circuit = space.circuit
    return circuit.disj(circuit.conj(_test(space, t, term) for t in clause) for clause in constraint.clauses)


def _test(space: Space, test: Test, term: Term) -> int:
    op, operand = test
    if op == "min":
        return space.at_least(term, operand)
    if op == "max":
        return -space.at_least(term, operand + 1)
    if op == "multiple_of":
        return space.multiple(term, operand)
    held = space.circuit.disj(space.equals(term, n) for n in sorted(operand))
    return held if op == "in" else -held


def _packages(space: Space, atom: Atom, leaf: PackagesLeaf) -> int:
    circuit = space.circuit
    sure: list[int] = []
    possible: list[int] = []
    for clause in atom.constraint.clauses:
        tests = [_package(space, leaf, operand) for _, operand in clause]
        sure.append(circuit.conj(t[0] for t in tests))
        possible.append(circuit.conj(circuit.either(*t) for t in tests))
    held = circuit.disj(sure)
    doubtful = circuit.both(-held, circuit.disj(possible))
    settled = -held if atom.negated else held
    return circuit.choose(doubtful, TRUE if atom.strict else FALSE, settled)


def _package(
    space: Space, leaf: PackagesLeaf, operand: tuple[str, tuple[str, ...] | None]
) -> tuple[int, int]:
    """(holds, nobody knows) of one package's test."""
    name = operand[0]
    states = leaf.states.get(name, ((TRUE, PackageState(None, "missing")),))
    return (
        space.circuit.disj(g for g, s in states if _package_ok(operand, {name: s})),
        space.circuit.disj(
            g for g, s in states if not _package_ok(operand, {name: s}) and _doubtful(operand, {name: s})
        ),
    )


# -- expressions ------------------------------------------------------------------------------------------------------


def number(space: Space, value: Sym) -> Sym:
    """A value as arithmetic reads it: the classes of one axis become one number again."""
    return merged(space, ((g, v.term if isinstance(v, Member) else v) for g, v in value))


def operation(space: Space, op: str, operands: list[Sym]) -> Sym:
    """An arithmetic operator on values."""
    circuit = space.circuit
    parts: list[tuple[int, Leaf]] = []
    for choice in itertools.product(*(number(space, o) for o in operands)):
        guard = circuit.conj(g for g, _ in choice)
        leaves = [v for _, v in choice]
        if guard == FALSE:
            continue
        if UNKNOWN in leaves or None in leaves:
            parts.append((guard, UNKNOWN if UNKNOWN in leaves else None))
            continue
        if op in ("modulo", "floor_div", "ratio", "round_up"):
            empty = space.equals(leaves[1], 0)
            if op == "ratio" and empty != TRUE:
                rest = combine("modulo", leaves)
                empty = circuit.either(empty, -space.equals(rest, 0))
            parts.append((circuit.both(guard, empty), None))
            guard = circuit.both(guard, -empty)
            if guard == FALSE:
                continue
        parts.append((guard, combine(op, leaves)))
    return merged(space, parts)


def element(space: Space, value: Sym, position: int) -> Sym:
    """One element of a pair."""
    parts: list[tuple[int, Leaf]] = []
    for guard, leaf in value:
        if isinstance(leaf, PairLeaf):
            parts.append((guard, leaf.terms[position]))
        else:
            parts.append((guard, leaf if leaf is None or leaf is UNKNOWN else leaf[position]))
    return merged(space, parts)


def table(space: Space, value: Sym, expr: derive.Table) -> Sym:
    """A look-up."""
    circuit = space.circuit
    parts: list[tuple[int, Leaf]] = []
    for guard, leaf in value:
        if isinstance(leaf, (NumVar, NumOp)):
            rest = guard
            for key, result in expr.entries:
                here = space.equals(leaf, key)
                parts.append((circuit.both(rest, here), result))
                rest = circuit.both(rest, -here)
            parts.append((rest, expr.otherwise))
            continue
        if leaf is None or leaf is UNKNOWN:
            parts.append((guard, leaf))
            continue
        found = leaf.value if isinstance(leaf, (Member, PairLeaf)) else leaf
        parts.append((guard, next((r for k, r in expr.entries if k == found), expr.otherwise)))
    return merged(space, parts)


def differs(space: Space, before: Sym, after: Sym) -> int:
    """The literal of: a value was not null, and is another one now."""
    circuit = space.circuit
    found: list[int] = []
    for g1, v1 in before:
        if v1 is None:
            continue
        for g2, v2 in after:
            if type(v1) is type(v2) and v1 == v2:
                continue
            found.append(circuit.conj((g1, g2, -_same(space, v1, v2))))
    return circuit.disj(found)


def _same(space: Space, a: Leaf, b: Leaf) -> int:
    """The literal of two leaves being one value. Values that adjustments set have a class of their own."""
    terms = [x.term if isinstance(x, Member) else x for x in (a, b)]
    if any(isinstance(t, (NumVar, NumOp)) for t in terms):
        if not all(isinstance(t, (int, NumVar, NumOp)) and not isinstance(t, bool) for t in terms):
            return FALSE
        return space.equals(combine("difference", terms), 0)
    return FALSE
