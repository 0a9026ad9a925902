"""On random catalogs, what the analysis says of whole regions is what the engine says of every single place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import given as each
from hypothesis import settings
from hypothesis import strategies as st

from selector.analysis import changes, witness
from selector.analysis.classes import Class
from selector.analysis.coverage import coverage
from selector.analysis.diff import compare
from selector.analysis.integers import Piece
from selector.analysis.space import Given, Space
from selector.catalog import Catalog
from selector.environment import Environment
from selector.report import Report
from selector.request import Request
from selector.selection import decide
from selector.vocabulary import UNKNOWN, Packages
from tests.plain.strategies import Case, cases
from tests.property.test_engine_matches_plain import SLOW, compiled

from .brute import Asked, Regions, Sides

#: Places of one space that are looked at.
PLACES = 40


def values_in(found: Class, given: Given, draw: Random) -> Any:
    """A value of a class."""
    if found.kind == "value" and found.members and isinstance(found.members[0], Piece):
        return draw.choice(list(draw.choice(found.members).members(3)))
    if found.kind == "value" and found.members and given.package is None:
        return draw.choice(found.members)
    return found.value


def places(space: Space, catalog: Catalog, seed: int) -> Iterator[tuple[Request, Environment]]:
    """Random places, a class after the other; the solver takes no part in it."""
    from selector.vocabulary import Packages

    draw = Random(seed)
    for _ in range(PLACES):
        fields: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        packages: dict[str, Any] = {}
        holder: str | None = None
        for place in space.given:
            found = draw.choice(place.classes)
            value = values_in(found, place, draw)
            if place.package is not None:
                packages[place.package] = value
            elif found.kind in ("absent", "unknown"):
                continue
            elif place.axis.type == "packages" and found.kind == "value":
                holder = place.name
            else:
                (fields if place.axis.of == "request" else facts)[place.name] = value
        if holder is not None:
            facts[holder] = Packages({n: s for n, s in packages.items() if s.state != "missing"})
        yield (
            Request(fields, vocabulary=catalog.vocabulary),
            Environment(facts, vocabulary=catalog.vocabulary),
        )


def pack_of(case: Case, number: int) -> Case:
    """The case with its pack or a manifest changed: an order turned round, or a candidate's limits or rules dropped."""
    pack, manifests = dict(case.pack), [dict(m) for m in case.manifests]
    if number == 0:
        pack["policy"] = [{**rule, "order": list(rule["order"])[::-1]} for rule in pack["policy"]]
    elif number == 1:
        pack["unlisted"] = "last" if pack.get("unlisted") == "excluded" else "excluded"
    elif number == 2:
        manifests[0].pop("rules", None)
        manifests[0].pop("known_wrong", None)
    else:
        pack["policy"] = pack["policy"][1:]
    return case._replace(pack=pack, manifests=manifests)


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@each(cases(most=1), st.integers(0, 3), st.integers(0, 10**6))
def test_a_comparison_is_what_both_engines_say_at_every_place(case: Case, edit: int, seed: int) -> None:
    old, new = compiled(case), compiled(pack_of(case, edit))
    diff = compare(old, new)
    regions = Regions(diff)
    complete = {(c.kind, c.subject, c.old, c.new) for c in diff.changes if c.complete}
    for request, environment in places(diff.space, old, seed):
        said = Sides(Asked(old, environment), Asked(new, environment)).changes(request, request, texts=False)
        covered, _ = regions.of([request], environment)
        kinds = ("winner", "accepted", "reach", "order")
        mine = {key for key, bits in covered.items() if bits and key[0] in kinds}
        assert mine <= said
        assert all(key in mine or (key in covered and key not in complete) for key in said)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@each(cases(most=1), st.integers(0, 10**6))
def test_holes_are_where_the_engine_selects_nothing(case: Case, seed: int) -> None:
    catalog = compiled(case)
    found = coverage(catalog, [], {})
    identities = [a.name for a in catalog.vocabulary.axes if a.identity]
    for request, environment in places(found.space, catalog, seed):
        if not known(environment, catalog) or any(n in request.to_dict() for n in identities):
            continue  # holes are those of machines of which every fact is known, and of requests that name nobody
        point = witness.located(found.space, request, environment)
        covered = any(all(found.space.evaluate(h.literals, point.chosen, point.numbers)) for h in found.holes)
        nothing = decide(request, catalog, environment, ()).selected is None
        assert covered == nothing or (nothing and not found.complete)


def known(environment: Environment, catalog: Catalog) -> bool:
    """Whether every fact of a machine is known, and no package in doubt."""
    values = environment.values(catalog.vocabulary)
    for axis in catalog.vocabulary.axes:
        if axis.of != "environment" or axis.derive is not None:
            continue
        found = values[axis.index]
        if found is UNKNOWN or found is None:
            return False
        if isinstance(found, Packages):
            for state in found.values():
                if state.state == "unknown" or (state.state == "usable" and state.version is None):
                    return False
    return True


# -- why not ----------------------------------------------------------------------------------------------------------

#: Changes of the sets that are looked for one by one.
LARGEST = 2


class Tries:
    """Every set of at most two changes to a request and its machine, each tried with every value."""

    def __init__(self, report: Report, ident: str) -> None:
        self.search = changes._Search(report, ident)
        self.report, self.catalog, self.ident = report, report.catalog, ident
        self.space = self.search.space
        odd = {-x for x in self.search._sane()}
        self.choices: list[tuple[Given, list[Any]]] = []
        for given, now in zip(self.space.given, self.search.current):
            values = [
                value
                for c, literal in zip(given.classes, given.literals)
                if literal != now and literal not in odd
                for value in self._members(c, given)
            ]
            if given.package is not None and not isinstance(
                report.environment.facts.get(given.axis.name), Packages
            ):
                values = []  # one package that becomes known makes it known what all the others are: no single change
            self.choices.append((given, values))

    def _members(self, found: Class, given: Given) -> list[Any]:
        if found.kind == "value" and found.members and isinstance(found.members[0], Piece):
            return [n for piece in found.members for n in itertools.islice(piece.members(4), 5)]
        return [found.kind if found.kind in ("absent", "unknown") else found.value]

    def meets(self, names: Sequence[Given], values: Sequence[Any], goal: str) -> bool:
        """Whether the engine takes the candidate with these changes."""
        fields = self.report.request.to_dict()
        facts = dict(self.report.environment.facts)
        for given, value in zip(names, values):
            if given.package is not None:
                packages = dict(facts.get(given.axis.name) or {})
                packages[given.package] = value
                facts[given.axis.name] = Packages({n: s for n, s in packages.items() if s.state != "missing"})
                continue
            into = fields if given.axis.of == "request" else facts
            if value in ("absent", "unknown"):
                into.pop(given.name, None)
            else:
                into[given.name] = value
        request = Request(fields, vocabulary=self.catalog.vocabulary)
        environment = Environment(facts, vocabulary=self.catalog.vocabulary)
        found = decide(request, self.catalog, environment, (), strict=self.report.strict)
        if goal == "wins":
            return found.selected == self.ident
        ids = [self.catalog.candidates[i].id for i in (*found.outcome.ranked, *found.outcome.excluded)]
        return self.ident in ids

    def smallest(self, goal: str, *, machine: bool) -> set[frozenset[str]]:
        """All sets of which no part is enough; of changes that somebody can make, or any."""
        search = self.search
        loose = [
            (g, values)
            for g, values in self.choices
            if not ((g.axis.type == "packages" and g.package is None) if machine else search._fixed(g))
        ]
        found: list[frozenset[str]] = []
        for size in range(1, LARGEST + 1):
            for chosen in itertools.combinations(loose, size):
                names = frozenset(g.name for g, _ in chosen)
                if any(smaller <= names for smaller in found):
                    continue
                givens = [g for g, _ in chosen]
                if any(
                    self.meets(givens, values, goal) for values in itertools.product(*(v for _, v in chosen))
                ):
                    found.append(names)
        return set(found)


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@each(cases(most=1), st.integers(0, 20))
def test_no_smallest_set_of_changes_is_missing(case: Case, which: int) -> None:
    catalog = compiled(case)
    question = case.questions[0]
    request = Request(question.request, vocabulary=catalog.vocabulary)
    environment = Environment(question.environment, vocabulary=catalog.vocabulary)
    report = witness.decide((request, environment), catalog, strict=question.strict)
    listed = [c.id for c in catalog.candidates if not c.abstract]
    ident = listed[which % len(listed)]
    tries = Tries(report, ident)
    if sum(len(v) for _, v in tries.choices) > 45:
        return  # too many to try one by one
    for answer in changes.exact(report, ident):
        if answer.already:
            assert tries.meets([], [], answer.goal)
            continue
        expected = tries.smallest(answer.goal, machine=answer.machine)
        found = {frozenset(s.names) for s in answer.sets}
        assert all(not (a < b) for a in found for b in found)
        small = {names for names in found if len(names) <= LARGEST}
        if answer.complete:
            assert expected <= small, (answer.goal, expected - small)
        if not any(g.numeric for g in tries.space.given):
            assert small == expected, (answer.goal, small - expected)
        # a set that was not met by trying has numbers that were not tried; its own example is
        for one in answer.sets:
            givens = [g for g in tries.space.given if g.name in one.names]
            assert not any(part < frozenset(one.names) for part in expected)
            assert len(givens) == len(one.names)
        if not answer.machine and not answer.sets:
            assert answer.complete
