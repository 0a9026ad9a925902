"""Public reports about vLLM, in plain fields, asked of the pack `vllm`.

A case that the pack cannot answer has a sentence that says why; a case whose right answer is another one today has the
answer of vLLM 0.32 in `TODAY`. Reports about other systems are asked of the core pack, in
`tests/manifests/test_reported_cases.py`, or belong to nothing this project describes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from .judge import Fields, Judge, Verdict, engine
from .vllm import reasons_of, valid_of

DATA: Final = Path(__file__).resolve().parents[1] / "data" / "reported_cases.jsonl"

CASES: Final[Mapping[str, Mapping[str, Any]]] = {
    case["id"]: case for case in map(json.loads, DATA.read_text(encoding="utf-8").splitlines())
}

ELSEWHERE: Final[Mapping[str, str]] = {
    "A08a": "FlashInfer before 0.6.16 is older than what vLLM 0.32 asks for, and its selection reads no version.",
    "A09": "TensorRT-LLM in mid-2025.",
    "A18": "FlashInfer before head size 512; vLLM 0.32 lists 512. The core pack has the version limit.",
    "A20": "The vision tower of an old vLLM; choosing a kernel for vision towers is another function, which reads no manifest.",
    "A24": "Transformer Engine.",
    "A44a": "As A45b on one device; a machine with several is asked device by device.",
    "A46a": "flash-attn's distributions; vLLM brings its own build. The core pack tells the two apart.",
    "A48a": "The CUDA toolkit of FlashInfer's compiler; vLLM's selection does not look at it, and chooses FLASHINFER.",
    "A50b": "xFormers.",
    "A52a": "PyTorch's own choice; see the core pack.",
    "A53b": "transformers on PyTorch; see the core pack.",
    "A55": "diffusers, with a boolean mask; vLLM's layers take none. See the core pack.",
    "A56": "diffusers and the kernels hub.",
    "A57b": "SGLang's diffusion models.",
    "A58a": "SGLang chooses prefill and decode apart; vLLM does not.",
    "A58b": "SGLang.",
    "A59b": "A user's own rule about model families.",
    "A60": "JAX and cuDNN.",
}
"""Cases that are not about what vLLM 0.32's selection decides, and why."""

TODAY: Final[Mapping[str, Mapping[str, Any]]] = {
    # With FlashInfer, 12.x has a sparse MLA backend by now; without it everything is as reported.
    "A03": {"without": ["flashinfer-python"]},
    # TRITON_MLA reads an FP8 cache since (A05b).
    "A05a": {
        "outcome": "selected",
        "selected_any_of": ["TRITON_MLA"],
        "rejected": {"CUTLASS_MLA": ["compute_capability"], "FLASHINFER_MLA": ["compute_capability"]},
    },
    # TRT-LLM's sparse kernel is for 10.x only, then and now; 12.x has one of its own by now.
    "A06b": {
        "without": ["flashinfer-python"],
        "rejected": {"FLASHINFER_MLA_SPARSE": ["compute_capability"]},
    },
    # A limit of this kind is a version's; CUTLASS_MLA reads an FP8 cache since.
    "A17": {"rejected": {}},
}
"""What is otherwise in vLLM 0.32, or what the report leaves out."""

AXES: Final = {
    "per_head_quant_scales": "per_head_scales",
    "sink": "sinks",
    "package_missing": "packages",
    "batch_invariance": "batch_invariant",
    "decode_context_parallel": "dcp",
}

WHEEL: Final = (
    "vllm-flash-attn-2",
    "vllm-flash-attn-3",
    "vllm-flash-attn-4",
    "vllm-flashmla",
    "vllm-cutlass-mla",
)
OPTIONS: Final = ("flashinfer-python", "flashinfer-cubin", "tokenspeed-mla")


def environment_of(case: Mapping[str, Any]) -> Fields:
    """The machine of a case: vLLM's wheel, and what else the report names (everything where it names nothing)."""
    env = case["env"]
    capability = env.get("compute_capability") or min(d["compute_capability"] for d in env["devices"])
    named = env.get("packages")
    packages = dict.fromkeys((*WHEEL, *OPTIONS), "1.0")
    if named is not None and "flashinfer" not in named:
        packages = dict.fromkeys(WHEEL, "1.0")
    if named is not None and "flash_attn" in named and named["flash_attn"] is None:
        packages = {name: version for name, version in packages.items() if "flash-attn" not in name}
    for name in TODAY.get(case["id"], {}).get("without", []):
        del packages[name]
    return {"device": env["platform"], "compute_capability": capability, "packages": packages}


def request_of(fields: Mapping[str, Any]) -> Fields:
    """The request of a case in the pack's names."""
    request = {name: value for name, value in fields.items() if name != "forced_backend"}
    if "decode_context_parallel" in request:
        request["dcp"] = request.pop("decode_context_parallel") > 1
    return request


@cache
def judge() -> Judge:
    """The engine on the pack."""
    return engine("vllm")


def ask(case: Mapping[str, Any], fields: Mapping[str, Any], backend: str | None = None) -> Verdict:
    """The verdict on a request of a case; `backend` is asked for by name."""
    return judge()(request_of(fields), environment_of(case), backend)


PLAIN: Final = [
    name
    for name in CASES
    if name not in ELSEWHERE and not {"sequence", "layers"} & set(CASES[name]["request"]) and name != "A33"
]


@pytest.mark.parametrize("name", PLAIN)
def test_case(name: str) -> None:
    case = CASES[name]
    expect = {**case["expect"], **TODAY.get(name, {})}
    request = case["request"]
    asked = request.get("forced_backend")
    verdict = ask(case, request, asked)
    valid = valid_of(verdict)
    if expect["outcome"] == "selected":
        assert valid[:1]
        assert "selected_any_of" not in expect or valid[0] in expect["selected_any_of"]
    else:
        assert expect["outcome"] in ("no_valid_backend", "forced_rejected")
        assert valid == []
    for backend, reasons in expect.get("rejected", {}).items():
        assert backend not in valid
        axes = reasons_of(ask(case, request, backend), backend)
        assert {AXES.get(reason, reason) for reason in reasons} <= axes
    assert not set(expect.get("not_selected", [])) & set(valid[:1])
    for before, after in expect.get("ranked_before", []):
        assert valid.index(before) < valid.index(after)
    for version in expect.get("selected_version", {}).values():
        assert verdict.ranked[0].endswith(f"/fa{version}")


def test_every_case_is_tested_or_has_its_reason() -> None:
    assert set(CASES) == {*PLAIN, *ELSEWHERE, "A32", "A33"}
    assert not set(PLAIN) & set(ELSEWHERE)
    assert set(TODAY) <= set(PLAIN)


def test_a_second_call_is_not_answered_from_the_first() -> None:
    case = CASES["A32"]
    first, second = case["request"]["sequence"]
    assert valid_of(ask(case, first))[0] != "CUTLASS_MLA"
    assert valid_of(ask(case, second, second["forced_backend"])) == ["CUTLASS_MLA"]


def test_a_multimodal_prefix_decides() -> None:
    case = CASES["A33"]
    for value, expected in case["expect"]["if"].items():
        fields = {**case["request"], "mm_prefix": value.endswith("true")}
        assert valid_of(ask(case, fields))[:1] == expected


# -- what has to be in the explanation -------------------------------------------------------------------------------------


def test_flash_attention_3_would_take_per_head_scales() -> None:
    case = CASES["A01b"]
    hopper = {**environment_of(case), "compute_capability": "9.0"}
    assert judge()(request_of(case["request"]), hopper).ranked[0] == "FLASH_ATTN/fa3"


def test_triton_is_one_check_away_on_consumer_blackwell() -> None:
    assert reasons_of(ask(CASES["A03"], CASES["A03"]["request"]), "TRITON_MLA") == {"sparse"}


def test_the_cache_format_of_sparse_mla_is_refused_by_every_dense_backend() -> None:
    verdict = ask(CASES["A16"], CASES["A16"]["request"])
    for backend in ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"):
        assert "kv_cache_dtype" in reasons_of(verdict, backend)


def test_head_size_is_no_obstacle_for_the_text_layers_of_a_vision_model() -> None:
    assert "head_size" not in reasons_of(
        ask(CASES["A20"], {"head_size": 72, "dtype": "bfloat16"}), "FLASH_ATTN"
    )


def test_flash_attention_takes_what_triton_refuses_under_context_parallelism() -> None:
    assert valid_of(ask(CASES["A38"], CASES["A38"]["request"]))[0] == "FLASH_ATTN"
