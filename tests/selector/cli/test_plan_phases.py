"""`plan` where a pack answers prefill and decode apart: pairs, adjusted requests, and what runs in a candidate's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.selector.cli.command import ROOT, Command

CONFIG = str(ROOT / "tests" / "data" / "configs" / "qwen3-8b")

PACK = """\
pack: 1
name: two
title: Two phases
unlisted: {unlisted}
phases: [prefill, decode]
pairs:
  - {pair}
policy:
  - name: prefill
    when: {{phase: prefill}}
    order: [broad, quick]
  - name: decode
    order: [quick, broad]
"""

BACKEND = """\
manifest: 1
name: {name}
requires: {{device: [cuda]}}
supports: {{dtype: any, head_size: any, causal: true}}
{more}
"""


@pytest.fixture
def plan(tmp_path: Path, command: Command) -> Any:
    def run(
        pair: str, *more: str, broad: str = "", quick: str = "", unlisted: str = "last"
    ) -> tuple[str, Any]:
        folder = tmp_path / "two"
        folder.mkdir(exist_ok=True)
        (folder / "pack.yaml").write_text(PACK.format(pair=pair, unlisted=unlisted))
        for name, text in (("broad", broad), ("quick", quick)):
            (folder / f"{name}.yaml").write_text(BACKEND.format(name=name, more=text))
        asked = ("plan", CONFIG, "--pack", str(folder), "--on", "h100", *more)
        return command(*asked).out, command(*asked, "--json").json

    return run


def chosen(found: Any) -> dict[str, str]:
    return {layer["phase"]: layer["selected"] for layer in found["layers"]}


def test_a_pair_rule_moves_one_phase_and_is_told(plan: Any) -> None:
    text, found = plan(
        "{given: decode, prefill: [quick], decode: [quick], note: quick decodes its own cache}"
    )
    # both on quick is ranks 2 and 1, both on broad 1 and 2: the decode's rank speaks
    assert chosen(found) == {"prefill": "quick", "decode": "quick"}
    first = found["layers"][0]
    assert first["instead_of"] == "broad"
    assert "quick decodes its own cache" in first["because"]
    assert "pack.yaml:7" in first["because"]
    assert first["pairs"] == found["layers"][1]["pairs"]
    text = " ".join(text.split())
    assert "instead of broad: prefill: quick in place of broad; quick decodes its own cache" in text
    assert found["uniform"]["selected"] == "quick"
    assert "they go together: quick decodes its own cache" in text


def test_no_pair_is_no_backend_for_both(plan: Any) -> None:
    text, found = plan(
        "{given: decode, prefill: [broad], decode: [quick, broad], note: only broad fills the cache}",
        broad="rules: [{when: {phase: prefill}, reject: it cannot}]",
    )
    assert chosen(found) == {"prefill": None, "decode": None}
    assert "only broad fills the cache" in text
    assert found["uniform"]["selected"] is None


def test_one_backend_for_all_obeys_pair_rules(plan: Any) -> None:
    pair = "{given: both, when: {causal: true}, prefill: [broad], decode: [quick], note: mixed}"
    _, found = plan(pair)
    assert chosen(found) == {"prefill": "broad", "decode": "quick"}
    assert found["uniform"]["selected"] is None
    assert found["uniform"]["lacking"] == ["full attention, prefill", "full attention, decode"]
    _, free = plan("{given: both, when: {causal: false}, prefill: [broad], decode: [quick]}")
    assert free["uniform"]["selected"] in ("broad", "quick")


def test_adjusted_requests_and_what_runs_instead(plan: Any) -> None:
    adjust = """\
adjust:
  - {when: {block_size: {not_in: [64]}}, set: {block_size: 64}, note: pages of 64 tokens}
  - {when: {phase: prefill}, use: broad, note: it decodes only}
"""
    text, found = plan(
        "{given: decode, prefill: [broad], decode: [quick], note: filled by broad}",
        "--block-size", "16", "--backend", "quick",
        quick=adjust,
    )  # fmt: skip
    prefill, decode = found["layers"]
    assert (prefill["selected"], prefill["runs"]) == ("quick", "broad")
    assert (decode["selected"], decode["runs"]) == ("quick", "quick")
    assert prefill["adjusted"]["use"] == "broad"
    assert prefill["pairs"] == decode["pairs"] != []
    assert prefill["differing"] == {}
    assert "adjusts the request: block_size 16 becomes 64, runs as broad" in text
    assert found["uniform"]["selected"] == "quick"
    ran = plan("{prefill: [broad], decode: [quick]}", "--block-size", "16", "--backend", "quick", "--strict")[
        1
    ]
    assert chosen(ran) == {"prefill": None, "decode": None}


def test_phases_that_leave_different_values_are_told(plan: Any) -> None:
    text, found = plan(
        "{prefill: [broad], decode: [quick]}",
        "--block-size", "16",
        quick="adjust: [{when: {block_size: {not_in: [64]}}, set: {block_size: 64}, note: pages of 64}]",
    )  # fmt: skip
    assert found["layers"][0]["differing"] == {"block_size": {"prefill": 16, "decode": 64}}
    assert "the phases do not agree on block_size: prefill 16, decode 64; one cache serves both" in text


def test_the_shipped_pack_with_phases(command: Command) -> None:
    found = command(
        "plan", str(ROOT / "tests/data/configs/deepseek-v3"), "--pack", "sglang", "--on", "b200",
        "--backend", "cutedsl_mla", "--json",
    ).json  # fmt: skip
    prefill, decode = found["layers"]
    assert (prefill["runs"], decode["runs"]) == ("trtllm_mla", "cutedsl_mla")
    assert "manifests/sglang/pack.yaml" in prefill["pairs"][0]
    assert prefill["adjusted"]["changes"] == decode["adjusted"]["changes"]


def test_a_phase_that_is_asked_for_is_the_only_one(command: Command) -> None:
    found = command(
        "plan",
        str(ROOT / "tests/data/configs/deepseek-v3"),
        "--pack",
        "sglang",
        "--on",
        "b200",
        "phase=decode",
        "--json",
    ).json
    assert [layer["request"]["phase"] for layer in found["layers"]] == ["decode"]
    assert found["layers"][0]["pairs"] == []
