"""Sentences about the packs: the shipped ones are proved, false ones are refuted by the smallest exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.analysis import invariants
from selector.analysis.smallest import Witness
from selector.analysis.witness import decide
from selector.catalog import Catalog, pack_names
from selector.errors import ManifestError
from selector.locations import manifests_root

from .catalogs import edited, small

FILE = Path(manifests_root()) / "invariants.yaml"


@pytest.fixture(scope="module")
def verdicts() -> list[invariants.Verdict]:
    catalogs = [Catalog.load(name) for name in pack_names()]
    document = invariants.load(str(FILE), catalogs)
    return [v for c in catalogs for v in invariants.prove(c, invariants.decode(document, c))]


def test_every_shipped_sentence_is_proved_and_says_something(verdicts: list[invariants.Verdict]) -> None:
    assert [(v.pack, v.invariant.name, v.status) for v in verdicts if v.status != "proved"] == []
    assert len(verdicts) >= 15
    assert {v.pack for v in verdicts} == set(pack_names())


def proved(catalog: Catalog, tmp_path: Path, text: str) -> invariants.Verdict:
    path = tmp_path / "invariants.yaml"
    path.write_text(f"invariants:\n  - name: it\n{text}", encoding="utf-8")
    document = invariants.load(str(path), [catalog])
    (verdict,) = invariants.prove(catalog, invariants.decode(document, catalog))
    return verdict


PER_HEAD = "    when: {per_head_scales: true}\n    never: {selected: flash_attn/fa2}\n"


def test_without_its_guard_the_per_head_sentence_has_a_counterexample(tmp_path: Path) -> None:
    assert proved(Catalog.load("core"), tmp_path, PER_HEAD).status == "proved"
    broken = edited(
        tmp_path / "manifests",
        "core",
        ("core/flash_attn.yaml", "      alibi: true\n      dropout: true\n", "      alibi: true\n      per_head_scales: true\n      dropout: true\n"),
    )  # fmt: skip
    verdict = proved(broken, tmp_path, PER_HEAD)
    assert verdict.status == "false"
    assert verdict.witness is not None
    assert verdict.report is not None
    assert verdict.report.selected == "flash_attn/fa2"  # the engine's own answer
    assert verdict.witness.request.to_dict() == {"per_head_scales": True}
    assert verdict.witness.preset is not None
    assert any("flash_attn.yaml" in place for place in verdict.look)


SHIPPED = [
    (
        "per-head scales never run on FlashAttention 2 in vLLM",
        "  - name: per-head scales on the version that runs\n    variants: [fa2]\n",
        "  - name: per-head scales on the version that runs\n    variants: [fa4]\n",
    ),
    (
        "per-head scales never reach vLLM's FlashAttention before 9.0",
        "  - name: per-head scales by default version\n    variants: [fa2, fa3, fa4, unresolved]\n",
        "  - name: per-head scales by default version\n    variants: [fa3, fa4, unresolved]\n",
    ),
]


@pytest.mark.parametrize(("name", "guard", "without"), SHIPPED)
def test_vllms_per_head_sentences_need_their_guards(
    name: str, guard: str, without: str, tmp_path: Path
) -> None:
    """The sentences themselves are proved above, with all others."""
    broken = edited(tmp_path, "vllm", ("vllm/flash_attn.yaml", guard, without))
    document = invariants.load(str(FILE), [broken])
    sentence = next(i for i in invariants.decode(document, broken) if i.name == name)
    (verdict,) = invariants.prove(broken, [sentence])
    assert verdict.status == "false"
    assert verdict.witness is not None
    assert verdict.report is not None
    request = verdict.witness.request.to_dict()
    assert request.pop("per_head_scales") is True
    assert len(request) <= 1, "a smallest exception has no field to spare"
    # the engine's own answer, and the manifest with its guard refuses the same request
    fa2 = "FLASH_ATTN/fa2"
    strict = sentence.strict
    environment = verdict.witness.environment
    assert fa2 in accepted(broken, verdict.witness, strict)
    shipped = Catalog.load("vllm")
    assert fa2 not in accepted(shipped, verdict.witness, strict)
    assert environment.get("device") == "cuda"


def accepted(catalog: Catalog, found: Witness, strict: bool) -> set[str]:
    request = found.request.within(catalog.vocabulary)
    outcome = decide((request, found.environment), catalog, strict=strict).outcome
    return {catalog.candidates[i].id for i in (*outcome.ranked, *outcome.excluded)}


PACK = "policy: [{name: all, order: [a, b]}]\n"
A = "requires: {device: gpu, cc: '>=8.0', packages: {lib: '>=2'}}\nsupports: {size: {max: 256}, dtype: [f16, bf16]}\n"
B = "requires: {device: [cpu, gpu]}\nsupports: {dtype: {in: [f16, f8], required: true}}\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("    when: {dtype: f8}\n    never: {selected: a}\n", "proved"),
        ("    when: {dtype: f16}\n    never: {selected: a}\n", "false"),
        ("    never: {accepted: [a, b]}\n", "false"),
        ("    when: {accepts: a}\n    implies: {device: gpu}\n", "proved"),
        ("    when: {accepts: a}\n    implies: {packages: {lib: '>=2'}}\n", "proved"),
        ("    when: {accepts: a}\n    implies: {packages: {lib: '>=3'}}\n", "false"),
        ("    when: {dtype: f8, sinks: false, mla: false}\n    always: {some: candidate}\n", "proved"),
        ("    when: {sinks: false, mla: false}\n    always: {some: candidate}\n", "false"),
        ("    when: {dtype: f8, sinks: false, mla: false}\n    facts: any\n    always: {some: candidate}\n", "false"),
        ("    when: {dtype: f8, sinks: false, mla: false}\n    always: {selected: [b], accepted: b}\n", "proved"),
        ("    when: {dtype: f8, sinks: false, mla: false}\n    always: {selected: a}\n", "false"),
        ("    when: {size: 3, all: [{size: 4}]}\n    never: {selected: a}\n", "vacuous"),
        ("    when: {groups: 2, heads: 4}\n    implies: {rest: 0}\n", "proved"),
        ("    when: {groups: 2}\n    implies: {rest: [0, 1]}\n", "proved"),
        ("    when: {groups: 2}\n    implies: {rest: 0}\n", "false"),
    ],
)  # fmt: skip
def test_what_a_sentence_can_say(text: str, status: str, tmp_path: Path) -> None:
    assert proved(small(tmp_path, PACK, a=A, b=B), tmp_path, text).status == status


def test_strict_sentences_speak_of_strict_selection(tmp_path: Path) -> None:
    text = A + "rules: [{when: {size: 100}, warn: mind this, strict: true}]\n"
    catalog = small(tmp_path, PACK, a=text, b=B)
    sentence = "    when: {size: 100}\n    never: {accepted: a}\n"
    assert proved(catalog, tmp_path, sentence).status == "false"
    assert proved(catalog, tmp_path, "    strict: true\n" + sentence).status == "proved"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("    never: {selected: c}\n", "has no candidate or backend 'c'"),
        ("    when: {size: 1}\n", "an invariant says never, always or implies"),
        ("    when: {sice: 1}\n    never: {selected: a}\n", "size"),
        ("    always: {some: thing}\n", "candidate"),
    ],
)
def test_a_mistake_in_a_sentence_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        proved(small(tmp_path, PACK, a=A, b=B), tmp_path, text)
    assert message in str(caught.value)
