"""The core pack against choices that torch 2.13.0 and FlashInfer 0.6.18 really made.

Each line of the two files is one decision of the library's own code, made with its probes given: torch's
``_fused_sdp_choice`` on a CPU, and FlashInfer's ``determine_attention_backend``. A row that a call of this project cannot
be is left out, by name of the reason; the counts are part of the test, so that nothing else slips out.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.manifests.deciders import DECIDERS

DATA = Path(__file__).resolve().parents[1] / "data"
DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "e4m3": "fp8_e4m3",
    "e5m2": "fp8_e5m2",
    "uint8": "nvfp4",
}

Request = dict[str, Any]


def rows(name: str) -> Iterator[dict[str, Any]]:
    """The recorded decisions of one file."""
    with gzip.open(DATA / name, "rt") as lines:
        for line in lines:
            yield json.loads(line)


# -- torch's CPU choice -------------------------------------------------------------------------------------------------
def sdpa_request(row: Mapping[str, Any]) -> Request | str:
    """The request of a row, or why no call of this project is like it."""
    said = row["request"]
    if said["dtype"] == "i32":
        return "integers"
    if said["ndim"] != 4:
        return "no batch or no heads"
    if said["last_dim_stride"] != 1:
        return "elements of a head apart in memory"
    if said["heads_q"] != said["heads_kv"] and not said["enable_gqa"]:
        return "grouped heads without enable_gqa, which raises"
    if said["mask"] == "float4d_bad":
        return "a mask that does not broadcast, which raises"
    if said["mask"] == "float3d":
        return "a mask that the wrapper gives a fourth dimension"
    if not {"FLASH_ATTENTION", "MATH"} & set(said["enabled"]):
        return "neither kernel enabled, which raises"
    longest_q, longest_k = said["q_len"], said["kv_len"]
    length = "empty" if longest_q == 0 else "one" if longest_q == 1 else "same"
    if longest_q > 1 and longest_q != longest_k:
        length = "shorter" if longest_q < longest_k else "longer"
    return {
        "head_size": said["head_dim"],
        "head_size_v": said["head_dim"] if said["head_dim_v"] is None else said["head_dim_v"],
        "num_heads": said["heads_q"],
        "num_kv_heads": said["heads_kv"],
        "dtype": DTYPES[said["dtype"]],
        "layout": "dense",
        "query_length": length,
        "kv_length": "empty" if longest_k == 0 else "one" if longest_k == 1 else "many",
        "causal": said["is_causal"],
        "custom_mask": said["mask"] != "none",
        "mask_bias": said["mask"].startswith("float") or said["mask"] == "grad",
        "mask_grad": said["mask"] == "grad",
        "dropout": said["dropout"] > 0,
        "training": said["requires_grad"],
    }


@pytest.mark.parametrize("decider", sorted(DECIDERS))
def test_torch_on_a_cpu(decider: str) -> None:
    decide = DECIDERS[decider]
    left_out: Counter[str] = Counter()
    wrong: list[tuple[int, str, object]] = []
    compared = 0
    for row in rows("sdpa_cpu.sample.jsonl.gz"):
        request = sdpa_request(row)
        if isinstance(request, str):
            left_out[request] += 1
            continue
        compared += 1
        answer = decide("core", "cpu", request)
        flash, math = (f"torch_sdpa/cpu_{kind}" in answer.accepted for kind in ("flash", "math"))
        enabled = row["request"]["enabled"]
        expected = {
            "FLASH_ATTENTION": flash,
            "MATH": math and not (flash and "FLASH_ATTENTION" in enabled),
            None: not flash and "MATH" not in enabled,
        }[row["selected"]]
        if not expected:
            wrong.append((row["id"], str(row["selected"]), answer))
    assert not wrong, wrong[:3]
    assert compared >= 100
    assert left_out.total() + compared == 238


# -- FlashInfer's choice of fa2 or fa3 ----------------------------------------------------------------------------------
def flashinfer_request(row: Mapping[str, Any]) -> Request | str:
    """The request of a row, or why no call of this project is like it."""
    said = row["request"]
    if said["pos_encoding_mode"] == "ROPE_LLAMA":
        return "rotary embedding inside the kernel"
    if said["use_fp16_qk_reduction"]:
        return "half-precision accumulation"
    q, kv = DTYPES[said["dtype_q"]], DTYPES[said["dtype_kv"]]
    same = q == kv and not q.startswith("fp8")
    if not same and not kv.startswith(("fp8", "nvfp4")):
        return "keys in another 16-bit format, or wider than the query"
    request: Request = {
        "dtype": q,
        "kv_cache_dtype": "auto" if same else kv,
        "custom_mask": said["custom_mask"],
        "alibi": said["pos_encoding_mode"] == "ALIBI",
        "layout": "dense",
    }
    if said["head_dims"] is not None:
        request["head_size"], request["head_size_v"] = said["head_dims"]
    return request


def wrapper_is_stricter(said: Mapping[str, Any]) -> bool:
    """Whether the wrapper refuses an FP8 call that FlashInfer would try: mixed formats, or value heads of another size."""
    mixed = said["dtype_q"] != said["dtype_kv"] or said["dtype_q"] == "e5m2"
    fp8 = "e4m3" in (said["dtype_q"], said["dtype_kv"])
    return mixed or (fp8 and said["head_dims"] is not None and said["head_dims"][0] != said["head_dims"][1])


@pytest.mark.parametrize("decider", sorted(DECIDERS))
def test_flashinfers_kernels(decider: str) -> None:
    """FA3 where FlashInfer says that FA3 can, but for what the wrapper refuses."""
    decide = DECIDERS[decider]
    on = {(8, 0): "a100", (9, 0): "h100", (10, 0): "b200", (12, 0): "rtx5090"}
    compared = 0
    wrong: list[tuple[int, bool, object]] = []
    for row in rows("flashinfer.sample.jsonl.gz"):
        request = flashinfer_request(row)
        if isinstance(request, str):
            continue
        major, minor = row["env"]["compute_capability"]
        cuda = ".".join(map(str, row["env"]["cuda"]))
        changes = {"cuda_version": cuda, "packages": {"flashinfer-python": "0.6.18"}}
        answer = decide("core", on[major, minor], request, changes)
        compared += 1
        fa3 = "flashinfer/fa3" in answer.accepted
        if fa3 != (row["selected"] == "fa3" and not wrapper_is_stricter(row["request"])):
            wrong.append((row["id"], fa3, answer))
    assert not wrong, wrong[:3]
    assert compared > 400
