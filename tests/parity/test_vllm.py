"""vLLM: a tenth of the recorded decisions, and rules that no recorded decision exercises."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest

from selector import Catalog, Environment, Report, explain

from . import vllm
from .__main__ import KEPT, main
from .judge import MANIFESTS
from .result import Row, read_rows
from .vllm_map import AXES, backend_of, explains
from .vllm_texts import axes_of

DATA = KEPT["vllm"]

WHEEL = dict.fromkeys(
    ("vllm-flash-attn-2", "vllm-flash-attn-3", "vllm-flash-attn-4", "vllm-flashmla", "vllm-cutlass-mla"),
    "0.32.0",
)
"""What vLLM's wheel for CUDA contains."""

FLASHINFER = {"flashinfer-python": "0.6.18", "flashinfer-cubin": "0.6.18"}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """A fixed tenth of the recorded decisions."""
    return list(islice(read_rows(DATA), 0, None, 10))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load("vllm", manifests=MANIFESTS)


def cuda(capability: str, **packages: str) -> dict[str, Any]:
    """A CUDA machine with vLLM's wheel, FlashInfer and further packages (underscores for dashes)."""
    more = {name.replace("_", "-"): version for name, version in packages.items()}
    return {"device": "cuda", "compute_capability": capability, "packages": {**WHEEL, **FLASHINFER, **more}}


def report(
    catalog: Catalog,
    facts: Mapping[str, Any],
    backend: str | None = None,
    strict: bool = False,
    **fields: Any,
) -> Report:
    """What the pack says of a bfloat16 layer of 128."""
    request = catalog.request({"head_size": 128, "dtype": "bfloat16", **fields})
    environment = Environment(facts, vocabulary=catalog.vocabulary)
    return explain(request, environment=environment, catalog=catalog, backend=backend, strict=strict)


def axes(answer: Report, candidate: str) -> set[str]:
    """The axes a candidate is rejected under; empty where it is accepted."""
    return {axis for reason in answer.reasons(candidate) for axis in reason.axes}


# -- recorded decisions -------------------------------------------------------------------------------------------------


def test_agrees_with_recorded_decisions(rows: list[Row]) -> None:
    result = vllm.compare(rows)
    assert result.rows == 3234
    assert [(m.row, m.differences) for m in result.mismatches] == []


def test_changed_rows_are_found(rows: list[Row]) -> None:
    automatic = copy.deepcopy(dict(next(row for row in rows if row.get("reasons") and row["valid"])))
    refused = copy.deepcopy(dict(next(row for row in rows if row.get("refused") == [["head_size"]])))
    automatic["winner"], automatic["valid"] = "B12X", []
    automatic["reasons"] = {name: [*reasons, ["dropout"]] for name, reasons in automatic["reasons"].items()}
    refused["winner"], refused["refused"] = refused["explicit"], [["dropout"]]
    result = vllm.compare([rows[0], automatic, refused])
    assert [m.row for m in result.mismatches] == [2, 3]
    found = [{d.field for d in m.differences} for m in result.mismatches]
    assert found == [{"winner", "valid", "reasons"}, {"explicit", "refused"}]


def test_rows_that_cannot_be_mapped_are_wrong(rows: list[Row]) -> None:
    unknown_package, unknown_field, unknown_name = (copy.deepcopy(dict(rows[0])) for _ in range(3))
    unknown_package["env"]["installed"] = ["fa5"]
    unknown_field["request"]["use_magic"] = True
    unknown_name.update(explicit="MAGIC_ATTN", winner=None)
    result = vllm.compare([unknown_package, unknown_field, unknown_name])
    assert [{d.field for d in m.differences} for m in result.mismatches][:2] == [set(vllm.FIELDS)] * 2
    assert len(result.mismatches) == 3


def test_a_quietly_replaced_choice_is_not_compared(rows: list[Row]) -> None:
    replaced = [row for row in rows if vllm.replaced(row)]
    assert replaced
    assert all(row["explicit"] != backend_of(row["winner"]) for row in replaced)
    assert vllm.compare(replaced).agrees


def test_command(rows: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vllm", str(DATA), "--limit", "10"]) == 0
    assert capsys.readouterr().out.startswith("vllm: rows 10/10 (100.00 %)")


def test_a_reason_is_explained_by_any_of_its_axes() -> None:
    assert explains(["kv_cache_dtype", "fa_version"], frozenset({"vllm_fa_default"}))
    assert explains(["other"], frozenset({"device"}))
    assert not explains(["other"], frozenset())
    assert not explains(["sinks"], frozenset({"head_size"}))
    assert "packages" in AXES["availability"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("head_size not supported", ["head_size"]),
        ("non-MLA not supported", ["mla"]),
        ("attention type encoder not supported", ["attn_type"]),
        ("TRITON_ATTN: causal route requires FlashAttention v3 or v4", ["fa_version"]),
        ("ModuleNotFoundError: No module named 'flashinfer'", ["availability"]),
        ("ImportError", ["availability"]),
        ("something new", ["other"]),
    ],
)
def test_texts_of_vllm(text: str, expected: list[str]) -> None:
    assert axes_of(text) == expected


# -- the version of FlashAttention ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "fields", "version"),
    [
        ("8.0", {}, "fa2"),
        ("9.0", {}, "fa3"),
        ("9.0", {"head_size": 512}, "fa4"),
        ("9.0", {"head_size": 512, "batch_invariant": True}, "fa2"),
        ("9.0", {"diffusion_model": True}, "fa4"),
        ("9.0", {"alibi": True}, "fa2"),
        ("9.0", {"flash_attn_version_override": 2}, "fa2"),
        ("10.0", {}, "fa4"),
        ("10.3", {"head_size": 160}, "fa2"),
        ("10.0", {"head_size": 512}, "fa2"),
        ("10.0", {"head_size": 256}, "fa4"),
        ("10.0", {"head_size": 256, "sinks": True}, "fa2"),
        ("10.0", {"head_size": 256, "block_size": 64}, "fa2"),
        ("10.0", {"head_size": 256, "softcap": True}, "fa2"),
        ("10.0", {"head_size": 256, "rswa": True, "model_config": True}, "fa2"),
        ("10.0", {"head_size": 256, "sliding_window": True, "attn_type": "encoder_only"}, "fa2"),
        ("10.0", {"batch_invariant": True}, "fa2"),
        ("10.0", {"flash_attn_version_override": 3}, "fa4"),
        ("11.0", {}, "fa2"),
        ("12.0", {"flash_attn_version_override": 3}, "fa2"),
        ("12.0", {"flash_attn_version_override": 4, "head_size": 160}, "fa2"),
        ("12.0", {"flash_attn_version_override": 4}, "unresolved"),
        ("8.0", {"flash_attn_version_override": 3}, "unresolved"),
    ],
)
def test_version_of_flash_attention(
    catalog: Catalog, capability: str, fields: Mapping[str, Any], version: str
) -> None:
    answer = report(catalog, cuda(capability), backend="FLASH_ATTN", **fields)
    assert [candidate.id for candidate in answer.ranked] == [f"FLASH_ATTN/{version}"]


# -- settings and models -------------------------------------------------------------------------------------------------


def test_a_run_of_another_cache_format_keeps_the_special_kernel_away(catalog: Catalog) -> None:
    fields: dict[str, Any] = {"head_size": 256, "kv_cache_dtype": "auto"}
    assert report(catalog, cuda("10.0"), "FLASH_ATTN", **fields).selected == "FLASH_ATTN/fa4"
    quantised = {**fields, "run_kv_cache_dtype": "fp8"}
    assert report(catalog, cuda("10.0"), "FLASH_ATTN", **quantised).selected == "FLASH_ATTN/fa2"


def test_trtllm_kernels_switched_off(catalog: Catalog) -> None:
    answer = report(catalog, cuda("10.0"), sinks=True, use_trtllm_attention="disabled")
    assert "use_trtllm_attention" in axes(answer, "FLASHINFER")
    assert report(catalog, cuda("10.0"), sinks=True, use_trtllm_attention="forced").selected == "FLASHINFER"


def test_kernels_that_can_be_downloaded_are_as_good_as_installed(catalog: Catalog) -> None:
    facts = cuda("10.0")
    del facts["packages"]["flashinfer-cubin"]
    assert "sinks" in axes(report(catalog, facts, sinks=True), "FLASHINFER")
    assert report(catalog, {**facts, "cubins_reachable": True}, sinks=True).selected == "FLASHINFER"


def test_head_counts_that_trtllm_does_not_take(catalog: Catalog) -> None:
    fields: dict[str, Any] = {"adaptive_verification": True, "model_config": True, "num_kv_heads": 4}
    assert axes(report(catalog, cuda("10.0"), num_heads=30, **fields), "FLASHINFER") == {
        "adaptive_verification"
    }
    assert report(catalog, cuda("10.0"), num_heads=32, **fields).selected == "FLASHINFER"


def test_encoder_decoder_models_do_without_rocm_attention(catalog: Catalog) -> None:
    facts = {"device": "rocm", "gcn_arch": "gfx942", "compute_capability": "9.4", "packages": {}}
    assert report(catalog, facts).selected == "ROCM_ATTN"
    assert report(catalog, facts, encoder_decoder_model=True).selected == "TRITON_ATTN/gpu"


@pytest.mark.parametrize(
    ("switches", "first"),
    [
        ({}, "TRITON_MLA/gpu"),
        ({"VLLM_ROCM_USE_AITER": True}, "ROCM_AITER_MLA"),
        ({"VLLM_ROCM_USE_AITER": True, "VLLM_ROCM_USE_AITER_MLA": False}, "TRITON_MLA/gpu"),
    ],
)
def test_switches_of_aiter(catalog: Catalog, switches: Mapping[str, bool], first: str) -> None:
    facts = {"device": "rocm", "gcn_arch": "gfx950", "packages": {"amd-aiter": "0.1.20"}, **switches}
    assert report(catalog, facts, head_size=576, mla=True).selected == first


def test_unknown_packages_leave_nothing_that_needs_them(catalog: Catalog) -> None:
    facts = {"device": "cuda", "compute_capability": "9.0"}
    ranked = [candidate.id for candidate in report(catalog, facts).ranked]
    assert ranked == ["TRITON_ATTN/gpu"]


# -- where vLLM contradicts itself -----------------------------------------------------------------------------------------

CONTRADICTIONS: tuple[tuple[str, dict[str, Any], str, dict[str, Any]], ...] = (
    ("FLASH_ATTN", cuda("10.0"), "sinks", {"head_size": 160, "sinks": True}),
    ("FLASH_ATTN", cuda("10.0"), "per-head scales", {"head_size": 160, "per_head_scales": True}),
    ("FLASH_ATTN", cuda("10.0"), "head size 256", {"head_size": 384}),
    ("FLASH_ATTN", cuda("9.0"), "head size 256", {"head_size": 384, "batch_invariant": True}),
    ("FLASH_ATTN", cuda("9.0"), "FP8", {"kv_cache_dtype": "fp8", "alibi": True}),
    ("FLASH_ATTN", cuda("9.0"), "multimodal", {"head_size": 512, "mm_prefix": True, "alibi": True}),
    ("FLASH_ATTN", cuda("8.0"), "no FlashAttention version", {"flash_attn_version_override": 4}),
    ("FLASHINFER", cuda("10.0"), "layout for MLA", {"kv_cache_dtype": "nvfp4_ds_mla"}),
    ("FLASHINFER", cuda("9.0"), "non-causal", {"non_causal": True, "dcp": True}),
    ("FLASHINFER", cuda("9.0"), "NVFP4", {"non_causal": True, "kv_cache_dtype": "nvfp4"}),
    ("FLEX_ATTENTION", cuda("8.0"), "soft cap", {"softcap": True}),
    ("CPU_ATTN", cuda("9.0"), "CPU", {"kv_cache_dtype": "fp8"}),
    ("ROCM_ATTN", cuda("9.0"), "made for ROCm", {}),
)


@pytest.mark.parametrize(("backend", "facts", "text", "fields"), CONTRADICTIONS)
def test_contradictions_warn_and_strict_selection_refuses(
    catalog: Catalog, backend: str, facts: Mapping[str, Any], text: str, fields: Mapping[str, Any]
) -> None:
    answer = report(catalog, facts, backend, **fields)
    assert any(text in warning.message for warning in answer.ranked[0].warnings)
    assert not report(catalog, facts, backend, strict=True, **fields).ranked


@pytest.mark.parametrize(
    ("backend", "facts", "fields"),
    [
        ("FLASHINFER_MLA_SPARSE", {**cuda("10.0"), "packages": WHEEL}, {}),
        (
            "FLASHMLA_SPARSE",
            {**cuda("10.0"), "packages": {k: v for k, v in WHEEL.items() if k != "vllm-flashmla"}},
            {},
        ),
        ("ROCM_AITER_MLA_SPARSE", {"device": "rocm", "gcn_arch": "gfx942", "packages": {}}, {}),
    ],
)
def test_packages_that_vllm_does_not_look_for(
    catalog: Catalog, backend: str, facts: Mapping[str, Any], fields: Mapping[str, Any]
) -> None:
    sparse: dict[str, Any] = {"head_size": 576, "mla": True, "sparse": True, **fields}
    answer = report(catalog, facts, backend, **sparse)
    assert any("missing" in w.message or "not installed" in w.message for w in answer.ranked[0].warnings)
    assert axes(report(catalog, facts, backend, strict=True, **sparse), backend) == {"packages"}


def test_a_model_without_the_fields_that_a_check_reads(catalog: Catalog) -> None:
    fields: dict[str, Any] = {
        "head_size": 576,
        "mla": True,
        "sparse": True,
        "model_config": True,
        "index_topk": 2048,
    }
    answer = report(catalog, cuda("10.0"), "FLASHINFER_MLA_SPARSE", **fields)
    assert any("AttributeError" in warning.message for warning in answer.ranked[0].warnings)


def test_platforms_that_do_not_ask_the_backend(catalog: Catalog) -> None:
    cpu = {"device": "cpu", "cpu_arch": "x86_64", "amx": False, "packages": {}}
    answer = report(catalog, cpu, head_size=72)
    assert answer.selected == "CPU_ATTN/cpu"
    assert answer.ranked[0].warnings
    assert not report(catalog, cpu, strict=True, head_size=72).ranked
    assert not report(catalog, cpu, head_size=64).ranked[0].warnings
