"""The compiled engine and the plain interpreter agree: candidates, order, and every reason.

Each example is a whole catalog, with questions that meet unknown facts, fields left open, packages in every state, pins
and strict selection.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, settings

from selector.catalog import Catalog
from selector.environment import Environment
from selector.errors import ManifestError
from selector.manifest import decode_manifest
from selector.pack import decode_pack
from selector.preferences import from_call
from selector.report import Report
from selector.request import Request
from selector.selection import decide
from selector.vocabulary import Packages, Vocabulary
from selector.yaml_loader import load_text
from tests.plain import interpreter as plain
from tests.plain.strategies import Case, Question, cases

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def written(data: Any) -> str:
    """Raw data as a manifest's text."""
    return str(yaml.safe_dump(data, sort_keys=False))


def compiled(case: Case) -> Catalog:
    """The case's catalog, read from texts without validation (which the other test does): quick enough to shrink."""
    raw_vocabulary: Any = load_text(written(case.vocabulary), "vocabulary").data
    vocabulary = Vocabulary(raw_vocabulary)
    manifests = []
    for raw in case.manifests:
        manifest, faults = decode_manifest(load_text(written(raw), raw["name"]), vocabulary, "random")
        assert manifest is not None
        assert not faults
        manifests.append(manifest)
    names = {
        name: None for manifest in manifests for name in (manifest.name, *(c.id for c in manifest.candidates))
    }
    pack, faults = decode_pack(load_text(written(case.pack), "pack"), vocabulary, lambda: names)
    assert not faults
    return Catalog(vocabulary, [pack], manifests, "random", "")


def loaded(case: Case, root: Path) -> Catalog:
    """The case's catalog, loaded from files as a user's is, schemas and references included."""
    (root / "random").mkdir()
    files = {"vocabulary": case.vocabulary, "random/pack": case.pack}
    files |= {f"random/{manifest['name']}": manifest for manifest in case.manifests}
    for name, data in files.items():
        (root / f"{name}.yaml").write_text(written(data), encoding="utf-8")
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


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(cases())
def test_the_engine_agrees_with_the_plain_interpreter(case: Case) -> None:
    catalog = compiled(case)
    interpreted = plain.Catalog(case.vocabulary, case.pack, case.manifests)
    for question in case.questions:
        compare(catalog, interpreted, question)


@settings(max_examples=15, deadline=None, suppress_health_check=SLOW, phases=[Phase.generate])
@given(cases(most=2))
def test_a_catalog_loaded_from_files_agrees_with_the_plain_one(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            catalog = loaded(case, Path(folder))
        except ManifestError as error:  # a limit of the language, which random catalogs may pass
            assert "in a row" in str(error)
            return
        interpreted = plain.load_pack(Path(folder), "random")
    for question in case.questions:
        compare(catalog, interpreted, question)
