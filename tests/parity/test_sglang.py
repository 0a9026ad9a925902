"""SGLang: recorded decisions, and passes that no recorded decision exercises."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from selector import Catalog, Environment, Report, explain

from . import sglang
from .judge import MANIFESTS
from .result import Row, read_rows

DATA = Path(__file__).resolve().parents[1] / "data" / "sglang.sample.jsonl.gz"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(read_rows(DATA))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load("sglang", manifests=MANIFESTS)


def report(
    catalog: Catalog, platform: str, backend: str | None = None, *, strict: bool = False, **fields: Any
) -> Report:
    """What the pack says of a bfloat16 layer of 128 on one of the rows' platforms."""
    request = {"head_size": 128, "dtype": "bfloat16", "causal": True, **fields}
    environment = Environment(sglang.PLATFORMS[platform], vocabulary=catalog.vocabulary)
    return explain(
        catalog.request(request), environment=environment, catalog=catalog, backend=backend, strict=strict
    )


def runs(answer: Report) -> tuple[str, Any] | None:
    """The backend that runs, and the page size it runs with (None where it is as asked)."""
    if answer.selected is None:
        return None
    adjusted = answer.ranked[0].adjusted
    if adjusted is None:
        return answer.selected, None
    changes = {axis: used for axis, _, used in adjusted.changes}
    return adjusted.use or answer.selected, changes.get("block_size")


def test_agrees_with_recorded_decisions(rows: list[Row]) -> None:
    result = sglang.compare(rows[::8])
    assert result.rows == 720
    assert [(m.row, m.differences) for m in result.mismatches] == []


def test_a_changed_row_is_found(rows: list[Row]) -> None:
    accepted = next(row for row in rows if not row["error"])
    changed = copy.deepcopy(dict(accepted))
    changed["selected"]["page_size"] = 7
    result = sglang.compare([accepted, changed])
    assert [m.row for m in result.mismatches] == [2]
    assert [d.field for d in result.mismatches[0].differences] == ["page_size"]


def test_an_unknown_platform_is_wrong(rows: list[Row]) -> None:
    assert not sglang.compare([{**rows[0], "env": {"platform": "abacus"}}]).agrees


@pytest.mark.parametrize(
    ("backend", "asked", "runs_with"),
    [
        ("flashmla", 32, 64),
        ("trtllm_mla", 32, None),
        ("trtllm_mla", 16, 64),
        ("cutedsl_mla", 32, None),
        ("trtllm_mha", 16, None),
        ("trtllm_mha", 8, 64),
        ("hpc_ops", 128, 64),
        ("fa4", 16, None),
    ],
)
def test_page_sizes(catalog: Catalog, backend: str, asked: int, runs_with: int | None) -> None:
    answer = report(catalog, "sm100", backend, mla=True, block_size=asked, phase="decode")
    assert runs(answer) == (backend, runs_with)


def test_a_page_size_left_open_is_filled(catalog: Catalog) -> None:
    assert runs(report(catalog, "sm100", "trtllm_mha")) == ("trtllm_mha", 64)


def test_phases_of_a_decoder_only_backend(catalog: Catalog) -> None:
    fields: dict[str, Any] = {"mla": True, "block_size": 64}
    assert runs(report(catalog, "sm100", "cutedsl_mla", phase="decode", **fields)) == ("cutedsl_mla", None)
    assert runs(report(catalog, "sm100", "cutedsl_mla", phase="prefill", **fields)) == ("trtllm_mla", None)
    assert runs(report(catalog, "sm120", "cutedsl_mla", phase="prefill", **fields)) is None


def test_strict_selection_refuses_what_is_adjusted(catalog: Catalog) -> None:
    assert report(catalog, "sm100", block_size=1).selected == "trtllm_mha"
    strict = report(catalog, "sm100", block_size=1, strict=True)
    assert strict.selected is None
    assert "block_size" in {reason.axis for reason in strict.reasons("trtllm_mha")}
    assert report(catalog, "sm100", block_size=64, strict=True).selected == "trtllm_mha"
    assert report(catalog, "hopper", "fa3", kv_cache_dtype="fp8_e5m2", strict=True).selected is None


def test_checks_of_start_up_are_warnings(catalog: Catalog) -> None:
    answer = report(catalog, "ampere", "trtllm_mha", block_size=64)
    assert answer.selected == "trtllm_mha"
    assert [warned.strict for warned in answer.ranked[0].warnings] == [True]
    assert report(catalog, "ampere", "trtllm_mha", block_size=64, strict=True).selected is None
    assert report(catalog, "sm100", "trtllm_mha", block_size=64, strict=True).selected == "trtllm_mha"


@pytest.mark.parametrize(
    ("platform", "fields", "backend"),
    [
        ("hopper", {"eagle_topk": 2}, "flashinfer"),
        ("sm100", {"speculative_algorithm": "DFLASH"}, "trtllm_mha"),
        ("sm100", {"speculative_algorithm": "EAGLE"}, "flashinfer"),
        ("sm100", {"head_size": 192, "head_size_v": 128}, "fa4"),
        ("hip", {"mla": True, "num_kv_heads": 16}, "aiter"),
        ("hip", {"mla": True, "num_kv_heads": 8}, "triton"),
        ("cpu", {"architecture": "WhisperForConditionalGeneration"}, "flashinfer"),
        ("sm120", {"deterministic": True, "mla": True, "deepseek": False}, "flashinfer"),
        ("sm120", {"deterministic": True, "mla": True}, "triton"),
    ],
)
def test_the_tree(catalog: Catalog, platform: str, fields: dict[str, Any], backend: str) -> None:
    assert report(catalog, platform, **fields).selected == backend


def test_old_cuda_is_no_hopper(catalog: Catalog) -> None:
    facts = {**sglang.PLATFORMS["hopper"], "cuda_version": "12.2"}
    environment = Environment(facts, vocabulary=catalog.vocabulary)
    request = catalog.request({"head_size": 128, "dtype": "bfloat16"})
    assert explain(request, environment=environment, catalog=catalog).selected == "flashinfer"
