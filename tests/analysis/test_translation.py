"""The translation and the engine agree, both ways: on given requests, and on the requests that the solver finds."""

from __future__ import annotations

from hypothesis import given, settings

from selector.analysis import witness
from selector.analysis.solver import Solver
from selector.analysis.space import Space
from selector.analysis.translate import Translation
from selector.environment import Environment
from selector.request import Request
from tests.plain.strategies import Case, cases
from tests.property.test_engine_matches_plain import SLOW, compiled


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(cases())
def test_winner_and_accepted_are_the_engines(case: Case) -> None:
    catalog = compiled(case)
    space = Space([catalog.program])
    made = {strict: Translation(space, catalog.program, strict=strict) for strict in (False, True)}
    for question in case.questions:
        request = Request(question.request, vocabulary=catalog.vocabulary)
        environment = Environment(question.environment, vocabulary=catalog.vocabulary)
        report = witness.decide((request, environment), catalog, strict=question.strict)
        translation = made[question.strict]
        accepted = [translation.accepted(i) for i in range(len(catalog.candidates))]
        wins = translation.wins
        point = witness.located(space, request, environment)
        truth = space.evaluate([*wins, *accepted], point.chosen, point.numbers)
        ids = [c.id for c in catalog.candidates]
        assert [n for n, held in zip(ids, truth) if held] == [report.selected] * (report.selected is not None)
        found = {i for i in translation.listed() if truth[len(ids) + i]}
        assert found == {*report.outcome.ranked, *report.outcome.excluded}


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(cases(most=1))
def test_what_the_solver_finds_is_confirmed(case: Case) -> None:
    catalog = compiled(case)
    strict = case.questions[0].strict
    space = Space([catalog.program])
    translation = Translation(space, catalog.program, strict=strict)
    solver = Solver(space)
    for i in translation.listed():
        name = catalog.candidates[i].id
        if solver.check([translation.wins[i]]):
            raw = witness.values_of(space, solver.point())
            assert witness.decide(raw, catalog, strict=strict).selected == name
        if solver.check([-translation.accepted(i)]):
            raw = witness.values_of(space, solver.point())
            outcome = witness.decide(raw, catalog, strict=strict).outcome
            assert i not in {*outcome.ranked, *outcome.excluded}
    if solver.check([-translation.some]):
        raw = witness.values_of(space, solver.point())
        assert witness.decide(raw, catalog, strict=strict).selected is None
