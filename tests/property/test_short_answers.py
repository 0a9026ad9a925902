"""The short answers, put together from pieces that requests share, say what the reports say, letter for letter."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from selector.answers import answer_text
from selector.catalog import Catalog
from selector.environment import Environment
from selector.render.data import answer_dict
from selector.selection import decide, engine_for
from tests.plain.strategies import Case, cases
from tests.property.test_engine_matches_plain import SLOW, answer, compiled
from tests.property.test_packs_match_plain import Loaded, fields, pack

__all__ = ["pack"]  # a fixture

MANIFESTS = Path(__file__).parents[2] / "manifests"


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(cases())
def test_of_random_catalogs(case: Case) -> None:
    catalog = compiled(case)
    for question in (*case.questions, *reversed(case.questions)):  # the second time from what is kept
        for strict in (question.strict, not question.strict):
            report = answer(catalog, question._replace(strict=strict))
            for reasons in (True, False):
                expected = json.dumps(answer_dict(report, reasons=reasons), ensure_ascii=False)
                assert answer_text(report, reasons=reasons) == expected


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_of_packs(pack: Loaded, data: DataObject) -> None:
    catalog = pack.catalog
    preset = data.draw(st.sampled_from(["h100", "b200", "mi300x", "pvc", "cpu"]))
    environment = Environment.preset(preset, vocabulary=catalog.vocabulary, root=str(MANIFESTS))
    strict = data.draw(st.booleans())
    for _ in range(6):
        report = decide(catalog.request(data.draw(fields(pack))), catalog, environment, strict=strict)
        assert answer_text(report) == json.dumps(answer_dict(report), ensure_ascii=False)


VOCABULARY = """
vocabulary: 1
axes:
  device: {type: choice, of: environment, values: [cpu], title: device, doc: Where it runs.}
  paged: {type: mode, of: request, title: paged, doc: In pages., undeclared: any}
  page: {type: integer, of: request, title: page, doc: Tokens of a page., min: 1, max: 100, applies_when: {paged: true}}
"""
MANIFEST = """
manifest: 1
name: refusing
requires: {device: any}
rules:
  - {when: {page: {max: 10}}, reject: small pages}
  - {reject: nothing at all}
"""


def test_a_field_that_does_not_apply_gives_no_reason(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "vocabulary.yaml").write_text(VOCABULARY, encoding="utf-8")
    (tmp_path / "pack" / "pack.yaml").write_text("pack: 1\nname: pack\n", encoding="utf-8")
    (tmp_path / "pack" / "refusing.yaml").write_text(MANIFEST, encoding="utf-8")
    catalog = Catalog.load("pack", manifests=tmp_path)
    environment = Environment({"device": "cpu"}, vocabulary=catalog.vocabulary)
    for paged, reasons in ((False, 1), (True, 2)):
        report = decide(catalog.request(page=5, paged=paged), catalog, environment)
        assert len(report.rejected["refusing"]) == reasons
        assert answer_text(report) == json.dumps(answer_dict(report), ensure_ascii=False)


def test_the_quick_way_is_the_usual_one() -> None:
    """On packs whose candidates ask about others, too: only one that adjusts what it is asked needs the whole program."""
    catalog = Catalog.load("vllm", manifests=MANIFESTS)
    environment = Environment.preset("h100", vocabulary=catalog.vocabulary)
    assert catalog.program.accept_order
    assert not engine_for(catalog, environment, False).explainer().whole
