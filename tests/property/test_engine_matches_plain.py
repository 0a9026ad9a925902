"""The compiled engine and the plain interpreter agree: candidates, order, and every reason.

Each example is a whole catalog written to files and loaded the way a user's is, with questions that meet unknown facts,
fields left open, packages in every state, pins and strict selection.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings

from selector.catalog import Catalog
from selector.environment import Environment
from selector.preferences import from_call
from selector.report import Report
from selector.request import Request
from selector.selection import decide
from selector.vocabulary import Packages
from tests.plain import interpreter as plain
from tests.plain.strategies import Case, Question, cases


def load(case: Case, root: Path) -> Catalog:
    """The case's catalog, by way of files."""
    (root / "random").mkdir()
    files = {"vocabulary": case.vocabulary, "random/pack": case.pack}
    files |= {f"random/{manifest['name']}": manifest for manifest in case.manifests}
    for name, data in files.items():
        (root / f"{name}.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return Catalog.load("random", manifests=root)


def answer(catalog: Catalog, question: Question) -> Report:
    """The engine's answer. Only the call has preferences here, whatever this process's variables say."""
    request = Request(question.request, vocabulary=catalog.vocabulary)
    environment = Environment(question.environment, vocabulary=catalog.vocabulary)
    preferences = tuple(from_call(question.backend, None, None))
    return decide(request, catalog, environment, preferences, strict=question.strict)


def evidence(reasons: Iterable[Any]) -> set[tuple[str, tuple[str, ...]]]:
    """Kinds and axes. A set: the engine gives one reason for each package, the interpreter one for all."""
    return {(reason.kind, tuple(reason.axes)) for reason in reasons if reason.kind != "preference"}


def plain_value(value: Any) -> Any:
    """A value of the engine as the interpreter writes it."""
    if isinstance(value, Packages):
        return {name: {"version": state.version, "state": state.state} for name, state in value.items()}
    return value


def values_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """All values, UNKNOWN in words."""
    return {
        axis: "unknown" if value is plain.UNKNOWN else plain_value(value) for axis, value in values.items()
    }


def adjustments(report: Report) -> dict[str, dict[str, Any]]:
    """What accepted candidates change, as the interpreter says it."""
    found: dict[str, dict[str, Any]] = {}
    for ranked in report.ranked:
        if ranked.adjusted is not None:
            parts = {
                "set": {axis: after for axis, _, after in ranked.adjusted.changes},
                "use": ranked.adjusted.use,
            }
            found[ranked.id] = {key: part for key, part in parts.items() if part}
    return {candidate: parts for candidate, parts in found.items() if parts}


def compare(catalog: Catalog, interpreted: plain.Catalog, question: Question) -> None:
    """Assert that both sides say the same."""
    report = answer(catalog, question)
    expected = plain.decide(
        interpreted, question.request, question.environment, backend=question.backend, strict=question.strict
    )
    assert values_of(report.values) == values_of(expected.values)
    assert [ranked.id for ranked in report.ranked] == expected.ranked
    assert list(report.excluded) == expected.excluded
    assert report.policy_rule == expected.policy_rule
    rejected = {name: evidence(reasons) for name, reasons in report.rejected.items()}
    if question.backend is None:
        assert rejected == {name: evidence(reasons) for name, reasons in expected.rejected.items()}
    else:
        assert set(rejected) >= set(expected.rejected)
        assert all(rejected[name] == evidence(reasons) for name, reasons in expected.rejected.items())
    for reasons in report.rejected.values():
        assert reasons
        assert all(reason.axis == reason.axes[0] for reason in reasons if reason.axes)
    warned = {r.id: [w.message for w in r.warnings] for r in report.ranked if r.warnings}
    shown = set(expected.ranked)
    assert warned == {name: texts for name, texts in expected.warnings.items() if name in shown}
    assert adjustments(report) == {name: parts for name, parts in expected.adjusted.items() if name in shown}


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_the_engine_agrees_with_the_plain_interpreter(case: Case) -> None:
    interpreted = plain.Catalog(case.vocabulary, case.pack, case.manifests)
    with tempfile.TemporaryDirectory() as folder:
        catalog = load(case, Path(folder))
    for question in case.questions:
        compare(catalog, interpreted, question)
