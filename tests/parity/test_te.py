"""Transformer Engine: recorded decisions, and rules that no recorded decision exercises."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from selector import Catalog, Environment, Report, explain

from . import te
from .__main__ import main
from .judge import MANIFESTS
from .result import Row, read_rows

DATA = Path(__file__).resolve().parents[1] / "data" / "te.sample.jsonl.gz"

FA2, FA3, FA4 = "FlashAttention/fa2", "FlashAttention/fa3", "FlashAttention/fa4"
F16, FP8 = "FusedAttention/F16_arbitrary_seqlen", "FusedAttention/FP8"
UNFUSED = "UnfusedDotProductAttention"

HOPPER: dict[str, Any] = {
    "device": "cuda",
    "compute_capability": "9.0",
    "cudnn_version": "9.21.0",
    "packages": {"flash-attn": "2.8.3", "flash-attn-3": "3.0.0"},
}
BLACKWELL: dict[str, Any] = {
    **HOPPER,
    "compute_capability": "10.0",
    "packages": {"flash-attn": "2.8.3", "flash-attn-4": "4.0.0b11"},
}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(read_rows(DATA))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load("transformer_engine", manifests=MANIFESTS)


def report(catalog: Catalog, facts: Mapping[str, Any], **fields: Any) -> Report:
    """What the pack says of a causal bfloat16 layer of 128."""
    request = {"head_size": 128, "dtype": "bfloat16", "mask_type": "causal", **fields}
    environment = Environment(facts, vocabulary=catalog.vocabulary)
    return explain(catalog.request(request), environment=environment, catalog=catalog)


def axes(answer: Report, candidate: str) -> set[str]:
    """The axes a candidate is rejected under; empty where it is accepted."""
    return {axis for reason in answer.reasons(candidate) for axis in reason.axes}


def test_agrees_with_recorded_decisions(rows: list[Row]) -> None:
    result = te.compare(rows[::8])
    assert result.rows == 986
    assert [(m.row, m.differences) for m in result.mismatches] == []


def test_a_changed_row_is_found(rows: list[Row]) -> None:
    changed = copy.deepcopy(dict(rows[0]))
    changed["available"]["fa2"] = not changed["available"]["fa2"]
    changed["selected"]["backend"] = "NoBackend"
    result = te.compare([rows[0], changed])
    assert [m.row for m in result.mismatches] == [2]
    assert {d.field for d in result.mismatches[0].differences} == {"available", "selected"}


def test_a_row_without_a_mapping_is_wrong(rows: list[Row]) -> None:
    changed = copy.deepcopy(dict(rows[0]))
    changed["request"]["attn_mask_type"] = "spiral"
    result = te.compare([changed])
    assert {d.field for d in result.mismatches[0].differences} == set(te.FIELDS)


def test_command_says_rates_and_exit_status(rows: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["te", str(DATA), "--limit", "20"]) == 0
    assert capsys.readouterr().out.startswith("te: rows 20/20 (100.00 %)")


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("nvte_flash_attn", {FA2, FA3}),
        ("nvte_flash_attn_v2", {FA2}),
        ("nvte_flash_attn_v3", {FA3}),
        ("nvte_fused_attn", {F16, FP8}),
        ("nvte_unfused_attn", {UNFUSED}),
    ],
)
def test_switches(catalog: Catalog, switch: str, gone: set[str]) -> None:
    answer = report(catalog, {**HOPPER, switch: "0"})
    assert {name for name in answer.rejected if switch in axes(answer, name)} >= gone
    assert not gone & {candidate.id for candidate in answer.ranked}


def test_switch_of_generation_4(catalog: Catalog) -> None:
    assert axes(report(catalog, BLACKWELL), FA4) == set()
    assert axes(report(catalog, {**BLACKWELL, "nvte_flash_attn_v4": "0"}), FA4) == {"nvte_flash_attn_v4"}


def test_generation_3_displaces_4_on_hopper_even_when_it_is_refused(catalog: Catalog) -> None:
    both = {**HOPPER, "packages": {"flash-attn-3": "3.0.0", "flash-attn-4": "4.0.0b11"}}
    answer = report(catalog, both, head_size=200)
    assert axes(answer, FA4) == {"packages"}
    refused = report(catalog, both, head_size=264)
    assert "head_size" in axes(refused, FA3)
    assert "packages" in axes(refused, FA4)
    assert axes(report(catalog, {**both, "nvte_flash_attn_v3": "0"}), FA4) == set()


def test_broken_release_of_generation_4_needs_a_newer_dsl(catalog: Catalog) -> None:
    for dsl, wanted in (({}, {"packages"}), ({"nvidia-cutlass-dsl": "4.6.1"}, {"packages"})):
        facts = {**BLACKWELL, "packages": {"flash-attn-4": "4.0.0b24", **dsl}}
        assert axes(report(catalog, facts), FA4) == wanted
    facts = {**BLACKWELL, "packages": {"flash-attn-4": "4.0.0b24", "nvidia-cutlass-dsl": "4.6.2"}}
    assert axes(report(catalog, facts), FA4) == set()


TOP_LEFT = {
    "mask_type": "no_mask",
    "window_size": [128, 0],
    "diagonal": "top_left",
    "max_seqlen_q": 512,
    "max_seqlen_kv": 2048,
}


@pytest.mark.parametrize(
    ("packages", "more", "kept"),
    [
        ({"flash-attn-3": "3.0.0"}, {}, True),
        ({"flash-attn-3": "3.0.0", "flash-attn": "2.8.3"}, {}, False),
        ({"flash-attn-3": "3.0.0", "flash-attn": "2.2.0"}, {}, True),
        # Generation 2 has lost its own switch to the number of splits before windows are looked at.
        ({"flash-attn-3": "3.0.0", "flash-attn": "2.8.3"}, {"num_splits": 4}, True),
    ],
)
def test_top_left_window_depends_on_generation_2(
    catalog: Catalog, packages: Mapping[str, str], more: Mapping[str, Any], kept: bool
) -> None:
    answer = report(catalog, {**HOPPER, "packages": packages}, **{**TOP_LEFT, **more})
    assert (axes(answer, FA3) == set()) is kept


def test_veto_on_the_family_does_not_take_generation_2_out_of_play(catalog: Catalog) -> None:
    answer = report(catalog, HOPPER, **TOP_LEFT, return_max_logit=True)
    assert {"return_max_logit", "window_size"} <= axes(answer, FA3)


def test_tiles_of_the_backward_pass(catalog: Catalog) -> None:
    facts = {**BLACKWELL, "packages": {"flash-attn-4": "4.0.0b11"}}
    assert "training" in axes(report(catalog, facts, head_size=128, head_size_v=96, training=True), FA4)
    assert axes(report(catalog, facts, head_size=128, head_size_v=64, training=True), FA4) == set()
    assert axes(report(catalog, facts, head_size=128, head_size_v=96), FA4) == set()


def test_onnx_export_lifts_the_emulation_switch(catalog: Catalog) -> None:
    assert "nvte_unfused_emulate_fp8" in axes(report(catalog, HOPPER, fp8_recipe="delayed"), UNFUSED)
    assert axes(report(catalog, HOPPER, fp8_recipe="delayed", onnx_export=True), UNFUSED) == set()
    emulating = {**HOPPER, "nvte_unfused_emulate_fp8": "1"}
    assert axes(report(catalog, emulating, fp8_recipe="delayed"), UNFUSED) == set()


@pytest.mark.parametrize(
    ("layout", "length", "refused"),
    [
        ("thd_thd_thd", 2**20, False),
        ("thd_thd_thd", 2**20 + 64, True),
        ("t3hd", 2**19 + 2**18, True),
        ("thd_t2hd", 2**19 + 64, True),
        ("bshd_bshd_bshd", 2**21, False),
    ],
)
def test_ragged_offsets_of_old_cudnn(catalog: Catalog, layout: str, length: int, refused: bool) -> None:
    # 16 heads of 128: 2^31 elements are 2^20 tokens, packed with the others a third or a half of them.
    answer = report(
        catalog,
        {**HOPPER, "cudnn_version": "9.3.0"},
        qkv_layout=layout,
        max_seqlen_q=length - 1,
        max_seqlen_kv=length - 1,
        num_heads=16,
        mask_type="padding_causal",
    )
    assert ("largest_ragged_offset" in axes(answer, F16)) is refused


def test_first_answer_flips_at_hopper(catalog: Catalog) -> None:
    ampere = {**HOPPER, "compute_capability": "8.0"}
    assert report(catalog, ampere).selected == FA2
    assert report(catalog, HOPPER).selected == F16


def test_names_of_the_base_vocabulary_mean_the_same(catalog: Catalog) -> None:
    by_base = report(catalog, HOPPER, mask_type=None, causal=True, sinks=True, alibi=True, layout="paged")
    by_own = report(catalog, HOPPER, softmax_type="learnable", bias_type="alibi", kv_cache="paged")
    assert [c.id for c in by_base.ranked] == [c.id for c in by_own.ranked]
    assert {"softmax_kind", "sinks"} <= axes(by_base, FA2)
