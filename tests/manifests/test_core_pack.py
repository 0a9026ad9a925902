"""The core pack says what its sources say. Each row of a table below is one fact, with where it comes from.

Every row runs through both deciders of :mod:`tests.manifests.deciders`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

import selector
from tests.manifests.deciders import DECIDERS, Answer

Decide = Callable[..., Answer]
ALL = (
    "flash_attn/fa2", "flash_attn/fa3", "flash_attn/fa4",
    "flashinfer/fa2", "flashinfer/fa3", "flashinfer/fa3_fp8_heads",
)  # fmt: skip


@pytest.fixture(params=sorted(DECIDERS))
def decide(request: pytest.FixtureRequest) -> Decide:
    """One of the two deciders, on the core pack."""
    decider = DECIDERS[request.param]

    def on_core(on: str, request: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Answer:
        return decider("core", on, request, changes)

    return on_core


LLAMA = {"head_size": 128, "num_heads": 32, "num_kv_heads": 8, "dtype": "bfloat16"}
PER_HEAD = {**LLAMA, "kv_cache_dtype": "fp8_e4m3", "per_head_scales": True}


# -- the deciding table: an FP8 KV cache with one scale a head ----------------------------------------------------------
#
# FA3: CHECK_SHAPE(k_descale, batch_size, num_heads_k), hopper/flash_api.cpp; FA2 has no scales at all; FA4's public
# functions have none, flash_attn/cute/interface.py; FlashInfer's `scale_q [num_heads]` needs an FP8 query on the FA3
# module; neither F.scaled_dot_product_attention nor flex_attention has a scale argument.
@pytest.mark.parametrize("on", ["h100", "h200", "gh200"])
def test_per_head_scales_on_hopper_go_to_flash_attention_3(decide: Decide, on: str) -> None:
    answer = decide(on, PER_HEAD)
    assert answer.ranked == ("flash_attn/fa3",)
    for name in answer.reasons:
        if name != "flashinfer/fa3_fp8_heads":
            assert "per_head_scales" in answer.reasons[name], name
    assert {"flash_attn/fa2", "flash_attn/fa4", "flex_attention", "torch_sdpa/cuda_flash"} <= set(
        answer.reasons
    )
    assert answer.reasons["flashinfer/fa3_fp8_heads"] == {"dtype"}


def test_an_fp8_query_adds_flashinfers_one_path(decide: Decide) -> None:
    answer = decide("h100", {**PER_HEAD, "dtype": "fp8_e4m3"})
    assert answer.ranked == ("flash_attn/fa3", "flashinfer/fa3_fp8_heads")


def test_pinning_flash_attention_2_names_the_scales_and_version_3(decide: Decide) -> None:
    answer = decide("h100", {**PER_HEAD, "fa_version": 2})
    assert answer.ranked == ()
    assert "per_head_scales" in answer.reasons["flash_attn/fa2"]
    assert answer.reasons["flash_attn/fa3"] == {"fa_version"}


@pytest.mark.parametrize("on", ["a100", "l40s", "b200", "rtx5090", "mi300x", "t4"])
def test_elsewhere_no_gpu_kernel_takes_per_head_scales(decide: Decide, on: str) -> None:
    answer = decide(on, PER_HEAD)
    assert answer.ranked == ()
    assert answer.excluded == ("reference",)  # an explicit choice still reaches it
    assert all(answer.reasons[name] for name in ALL)


def test_per_head_scales_on_a_cpu_go_to_the_reference(decide: Decide) -> None:
    assert decide("cpu", PER_HEAD).ranked == ("reference",)


def test_per_head_scales_need_a_quantised_cache(decide: Decide) -> None:
    answer = decide("h100", {**LLAMA, "per_head_scales": True})
    assert answer.reasons["flash_attn/fa3"] == {"per_head_scales", "kv_cache_dtype"}


# -- one fact a row -----------------------------------------------------------------------------------------------------
class Row(NamedTuple):
    """On a preset, with the facts changed, a candidate takes the request (no axes) or is refused under these axes."""

    on: str
    request: Mapping[str, Any]
    candidate: str
    axes: frozenset[str]
    changes: Mapping[str, Any]

    def __str__(self) -> str:
        """The same in every process, as the distribution of tests over processes needs."""
        asked = " ".join(f"{k}={v}" for k, v in {**self.request, **self.changes}.items())
        return f"{self.on} {asked} {self.candidate}: {', '.join(sorted(self.axes)) or 'accepted'}"


def takes(on: str, candidate: str, changes: Mapping[str, Any] | None = None, /, **request: Any) -> Row:
    return Row(on, {"head_size": 128, "dtype": "bfloat16", **request}, candidate, frozenset(), changes or {})


def refuses(
    on: str,
    candidate: str,
    axes: str,
    changes: Mapping[str, Any] | None = None,
    /,
    **request: Any,
) -> Row:
    axes_ = frozenset(axes.split())
    return Row(on, {"head_size": 128, "dtype": "bfloat16", **request}, candidate, axes_, changes or {})


FA2 = [
    # flash_api.cpp, mha_fwd_kvcache: "Paged KV cache block size must be divisible by 256"
    refuses("a100", "flash_attn/fa2", "block_size", layout="paged", block_size=16),
    refuses("a100", "flash_attn/fa2", "block_size", layout="paged", block_size=128),
    takes("a100", "flash_attn/fa2", layout="paged", block_size=512),
    # flash_api.cpp: "FlashAttention only supports Ampere GPUs or newer."
    refuses("t4", "flash_attn/fa2", "compute_capability", dtype="float16"),
    takes("rtx4090", "flash_attn/fa2"),
    # flash_api.cpp: head dimension at most 256; the package pads to a multiple of 8, but not in the paged call
    takes("a100", "flash_attn/fa2", head_size=72),
    takes("a100", "flash_attn/fa2", head_size=100),
    refuses("a100", "flash_attn/fa2", "head_size layout", head_size=100, layout="paged"),
    refuses("a100", "flash_attn/fa2", "head_size head_size_v", head_size=512),
    # flash_api.cpp checks k and v against one head size
    refuses("a100", "flash_attn/fa2", "head_size head_size_v", head_size=192, head_size_v=128),
    # flash_api.cpp: "Softcapping does not support dropout for now"
    refuses("a100", "flash_attn/fa2", "softcap dropout", softcap=True, dropout=True),
    takes("a100", "flash_attn/fa2", softcap=True),
    takes("a100", "flash_attn/fa2", dropout=True, training=True),
    # flash_api.cpp: "FlashAttention only support fp16 and bf16 data type"
    refuses("a100", "flash_attn/fa2", "dtype", dtype="float32"),
    refuses("a100", "flash_attn/fa2", "kv_cache_dtype", kv_cache_dtype="fp8"),
    takes("a100", "flash_attn/fa2", alibi=True),
    refuses("a100", "flash_attn/fa2", "sinks", sinks=True),
    refuses("a100", "flash_attn/fa2", "custom_mask", custom_mask=True),
    refuses("a100", "flash_attn/fa2", "layout training", layout="paged", training=True),
    # README 2.8.3: head dim > 192 backward needs A100/H100; head dim 256 without dropout on others since 2.5.5
    takes("a100", "flash_attn/fa2", head_size=224, training=True),
    refuses(
        "rtx4090", "flash_attn/fa2", "head_size training compute_capability", head_size=224, training=True
    ),
    takes("rtx4090", "flash_attn/fa2", head_size=256, training=True),
    refuses(
        "rtx4090",
        "flash_attn/fa2",
        "head_size training compute_capability",
        head_size=256,
        training=True,
        dropout=True,
    ),
    # TransformerEngine, attention utils: on capability 10.0 and up flash-attn from 2.7.3
    refuses("b200", "flash_attn/fa2", "packages", {"packages": {"flash-attn": "2.7.2"}}),
    takes("b200", "flash_attn/fa2", {"packages": {"flash-attn": "2.7.3"}}),
    takes("a100", "flash_attn/fa2", {"packages": {"flash-attn": "2.7.3"}}),
    refuses("a100", "flash_attn/fa2", "packages", {"packages": {"flash-attn": "2.5.6"}}),
    refuses("a100", "flash_attn/fa2", "packages", {"packages": {"flash-attn": None}}),
    refuses("a100", "flash_attn/fa2", "num_heads num_kv_heads", num_heads=8, num_kv_heads=3),
    refuses("a100", "flash_attn/fa2", "kv_cache_dtype dtype", dtype="float16", kv_cache_dtype="bfloat16"),
    takes("a100", "flash_attn/fa2", kv_cache_dtype="bfloat16"),
    refuses("a100", "flash_attn/fa2", "mla", head_size=192, mla=True),
]

FA3 = [
    # hopper/flash_api.cpp: "Only Hopper supports different V headdim"; the two ranges of pairs
    takes("h100", "flash_attn/fa3", head_size=192, head_size_v=128),
    takes("h100", "flash_attn/fa3", head_size=136, head_size_v=104),
    takes("h100", "flash_attn/fa3", head_size=64, head_size_v=512),
    refuses("h100", "flash_attn/fa3", "head_size head_size_v", head_size=128, head_size_v=64),
    refuses("h100", "flash_attn/fa3", "head_size head_size_v", head_size=192, head_size_v=96),
    refuses("h100", "flash_attn/fa3", "head_size head_size_v", head_size=192, head_size_v=136),
    # hopper/flash_api.cpp: head dim v above 256 only for fp16 and bf16
    refuses(
        "h100", "flash_attn/fa3", "head_size_v kv_cache_dtype", head_size=64, head_size_v=512, kv_cache_dtype="fp8"
    ),
    # hopper/flash_api.cpp: head size a multiple of 8, of 16 for fp8
    takes("h100", "flash_attn/fa3", head_size=72),
    refuses("h100", "flash_attn/fa3", "head_size head_size_v", head_size=72, kv_cache_dtype="fp8_e4m3"),
    refuses("h100", "flash_attn/fa3", "head_size head_size_v", head_size=100),
    takes("h100", "flash_attn/fa3", kv_cache_dtype="fp8"),
    takes("h100", "flash_attn/fa3", dtype="fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
    refuses("h100", "flash_attn/fa3", "dtype kv_cache_dtype", dtype="fp8_e4m3"),
    refuses("h100", "flash_attn/fa3", "kv_cache_dtype", kv_cache_dtype="fp8_e5m2"),
    refuses("h100", "flash_attn/fa3", "alibi", alibi=True),
    refuses("h100", "flash_attn/fa3", "dropout", dropout=True),
    refuses("h100", "flash_attn/fa3", "sinks", sinks=True),
    takes("h100", "flash_attn/fa3", softcap=True, sliding_window=True, window_right=True),
    # "in FA3 there's no restriction on page_size", flash-attention issue 1627
    takes("h100", "flash_attn/fa3", layout="paged", block_size=3),
    refuses("a100", "flash_attn/fa3", "compute_capability"),
    refuses("b200", "flash_attn/fa3", "compute_capability"),
    refuses("h100", "flash_attn/fa3", "cuda_version", {"cuda_version": "12.1"}),
    refuses("h100", "flash_attn/fa3", "training kv_cache_dtype", training=True, kv_cache_dtype="fp8"),
    # hopper/flash_api.cpp: "Deterministic backward not supported for hdim 256"
    refuses(
        "h100", "flash_attn/fa3", "deterministic head_size", training=True, deterministic=True, head_size=256
    ),
    takes("h100", "flash_attn/fa3", training=True, deterministic=True, head_size=192),
    # hopper/flash_attn_interface.py at v2.8.3 (3.0.0b1): no return_attn_probs
    refuses("h100", "flash_attn/fa3", "lse packages", {"packages": {"flash-attn-3": "3.0.0b1"}}, lse=True, layout="varlen"),
    takes("h100", "flash_attn/fa3", {"packages": {"flash-attn-3": "3.0.0b1"}}, lse=True, layout="paged"),
    takes("h100", "flash_attn/fa3", lse=True, layout="varlen"),
]  # fmt: skip

FA4 = [
    # flash_attn/cute/interface.py, _validate_head_dims: 9.x takes 8 to 256 both
    takes("h100", "flash_attn/fa4", head_size=256, head_size_v=96),
    refuses("h100", "flash_attn/fa4", "head_size head_size_v", head_size=512),
    # the same: 10.x and 11.x take up to 128, (192, 128), (256, 256), (64, 512), (512, 512)
    takes("b200", "flash_attn/fa4", head_size=128, head_size_v=72),
    takes("b200", "flash_attn/fa4", head_size=192, head_size_v=128),
    takes("b200", "flash_attn/fa4", head_size=256),
    takes("b300", "flash_attn/fa4", head_size=64, head_size_v=512),
    takes("thor", "flash_attn/fa4", head_size=512),
    refuses("b200", "flash_attn/fa4", "head_size head_size_v", head_size=160),
    refuses("b200", "flash_attn/fa4", "head_size head_size_v", head_size=256, head_size_v=128),
    refuses("b200", "flash_attn/fa4", "head_size head_size_v", head_size=100),
    # flash_attn/cute/flash_fwd_sm120.py: 99 KB of shared memory for 128 x 64 tiles
    takes("rtx5090", "flash_attn/fa4", head_size=192),
    refuses("rtx5090", "flash_attn/fa4", "head_size head_size_v compute_capability", head_size=256),
    refuses("l4", "flash_attn/fa4", "head_size head_size_v compute_capability", head_size=256),
    takes("a100", "flash_attn/fa4", head_size=256),
    # interface.py: "paged KV not supported on SM 8.0", "Paged KV not supported on SM 12.0"
    refuses("a100", "flash_attn/fa4", "layout compute_capability", layout="paged"),
    refuses("rtx5090", "flash_attn/fa4", "layout compute_capability", layout="paged"),
    takes("b200", "flash_attn/fa4", layout="paged", block_size=16),
    # interface.py, backward: 9.x to 12.x; sinks 9.x to 11.x; 12.x not deterministic; hd256 without sinks and softcap
    refuses("a100", "flash_attn/fa4", "training compute_capability", training=True),
    takes("rtx5090", "flash_attn/fa4", training=True),
    refuses("rtx5090", "flash_attn/fa4", "sinks training compute_capability", training=True, sinks=True),
    refuses(
        "rtx5090", "flash_attn/fa4", "deterministic compute_capability", training=True, deterministic=True
    ),
    refuses("b200", "flash_attn/fa4", "head_size sinks softcap", training=True, sinks=True, head_size=256),
    takes("b200", "flash_attn/fa4", sinks=True, head_size=256),
    # interface.py: "FP8 is only supported on SM100"; q, k and v of one dtype
    takes("b200", "flash_attn/fa4", dtype="fp8_e4m3", kv_cache_dtype="fp8"),
    refuses("h100", "flash_attn/fa4", "kv_cache_dtype compute_capability", dtype="fp8_e4m3", kv_cache_dtype="fp8"),
    refuses("b200", "flash_attn/fa4", "kv_cache_dtype dtype", kv_cache_dtype="fp8"),
    refuses("b200", "flash_attn/fa4", "kv_cache_dtype dtype", dtype="fp8_e5m2", kv_cache_dtype="fp8_e4m3"),
    # the distribution decides, not `import flash_attn`: flash-attention issue 1152, OLMo-core PR 771
    refuses("b200", "flash_attn/fa4", "packages", {"packages": {"flash-attn-4": None}}),
    # flash-attention PR 2553: wrong values on capability 12.x; the 4.0.0b21 wheel is the first with the repair
    refuses("rtx5090", "flash_attn/fa4", "compute_capability packages", {"packages": {"flash-attn-4": "4.0.0b12"}}),
    refuses("gb10", "flash_attn/fa4", "compute_capability packages", {"packages": {"flash-attn-4": "4.0.0b20"}}),
    takes("gb10", "flash_attn/fa4", {"packages": {"flash-attn-4": "4.0.0b21"}}),
    takes("b200", "flash_attn/fa4", {"packages": {"flash-attn-4": "4.0.0b12"}}),
]  # fmt: skip

FLASHINFER = [
    takes("a100", "flashinfer/fa2", kv_cache_dtype="fp8_e5m2"),
    takes("a100", "flashinfer/fa2", layout="paged", block_size=1),
    # "fp8 tensor core is not supported in fa2 backend", flashinfer/prefill.py
    refuses("h100", "flashinfer/fa2", "dtype", dtype="fp8_e4m3", kv_cache_dtype="fp8"),
    # include/flashinfer/attention/prefill.cuh: tiles of 64 elements, of 128 for 8-bit keys
    refuses("a100", "flashinfer/fa2", "head_size head_size_v", head_size=80),
    takes("a100", "flashinfer/fa2", head_size=192),
    refuses(
        "a100", "flashinfer/fa2", "head_size head_size_v kv_cache_dtype", head_size=192, kv_cache_dtype="fp8"
    ),
    # README: SM75 and later; prefill.py: only fp16 on SM75
    takes("t4", "flashinfer/fa2", dtype="float16"),
    refuses("t4", "flashinfer/fa2", "dtype compute_capability"),
    refuses("v100", "flashinfer/fa2", "compute_capability", dtype="float16"),
    # jit/attention/modules.py of 0.6.18 and 0.7.4: head sizes above 256
    takes("a100", "flashinfer/fa2", head_size=512),
    refuses("t4", "flashinfer/fa2", "head_size compute_capability packages", dtype="float16", head_size=512),
    refuses(
        "rtx-pro-6000",
        "flashinfer/fa2",
        "head_size compute_capability packages",
        {"packages": {"flashinfer-python": "0.6.6"}},
        head_size=512,
    ),
    refuses(
        "a100",
        "flashinfer/fa2",
        "head_size kv_cache_dtype",
        {"packages": {"flashinfer-python": "0.7.0"}},
        head_size=512,
        kv_cache_dtype="fp8",
    ),
    takes(
        "b200",
        "flashinfer/fa2",
        {"packages": {"flashinfer-python": "0.7.0"}},
        head_size=512,
        kv_cache_dtype="fp8",
    ),
    # compilation_context.py: 0.6.18 "SM 12.x requires CUDA >= 12.9", 0.7.4 takes 12.8 for 12.0
    refuses(
        "rtx5090",
        "flashinfer/fa2",
        "cuda_version compute_capability packages",
        {"cuda_version": "12.8", "packages": {"flashinfer-python": "0.6.12"}},
    ),
    takes("rtx5090", "flashinfer/fa2", {"cuda_version": "12.8"}),
    refuses("gb10", "flashinfer/fa2", "cuda_version compute_capability packages", {"cuda_version": "12.8"}),
    refuses("a100", "flashinfer/fa2", "training", training=True),
    refuses("a100", "flashinfer/fa2", "dropout", dropout=True),
    refuses("a100", "flashinfer/fa2", "alibi", alibi=True),
    refuses("a100", "flashinfer/fa2", "sinks softcap", sinks=True, softcap=True),
    takes("a100", "flashinfer/fa2", sinks=True, causal=True, sliding_window=True),
    refuses("a100", "flashinfer/fa2", "window_right", causal=True, sliding_window=True, window_right=True),
    takes("a100", "flashinfer/fa2", custom_mask=True, layout="dense"),
    refuses("a100", "flashinfer/fa2", "custom_mask layout", custom_mask=True, layout="varlen"),
    refuses("a100", "flashinfer/fa2", "mask_bias", custom_mask=True, mask_bias=True, layout="dense"),
    # flashinfer issue 4972: a window without a causal mask drops keys; PR 4992 is open, 0.7.4 has the same estimate
    refuses("a100", "flashinfer/fa2", "sliding_window causal custom_mask", sliding_window=True),
    takes("a100", "flashinfer/fa2", sliding_window=True, causal=True),
    takes("h100", "flashinfer/fa3", sliding_window=True),
    # utils.py: is_fa3_prefill_head_dim_supported, is_fa3_backend_supported, is_sm90a_supported
    takes("h100", "flashinfer/fa3", head_size=192, head_size_v=128),
    refuses("h100", "flashinfer/fa3", "head_size head_size_v", head_size=96),
    refuses("h100", "flashinfer/fa3", "head_size head_size_v", head_size=256, head_size_v=128),
    refuses("h100", "flashinfer/fa3", "head_size_v", head_size=192),
    refuses("h100", "flashinfer/fa3", "custom_mask", custom_mask=True),
    refuses("h100", "flashinfer/fa3", "cuda_version", {"cuda_version": "12.1"}),
    refuses("h100", "flashinfer/fa3", "kv_cache_dtype dtype", kv_cache_dtype="fp8"),
    takes("h100", "flashinfer/fa3", dtype="fp8_e4m3", kv_cache_dtype="fp8"),
    refuses(
        "h100",
        "flashinfer/fa3",
        "dtype softcap sliding_window sinks",
        dtype="fp8_e4m3",
        kv_cache_dtype="fp8",
        softcap=True,
    ),
    refuses("b200", "flashinfer/fa3", "compute_capability"),
]

# sdp_utils.cpp of pytorch at 001f694a unless said otherwise
TORCH = [
    # torch/nn/attention/varlen.py and flash_api.cpp, mha_varlen_fwd: multiples of 8 up to 256, blocks of 256
    takes("a100", "torch_sdpa/cuda_varlen", layout="varlen", head_size=72, causal=True, sliding_window=True, lse=True),
    refuses("a100", "torch_sdpa/cuda_varlen", "head_size", layout="varlen", head_size=100),
    refuses("a100", "torch_sdpa/cuda_varlen", "head_size", layout="varlen", head_size=264),
    refuses("a100", "torch_sdpa/cuda_varlen", "head_size head_size_v", layout="varlen", head_size=192, head_size_v=128),
    refuses("a100", "torch_sdpa/cuda_varlen", "layout", layout="dense"),
    takes("a100", "torch_sdpa/cuda_varlen", layout="paged", block_size=512),
    refuses("a100", "torch_sdpa/cuda_varlen", "block_size", layout="paged", block_size=128),
    refuses("a100", "torch_sdpa/cuda_varlen", "layout training", layout="paged", block_size=256, training=True),
    takes("a100", "torch_sdpa/cuda_varlen", layout="varlen", causal=True, query_length="shorter"),
    refuses(
        "a100", "torch_sdpa/cuda_varlen", "sliding_window query_length",
        layout="varlen", sliding_window=True, query_length="longer",
    ),
    takes("a100", "torch_sdpa/cuda_varlen", layout="varlen", sliding_window=True, causal=True, query_length="longer"),
    refuses(
        "a100", "torch_sdpa/cuda_varlen", "softcap alibi sinks custom_mask dropout", layout="varlen",
        softcap=True, alibi=True, sinks=True, custom_mask=True, dropout=True,
    ),
    takes("rtx4090", "torch_sdpa/cuda_varlen", layout="varlen", training=True, head_size=232),
    refuses(
        "rtx4090", "torch_sdpa/cuda_varlen", "head_size training compute_capability",
        layout="varlen", training=True, head_size=200,
    ),
    refuses("t4", "torch_sdpa/cuda_varlen", "compute_capability", layout="varlen", dtype="float16"),
    refuses("mi300x", "torch_sdpa/cuda_varlen", "device", layout="varlen"),
    # the recordings: enable_gqa, seqused_k and block_table came with torch 2.12; pytorch issue 194167
    takes("a100", "torch_sdpa/cuda_varlen", {"packages": {"torch": "2.12.1"}}, layout="varlen"),
    refuses("a100", "torch_sdpa/cuda_varlen", "packages", {"packages": {"torch": "2.11.0"}}, layout="varlen"),
    refuses(
        "a100", "torch_sdpa/cuda_varlen", "layout packages",
        {"packages": {"torch": "2.12.1"}}, layout="paged", block_size=256,
    ),
    # varlen.py of 2.14.1: _can_use_cudnn, which the backward pass asks without num_splits
    takes("h100", "torch_sdpa/cuda_varlen", {"packages": {"torch": "2.14.1"}}, layout="varlen"),
    takes("a100", "torch_sdpa/cuda_varlen", {"packages": {"torch": "2.14.1"}}, layout="varlen", training=True),
    refuses(
        "h100", "torch_sdpa/cuda_varlen", "training compute_capability packages",
        {"packages": {"torch": "2.14.1"}}, layout="varlen", training=True,
    ),
    # _fa3.py: major 9; registered from torch 2.11 on
    takes("h100", "torch_sdpa/cuda_flash_fa3", head_size=100, training=True),
    refuses("h100", "torch_sdpa/cuda_flash_fa3", "head_size", head_size=264),
    refuses("h100", "torch_sdpa/cuda_flash_fa3", "lse head_size", head_size=100, lse=True),
    refuses("h100", "torch_sdpa/cuda_flash_fa3", "dropout", dropout=True),
    refuses("h100", "torch_sdpa/cuda_flash_fa3", "causal query_length", causal=True, query_length="shorter"),
    refuses("h100", "torch_sdpa/cuda_flash_fa3", "packages", {"packages": {"torch": "2.10.0"}}),
    refuses("h100", "torch_sdpa/cuda_flash_fa3", "packages", {"packages": {"flash-attn-3": None}}),
    refuses("b200", "torch_sdpa/cuda_flash_fa3", "compute_capability"),
    # _fa4.py: major 9 or 10; two results before torch 2.14, four from flash-attn-4 4.0.0b19 on
    takes("b200", "torch_sdpa/cuda_flash_fa4", {"packages": {"flash-attn-4": "4.0.0b18"}}),
    takes("h100", "torch_sdpa/cuda_flash_fa4", {"packages": {"torch": "2.14.1"}}, head_size=256),
    refuses("b200", "torch_sdpa/cuda_flash_fa4", "packages", {"packages": {"flash-attn-4": "4.0.0b19"}}),
    refuses("a100", "torch_sdpa/cuda_flash_fa4", "compute_capability", {"packages": {"torch": "2.14.1"}}),
    takes("b200", "torch_sdpa/cuda_flash_fa4", {"packages": {"torch": "2.14.1"}}, head_size=256),
    refuses("b200", "torch_sdpa/cuda_flash_fa4", "head_size packages", {"packages": {"torch": "2.14.1"}}, head_size=192),
    refuses(
        "b200", "torch_sdpa/cuda_flash_fa4", "head_size packages",
        {"packages": {"flash-attn-4": "4.0.0b10"}}, head_size=256,
    ),
    # check_head_dim_size_flash: one size, at most 256, any value (padding is done outside)
    takes("a100", "torch_sdpa/cuda_flash", head_size=100),
    refuses("a100", "torch_sdpa/cuda_flash", "head_size", head_size=264),
    refuses("a100", "torch_sdpa/cuda_flash", "head_size head_size_v", head_size=192, head_size_v=128),
    # check_for_attn_mask: none at all
    refuses("a100", "torch_sdpa/cuda_flash", "custom_mask", custom_mask=True),
    # check_flash_attention_hardware_support: 8.0 to 12.1
    refuses("t4", "torch_sdpa/cuda_flash", "compute_capability", dtype="float16"),
    takes("gb10", "torch_sdpa/cuda_flash"),
    # check_flash_causal_non_square_seqlens; more queries than keys lose their first rows in the wrapper
    refuses("a100", "torch_sdpa/cuda_flash", "causal query_length", causal=True, query_length="shorter"),
    takes("a100", "torch_sdpa/cuda_flash", causal=True, query_length="same"),
    takes("a100", "torch_sdpa/cuda_flash", causal=True, query_length="one"),
    takes("a100", "torch_sdpa/cuda_flash", query_length="shorter"),
    # check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120: the hole (192, 224]
    takes("rtx4090", "torch_sdpa/cuda_flash", training=True, head_size=192),
    refuses("rtx4090", "torch_sdpa/cuda_flash", "head_size training compute_capability", training=True, head_size=200),
    refuses("rtx3090", "torch_sdpa/cuda_flash", "head_size training compute_capability", training=True, head_size=224),
    takes("rtx5090", "torch_sdpa/cuda_flash", training=True, head_size=232),
    refuses(
        "gb10", "torch_sdpa/cuda_flash", "head_size training compute_capability",
        training=True, head_size=232, dropout=True,
    ),
    takes("a100", "torch_sdpa/cuda_flash", training=True, head_size=224),
    takes("b200", "torch_sdpa/cuda_flash", training=True, head_size=224),
    # minimum_gemm_alignment: 128 bits with tensor cores, 4 on 8.0 and up, else 1
    refuses("a100", "torch_sdpa/cuda_efficient", "head_size head_size_v", head_size=100),
    takes("a100", "torch_sdpa/cuda_efficient", head_size=104, head_size_v=512),
    takes("a100", "torch_sdpa/cuda_efficient", dtype="float32", head_size=100),
    refuses("a100", "torch_sdpa/cuda_efficient", "head_size head_size_v", dtype="float32", head_size=98),
    takes("t4", "torch_sdpa/cuda_efficient", dtype="float32", head_size=97),
    refuses("t4", "torch_sdpa/cuda_efficient", "head_size head_size_v", dtype="float16", head_size=97),
    refuses("t4", "torch_sdpa/cuda_efficient", "dtype compute_capability"),
    takes("v100", "torch_sdpa/cuda_efficient", dtype="float16"),
    refuses("a100", "torch_sdpa/cuda_efficient", "num_heads num_kv_heads", num_heads=32, num_kv_heads=8),
    takes("a100", "torch_sdpa/cuda_efficient", num_heads=8, num_kv_heads=8),
    refuses("a100", "torch_sdpa/cuda_efficient", "dtype", dtype="float64"),
    # check_cudnn_tensor_shapes: 128; (192, 128) from 9.11 and 256 above 9.22.0, on 9.0 and 10.x only
    takes("h100", "torch_sdpa/cuda_cudnn", head_size=128),
    refuses(
        "h100", "torch_sdpa/cuda_cudnn", "head_size head_size_v compute_capability cudnn_version",
        {"cudnn_version": "9.22.0"}, head_size=256,
    ),
    takes("h100", "torch_sdpa/cuda_cudnn", {"cudnn_version": "9.23.0"}, head_size=256),
    takes("b300", "torch_sdpa/cuda_cudnn", {"cudnn_version": "9.26.0"}, head_size=256),
    refuses(
        "rtx5090", "torch_sdpa/cuda_cudnn", "head_size head_size_v compute_capability cudnn_version",
        {"cudnn_version": "9.26.0"}, head_size=256,
    ),
    takes("h100", "torch_sdpa/cuda_cudnn", head_size=192, head_size_v=128),
    refuses(
        "h100", "torch_sdpa/cuda_cudnn", "head_size head_size_v compute_capability cudnn_version",
        {"cudnn_version": "9.10.2"}, head_size=192, head_size_v=128,
    ),
    refuses(
        "a100", "torch_sdpa/cuda_cudnn", "head_size head_size_v compute_capability cudnn_version",
        head_size=192, head_size_v=128,
    ),
    refuses("h100", "torch_sdpa/cuda_cudnn", "head_size head_size_v", head_size=100),
    # check_cudnn_d256_bprop_head_dim
    refuses(
        "h100", "torch_sdpa/cuda_cudnn", "head_size head_size_v training",
        {"cudnn_version": "9.23.0"}, head_size=160, training=True,
    ),
    takes("h100", "torch_sdpa/cuda_cudnn", {"cudnn_version": "9.23.0"}, head_size=256, training=True),
    # can_use_cudnn_attention: dropout > 0 && version > 91100 && version < 91400
    takes("h100", "torch_sdpa/cuda_cudnn", {"cudnn_version": "9.11.0"}, dropout=True),
    refuses("h100", "torch_sdpa/cuda_cudnn", "dropout cudnn_version", {"cudnn_version": "9.12.0"}, dropout=True),
    takes("h100", "torch_sdpa/cuda_cudnn", {"cudnn_version": "9.14.0"}, dropout=True),
    # check_cudnn_tensor_shapes: one key; one query with dropout. check_cudnn_deterministic
    refuses("h100", "torch_sdpa/cuda_cudnn", "kv_length", kv_length="one"),
    refuses("h100", "torch_sdpa/cuda_cudnn", "dropout query_length", dropout=True, query_length="one"),
    refuses("h100", "torch_sdpa/cuda_cudnn", "deterministic", deterministic=True),
    refuses("t4", "torch_sdpa/cuda_cudnn", "compute_capability", dtype="float16"),
    # MHA.cpp: "disabled for cuDNN versions 9.19-9.25.0 (except 9.24.1) on SM 10.x and 11.x"; torch 2.13.0 has no such guard
    refuses(
        "b200", "torch_sdpa/cuda_cudnn", "compute_capability cudnn_version query_length phase", query_length="one"
    ),
    refuses(
        "thor", "torch_sdpa/cuda_cudnn", "compute_capability cudnn_version query_length phase", phase="decode"
    ),
    takes("b200", "torch_sdpa/cuda_cudnn", phase="prefill"),
    takes("rtx5090", "torch_sdpa/cuda_cudnn", query_length="one"),
    # AOTriton releases: gfx950 and gfx1201 since 0.10b, gfx1100 experimental again since 0.11b
    takes("mi300x", "torch_sdpa/cuda_flash"),
    takes("mi355x", "torch_sdpa/cuda_flash"),
    takes("rx9070xt", "torch_sdpa/cuda_flash"),
    refuses("rx7900xtx", "torch_sdpa/cuda_flash", "gcn_arch"),
    refuses("mi300x", "torch_sdpa/cuda_cudnn", "device"),
    # sdp_utils_cpp.h: dropout 0, no gradient of the mask, one head size
    refuses("cpu", "torch_sdpa/cpu_flash", "dropout", dropout=True),
    refuses("cpu", "torch_sdpa/cpu_flash", "mask_grad", custom_mask=True, mask_bias=True, mask_grad=True),
    refuses("cpu", "torch_sdpa/cpu_flash", "head_size head_size_v", head_size_v=64),
    takes("cpu", "torch_sdpa/cpu_flash", dtype="float64", lse=True, layout="varlen"),
    takes("cpu", "torch_sdpa/cpu_math", head_size_v=64, dropout=True),
    refuses("cpu", "torch_sdpa/cpu_math", "lse", lse=True),
    refuses("cpu", "torch_sdpa/cpu_flash", "layout", layout="paged"),
    refuses("cpu", "torch_sdpa/cpu_flash", "sliding_window", sliding_window=True),
]  # fmt: skip


# torch/_inductor/kernel/flex and torch/nn/attention/flex_attention.py of torch 2.13.0
FLEX = [
    takes("cpu", "flex_attention", sliding_window=True, window_right=True, softcap=True, alibi=True, layout="varlen"),
    takes("a100", "flex_attention", layout="paged", block_size=3, sinks=True, lse=True),
    takes("a100", "flex_attention", dtype="float32", training=True, head_size=48, head_size_v=200),
    # flex_attention.py: "embedding dimension of the query, key, and value must be at least 16" but on a CPU
    refuses("a100", "flex_attention", "head_size head_size_v", head_size=8),
    refuses("pvc", "flex_attention", "head_size head_size_v", head_size_v=8),
    takes("cpu", "flex_attention", head_size=8),
    # flex_cpu.py: "only supports inference and `return_lse` is not supported yet", check_cpu_supported
    refuses("cpu", "flex_attention", "lse", lse=True),
    refuses("cpu", "flex_attention", "sinks", sinks=True),
    refuses("cpu", "flex_attention", "training", training=True),
    refuses("cpu-arm", "flex_attention", "cpu_arch"),
    refuses("cpu", "flex_attention", "dtype", dtype="float64"),
    # flex_mps.py is in the 2.13 wheel and not in the 2.12.1 one
    takes("m3", "flex_attention", dtype="float16"),
    refuses("m3", "flex_attention", "packages", {"packages": {"torch": "2.12.1"}}, dtype="float16"),
    refuses("m3", "flex_attention", "lse", dtype="float16", lse=True),
    refuses("m3", "flex_attention", "training", dtype="float16", training=True),
    # the wrapper: one mask, for a dense batch; no dropout; no scales
    refuses("a100", "flex_attention", "custom_mask layout", custom_mask=True, layout="paged"),
    refuses("a100", "flex_attention", "dropout", dropout=True),
    refuses("a100", "flex_attention", "kv_cache_dtype", kv_cache_dtype="fp8"),
    refuses("a100", "flex_attention", "layout training", layout="paged", training=True),
]  # fmt: skip


@pytest.mark.parametrize("row", FA2 + FA3 + FA4 + FLASHINFER + TORCH + FLEX, ids=str)
def test_fact(decide: Decide, row: Row) -> None:
    answer = decide(row.on, row.request, row.changes)
    assert answer.reasons.get(row.candidate, frozenset()) == row.axes
    assert (row.candidate in answer.accepted) == (not row.axes)


# -- the policy ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("on", "first"),
    [
        ("a100", "flash_attn/fa2"),
        ("l40s", "flash_attn/fa2"),
        ("rtx5090", "flash_attn/fa2"),
        ("gb10", "flash_attn/fa2"),
        ("h100", "flash_attn/fa3"),
        ("b200", "flash_attn/fa4"),
        ("b300", "flash_attn/fa4"),
        ("mi300x", "torch_sdpa/cuda_flash"),
        ("rx7900xtx", "flex_attention"),
        ("pvc", "flex_attention"),
        ("m3", "flex_attention"),
        ("cpu", "torch_sdpa/cpu_flash"),
        ("cpu-arm", "torch_sdpa/cpu_flash"),
    ],
)
def test_first_choice_for_a_plain_layer(decide: Decide, on: str, first: str) -> None:
    assert decide(on, {**LLAMA, "causal": True, "layout": "dense", "query_length": "same"}).ranked[0] == first


@pytest.mark.parametrize("on", ["t4", "v100"])
def test_first_choice_before_ampere(decide: Decide, on: str) -> None:
    request = {"head_size": 64, "num_heads": 8, "num_kv_heads": 8, "dtype": "float16", "causal": True}
    assert decide(on, request).ranked[0] == "torch_sdpa/cuda_efficient"


@pytest.mark.parametrize("on", ["a100", "h100", "b200", "mi300x", "pvc", "m3", "t4"])
def test_the_reference_is_listed_on_the_cpu_only(decide: Decide, on: str) -> None:
    answer = decide(on, {"head_size": 128, "dtype": "float16"})
    assert "reference" in answer.excluded
    assert answer.ranked
    assert "reference" not in answer.ranked
    assert decide("cpu", {"head_size": 128, "dtype": "float16"}).ranked[-1] == "reference"


def test_an_explicit_choice_reaches_the_reference() -> None:
    request = {"head_size": 128, "dtype": "float16"}
    assert selector.select(request, environment="a100", backend="reference").id == "reference"


# FlexAttention compiles a kernel for every new length on a CPU, so a growing cache is not for it
def test_one_query_on_a_cpu_does_not_compile(decide: Decide) -> None:
    window = {**LLAMA, "dtype": "float32", "sliding_window": True, "causal": True, "layout": "dense"}
    assert decide("cpu", {**window, "query_length": "one"}).ranked == ("reference", "flex_attention")
    assert decide("cpu", {**window, "query_length": "same"}).ranked == ("flex_attention", "reference")


def test_training_goes_to_kernels_with_a_backward_pass(decide: Decide) -> None:
    for on in ("a100", "h100", "b200", "rtx5090"):
        answer = decide(on, {**LLAMA, "training": True, "causal": True, "layout": "dense"})
        assert answer.ranked[0].startswith("flash_attn/")
        assert not any(name.startswith("flashinfer") for name in answer.ranked)


# gpt-oss: sinks and a window, head size 64; FlashAttention 3 has none, FlashInfer and FlashAttention 4 do
def test_sinks(decide: Decide) -> None:
    layer = {
        "head_size": 64, "num_heads": 64, "num_kv_heads": 8, "dtype": "bfloat16",
        "sinks": True, "sliding_window": True, "causal": True, "layout": "paged", "block_size": 16,
    }  # fmt: skip
    assert decide("h100", layer).ranked[:2] == ("flashinfer/fa3", "flash_attn/fa4")
    assert decide("b200", layer).ranked[0] == "flash_attn/fa4"
    assert decide("a100", layer).ranked == ("flashinfer/fa2", "flex_attention")
    assert decide("cpu", layer).ranked == ("reference",)


# Gemma 2: softcap and ALiBi never together; head size 256
def test_softcap(decide: Decide) -> None:
    layer = {"head_size": 256, "dtype": "bfloat16", "softcap": True, "causal": True, "layout": "paged"}
    assert decide("a100", {**layer, "block_size": 256}).ranked[0] == "flash_attn/fa2"
    assert decide("a100", {**layer, "block_size": 16}).ranked[0] == "flashinfer/fa2"
    assert not any(name.startswith("torch_sdpa") for name in decide("a100", layer).ranked)


# sdp_utils.cpp, check_prefer_cudnn_attention: cuDNN before flash on 9.0 and 10.x, from 9.15.1 on
@pytest.mark.parametrize(("cudnn", "first"), [("9.20.0", "cudnn"), ("9.15.0", "flash"), ("9.10.2", "flash")])
@pytest.mark.parametrize("on", ["h100", "b200"])
def test_torchs_own_order(decide: Decide, on: str, cudnn: str, first: str) -> None:
    ranked = decide(on, {"head_size": 128, "dtype": "bfloat16"}, {"cudnn_version": cudnn}).ranked
    order = [name for name in ranked if name in ("torch_sdpa/cuda_cudnn", "torch_sdpa/cuda_flash")]
    assert order[0] == f"torch_sdpa/cuda_{first}"
    assert len(order) == 2
