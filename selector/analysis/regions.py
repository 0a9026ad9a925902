"""Regions: all places where a literal holds, as few general conditions, each a set of allowed classes for a few facets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from selector.analysis.circuit import TRUE

if TYPE_CHECKING:
    from selector.analysis.facets import Facet
    from selector.analysis.solver import Solver
    from selector.analysis.space import Space

__all__ = ["Cover", "Cube", "Plan", "cover", "generalise", "plain", "plans"]


class Cube(NamedTuple):
    """A condition: for each named facet the positions of its classes that are allowed.

    ``needed`` are those of them that can be had where the rest of the condition holds; the others are as good as refused.
    """

    allowed: Mapping[int, frozenset[int]]
    needed: Mapping[int, frozenset[int]]

    def literals(self, facets: Sequence[Facet]) -> list[int]:
        """Literals that together say it: classes that are not allowed are not had."""
        return [
            -literal
            for f, allowed in self.allowed.items()
            for k, literal in enumerate(facets[f].literals)
            if k not in allowed
        ]

    def outside(self, facets: Sequence[Facet]) -> list[int]:
        """Literals of which one holds outside."""
        return [-literal for literal in self.literals(facets)]


class Cover(NamedTuple):
    """Conditions that together are a region; ``complete``: nothing of it is left out."""

    cubes: tuple[Cube, ...]
    complete: bool


def plain(space: Space, *, known: bool = True) -> list[int]:
    """Literals of an ordinary place: nothing left open that has another default, no odd version, packages in order.

    ``known``: every fact is known, too.
    """
    found: list[int] = []
    for given in space.given:
        for c, literal in zip(given.classes, given.literals):
            odd = (c.kind == "unknown" and known) or (
                c.kind == "null" and (given.axis.of == "environment" or given.axis.default is not None)
            )
            if c.kind == "value" and given.package is not None:
                state = c.value
                odd = state.state != "missing" and (state.state != "usable" or not _released(state.version))
            elif c.kind == "value" and given.axis.type == "version":
                odd = not _released(c.value)
            if odd:
                found.append(-literal)
    return found


def _released(version: str | None) -> bool:
    return version is not None and version.replace(".", "").isdigit()


def _at(solver: Solver, facet: Facet) -> int:
    """The class that a facet has in the solver's last solution."""
    return next(k for k, literal in enumerate(facet.literals) if solver.holds(literal))


#: Which facets a condition rather does without: groups of positions, the first to be dropped first.
Plan = Sequence[Sequence[int]]


def plans(given: int, number: int) -> list[Plan]:
    """Conditions by given axes, and by derived ones; the shorter is taken."""
    first, second = range(given), range(given, number)
    return [(second, first), (first, second)] if second else [(first,)]


def generalise(
    solver: Solver, facets: Sequence[Facet], inside: int, within: Iterable[int], ways: Sequence[Plan]
) -> Cube:
    """The condition, as general as can be, around the solver's last solution, all of which lies inside a region.

    The solution settles the facets' literals (`Solver.check`). ``inside`` is the region's literal, ``within`` literals that
    are taken for granted.
    """
    outside = [-inside, *within]
    where = [_at(solver, f) for f in facets]
    best: list[int] | None = None
    for plan in ways:
        found = _smaller(solver, facets, where, outside, plan)
        if best is None or len(found) < len(best):
            best = found
    assert best is not None
    return _widened(solver, facets, {f: frozenset([where[f]]) for f in best}, outside)


def _smaller(
    solver: Solver, facets: Sequence[Facet], where: list[int], outside: list[int], plan: Plan
) -> list[int]:
    """Facets whose classes alone keep a place inside; none can be left out."""
    owner: dict[int, int] = {}
    groups: list[list[int]] = []
    for positions in plan:
        group: list[int] = []
        for f in positions:
            literal = facets[f].literals[where[f]]
            if literal != TRUE and literal not in owner:
                owner[literal] = f
                group.append(literal)
        groups.append(group)
    kept: list[int] = []
    for k, group in enumerate(groups):
        later = [x for g in groups[k + 1 :] for x in g]
        kept += solver.smallest_core(group, keep=[*outside, *kept, *later])
    return [owner[x] for x in kept]


def _widened(
    solver: Solver,
    facets: Sequence[Facet],
    start: Mapping[int, frozenset[int]],
    outside: list[int],
) -> Cube:
    """Allow every further class of each facet that keeps the condition inside."""
    allowed = dict(start)
    for f in sorted(allowed, key=lambda f: len(facets[f].classes)):
        others = Cube({g: a for g, a in allowed.items() if g != f}, {}).literals(facets)
        for k, literal in enumerate(facets[f].literals):
            if k not in allowed[f] and not solver.check([*outside, *others, literal]):
                allowed[f] |= {k}
    whole = [f for f, a in allowed.items() if len(a) == len(facets[f].classes)]
    allowed = {f: a for f, a in allowed.items() if f not in whole}
    return Cube(allowed, _needed_classes(solver, facets, allowed, outside[1:]))


def _needed_classes(
    solver: Solver, facets: Sequence[Facet], allowed: dict[int, frozenset[int]], within: list[int]
) -> dict[int, frozenset[int]]:
    found: dict[int, frozenset[int]] = {}
    whole = Cube(allowed, {})
    for f, classes in allowed.items():
        others = whole._replace(allowed={g: a for g, a in allowed.items() if g != f}).literals(facets)
        found[f] = frozenset(k for k in classes if solver.check([*within, *others, facets[f].literals[k]]))
    return found


def cover(
    solver: Solver,
    facets: Sequence[Facet],
    inside: int,
    within: Iterable[int],
    ways: Sequence[Plan],
    *,
    limit: int = 40,
    simple_first: bool = False,
) -> Cover:
    """All of a region as general conditions; ordinary places first. Incomplete where more than ``limit`` are needed.

    ``simple_first``: before all others those that speak of one facet alone.
    """
    base = list(within)
    settled = [literal for f in facets for literal in f.literals]
    switch = solver.space.circuit.var()
    found: list[Cube] = []
    if simple_first:
        for cube in _simple(solver, facets, [-inside, *base]):
            found.append(cube)
            solver.clause([-switch, *cube.outside(facets)])
    for preferred in (plain(solver.space), []):
        while solver.check([inside, switch, *base, *preferred], settled):
            if len(found) >= limit:
                return Cover(tuple(found), False)
            cube = generalise(solver, facets, inside, base, ways)
            found.append(cube)
            solver.clause([-switch, *cube.outside(facets)])
    found = list(_needed(solver, facets, found, base))
    return Cover(tuple(_besides(solver, facets, found, base) if simple_first else found), True)


def _simple(solver: Solver, facets: Sequence[Facet], outside: list[int]) -> Iterator[Cube]:
    """Conditions on one facet alone that lie inside a region; none at all if everything does."""
    if not solver.check(outside):
        yield Cube({}, {})
        return
    for f, facet in enumerate(facets):
        inside = [k for k, x in enumerate(facet.literals) if not solver.check([*outside, x])]
        needed = [k for k in inside if solver.check([*outside[1:], facet.literals[k]])]
        if needed:
            yield Cube({f: frozenset(inside)}, {f: frozenset(needed)})


def _needed(solver: Solver, facets: Sequence[Facet], cubes: list[Cube], base: list[int]) -> Iterator[Cube]:
    """Leave out conditions that the others cover together."""
    kept = list(cubes)
    for cube in cubes:
        others = [c for c in kept if c is not cube]
        switch = solver.space.circuit.var()
        for other in others:
            solver.clause([-switch, *other.outside(facets)])
        if others and not solver.check([switch, *base, *cube.literals(facets)]):
            kept = others
    yield from kept


def _besides(solver: Solver, facets: Sequence[Facet], cubes: list[Cube], base: list[int]) -> Iterator[Cube]:
    """What has to be said of a condition is what those on one facet alone leave of it."""
    switch = solver.space.circuit.var()
    for cube in cubes:
        if len(cube.allowed) == 1:
            solver.clause([-switch, *cube.outside(facets)])
    for cube in cubes:
        if len(cube.allowed) > 1:
            needed = _needed_classes(solver, facets, dict(cube.allowed), [switch, *base])
            cube = cube._replace(needed=needed)
        yield cube
