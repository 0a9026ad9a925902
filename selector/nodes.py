"""The compiled form of conditions: and/or trees over atom bits.

An *atom* is one constraint on one axis, possibly negated, with its answer for null and UNKNOWN already decided by the
place it stands in (its *sense*, see `docs/design.md`). Every atom is one bit; a set of true atoms is an integer. A tree
in negation normal form is monotone in its atoms, so partial evaluation is simply dropping bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from selector.conditions import Accepts, All, AxisTest, Condition, Not
from selector.constraints import Constraint
from selector.vocabulary import UNKNOWN

__all__ = [
    "FALSE",
    "TRUE",
    "Accept",
    "Atom",
    "AtomTable",
    "Node",
    "conjunction",
    "disjunction",
    "evaluate",
    "simplify",
]


class Atom(NamedTuple):
    """A constraint on one axis (by position), negated or not; ``strict``: UNKNOWN counts as true (it will reject)."""

    axis: int
    constraint: Constraint
    negated: bool
    strict: bool

    def true_for(self, value: Any) -> bool:
        """The atom's truth for any value of its axis, null and UNKNOWN included."""
        constraint = self.constraint
        if value is UNKNOWN:
            return self.strict
        if constraint.given is not None:
            return ((value is not None) == constraint.given) != self.negated
        if value is None:
            return self.negated if constraint.required else False
        judged = constraint.judge(value)
        return self.strict if judged is None else judged != self.negated


class Accept(NamedTuple):
    """Whether another candidate (by name) accepts the request."""

    candidate: str
    negated: bool


class Node(NamedTuple):
    """``conj``: all of ``bits`` are true and all of ``kids``; otherwise some bit is true or some kid."""

    conj: bool
    bits: int
    kids: tuple[Node, ...]


TRUE = Node(True, 0, ())
FALSE = Node(False, 0, ())


def evaluate(node: Node, atoms: int) -> bool:
    """The truth of a tree, given the atoms that are true."""
    if node.conj:
        return atoms & node.bits == node.bits and all(evaluate(k, atoms) for k in node.kids)
    return bool(atoms & node.bits) or any(evaluate(k, atoms) for k in node.kids)


def bits_of(node: Node) -> int:
    """All atoms that a tree mentions."""
    found = node.bits
    for kid in node.kids:
        found |= bits_of(kid)
    return found


def conjunction(nodes: list[Node]) -> Node:
    """The tree that holds when all of ``nodes`` do."""
    bits = 0
    kids: list[Node] = []
    for node in nodes:
        if node == FALSE:
            return FALSE
        if node.conj:
            bits |= node.bits
            kids.extend(node.kids)
        elif _single(node):
            bits |= node.bits
        else:
            kids.append(node)
    return Node(True, bits, tuple(dict.fromkeys(kids)))


def disjunction(nodes: list[Node]) -> Node:
    """The tree that holds when one of ``nodes`` does."""
    bits = 0
    kids: list[Node] = []
    for node in nodes:
        if node == TRUE:
            return TRUE
        if not node.conj:
            bits |= node.bits
            kids.extend(node.kids)
        elif _single(node):
            bits |= node.bits
        else:
            kids.append(node)
    found = Node(False, bits, tuple(dict.fromkeys(kids)))
    if not bits and len(found.kids) == 1:
        return found.kids[0]
    return found


def _single(node: Node) -> bool:
    return not node.kids and node.bits.bit_count() == 1


def simplify(node: Node, known: int, true: int) -> Node:
    """Partial evaluation: atoms in ``known`` are settled, those also in ``true`` as true."""
    if node.conj:
        if node.bits & known & ~true:
            return FALSE
        return conjunction(
            [Node(True, node.bits & ~known, ()), *(simplify(k, known, true) for k in node.kids)]
        )
    if node.bits & known & true:
        return TRUE
    return disjunction([Node(False, node.bits & ~known, ()), *(simplify(k, known, true) for k in node.kids)])


class AtomTable:
    """Interns atoms: equal ones share a bit."""

    def __init__(self) -> None:
        self.atoms: list[Atom | Accept] = []
        self._bits: dict[Atom | Accept, int] = {}

    def bit(self, atom: Atom | Accept) -> int:
        """The bit of an atom, as a mask."""
        found = self._bits.get(atom)
        if found is None:
            found = self._bits[atom] = 1 << len(self.atoms)
            self.atoms.append(atom)
        return found

    def existing(self, atom: Atom | Accept) -> int:
        """The bit of an atom that some tree mentions, or 0."""
        return self._bits.get(atom, 0)

    def node(self, condition: Condition | None, *, positive: bool = True, strict: bool) -> Node:
        """A condition (or its negation) in negation normal form over atom bits."""
        if condition is None:
            return TRUE if positive else FALSE
        if isinstance(condition, AxisTest):
            if condition.constraint.is_any and not condition.constraint.required:
                # `any` holds for every known value; only UNKNOWN can tell it apart, and there it is asked for nothing.
                return TRUE if positive else FALSE
            atom = Atom(condition.axis.index, condition.constraint, not positive, strict)
            return Node(True, self.bit(atom), ())
        if isinstance(condition, Accepts):
            return Node(True, self.bit(Accept(condition.candidate, not positive)), ())
        if isinstance(condition, Not):
            return self.node(condition.part, positive=not positive, strict=strict)
        parts = [self.node(p, positive=positive, strict=strict) for p in condition.parts]
        if isinstance(condition, All) == positive:
            return conjunction(parts)
        return disjunction(parts)
