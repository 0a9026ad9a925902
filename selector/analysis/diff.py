"""What an edit changes: every region where the winner, the accepted candidates, their order or the reasons differ.

Both catalogs are translated over one space, so what did not change is one and the same literal. Each kind of change is then a
literal whose regions are enumerated until none is left; that none is left is the proof that nothing else changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis import describe, facets
from selector.analysis.circuit import FALSE, TRUE
from selector.analysis.regions import cover, plans
from selector.analysis.smallest import Witness, machines, near
from selector.analysis.solver import Solver
from selector.analysis.space import Space
from selector.analysis.translate import Translation
from selector.analysis.witness import Refuted, decide

if TYPE_CHECKING:
    from selector.analysis.facets import Facet
    from selector.analysis.regions import Cube
    from selector.catalog import Catalog
    from selector.report import Report

__all__ = ["Change", "Diff", "Region", "compare"]

#: Conditions that a change of the winner may need before they speak of other candidates, too.
FEW = 4

#: What can change, the most important first.
KINDS = ("winner", "accepted", "reach", "order", "reasons", "warnings", "adjustments")


class Region(NamedTuple):
    """One general condition under which something changed. ``literals`` say it, for whoever wants to test membership."""

    condition: str
    parts: tuple[tuple[str, str], ...]
    witness: Witness
    literals: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"condition": self.condition, "parts": dict(self.parts), "witness": self.witness.to_dict()}


class Change(NamedTuple):
    """One change and all regions where it is so.

    ``old`` and ``new`` say what was and what is; ``context`` what the conditions take for granted, in words, and
    ``within`` as literals. ``complete``: the regions are all there are.
    """

    kind: str
    subject: str
    old: str
    new: str
    context: str
    regions: tuple[Region, ...]
    complete: bool
    within: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "old": self.old,
            "new": self.new,
            "context": self.context,
            "complete": self.complete,
            "regions": [r.to_dict() for r in self.regions],
        }


class Diff(NamedTuple):
    """All changes between two catalogs; ``notes`` are about axes and candidates that only one of them has."""

    name: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    space: Space

    @property
    def complete(self) -> bool:
        """Nothing else changed: proved."""
        return all(c.complete for c in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "pack": self.name,
            "complete": self.complete,
            "changes": [c.to_dict() for c in self.changes],
            "notes": list(self.notes),
        }


class Side:
    """One of the two catalogs over the common space."""

    def __init__(self, catalog: Catalog, space: Space) -> None:
        self.catalog, self.program = catalog, catalog.program
        self.translation = Translation(space, catalog.program)
        self.position = {c.id: i for i, c in enumerate(catalog.candidates) if not c.abstract}

    def wins(self, name: str) -> int:
        """The literal of a candidate being selected; false for one that is not there."""
        i = self.position.get(name)
        return FALSE if i is None else self.translation.wins[i]

    def accepted(self, name: str) -> int:
        """The literal of a candidate accepting."""
        i = self.position.get(name)
        return FALSE if i is None else self.translation.accepted(i)

    def ranked(self, name: str) -> int:
        """The literal of a candidate accepting and having a place in the order."""
        i = self.position.get(name)
        return FALSE if i is None else self.translation.ranked(i)


class Comparison:
    """Two catalogs under comparison."""

    def __init__(self, old: Catalog, new: Catalog, limit: int) -> None:
        self.limit = limit
        self.space = Space([old.program, new.program])
        self.old, self.new = Side(old, self.space), Side(new, self.space)
        self.circuit = self.space.circuit
        self.solver = Solver(self.space, self._common())
        self.names = list(dict.fromkeys([*self.old.position, *self.new.position]))
        self.machines = machines(self.space, new)
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
        derived = {f.name: f for f in facets.derived(self.new.translation)}
        before = {f.name: f for f in facets.derived(self.old.translation)}
        same = [f for name, f in derived.items() if name not in before or before[name].literals == f.literals]
        return facets.possible(self.solver, [*given, *same], ()), len(given)

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
        before, after = _before(self.old), _before(self.new)
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
            before, after = _reasons(self.old, i), _reasons(self.new, j)
            for key in dict.fromkeys([*before, *after]):
                gone = self.circuit.both(before.get(key, FALSE), -after.get(key, FALSE))
                come = self.circuit.both(after.get(key, FALSE), -before.get(key, FALSE))
                for literal, old, new in ((gone, key, "not said"), (come, "not said", key)):
                    if literal != FALSE and self.possible(literal, *refused):
                        words = f"{name} refuses before and after"
                        yield self._change("reasons", name, old, new, [literal, *refused], refused, words)

    def warnings(self) -> Iterator[Change]:
        """A candidate is accepted before and after, with other warnings."""
        yield from self._texts("warnings", _warnings)

    def adjustments(self) -> Iterator[Change]:
        """A candidate is accepted before and after, and runs another request."""
        yield from self._texts("adjustments", _adjustments)

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
        )

    def _confirm(self, kind: str, subject: str, witness: Witness) -> None:
        """Both engines must see the change that the analysis found."""
        reports = [
            decide((witness.request.within(s.catalog.vocabulary), witness.environment), s.catalog)
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


def _before(side: Side) -> dict[tuple[str, str], int]:
    """For each two candidates the literal of: the first has an earlier place in the order that holds."""
    circuit = side.translation.space.circuit
    ids = [c.id for c in side.catalog.candidates]
    found: dict[tuple[str, str], list[int]] = {}
    for order in side.translation.orders:
        placed: dict[int, int] = {}
        for when, i, _ in order.places:
            new = circuit.both(when, -placed.get(i, FALSE))
            for other, earlier in placed.items():
                if other != i:
                    found.setdefault((ids[other], ids[i]), []).append(
                        circuit.conj((order.active, earlier, new))
                    )
            placed[i] = circuit.either(placed.get(i, FALSE), when)
    return {pair: circuit.disj(parts) for pair, parts in found.items()}


def _reasons(side: Side, i: int) -> dict[str, int]:
    """What a candidate can be refused for, in words, with the literal of its being so."""
    view = side.translation.view.adjusted(i)[0] if side.program.adjust[i] else side.translation.view
    candidate = side.catalog.candidates[i]
    found: dict[str, list[int]] = {}
    for refusal in view.refusals(i):
        if refusal.kind == "declared":
            axis = side.program.vocabulary.axes[refusal.what]
            atom, _ = side.program.check_of(candidate, axis)
            text = f"{axis.name}: takes {atom.constraint.describe()}"
        else:
            text = candidate.rules[refusal.what].text
        found.setdefault(text, []).append(refusal.literal)
    return {text: side.translation.space.circuit.disj(literals) for text, literals in found.items()}


def _warnings(side: Side, i: int) -> dict[str, int]:
    view = side.translation.view.adjusted(i)[0] if side.program.adjust[i] else side.translation.view
    found: dict[str, list[int]] = {}
    for rule, node in side.program.rules[i]:
        if rule.kind == "warn":
            found.setdefault(rule.text, []).append(view.truth(node))
    return {text: side.translation.space.circuit.disj(literals) for text, literals in found.items()}


def _adjustments(side: Side, i: int) -> dict[str, int]:
    if not side.program.adjust[i]:
        return {}
    from selector.constraints import word

    applied = side.translation.view.adjusted(i)[2]
    found: dict[str, list[int]] = {}
    for entry, literal in zip(side.program.adjust[i], applied):
        changes = [f"{axis.name}={word(value)}" for axis, value in entry.adjustment.changes]
        changes += [f"runs as {entry.adjustment.use}"] if entry.adjustment.use else []
        found.setdefault(", ".join(changes), []).append(literal)
    return {text: side.translation.space.circuit.disj(literals) for text, literals in found.items()}


def compare(old: Catalog, new: Catalog, *, limit: int = 40) -> Diff:
    """Everything that differs between two catalogs. ``limit``: regions that one change may need before it is cut off."""
    comparison = Comparison(old, new, limit)
    return Diff(new.name, tuple(comparison.changes()), tuple(_notes(old, new)), comparison.space)


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
