"""Why not, exactly: all smallest sets of changes to a request and its environment that make a candidate valid, or the winner.

A set is smallest if no part of it is enough. What a set may change to is described as generally as can be; one way is tried
by the engine before it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis import describe, facets, witness
from selector.analysis.circuit import TRUE
from selector.analysis.classes import UNREADABLE
from selector.analysis.regions import cover, plain
from selector.analysis.solver import Solver
from selector.analysis.space import Given, Space
from selector.analysis.translate import Translation
from selector.analysis.witness import Refuted
from selector.constraints import word
from selector.vocabulary import MISSING, UNKNOWN, Packages, PackageState

if TYPE_CHECKING:
    from selector.analysis.facets import Facet
    from selector.report import Report

__all__ = ["Answer", "ChangeSet", "exact"]

#: Changes that one set may have, and sets that are looked for.
MOST, SETS = 5, 12
#: Conditions that one set may need.
WAYS = 4


class ChangeSet(NamedTuple):
    """Things that have to change together. ``ways`` are the possibilities: for each changed thing what it may become.

    ``example`` are single values that the engine has confirmed; ``selected`` is what is chosen with them. ``shape``: they
    change the layer's shape or kind, which is the model's.
    """

    names: tuple[str, ...]
    ways: tuple[tuple[tuple[str, str], ...], ...]
    complete: bool
    example: tuple[tuple[str, Any], ...]
    selected: str | None
    shape: bool

    @property
    def text(self) -> str:
        """In words."""
        said = [" and ".join(_said(name, allowed, len(way)) for name, allowed in way) for way in self.ways]
        return "; or ".join(said) + ("" if self.complete else "; or more")

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "changes": list(self.names),
            "ways": [dict(way) for way in self.ways],
            "complete": self.complete,
            "example": {
                name: value if isinstance(value, (str, int, bool)) else word(value)
                for name, value in self.example
            },
            "selected": self.selected,
            "another_shape": self.shape,
            "text": self.text,
        }


class Answer(NamedTuple):
    """All smallest sets for one goal; ``machine``: they need another machine; ``complete``: there are no others.

    ``already``: nothing has to change.
    """

    goal: str
    sets: tuple[ChangeSet, ...]
    complete: bool
    machine: bool
    already: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "goal": self.goal,
            "already": self.already,
            "complete": self.complete,
            "another_machine": self.machine,
            "sets": [s.to_dict() for s in self.sets],
        }


def _said(name: str, allowed: str, parts: int) -> str:
    if allowed in ("true", "false"):
        return name if allowed == "true" else f"no {name}"
    return f"{name} {allowed if parts == 1 else describe.bracketed(allowed, ', ', ' or ', ' and ')}"


def _of_shape(given: Given) -> bool:
    """Whether a field is a number of the layer's shape, or a mode that tells kinds of layers apart."""
    axis = given.axis
    return axis.of == "request" and axis.type in ("integer", "pair", "mode") and not axis.identity


def _readable(given: Given, value: Any) -> bool:
    if given.package is not None:
        return value.state == "usable" and value.version is not None and value.version != UNREADABLE
    return given.axis.type == "version"


def exact(report: Report, ident: str) -> tuple[Answer, Answer]:
    """The answers for a candidate: what makes it valid, and what makes it win (preferences left aside)."""
    search = _Search(report, ident)
    return search.answer("valid"), search.answer("wins")


class _Search:
    def __init__(self, report: Report, ident: str) -> None:
        self.report, self.ident = report, ident
        self.catalog = report.catalog
        program = self.catalog.program
        self.i = program.position[ident]
        self.fields = dict(zip(report.request._axes, report.request._values))
        self.facts = report.environment.values(self.catalog.vocabulary)
        self.space = Space([program], points=self._points())
        self.translation = Translation(self.space, program, strict=report.strict)
        self.current = [self._current(g) for g in self.space.given]
        self.facets = facets.given(self.space)

    def _points(self) -> dict[str, list[Any]]:
        """What is given now: values that get a class of their own, so that leaving them alone can be said."""
        found: dict[str, list[Any]] = {}
        for i, value in (*self.fields.items(), *self.facts.items()):
            if value is not None and value is not UNKNOWN and value is not MISSING:
                found[self.catalog.vocabulary.axes[i].name] = [value]
        return found

    def _raw(self, given: Given) -> Any:
        axis = self.catalog.vocabulary.by_name[given.axis.name]
        if axis.of == "request":
            raw = self.fields.get(axis.index, MISSING if axis.same_as is not None else axis.default)
        else:
            raw = self.facts[axis.index]
        if given.package is not None:
            state = raw.get(given.package) if isinstance(raw, Packages) else None
            return state or PackageState(None, "missing")
        return True if isinstance(raw, Packages) else raw

    def _current(self, given: Given) -> int:
        return given.literals[given.position(self._raw(given))]

    def _fixed(self, given: Given) -> bool:
        """Whether nobody can change it on this machine."""
        axis = given.axis
        if axis.type == "packages":
            return given.package is None
        return axis.fix == "none" and axis.variable is None

    def _sane(self) -> list[int]:
        """Nobody makes a fact unknown, breaks a package, installs an odd version or leaves open what is given.

        What is so now stays so.
        """
        now = set(self.current)
        return [x for x in [*plain(self.space), *self._given()] if -x not in now]

    def _usable(self) -> list[int]:
        """As `_sane`, but any version will do: a condition speaks of pre-releases, too."""
        versions = {
            -x
            for given in self.space.given
            for c, x in zip(given.classes, given.literals)
            if c.kind == "value" and _readable(given, c.value)
        }
        return [x for x in self._sane() if x not in versions]

    def _given(self) -> Iterator[int]:
        for given, now in zip(self.space.given, self.current):
            k = given.where("null")
            if k is not None and given.literals[k] != now:
                yield -given.literals[k]

    # -- searching ----------------------------------------------------------------------------------------------------

    def answer(self, goal: str) -> Answer:
        """All smallest sets for one goal; of changes on this machine if there are any, else with another one."""
        literal = self.translation.accepted(self.i) if goal == "valid" else self.translation.wins[self.i]
        if Solver(self.space).check([literal, *self.current]):
            return Answer(goal, (), True, False, True)
        for machine in (False, True):
            frozen = [x for g, x in zip(self.space.given, self.current) if not machine and self._fixed(g)]
            if machine:
                frozen = [
                    x
                    for g, x in zip(self.space.given, self.current)
                    if g.axis.type == "packages" and g.package is None
                ]
            frozen += self._sane()
            solver = Solver(self.space)
            if solver.check([literal, *frozen]):
                sets, complete = self._sets(solver, literal, frozen)
                return Answer(goal, tuple(sets), complete, machine)
        return Answer(goal, (), True, False)

    def _sets(self, solver: Solver, literal: int, frozen: list[int]) -> tuple[list[ChangeSet], bool]:
        still = set(frozen)
        loose = [(g, x) for g, x in zip(self.space.given, self.current) if x not in still and abs(x) != TRUE]
        changed = [-x for _, x in loose]
        found: list[ChangeSet] = []
        switch = self.space.circuit.var()
        for same in ([x for g, x in loose if _of_shape(g)], []):
            most, before = 0, len(found)
            while most <= MOST and len(found) < before + SETS:
                if not solver.check([literal, switch, *frozen, *same, solver.at_most(most, changed)]):
                    most += 1
                    continue
                names = [(g, x) for g, x in loose if not solver.holds(x)]
                solver.clause([-switch, *(x for _, x in names)])
                found.append(self._set(solver, literal, names))  # not empty: the goal is not met now
        return found, not solver.check([literal, switch, *frozen])

    def _set(self, solver: Solver, literal: int, names: list[tuple[Given, int]]) -> ChangeSet:
        moved = {x for _, x in names}
        rest = [x for x in self.current if x not in moved and abs(x) != TRUE]
        base = [*rest, *self._usable()]
        mine: list[Facet] = [self.facets[g.index] for g, _ in names]
        covered = cover(solver, mine, literal, base, [(range(len(mine)),)], limit=WAYS)
        ways = []
        for cube in covered.cubes:
            whole = cube._replace(
                allowed={**{f: frozenset(range(len(m.classes))) for f, m in enumerate(mine)}, **cube.allowed}
            )
            ways.append(tuple(describe.cube_parts(self._without_current(whole, mine), mine)))
        solver.check([literal, *rest, *self._sane()])
        example, selected = self._tried(solver, [g for g, _ in names])
        shape = any(_of_shape(g) for g, _ in names)
        return ChangeSet(
            tuple(g.name for g, _ in names), tuple(ways), covered.complete, example, selected, shape
        )

    def _without_current(self, cube: Any, mine: Sequence[Facet]) -> Any:
        """Classes that would be no change are not told of."""
        kept = {}
        now = set(self.current)
        for f, allowed in cube.allowed.items():
            rest = frozenset(k for k in allowed if mine[f].literals[k] not in now)
            kept[f] = rest or allowed
        needed = {f: (cube.needed.get(f) or kept[f]) & kept[f] or kept[f] for f in kept}
        return cube._replace(allowed=kept, needed=needed)

    def _tried(self, solver: Solver, names: list[Given]) -> tuple[tuple[tuple[str, Any], ...], str | None]:
        """The solver's example as the engine sees it: everything else as it is."""
        raw = witness.values_of(self.space, solver.point())
        fields = self.report.request.to_dict()
        facts = dict(self.report.environment.facts)
        shown: list[tuple[str, Any]] = []
        for given in names:
            if given.package is not None:
                packages = dict(facts.get(given.axis.name) or {})
                after = raw.facts[given.axis.name].get(given.package, PackageState(None, "missing"))
                packages[given.package] = after
                facts[given.axis.name] = Packages({n: s for n, s in packages.items() if s.state != "missing"})
                shown.append((given.package, after.version if after.state == "usable" else after.state))
                continue
            into, source = (fields, raw.fields) if given.axis.of == "request" else (facts, raw.facts)
            if given.name in source:
                into[given.name] = source[given.name]
                shown.append((given.name, source[given.name]))
            else:
                into.pop(given.name, None)
                shown.append((given.name, None))
        request, environment = witness.realised(witness.Raw(fields, facts), self.catalog.vocabulary)
        report = witness.decide((request, environment), self.catalog, strict=self.report.strict)
        accepted = {*report.outcome.ranked, *report.outcome.excluded}
        if self.i not in accepted:
            raise Refuted(f"{self.ident}: the engine does not confirm {shown}")
        return tuple(shown), report.selected


def answers_text(answers: Iterable[Answer], ident: str) -> Iterator[str]:
    """Answers as lines."""
    for answer in answers:
        goal = f"{ident} works" if answer.goal == "valid" else f"{ident} is selected"
        if answer.already:
            yield f"{goal} as it is"
            continue
        if not answer.sets:
            yield f"{goal}: " + ("no change makes it so" if answer.complete else "nothing found")
            continue
        more = "" if answer.complete else " (larger sets of changes are not shown)"
        other = ", on another machine" if answer.machine else ""
        yield f"{goal} with one of these sets of changes{other}{more}:"
        parted = any(not s.shape for s in answer.sets)
        for k, found in enumerate(answer.sets):
            if found.shape and parted and not answer.sets[k - 1].shape:
                yield "  or with another shape or kind of layer:"
            chosen = (
                "" if found.selected == ident or answer.goal == "wins" else f"   ({found.selected} is chosen)"
            )
            yield f"  - {found.text}{chosen}"
