"""Several packs in one catalog: each pack's policy speaks for what it lists, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.catalog import Catalog
from selector.environment import Environment
from selector.errors import ManifestError
from selector.policies import COMBINATIONS
from selector.report import Report
from selector.selection import decide
from tests.analysis.catalogs import small

FIRST = """\
unlisted: last
policy:
  - {name: small sizes, when: {size: {max: 64}}, order: [a]}
"""
SECOND = """\
unlisted: excluded
policy:
  - {name: half, when: {dtype: {tagged: half}}, order: [d, c]}
  - {name: rest, order: [c, d], unlisted: last}
"""
ANY = "requires: {device: any}\nsupports: {dtype: any, sinks: true}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    small(tmp_path, FIRST, a=ANY, b=ANY)
    second = tmp_path / "second"
    second.mkdir()
    (second / "pack.yaml").write_text(f"pack: 1\nname: second\n{SECOND}", encoding="utf-8")
    for name in ("c", "d", "e"):
        (second / f"{name}.yaml").write_text(f"manifest: 1\nname: {name}\n{ANY}", encoding="utf-8")
    return tmp_path


def asked(root: Path, *packs: str, **fields: object) -> Report:
    catalog = Catalog.load(*packs, manifests=root)
    machine = Environment({"device": "cpu"}, name="it", vocabulary=catalog.vocabulary)
    return decide(catalog.request(fields), catalog, machine, ())


@pytest.mark.parametrize(
    ("packs", "fields", "ranked", "excluded", "rule"),
    [
        (("small",), {"size": 64, "dtype": "f16"}, "ab", "", "small sizes"),
        (("second",), {"size": 64, "dtype": "f16"}, "dc", "e", "half"),
        (("small", "second"), {"size": 64, "dtype": "f16"}, "adcb", "e", "small sizes; half"),
        (("small", "second"), {"size": 64, "dtype": "f8"}, "acdbe", "", "small sizes; rest"),
        (("small", "second"), {"size": 65, "dtype": "f16"}, "dcab", "e", "half"),
        (("second", "small"), {"size": 64, "dtype": "f16"}, "dcab", "e", "half; small sizes"),
    ],
)
def test_what_one_policy_leaves_open_the_next_decides(
    packs: tuple[str, ...], fields: dict[str, object], ranked: str, excluded: str, rule: str, root: Path
) -> None:
    report = asked(root, *packs, **fields)
    # those that no order lists come last, in catalog order
    assert "".join(r.id for r in report.ranked) == ranked
    assert "".join(report.excluded) == excluded
    assert report.policy_rule == rule


def test_why_a_candidate_has_its_place(root: Path) -> None:
    report = asked(root, "small", "second", size=64, dtype="f16")
    because = {r.id: r.because for r in report.ranked}
    assert because["a"] == because["d"] == "policy “small sizes; half”"
    assert because["b"] == "not in the order of policy “small sizes; half”"


def test_one_pack_beside_another_keeps_its_own_order() -> None:
    """The shipped packs: what a pack would choose alone is what it chooses behind a pack that has nothing for the request."""
    alone = Catalog.load("vllm")
    behind = Catalog.load("transformer_engine", "vllm")
    for fields in ({"head_size": 128, "dtype": "bf16", "mla": True}, {"head_size": 576, "dtype": "bf16"}):
        for name in ("h100", "b200", "a100", "mi300x"):
            one, two = (
                decide(c.request(fields), c, Environment.preset(name, vocabulary=c.vocabulary), ())
                for c in (alone, behind)
            )
            own = {c.id for c in alone.candidates}
            assert [r.id for r in one.ranked] == [r.id for r in two.ranked if r.id in own]


def test_more_combinations_than_are_allowed_are_a_mistake(tmp_path: Path) -> None:
    small(tmp_path, FIRST, a=ANY, b=ANY)
    rules = "".join(f"  - {{name: r{i}, when: {{size: {i + 1}}}, order: []}}\n" for i in range(110))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pack.yaml").write_text(f"pack: 1\nname: {name}\npolicy:\n{rules}", "utf-8")
    Catalog.load("one", manifests=tmp_path)
    with pytest.raises(ManifestError, match=f"one, two have more than {COMBINATIONS:,} combinations"):
        Catalog.load("one", "two", manifests=tmp_path)
