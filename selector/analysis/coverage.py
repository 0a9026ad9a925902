"""Coverage: where nothing fits, on one machine or any; and for several machines what works on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis import describe, facets
from selector.analysis.circuit import FALSE, TRUE
from selector.analysis.invariants import known_facts
from selector.analysis.regions import cover, plans
from selector.analysis.smallest import Witness, hardware, machines, near
from selector.analysis.solver import Solver
from selector.analysis.space import Space
from selector.analysis.translate import Translation
from selector.analysis.witness import Refuted, decide, values_of
from selector.request import Request

if TYPE_CHECKING:
    from selector.analysis.facets import Facet
    from selector.analysis.regions import Cube
    from selector.catalog import Catalog
    from selector.environment import Environment

__all__ = ["Coverage", "Hole", "Worth", "coverage"]


class Hole(NamedTuple):
    """A condition under which nothing is selected: on the named machines, with an example that the engine has confirmed.

    ``literals`` say it, for whoever wants to test membership.
    """

    condition: str
    parts: tuple[tuple[str, str], ...]
    machines: tuple[str, ...]
    witness: Witness
    literals: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "condition": self.condition,
            "parts": dict(self.parts),
            "machines": list(self.machines),
            "witness": self.witness.to_dict(),
        }


class Worth(NamedTuple):
    """How far one candidate goes on all machines together: always, sometimes or never; ``never_on``: not on these at all."""

    candidate: str
    accepted: str
    never_on: tuple[str, ...]
    example: Request | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "candidate": self.candidate,
            "accepted": self.accepted,
            "never_on": list(self.never_on),
            "example": None if self.example is None else self.example.to_dict(),
        }


class Coverage(NamedTuple):
    """What was found. ``complete``: there are no other holes. ``presets``: on the hardware of the preset machines."""

    machines: tuple[str, ...]
    holes: tuple[Hole, ...]
    complete: bool
    worth: tuple[Worth, ...]
    space: Space
    presets: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "machines": list(self.machines),
            "presets": self.presets,
            "complete": self.complete,
            "holes": [h.to_dict() for h in self.holes],
            "candidates": [w.to_dict() for w in self.worth],
        }


def coverage(
    catalog: Catalog,
    environments: Sequence[Environment],
    fields: Mapping[str, Any],
    *,
    limit: int = 60,
    presets: bool = False,
) -> Coverage:
    """Holes for requests with these fields; on these machines, or (none given) on any of which every fact is known.

    ``presets``: where no machine is given, only on the hardware of the preset machines, with whatever packages. Without
    presets in the catalog's manifests directory that is any machine.
    """
    search = _Search(catalog, environments, fields, presets=presets)
    holes, complete = search.holes(limit)
    return Coverage(
        tuple(e.name for e in environments),
        tuple(holes),
        complete,
        tuple(search.worth()) if environments else (),
        search.space,
        search.presets,
    )


class _Search:
    def __init__(
        self,
        catalog: Catalog,
        environments: Sequence[Environment],
        fields: Mapping[str, Any],
        *,
        presets: bool,
    ) -> None:
        self.catalog, self.environments = catalog, environments
        self.request = Request(fields, vocabulary=catalog.vocabulary)
        fixed = dict(zip(self.request._axes, self.request._values))
        for name in fields:  # a field that is given at its default is given
            axis = catalog.vocabulary.find(name)
            if axis is not None:
                fixed.setdefault(axis.index, axis.default)
        for axis in catalog.vocabulary.axes:
            if axis.identity:  # whoever asks for a candidate by name does not ask where nothing fits
                fixed.setdefault(axis.index, axis.default)
        self.space = Space([catalog.program])
        facts: list[Mapping[int, Any] | None] = [e.values(catalog.vocabulary) for e in environments]
        self.sides = [
            Translation(self.space, catalog.program, facts=f, fields=fixed) for f in facts or [None]
        ]
        self.free = [
            g
            for g in self.space.given
            if (g.axis.of == "request" or not environments)
            and catalog.vocabulary.by_name[g.axis.name].index not in fixed
        ]
        there = hardware(self.space, catalog) if presets and not environments else None
        self.presets = there is not None
        if there is not None:
            base = [there, *known_facts(self.space, software=True)]
        else:
            base = [] if environments else known_facts(self.space)
        self.solver = Solver(self.space, base)
        self.base = base

    def _facets(self) -> tuple[list[Facet], int]:
        free = {g.index for g in self.free}
        given = [f for k, f in enumerate(facets.given(self.space)) if k in free]
        derived = facets.derived(self.sides[0])
        for side in self.sides[1:]:
            others = {f.name: f.literals for f in facets.derived(side)}
            derived = [f for f in derived if others.get(f.name) == f.literals]
        derived = [f for f in derived if all(abs(x) != TRUE for x in f.literals)]
        return facets.possible(self.solver, [*given, *derived], ()), len(given)

    def holes(self, limit: int) -> tuple[list[Hole], bool]:
        """Conditions under which some machine has nothing, those with the fewest parts first."""
        missing = self.space.circuit.disj(-s.some for s in self.sides)
        if missing == FALSE:
            return [], True
        used, given = self._facets()
        covered = cover(
            self.solver, used, missing, (), plans(given, len(used)), limit=limit, simple_first=True
        )
        holes = [self._hole(cube, used, missing) for cube in covered.cubes]
        return sorted(holes, key=lambda h: (len(h.parts), h.condition)), covered.complete

    def _hole(self, cube: Cube, used: list[Facet], missing: int) -> Hole:
        literals = cube.literals(used)
        told = cube._replace(allowed={f: cube.needed.get(f) or a for f, a in cube.allowed.items()}).literals(
            used
        )
        there = [s for s in self.sides if not self.solver.check([*literals, s.some])]
        names = [e.name for e, s in zip(self.environments, self.sides) if s in there]
        if self.environments:
            side = (
                there[0] if there else next(s for s in self.sides if self.solver.check([*literals, -s.some]))
            )
            if not self.solver.check([*told, -side.some]):
                self.solver.check([*literals, -side.some])
            environment = self.environments[self.sides.index(side)]
            found = Witness(self._request(), environment, environment)
        else:
            example = [missing, *(told if self.solver.check([missing, *told]) else literals)]
            found = near(self.solver, example, self.catalog, self._machines())
            found = found._replace(request=self._whole(found.request))
        if decide((found.request, found.environment), self.catalog).selected is not None:
            raise Refuted(f"the engine does not confirm a hole at {found.text}")
        return Hole(
            describe.cube_text(cube, used),
            tuple(describe.cube_parts(cube, used)),
            tuple(names),
            found,
            tuple(literals),
        )

    def _request(self) -> Request:
        raw = values_of(self.space, self.solver.point())
        free = {g.axis.name for g in self.free}
        return self._whole(
            Request({n: v for n, v in raw.fields.items() if n in free}, vocabulary=self.catalog.vocabulary)
        )

    def _whole(self, request: Request) -> Request:
        """A request with the fields that are fixed."""
        free = {g.axis.name for g in self.free}
        fields = {n: v for n, v in request.to_dict().items() if n in free}
        return Request({**fields, **self.request.to_dict()}, vocabulary=self.catalog.vocabulary)

    def _machines(self) -> Any:
        known = self.__dict__.get("_known")
        if known is None:
            known = self.__dict__["_known"] = machines(self.space, self.catalog)
        return known

    # -- candidates ---------------------------------------------------------------------------------------------------

    def worth(self) -> list[Worth]:
        """For each listed candidate: whether all machines accept it, for all requests, some or none."""
        circuit = self.space.circuit
        found: list[Worth] = []
        for i in self.sides[0].listed():
            accepted = [s.accepted(i) for s in self.sides]
            whole = circuit.conj(accepted)
            never = [e.name for e, x in zip(self.environments, accepted) if not self._possible(x)]
            if not self._possible(-whole):
                kind, example = "always", self.request
            elif self._possible(whole):
                kind, example = "sometimes", self._request()
                self._confirm(i, example)
            else:
                kind, example = "never", None
            found.append(Worth(self.catalog.candidates[i].id, kind, tuple(never), example))
        order = {"always": 0, "sometimes": 1, "never": 2}
        return sorted(found, key=lambda w: (order[w.accepted], len(w.never_on)))

    def _possible(self, literal: int) -> bool:
        return literal != FALSE and self.solver.check([literal])

    def _confirm(self, i: int, request: Request) -> None:
        for environment in self.environments:
            outcome = decide((request, environment), self.catalog).outcome
            if i not in {*outcome.ranked, *outcome.excluded}:
                name = self.catalog.candidates[i].id
                raise Refuted(f"{name} on {environment.name}: the engine does not confirm {request!r}")
