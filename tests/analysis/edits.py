"""Ten edits of the vllm pack, of the kinds that people make: what an edit changes has to be found, and nothing else."""

from __future__ import annotations

from pathlib import Path

from selector.catalog import Catalog

from .catalogs import edited

__all__ = ["EDITS", "applied"]

FA = "vllm/flash_attn.yaml"
PACK = "vllm/pack.yaml"
TRITON = "vllm/triton_attn.yaml"
FLASHINFER = "vllm/flashinfer.yaml"
WORDS = "vllm/vocabulary.yaml"

#: By name, the parts of files that are replaced (everywhere in the file).
EDITS: dict[str, list[tuple[str, str, str]]] = {
    "one number changed": [(TRITON, "head_size: {min: 32}", "head_size: {min: 48}")],
    "a rule added": [
        (
            FLASHINFER,
            "  # -- where vLLM contradicts itself -",
            "  - {when: {head_size: 256, sliding_window: true, kv_cache_dtype: {tagged: fp8}}, reject: no windows over FP8}\n"
            "  # -- where vLLM contradicts itself -",
        )
    ],
    "an order swapped": [
        (PACK, "      - FLASH_ATTN\n      - FLASHINFER\n", "      - FLASHINFER\n      - FLASH_ATTN\n")
    ],
    "a variant removed": [
        (FA, "  - name: fa4\n    fa_version: 4\n    supports: {vllm_fa_version: fa4}\n", ""),
        (FA, "variants: [fa2, fa3, fa4, unresolved]", "variants: [fa2, fa3, unresolved]"),
    ],
    "a dtype added": [(FLASHINFER, "dtype: [float16, bfloat16]\n", "dtype: [float16, bfloat16, float32]\n")],
    "a limit loosened": [("vllm/flashmla.yaml", "{multiple_of: 64}", "{multiple_of: 16}")],
    "a package's range changed": [("vllm/flashinfer_mla_sparse_sm90.yaml", '">=0.6.18"', '">=0.6.20,<0.8"')],
    "a derived axis changed": [
        (
            WORDS,
            'when: {vllm_fa_asked: fa4, compute_capability: ">=10.0", head_size: {min: 129, not_in: [256]}}',
            'when: {vllm_fa_asked: fa4, compute_capability: ">=10.0", head_size: {min: 129}}',
        )
    ],
    "a policy's condition changed": [
        (
            PACK,
            'when: {device: cuda, compute_capability: "==10.*", non_causal: false}',
            'when: {device: cuda, compute_capability: ["==10.*", "==12.*"]}',
        )
    ],
    "a warning made a refusal": [
        (
            TRITON,
            "    warn: the layer raises with an FP8 KV cache before 8.9, which vLLM's selection does not check\n"
            "    strict: true\n",
            "    reject: the layer raises with an FP8 KV cache before 8.9\n",
        )
    ],
}


def applied(name: str, root: Path) -> Catalog:
    """The vllm pack with an edit."""
    return edited(root, "vllm", *EDITS[name], everywhere=True)
