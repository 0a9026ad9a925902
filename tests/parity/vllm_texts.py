"""vLLM's reasons as axis names: what each text of its selection is about."""

from __future__ import annotations

import re
from typing import Final

TEXTS: Final[tuple[tuple[str, str], ...]] = (
    (r"^head_size not supported", "head_size"),
    (r"^dtype not supported", "dtype"),
    (r"^kv_cache_dtype not supported", "kv_cache_dtype"),
    (r"^block_size not supported", "block_size"),
    (r"^partial multimodal token", "mm_prefix"),
    (r"^(non-)?MLA not supported", "mla"),
    (r"^attention sinks not supported", "sinks"),
    (r"^(non-)?sparse not supported", "sparse"),
    (r"^per-head quant scales", "per_head_scales"),
    (r"^compute capability not supported", "compute_capability"),
    (r"^attention type .* not supported", "attn_type"),
    (r"^sliding window not supported", "sliding_window"),
    (r"^R-SWA not supported", "rswa"),
    (r"^non-causal attention not supported", "non_causal"),
    (r"^non-causal MLA attention with DCP", "non_causal dcp"),
    (r"^non-causal fp16 MLA", "non_causal dtype"),
    (r"^batch invariance not supported", "batch_invariant"),
    (r"^KV connector not supported", "kv_connector"),
    (r"^PCP not supported", "pcp"),
    (r"^DCP not supported", "dcp"),
    (r"^device-cpu query lens mismatch", "adaptive_verification"),
    (r"KV cache layout in common", "kv_cache_dtype"),
    (r"sink not supported on compute", "sinks compute_capability"),
    (r"FP8 KV with mm_prefix", "mm_prefix kv_cache_dtype"),
    (r"FP8 KV cache requires FA3", "kv_cache_dtype fa_version"),
    (r"mm_prefix \(PrefixLM", "mm_prefix fa_version"),
    (r"causal route requires", "fa_version"),
    (r"misreads an NVFP4 KV cache", "kv_cache_dtype head_size"),
    (r"sink prefill wrapper cannot read an NVFP4", "sinks kv_cache_dtype"),
    (r"FlashAttention MLA not supported on this device", "compute_capability fa_version availability"),
    (r"supports only FP16/BF16 KV cache", "kv_cache_dtype"),
    (r"does not support DCP", "dcp"),
    (r"index_topk", "index_topk"),
    (
        r"FlashMLA (Dense|Sparse) is only supported|mega attention requires",
        "compute_capability fa_version availability",
    ),
    (r"_flashmla(_extension)?_C (is not available|was built|predates)", "availability"),
    (r"head_size 512 only for rope-free", "qk_rope_head_dim head_size"),
    (r"head_size 512 only with", "head_size kv_cache_dtype compute_capability"),
    (r"only supports the nvfp4_ds_mla", "kv_cache_dtype compute_capability"),
    (r"combined PCP\+DCP", "pcp dcp"),
    (r"does not support fp8_ds_mla|not fp8_ds_mla", "kv_cache_dtype"),
    (r"native no-rope MLA requires", "qk_nope_head_dim kv_lora_rank"),
    (r"requires DeepSeek R1 MLA dimensions", "qk_nope_head_dim qk_rope_head_dim v_head_dim"),
    (r"requires kv_lora_rank", "kv_lora_rank"),
    (r"requires qk_rope_head_dim", "qk_rope_head_dim"),
    (r"qk_nope_head_dim", "qk_nope_head_dim"),
    (r"requires sparse MLA", "sparse"),
    (r"requires FlashInfer|is not installed|^Install the|requires the CUDA flash attention", "availability"),
    (r"requires SM10x or SM12x|not supported on the current device", "compute_capability"),
    (r"requires bfloat16 queries", "dtype"),
    (r"does not support float16 KV|supports only fp8/fp8_e4m3 quantized", "kv_cache_dtype"),
    (r"requires AMD RDNA", "arch"),
    (r"segmented attention requires gfx12", "kv_cache_dtype arch"),
    (r"^(\w*Import|ModuleNotFound|OS)Error", "availability"),
)
"""A pattern that is searched in a text (without the name of a composite's part), and what it is about; the first counts."""


def axes_of(text: str) -> list[str]:
    """The axis names of a text of vLLM; `other` for one that names no field."""
    plain = re.sub(r"^[A-Z][A-Z_]+: ", "", text)
    for pattern, axes in TEXTS:
        if re.search(pattern, plain):
            return axes.split()
    return ["other"]
