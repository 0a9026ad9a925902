"""Real public reports, asked of the core pack: what the right answer was, and is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import selector
from tests.manifests.deciders import DECIDERS, Answer

BF16_128 = {"head_size": 128, "dtype": "bfloat16"}


def ask(on: str, request: Mapping[str, Any], **changes: Any) -> Answer:
    """The engine's answer, which the plain interpreter has to share."""
    answers = {name: decide("core", on, request, changes) for name, decide in DECIDERS.items()}
    assert answers["engine"] == answers["plain"]
    return answers["engine"]


def packages(**versions: str | None) -> dict[str, str | None]:
    """Distributions by name, with underscores for dashes."""
    return {name.replace("_", "-"): version for name, version in versions.items()}


# vllm-project/vllm PR 34281: on an A100 with FA2 every backend has to be refused, by per-head scales
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8_e4m3"])
def test_per_head_scales_without_flash_attention_3(kv_cache_dtype: str) -> None:
    answer = ask("a100", {**BF16_128, "kv_cache_dtype": kv_cache_dtype, "per_head_scales": True})
    assert answer.ranked == ()
    for name in ("flash_attn/fa2", "flashinfer/fa2", "flex_attention"):
        assert "per_head_scales" in answer.reasons[name]


# vllm-project/vllm PR 14221 (reports 13133, 11329): FA2 has no FP8 KV cache
def test_fp8_cache_on_flash_attention_2() -> None:
    assert ask("a100", {**BF16_128, "kv_cache_dtype": "fp8"}).reasons["flash_attn/fa2"] == {"kv_cache_dtype"}


# vllm-project/vllm issues 27604, 29531: FlashInfer's FA3 kernels with an FP8 cache and a 16-bit query do not compile;
# FlashAttention 3 takes them
def test_fp8_cache_on_hopper() -> None:
    answer = ask("h100", {**BF16_128, "kv_cache_dtype": "fp8_e4m3"})
    assert answer.ranked[0] == "flash_attn/fa3"
    assert answer.reasons["flashinfer/fa3"] == {"kv_cache_dtype", "dtype"}


# vllm-project/vllm issue 40677: head size 512 (Gemma 4's full layers) with FlashInfer 0.6.6 on an RTX PRO 6000
def test_head_size_512_needs_a_later_flashinfer() -> None:
    full, window = {**BF16_128, "head_size": 512}, {**BF16_128, "head_size": 256, "causal": True}
    old = {"packages": packages(flashinfer_python="0.6.6")}
    assert "head_size" in ask("rtx-pro-6000", full, **old).reasons["flashinfer/fa2"]
    assert "flashinfer/fa2" in ask("rtx-pro-6000", window, **old).ranked
    assert "flashinfer/fa2" in ask("rtx-pro-6000", full).ranked


# vllm-project/vllm PR 45375: head sizes above 256 do not fit capability 7.5
def test_head_size_512_on_turing() -> None:
    answer = ask("t4", {"head_size": 512, "dtype": "float16"})
    assert "head_size" in answer.reasons["flashinfer/fa2"]
    assert answer.ranked


# vllm-project/vllm PR 20467: head size 80 on an A100 without flash-attn
def test_head_size_80_without_flash_attention() -> None:
    answer = ask("a100", {**BF16_128, "head_size": 80}, packages=packages(flash_attn=None, flash_attn_4=None))
    assert answer.reasons["flash_attn/fa2"] == {"packages"}
    assert answer.reasons["flashinfer/fa2"] == {"head_size", "head_size_v"}
    assert answer.ranked


# Dao-AILab/flash-attention issues 542, 887: a T4 is older than Ampere, whatever flash-attn is installed
def test_flash_attention_2_on_turing() -> None:
    answer = ask("t4", {"head_size": 128, "dtype": "float16"})
    assert answer.reasons["flash_attn/fa2"] == {"compute_capability"}


# vllm-project/vllm PR 18014, vllm-omni issue 1037: float32 on an A100
def test_float32() -> None:
    answer = ask("a100", {"head_size": 64, "dtype": "float32"})
    assert answer.reasons["flash_attn/fa2"] == {"dtype"}
    assert answer.reasons["flashinfer/fa2"] == {"dtype"}
    assert answer.ranked[0] in ("torch_sdpa/cuda_efficient", "flex_attention")


# unslothai/unsloth issues 1555, 948: flash-attn 2.7.3 on an A100 is fine
def test_flash_attention_2_7_3() -> None:
    answer = ask("a100", BF16_128, packages=packages(flash_attn="2.7.3"))
    assert answer.ranked[0] == "flash_attn/fa2"


# Dao-AILab/flash-attention issue 1152, allenai/OLMo-core PR 771: flash_attn.cute may import although the distribution
# flash-attn-4 is not there
def test_flash_attention_4_is_its_distribution() -> None:
    answer = ask("b200", {**BF16_128, "fa_version": 4}, packages=packages(flash_attn_4=None))
    assert answer.ranked == ()
    assert answer.reasons["flash_attn/fa4"] == {"packages"}


# vllm-project/vllm issues 50705, 49497: RTX 5090, CUDA toolkit 12.8, FlashInfer 0.6.12
def test_flashinfer_and_the_toolkit_on_consumer_blackwell() -> None:
    old = {"cuda_version": "12.8", "packages": packages(flashinfer_python="0.6.12")}
    answer = ask("rtx5090", {**BF16_128, "kv_cache_dtype": "fp8"}, **old)
    assert "cuda_version" in answer.reasons["flashinfer/fa2"]


# pytorch/pytorch issues 117354, 99878: a V100 asked for the flash kernel alone
def test_flash_on_volta() -> None:
    answer = ask("v100", {"head_size": 64, "dtype": "float16"})
    assert answer.reasons["torch_sdpa/cuda_flash"] == {"compute_capability"}


# huggingface/transformers PR 46960: grouped decode in float16 on a T4 must not fall to the math kernel, which the
# memory-efficient one (no groups) leaves it to
def test_grouped_decode_on_turing() -> None:
    request = {"head_size": 128, "dtype": "float16", "num_heads": 32, "num_kv_heads": 8, "phase": "decode"}
    answer = ask("t4", {**request, "layout": "dense", "query_length": "one"})
    assert answer.ranked[0] == "flashinfer/fa2"
    assert answer.ranked[-1] == "torch_sdpa/cuda_math"
    assert answer.reasons["torch_sdpa/cuda_efficient"] == {"num_heads", "num_kv_heads"}


# huggingface/diffusers issue 12605: a boolean mask with FlashAttention 2
def test_mask_on_flash_attention_2() -> None:
    answer = ask("a100", {"head_size": 64, "dtype": "bfloat16", "custom_mask": True})
    assert answer.reasons["flash_attn/fa2"] == {"custom_mask"}
    assert answer.ranked


# pytorch/pytorch issue 193893: cuDNN 9.19 to 9.25.0 corrupts decoding on a B200 in silence; torch 2.13.0 ships 9.20
@pytest.mark.parametrize("field", [{"query_length": "one"}, {"phase": "decode"}])
def test_a_silently_wrong_kernel_is_not_reached_even_by_a_pin(field: Mapping[str, str]) -> None:
    with pytest.raises(selector.PinError) as raised:
        selector.select({**BF16_128, **field}, environment="b200", backend="torch_sdpa/cuda_cudnn")
    assert "known to be wrong: with cuDNN 9.19 to 9.25.0" in " ".join(str(raised.value).split())


@pytest.mark.parametrize("cudnn", ["9.18.1", "9.24.1", "9.25.1", "9.26.0"])
def test_the_other_versions_of_it_are_reached(cudnn: str) -> None:
    answer = ask("b200", {**BF16_128, "query_length": "one"}, cudnn_version=cudnn)
    assert "torch_sdpa/cuda_cudnn" in answer.ranked


def test_and_so_is_it_for_prefill_and_on_hopper() -> None:
    assert "torch_sdpa/cuda_cudnn" in ask("b200", {**BF16_128, "query_length": "same"}).accepted
    assert "torch_sdpa/cuda_cudnn" in ask("h100", {**BF16_128, "query_length": "one"}).accepted
