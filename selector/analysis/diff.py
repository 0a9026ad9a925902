"""What an edit changes: every region where the winner, the accepted candidates, their order or the reasons differ.

Both catalogs are translated over one space, so what did not change is one and the same literal. Each kind of change is then a
literal whose regions are enumerated until none is left; that none is left is the proof that nothing else changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from selector.analysis import describe, facets
from selector.analysis.changed import KINDS, Change, Diff, Region
from selector.analysis.circuit import FALSE, TRUE
from selector.analysis.regions import cover, plans
from selector.analysis.sides import Side, adjustments_of, places_before, reasons_of, warnings_of
from selector.analysis.smallest import Machine, Witness, at_environment, machines, near
from selector.analysis.solver import Solver
from selector.analysis.space import Space
from selector.analysis.witness import Refuted, decide

if TYPE_CHECKING:
    from selector.analysis.facets import Facet
    from selector.analysis.regions import Cube
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.report import Report

__all__ = ["Change", "Diff", "Region", "compare"]

#: Conditions that a change of the winner may need before they speak of other candidates, too.
FEW = 4


class Comparison:
    """Two catalogs under comparison."""

    def __init__(
        self, old: Catalog, new: Catalog, limit: int, strict: bool, on: Environment | None = None
    ) -> None:
        self.limit, self.strict = limit, strict
        self.space = Space([old.program, new.program])
        self.old, self.new = (Side(c, self.space, strict=strict) for c in (old, new))
        self.circuit = self.space.circuit
        here = [] if on is None else at_environment(self.space, on, new)
        if here is None:
            raise ValueError(f"{on!r} has a fact that no class of values holds")
        self.solver = Solver(self.space, [*self._common(), *here])
        self.names = list(dict.fromkeys([*self.old.position, *self.new.position]))
        self.machines = machines(self.space, new) if on is None else [Machine(on, tuple(here))]
        self.facets, self.given = self._facets()

    def _common(self) -> Iterator[int]:
        """Requests that both vocabularies know: an axis that only one has is not given."""
        for given in self.space.given:
            sides = [s for s in (self.old, self.new) if given.axis.name in s.program.vocabulary.by_name]
            k = given.where("absent")
            if len(sides) < 2 and k is not None and given.package is None:
                yield given.literals[k]

    def _facets(self) -> tuple[list[Facet], int]:
        given = facets.given(self.space)
        after = facets.derived(self.new.translation, beside=self.old.program)
        before = facets.derived(self.old.translation, beside=self.new.program)
        known = {f.name: f.literals for f in after}
        other = [
            f for f in before if known.get(f.name) != f.literals
        ]  # another definition, or in the old one alone
        told = [f._replace(label=f"{f.name} (before)") if f.name in known else f for f in other]
        return facets.possible(self.solver, [*given, *after, *told], ()), len(given)

    def _candidates(self, besides: tuple[str, ...]) -> list[Facet]:
        """Whether candidates accept, before and after: for conditions that would be many without."""
        found: list[Facet] = []
        for name in self.names:
            if name in besides:
                continue
            after, before = self.new.accepted(name), self.old.accepted(name)
            if abs(after) != TRUE:
                found.append(facets.accepting(name if before == after else f"{name} (after)", after))
            if before != after and abs(before) != TRUE:
                found.append(facets.accepting(f"{name} (before)", before))
        return found

    def changes(self) -> list[Change]:
        """All changes, the most important first."""
        found = [
            *self.winners(),
            *self.acceptance(),
            *self.reach(),
            *self.orders(),
            *self.reasons(),
            *self.warnings(),
            *self.adjustments(),
        ]
        return sorted(found, key=lambda c: KINDS.index(c.kind))

    # -- kinds of changes ---------------------------------------------------------------------------------------------

    def winners(self) -> Iterator[Change]:
        """Another candidate is selected, or one where there was none, or none where there was one."""
        none = "nothing"
        old = {n: self.old.wins(n) for n in self.names} | {none: -self.old.translation.some}
        new = {n: self.new.wins(n) for n in self.names} | {none: -self.new.translation.some}
        for a, before in old.items():
            if before == new[a] or not self.possible(before, -new[a]):
                continue
            for b, after in new.items():
                if b == a or not self.possible(before, after):
                    continue
                context = [x for x in (self.old.accepted(a), self.new.accepted(b)) if a != none and b != none]
                words = f"{a} accepts before and {b} after" if context else ""
                if a == none:
                    context, words = [self.new.accepted(b)], f"{b} accepts after"
                elif b == none:
                    context, words = [self.old.accepted(a)], f"{a} accepts before"
                yield self._change("winner", a, a, b, [before, after], context, words)

    def acceptance(self) -> Iterator[Change]:
        """A candidate accepts what it refused, or refuses what it accepted."""
        for name in self.names:
            before, after = self.old.accepted(name), self.new.accepted(name)
            if before == after:
                continue
            if self.possible(before, -after):
                yield self._change(
                    "accepted",
                    name,
                    "accepted",
                    "refused",
                    [before, -after],
                    [before],
                    f"{name} accepts before",
                )
            if self.possible(-before, after):
                yield self._change(
                    "accepted",
                    name,
                    "refused",
                    "accepted",
                    [-before, after],
                    [after],
                    f"{name} accepts after",
                )

    def reach(self) -> Iterator[Change]:
        """A candidate that accepts is reached by an order, or no longer."""
        for name in self.names:
            both = [self.old.accepted(name), self.new.accepted(name)]
            before, after = self.old.ranked(name), self.new.ranked(name)
            if before == after:
                continue
            words = f"{name} accepts before and after"
            if self.possible(*both, before, -after):
                yield self._change(
                    "reach", name, "in the order", "only by name", [*both, before, -after], both, words
                )
            if self.possible(*both, -before, after):
                yield self._change(
                    "reach", name, "only by name", "in the order", [*both, -before, after], both, words
                )

    def orders(self) -> Iterator[Change]:
        """Two candidates that accept change places."""
        if [o.places for o in self.old.translation.orders] == [
            o.places for o in self.new.translation.orders
        ] and [o.active for o in self.old.translation.orders] == [
            o.active for o in self.new.translation.orders
        ]:
            return
        before, after = places_before(self.old), places_before(self.new)
        for (a, b), first in before.items():
            swapped = after.get((b, a), FALSE)
            if swapped == FALSE or first == FALSE:
                continue
            both = [s.accepted(n) for s in (self.old, self.new) for n in (a, b)]
            if self.possible(first, swapped, *both):
                yield self._change(
                    "order",
                    f"{a}, {b}",
                    f"{a} before {b}",
                    f"{b} before {a}",
                    [first, swapped, *both],
                    both,
                    "both accept",
                )

    def reasons(self) -> Iterator[Change]:
        """A candidate is refused before and after, for other reasons."""
        for name in self.names:
            i, j = self.old.position.get(name), self.new.position.get(name)
            if i is None or j is None:
                continue
            refused = [-self.old.accepted(name), -self.new.accepted(name)]
            before, after = reasons_of(self.old, i), reasons_of(self.new, j)
            for key in dict.fromkeys([*before, *after]):
                gone = self.circuit.both(before.get(key, FALSE), -after.get(key, FALSE))
                come = self.circuit.both(after.get(key, FALSE), -before.get(key, FALSE))
                for literal, old, new in ((gone, key, "not said"), (come, "not said", key)):
                    if literal != FALSE and self.possible(literal, *refused):
                        words = f"{name} refuses before and after"
                        yield self._change("reasons", name, old, new, [literal, *refused], refused, words)

    def warnings(self) -> Iterator[Change]:
        """A candidate is accepted before and after, with other warnings."""
        yield from self._texts("warnings", warnings_of)

    def adjustments(self) -> Iterator[Change]:
        """A candidate is accepted before and after, and runs another request."""
        yield from self._texts("adjustments", adjustments_of)

    def _texts(self, kind: str, of: Any) -> Iterator[Change]:
        for name in self.names:
            i, j = self.old.position.get(name), self.new.position.get(name)
            if i is None or j is None:
                continue
            both = [self.old.accepted(name), self.new.accepted(name)]
            before, after = of(self.old, i), of(self.new, j)
            for key in dict.fromkeys([*before, *after]):
                gone = self.circuit.both(before.get(key, FALSE), -after.get(key, FALSE))
                come = self.circuit.both(after.get(key, FALSE), -before.get(key, FALSE))
                for literal, old, new in ((gone, key, "none"), (come, "none", key)):
                    if literal != FALSE and self.possible(literal, *both):
                        words = f"{name} accepts before and after"
                        yield self._change(kind, name, old, new, [literal, *both], both, words)

    # -- regions ------------------------------------------------------------------------------------------------------

    def possible(self, *literals: int) -> bool:
        """Whether some request on some machine has all these literals."""
        return FALSE not in literals and self.solver.check(literals)

    def _change(
        self, kind: str, subject: str, old: str, new: str, inside: list[int], within: list[int], context: str
    ) -> Change:
        literal = self.circuit.conj(inside)
        base = [x for x in within if x != TRUE]
        used = self.facets
        few = FEW if kind == "winner" else self.limit
        covered = cover(self.solver, used, literal, base, plans(self.given, len(used)), limit=few)
        for besides, most in (((old, new), 2 * FEW), ((), self.limit)):
            if covered.complete or kind != "winner":
                break
            used = [*self.facets, *self._candidates(besides)]
            ways = [(range(len(self.facets)), range(len(self.facets), len(used)))]
            covered = cover(self.solver, used, literal, base, ways, limit=most)
        regions = tuple(self._region(kind, subject, cube, used, literal, base) for cube in covered.cubes)
        return Change(kind, subject, old, new, context, regions, covered.complete, tuple(base))

    def _region(
        self, kind: str, subject: str, cube: Cube, used: list[Facet], literal: int, base: list[int]
    ) -> Region:
        literals = cube.literals(used)
        witness = near(self.solver, [literal, *base, *literals], self.new.catalog, self.machines)
        self._confirm(kind, subject, witness)
        return Region(
            describe.cube_text(cube, used),
            tuple(describe.cube_parts(cube, used)),
            witness,
            tuple(literals),
            describe.own_text(cube, used),
            any(used[f].candidate is not None for f in cube.allowed),
        )

    def _confirm(self, kind: str, subject: str, witness: Witness) -> None:
        """Both engines must see the change that the analysis found."""
        reports = [
            decide(
                (witness.request.within(s.catalog.vocabulary), witness.environment),
                s.catalog,
                strict=self.strict,
            )
            for s in (self.old, self.new)
        ]
        if kind == "winner":
            seen = reports[0].selected != reports[1].selected
        elif kind == "accepted":
            seen = len({subject in _accepted(r) for r in reports}) == 2
        else:
            seen = True
        if not seen:
            raise Refuted(f"{kind} of {subject}: the engine does not confirm {witness.text}")


def _accepted(report: Report) -> set[str]:
    ids = [c.id for c in report.catalog.candidates]
    return {ids[i] for i in (*report.outcome.ranked, *report.outcome.excluded)}


def compare(
    old: Catalog, new: Catalog, *, limit: int = 40, strict: bool = False, on: Environment | None = None
) -> Diff:
    """Everything that differs between two catalogs, in strict selection or not, on any machine or on one.

    ``limit``: regions that one change may need before it is cut off. Raises ValueError for a machine with a fact that the
    catalogs cannot have.
    """
    comparison = Comparison(old, new, limit, strict, on)
    changes, notes = tuple(comparison.changes()), tuple(_notes(old, new))
    return Diff(new.name, changes, notes, comparison.space, strict, None if on is None else on.name)


def _notes(old: Catalog, new: Catalog) -> Iterable[str]:
    before = {c.id for c in old.candidates if not c.abstract}
    after = {c.id for c in new.candidates if not c.abstract}
    for name in sorted(before - after):
        yield f"candidate {name} is gone"
    for name in sorted(after - before):
        yield f"candidate {name} is new"
    for name in old.vocabulary.by_name:
        if name not in new.vocabulary.by_name:
            yield f"axis {name} is gone: requests that give it are not compared"
    for axis in new.vocabulary.axes:
        other = old.vocabulary.by_name.get(axis.name)
        if other is None:
            yield f"axis {axis.name} is new: requests that give it are not compared"
        elif set(axis.values) != set(other.values):
            changed = sorted(set(axis.values) ^ set(other.values))
            yield f"axis {axis.name}: values that only one side has are not compared: {', '.join(changed)}"
        elif (axis.min, axis.max) != (other.min, other.max):
            yield f"axis {axis.name}: numbers outside the common domain are not compared"
