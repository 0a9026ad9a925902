"""Transformer Engine's recorded decisions against the pack `transformer_engine`.

A row has `env`, `request`, `available` (six booleans), `selected` and `disabled` (backend to axis names; not complete,
because the recorded code mostly stops at its first reason).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .judge import Fields, Judge, Verdict, engine
from .result import Difference, Result, Row, compare_rows, read_rows

FIELDS: Final = ("selected", "available", "disabled")

FLASH: Final = {"fa2": "flash_attn", "fa3": "flash_attn_3", "fa4": "flash_attn_4"}
"""A generation of FlashAttention, and the row's field with the version of its package."""

FUSED: Final = ("F16_arbitrary_seqlen", "FP8")

SWITCHES: Final = {
    "NVTE_FLASH_ATTN": "nvte_flash_attn",
    "NVTE_FLASH_ATTN_V2": "nvte_flash_attn_v2",
    "NVTE_FLASH_ATTN_V3": "nvte_flash_attn_v3",
    "NVTE_FLASH_ATTN_V4": "nvte_flash_attn_v4",
    "NVTE_FUSED_ATTN": "nvte_fused_attn",
    "NVTE_UNFUSED_ATTN": "nvte_unfused_attn",
    "NVTE_UnfusedDPA_Emulate_FP8": "nvte_unfused_emulate_fp8",
}

SAME: Final = {
    "qkv_type": "tensor_class",
    "qkv_dtype": "dtype",
    "qkv_layout": "qkv_layout",
    "num_heads": "num_heads",
    "num_gqa_groups": "num_kv_heads",
    "max_seqlen_q": "max_seqlen_q",
    "max_seqlen_kv": "max_seqlen_kv",
    "head_dim_qk": "head_size",
    "head_dim_v": "head_size_v",
    "attn_mask_type": "mask_type",
    "core_attention_bias_type": "bias_type",
    "core_attention_bias_requires_grad": "bias_requires_grad",
    "pad_between_seqs": "pad_between_seqs",
    "context_parallel": "context_parallel",
    "cp_comm_type": "cp_comm_type",
    "deterministic": "deterministic",
    "is_training": "training",
    "softmax_type": "softmax_type",
    "return_max_logit": "return_max_logit",
    "cuda_graph": "cuda_graph",
    "num_splits": "num_splits",
    "fp8_output": "fp8_output",
    "checkpoint_core_attention": "checkpoint_core_attention",
    "has_score_mod": "score_mod",
    "has_score_mod_bprop": "score_mod_bprop",
}
"""Fields of a row's request that are an axis by another name."""

AXES: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(axes.split())
    for name, axes in {
        "alibi": "alibi alibi_slopes_shape bias_kind cudnn_bias",
        "bias": "bias_type bias_kind cudnn_bias bias_shape bias_requires_grad",
        "block_size": "block_size",
        "checkpoint": "checkpoint_core_attention",
        "compute_capability": "compute_capability",
        "context_parallel": "context_parallel cp_comm_type",
        "cuda_graph": "cuda_graph",
        "cudnn_version": "cudnn_version",
        "deterministic": "deterministic",
        "disabled_by_setting": " ".join(SWITCHES.values()),
        "dropout": "dropout",
        "dtype": "dtype tensor_class",
        "fp8": "fp8_attention fp8_recipe fp8_mha",
        "fp8_output": "fp8_output",
        "head_size": "head_size head_size_v",
        "kv_cache": "kv_cache cache",
        "mask": "mask",
        "num_heads": "num_heads num_kv_heads",
        "num_splits": "num_splits",
        "package_version": "packages",
        "pad_between_seqs": "pad_between_seqs",
        "qkv_layout": "qkv_layout",
        "return_max_logit": "return_max_logit",
        "score_mod": "score_mod score_mod_bprop",
        "seq_lens": "max_seqlen_q max_seqlen_kv",
        "softmax_type": "softmax_kind",
        "training": "training",
        "window": "window_size",
    }.items()
}
"""An axis name of a row's `disabled`, and the axes of the pack that mean it."""


def environment_of(env: Row) -> Fields:
    """The environment of a row. KeyError for a variable nobody knows."""
    packages = {
        package.replace("_", "-"): {"version": env[package], "state": "usable"}
        for package in FLASH.values()
        if env[package] is not None
    }
    return {
        "device": "cuda",
        "compute_capability": ".".join(map(str, env["compute_capability"])),
        "cudnn_version": ".".join(map(str, env["cudnn"])),
        "packages": packages,
        **{SWITCHES[name]: value for name, value in env["env_vars"].items()},
    }


def request_of(request: Row) -> Fields:
    """The request of a row.

    `cp_size` and the recipe's `fmt` are read by no rule; `batch_size` only tells the shapes of ALiBi slopes apart.
    """
    fields: Fields = {axis: request[field] for field, axis in SAME.items()}
    fields["diagonal"] = "bottom_right" if request["bottom_right_diagonal"] else "top_left"
    fields["bias_shape"] = request["core_attention_bias_shape"] or "none"
    fields["dropout"] = request["attention_dropout"] != 0
    fields["alibi_slopes_shape"] = slopes_shape(request["alibi_slopes_shape"])
    if request["window_size"] is not None:
        fields["window_size"] = list(request["window_size"])
    recipe = request["fp8_recipe"]
    if recipe is not None:
        fields["fp8_recipe"] = recipe["kind"]
        fields["fp8_dpa"] = recipe.get("fp8_dpa", True)
        fields["fp8_mha"] = recipe.get("fp8_mha", False)
    cache = request["inference_params"]
    fields["kv_cache"] = "none" if cache is None else "paged" if cache["is_paged"] else "contiguous"
    if cache is not None and cache["is_paged"]:
        fields["block_size"] = cache["page_size"]
    return fields


def slopes_shape(shape: Sequence[int] | None) -> str:
    """The kind of ALiBi slopes by their shape, [heads] or [batch, heads]."""
    if shape is None:
        return "none"
    return {1: "per_head", 2: "per_batch_and_head"}[len(shape)]


def available_of(verdict: Verdict) -> dict[str, bool]:
    """The row's `available` of a verdict."""
    found = {member: f"FlashAttention/{member}" in verdict.ranked for member in FLASH}
    return {
        **found,
        "flash": any(found.values()),
        "fused": any(f"FusedAttention/{variant}" in verdict.ranked for variant in FUSED),
        "unfused": "UnfusedDotProductAttention" in verdict.ranked,
    }


def selected_of(verdict: Verdict, env: Row) -> dict[str, Any]:
    """The row's `selected` of a verdict."""
    best = verdict.ranked[0] if verdict.ranked else "NoBackend"
    backend, _, variant = best.partition("/")
    return {
        "backend": backend,
        "flash_version": env[FLASH[variant]] if variant in FLASH else None,
        "fused_sub_backend": variant if variant in FUSED else None,
    }


def reasons_of(verdict: Verdict, name: str) -> frozenset[str]:
    """The axes under which a row's backend is rejected.

    Of the two fused variants the one that the precision asks for speaks, both where it asks for neither.
    """
    if name in FLASH:
        return verdict.rejected[f"FlashAttention/{name}"]
    if name == "unfused":
        return verdict.rejected["UnfusedDotProductAttention"]
    fused = [verdict.rejected[f"FusedAttention/{variant}"] for variant in FUSED]
    asked = [axes for axes in fused if "cudnn_precision" not in axes]
    return frozenset().union(*(asked or fused))


def compare_row(judge: Judge, row: Row) -> Iterator[Difference]:
    """The differences between a row and the pack's answer."""
    verdict = judge(request_of(row["request"]), environment_of(row["env"]))
    available = available_of(verdict)
    if available != row["available"]:
        yield Difference("available", row["available"], available)
    selected = selected_of(verdict, row["env"])
    if selected != row["selected"]:
        yield Difference("selected", row["selected"], selected)
    for name, named in row["disabled"].items():
        if available[name] or named == ["unspecified"]:
            continue
        wanted = frozenset().union(*(AXES[axis] for axis in named if axis != "unspecified"))
        got = reasons_of(verdict, name)
        if not wanted & got:
            yield Difference("disabled", {name: named}, {name: sorted(got)})


def compare(rows: Iterable[Row]) -> Result:
    """Compare rows."""
    judge = engine("transformer_engine")
    return compare_rows("te", rows, FIELDS, lambda row: compare_row(judge, row))


def compare_file(path: Path, limit: int | None = None) -> Result:
    """Compare the rows of a file, at most `limit`."""
    return compare(read_rows(path, limit))
