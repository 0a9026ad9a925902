"""Facets: everything that a region can be described by. The given axes and packages, and derived axes that something reads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis import symbolic
from selector.analysis.circuit import FALSE
from selector.analysis.classes import NULL_CLASS, UNKNOWN_CLASS, Class
from selector.analysis.integers import cut, cuts_of
from selector.analysis.numbers import NumOp, NumVar, bounds
from selector.analysis.observe import observe
from selector.nodes import Atom
from selector.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from selector.analysis.observe import Observed
    from selector.analysis.solver import Solver
    from selector.analysis.space import Space
    from selector.analysis.translate import Translation
    from selector.conditions import Condition
    from selector.program import Program
    from selector.vocabulary import Axis

__all__ = ["Facet", "derived", "given"]


class Facet(NamedTuple):
    """Something with a few classes of values, each with the literal of lying in it.

    ``package`` is the package's name where it is one; ``specifiers`` describe versions; ``candidate`` is set for "accepts".
    """

    axis: Axis | None
    package: str | None
    classes: tuple[Class, ...]
    literals: tuple[int, ...]
    specifiers: tuple[str, ...] = ()
    candidate: str | None = None
    label: str | None = None
    """What a derived axis is called where it is not the only one of its name."""

    @property
    def name(self) -> str:
        """How it is called."""
        named = self.candidate or self.package or self.label
        return named or (self.axis.name if self.axis is not None else "")


def given(space: Space) -> list[Facet]:
    """The given axes and packages."""
    return [Facet(g.axis, g.package, g.classes, g.literals, g.specifiers) for g in space.given]


def accepting(name: str, literal: int) -> Facet:
    """Whether a candidate accepts."""
    classes = (Class("value", True, (True,)), Class("value", False, (False,)))
    return Facet(None, None, classes, (literal, -literal), (), name)


def derived(
    translation: Translation, conditions: Iterable[Condition] = (), *, beside: Program | None = None
) -> list[Facet]:
    """The derived axes that something reads, apart by what is read of them, here or in the program ``beside``.

    Those with one class are left out.
    """
    program = translation.program
    seen = observe(program, conditions)
    others = {} if beside is None else dict(zip((a.name for a in beside.vocabulary.axes), observe(beside)))
    found: list[Facet] = []
    for axis in program.vocabulary.axes:
        if axis.derive is None:
            continue
        if axis.name in others:
            seen[axis.index].constraints.update(others[axis.name].constraints)
        if not seen[axis.index].constraints:
            continue
        value = translation.view.values[axis.index]
        classes = _numbers(translation.space, axis, seen[axis.index], value)
        if axis.type != "integer":
            classes = _values(translation.space, seen[axis.index], value)
        possible = [(c, literal) for c, literal in classes if literal != FALSE]
        if len(possible) > 1:
            found.append(
                Facet(axis, None, tuple(c for c, _ in possible), tuple(literal for _, literal in possible))
            )
    return found


def _values(space: Space, seen: Observed, value: symbolic.Sym) -> list[tuple[Class, int]]:
    groups: dict[Hashable, list[tuple[int, Any]]] = {}
    for literal, leaf in value:
        if leaf is None or leaf is UNKNOWN:
            key: Hashable = ("special", leaf is None)
        else:
            key = tuple(c.holds(leaf) for c in seen.constraints if c.given is None)
        groups.setdefault(key, []).append((literal, leaf))
    found = []
    for members in groups.values():
        first = members[0][1]
        kind = NULL_CLASS if first is None else UNKNOWN_CLASS if first is UNKNOWN else None
        values = tuple(leaf for _, leaf in members)
        found.append(
            (kind or Class("value", first, values), space.circuit.disj(literal for literal, _ in members))
        )
    return found


def _numbers(space: Space, axis: Axis, seen: Observed, value: symbolic.Sym) -> list[tuple[Class, int]]:
    """An integer by the pieces that its tests cut; pieces that the tests do not tell apart are one class."""
    if axis.type != "integer":
        return []
    circuit = space.circuit
    starts, moduli = cuts_of(seen.constraints, ())
    pieces = cut(*_domain(space, axis, value), starts, moduli)
    constraints = [c for c in seen.constraints if c.given is None]
    groups: dict[tuple[bool, ...], list[Any]] = {}
    for piece in pieces:
        groups.setdefault(tuple(c.holds(piece.example) for c in constraints), []).append(piece)
    special: dict[bool, list[int]] = {}
    known: list[int] = []
    for literal, leaf in value:
        if leaf is None or leaf is UNKNOWN:
            special.setdefault(leaf is None, []).append(literal)
        else:
            known.append(literal)
    found = []
    tests = {
        c: symbolic.truth(
            space,
            Atom(axis.index, c, False, False),
            tuple((g, v) for g, v in value if v is not None and v is not UNKNOWN),
        )
        for c in constraints
    }
    here = circuit.disj(known)
    for answers, members in groups.items():
        literal = circuit.conj([here, *(tests[c] if a else -tests[c] for c, a in zip(constraints, answers))])
        found.append((Class("value", members[0].example, tuple(members)), literal))
    for null, literals in special.items():
        found.append((NULL_CLASS if null else UNKNOWN_CLASS, circuit.disj(literals)))
    return found


def _domain(space: Space, axis: Axis, value: symbolic.Sym) -> tuple[int | None, int | None]:
    """Between which numbers a derived integer lies: what its axis says, and what it is made of."""
    low, high = axis.min, axis.max
    leaves = [leaf for _, leaf in value if leaf is not None and leaf is not UNKNOWN]
    if not all(isinstance(leaf, (int, NumVar, NumOp)) for leaf in leaves):
        return low, high
    found = [bounds(leaf, space._domain) for leaf in leaves if isinstance(leaf, (int, NumVar, NumOp))]
    if isinstance(axis.derive, Mapping) and "ratio" in axis.derive:  # whole, so 0 of a 0 alone
        found = [(_ratio_low(space, leaf, least), most) for leaf, (least, most) in zip(leaves, found)]
    lows, highs = [f[0] for f in found if f[0] is not None], [f[1] for f in found if f[1] is not None]
    if found and len(lows) == len(found):
        low = min(lows) if low is None else max(low, min(lows))
    if found and len(highs) == len(found):
        high = max(highs) if high is None else min(high, max(highs))
    return low, high


def _ratio_low(space: Space, leaf: Any, least: int | None) -> int | None:
    if least == 0 and isinstance(leaf, NumOp) and leaf.op == "floor_div":
        above = bounds(leaf.args[0], space._domain)[0]
        return 1 if above is not None and above > 0 else 0
    return least


def possible(solver: Solver, facets: Sequence[Facet], within: Iterable[int]) -> list[Facet]:
    """Facets without classes that cannot be had at all (null and unknown values are asked about; others are left)."""
    base = list(within)
    found: list[Facet] = []
    for facet in facets:
        kept = [
            k
            for k, (c, literal) in enumerate(zip(facet.classes, facet.literals))
            if c.kind == "value" or solver.check([*base, literal])
        ]
        classes = tuple(facet.classes[k] for k in kept)
        found.append(facet._replace(classes=classes, literals=tuple(facet.literals[k] for k in kept)))
    return found
