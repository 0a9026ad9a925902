"""Lint by proof: every kind of fault is found where it was put, and the shipped packs have none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selector.analysis.allow import sift
from selector.analysis.findings import CODES
from selector.analysis.lint import lint
from selector.analysis.sarif import sarif
from selector.catalog import Catalog, pack_names
from selector.locations import manifests_root

from .catalogs import small

POLICY = "policy: [{name: all, order: [a, b]}]\n"
A = "requires: {device: gpu, cc: '>=8.0'}\nsupports: {size: {max: 256}, dtype: [f16, bf16]}\n"
B = "requires: {device: [cpu, gpu]}\nsupports: {dtype: any, sinks: true}\n"

FAULTS = {
    "never-accepts": ("a", A + "rules:\n  - {when: {device: gpu}, require: {cc: '<7.0'}, reject: no}\n"),
    "contradiction": ("a", A + "rules:\n  - {when: {sinks: false}, require: {size: {min: 300}}, reject: no}\n"),
    "never-by-rule": ("a", A + "rules:\n  - {reject: not yet}\n"),
    "never-selected": ("b", A.replace("256", "128")),
    "rule-never-applies": ("a", A + "rules:\n  - {when: {size: {min: 300}, all: [{size: {max: 200}}]}, reject: no}\n"),
    "rule-repeats-limit": ("a", A + "rules:\n  - {when: {size: {min: 400}, dtype: f16}, reject: no}\n"),
    "rule-repeats-rule": ("a", A + "rules:\n  - {when: {size: {min: 100}}, reject: no}\n  - {when: {size: {min: 200}, dtype: f16}, reject: nor this}\n"),
    "same-effect": ("a", A + "rules:\n  - {when: {dtype: {tagged: half}, block: 3}, reject: no}\n  - {when: {dtype: [f16, bf16], block: 3}, reject: nor this}\n"),
    "never-shown": ("a", A + "rules:\n  - {when: {dtype: f8}, warn: mind this}\n"),
    "adjustment-never-applies": ("a", A + "adjust:\n  - {when: {gap: {min: 1}, size: 1}, set: {block: 16}}\n"),
}  # fmt: skip


@pytest.mark.parametrize("code", FAULTS)
def test_a_seeded_fault_of_a_candidate_is_found(code: str, tmp_path: Path) -> None:
    name, text = FAULTS[code]
    clean = {"a": A, "b": B}
    assert [f.code for f in lint(small(tmp_path / "clean", POLICY, **clean))] == []
    found = lint(small(tmp_path / "fault", POLICY, **{**clean, name: text}))
    assert code in [f.code for f in found if Path(f.at.file).name == f"{name}.yaml"]
    assert all(f.at.line > 1 and f.proof for f in found)


ORDERS = {
    "policy-unreachable": "policy:\n  - {name: one, when: {sinks: true}, order: [a, b]}\n  - {name: two, order: [b, a]}\n  - {name: three, when: {size: 64}, order: [a]}\n",
    "order-impossible": "policy:\n  - {name: cpu, when: {device: cpu}, order: [a, b]}\n  - {name: rest, order: [a, b]}\n",
    "order-repeated": "policy:\n  - {name: all, order: [a, b, a]}\n",
    "order-never-reached": "policy:\n  - {name: all, order: [b, {candidate: b, when: {sinks: true}}, a]}\n",
    "same-order": "policy:\n  - {name: one, when: {sinks: true}, order: [a, b]}\n  - {name: two, order: [a, b]}\n",
    "only-by-name": "unlisted: excluded\npolicy: [{name: all, order: [a]}]\n",
    "pair-never-applies": POLICY
    + "pairs:\n  - {when: {size: 3, all: [{size: 4}]}, prefill: [a], decode: [b]}\n",
}


@pytest.mark.parametrize("code", ORDERS)
def test_a_seeded_fault_of_a_policy_is_found(code: str, tmp_path: Path) -> None:
    found = lint(small(tmp_path, ORDERS[code], a=A, b=B))
    assert code in [f.code for f in found]


def test_every_kind_of_finding_is_seeded_here() -> None:
    elsewhere = {"case-never-taken", "axis-unread", "allow-unused", "allow-unknown", "undecided"}
    assert {*FAULTS, *ORDERS, *elsewhere} == set(CODES)


def test_a_requirement_that_nothing_declared_can_meet_contradicts_it(tmp_path: Path) -> None:
    text = A + "rules:\n  - {when: {dtype: f16}, require: {size: {min: 512}}, reject: large heads only}\n"
    finding = next(f for f in lint(small(tmp_path, POLICY, a=text, b=B)) if f.code == "contradiction")
    assert (Path(finding.at.file).name, finding.at.line) == ("a.yaml", 6)
    assert finding.message.startswith(
        "rule “large heads only” requires what is declared impossible: size at most 256"
    )
    assert finding.proof.startswith("no counterexample exists")


def test_what_shadows_a_candidate_and_what_contradicts_it_is_named(tmp_path: Path) -> None:
    shadowed = small(tmp_path / "1", "policy: [{name: all, order: [b, a]}]\n", a=A, b=B)
    finding = next(f for f in lint(shadowed) if f.code == "never-selected")
    assert finding.message == "a is never selected: where it accepts, b comes before it"
    dead = small(tmp_path / "2", POLICY, a=FAULTS["never-accepts"][1], b=B)
    finding = next(f for f in lint(dead) if f.code == "never-accepts")
    assert "no counterexample exists" in finding.proof
    assert "a.yaml:" in finding.proof


def test_an_axis_of_a_pack_that_nothing_reads_and_an_entry_that_is_never_taken(tmp_path: Path) -> None:
    catalog = small(tmp_path, POLICY, a=A, b=B)
    (tmp_path / "small" / "vocabulary.yaml").write_text(
        "vocabulary: 1\naxes:\n  lonely: {type: flag, of: request, undeclared: any}\n"
        "  kind:\n    type: choice\n    values: [x, y]\n    derive: {case: [{when: {sinks: true}, value: x},"
        " {when: {sinks: true, mla: true}, value: y}]}\n",
        encoding="utf-8",
    )
    catalog = Catalog.load("small", manifests=tmp_path)
    found = [(f.code, f.message) for f in lint(catalog)]
    assert ("axis-unread", "nothing reads axis lonely") in found
    assert ("case-never-taken", "entry 2 of axis kind is never taken") in found


@pytest.mark.parametrize("pack", pack_names())
def test_a_shipped_pack_is_clean(pack: str) -> None:
    catalog = Catalog.load(pack)
    files = {p.at.file for p in catalog.packs} | {m.at.file for m in catalog.manifests}
    kept, _ = sift(lint(catalog), manifests_root(), sorted(files))
    assert [(str(f.at), f.code, f.message) for f in kept if f.severity != "info"] == []


def test_comments_allow_what_they_name_and_nothing_else(tmp_path: Path) -> None:
    shadowed = POLICY.replace("[a, b]", "[b, a]")

    def codes(comment: str, where: str = "a") -> list[str]:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        texts = {"a": A, "b": B}
        small(root, shadowed, **texts)
        path = root / "small" / f"{where}.yaml"
        path.write_text(
            path.read_text(encoding="utf-8").replace("name:", f"{comment}\nname:", 1), encoding="utf-8"
        )
        catalog = Catalog.load("small", manifests=root)
        files = sorted(m.at.file for m in catalog.manifests)
        kept, allowed = sift(lint(catalog), str(root), files)
        assert len(allowed) <= 1
        return [f.code for f in kept if f.severity != "info"]

    assert codes("# nothing") == ["never-selected"]
    assert codes("# lint: allow never-selected: the list is theirs") == []
    assert codes("# lint: allow-in-file never-selected: the list is theirs") == []
    assert codes("# lint: allow never-selected") == ["allow-unknown", "never-selected"]
    assert codes("# lint: allow never-elected: the list is theirs") == ["allow-unknown", "never-selected"]
    assert codes("# lint: allow same-effect: the list is theirs") == ["allow-unused", "never-selected"]
    assert codes("# lint: allow never-selected: another file's", "b") == ["never-selected", "allow-unused"]


def test_sarif_has_what_code_hosts_read(tmp_path: Path) -> None:
    found = lint(small(tmp_path, ORDERS["order-repeated"], a=A, b=B))
    run = json.loads(json.dumps(sarif([], found, "1.0")))["runs"][0]
    assert {r["id"] for r in run["tool"]["driver"]["rules"]} == {*CODES, "fault"}
    result = next(r for r in run["results"] if r["ruleId"] == "order-repeated")
    assert result["level"] == "warning"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("pack.yaml")
    assert place["region"]["startLine"] == 4
