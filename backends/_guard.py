"""What keeps a wrapper from dropping a field of the call in silence.

Every wrapper states, a variant, the :data:`FIELDS` that it honours. :func:`refusal` compares them with the fields that
a call uses; a field added to the call later is refused by every wrapper until that wrapper names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends._types import FP8_DTYPES
from selector.errors import RefusedCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backends.call import Call

FIELDS: Mapping[str, str] = {
    "dense": "batch of equal lengths",
    "varlen": "packed queries and keys (cu_seqlens)",
    "paged": "KV cache in blocks (block_table, seq_lens), queries [batch, seq, heads, head_size]",
    "paged_varlen": "KV cache in blocks with packed queries (cu_seqlens_q)",
    "causal": "causal, aligned bottom-right",
    "window_left": "window with a bound on the left",
    "window_right": "window with a bound on the right that is not causal",
    "softcap": "softcap",
    "alibi_slopes": "ALiBi slopes",
    "sinks": "attention sinks",
    "mask": "boolean mask",
    "bias": "additive float mask",
    "scale": "explicit softmax scale",
    "gqa": "fewer KV heads than query heads",
    "head_size_v": "value heads of another size",
    "return_lse": "log-sum-exp",
    "fp8_query": "fp8 queries",
    "fp8_kv": "fp8 keys and values",
    "q_scale": "q_scale",
    "k_scale": "k_scale",
    "v_scale": "v_scale",
    "per_head_scales": "scales a head",
    "dropout_p": "dropout",
    "training": "gradients",
    "deterministic": "deterministic backward pass",
}
"""Every field that a call can use, in the words of the documentation."""


class NotSupported(RefusedCall, RuntimeError):
    """A wrapper was handed a call that it cannot honour; says which and why."""

    def __init__(self, wrapper: str, reason: str) -> None:
        self.wrapper = wrapper
        self.reason = reason
        super().__init__(f"{wrapper} cannot run this call: {reason}")


def used_fields(call: Call) -> list[str]:
    """The names of :data:`FIELDS` that this call uses."""
    fields = ["paged_varlen" if call.layout == "paged" and call.cu_seqlens_q is not None else call.layout]
    if call.causal:
        fields.append("causal")
    if call.window is not None:
        if call.window[0] is not None:
            fields.append("window_left")
        if call.window[1] is not None:
            fields.append("window_right")
    if call.softcap is not None:
        fields.append("softcap")
    if call.alibi_slopes is not None:
        fields.append("alibi_slopes")
    if call.sinks is not None:
        fields.append("sinks")
    if call.mask is not None:
        fields.append("bias" if call.mask.dtype.is_floating_point else "mask")
    if call.scale is not None:
        fields.append("scale")
    if call.q.shape[-2] != call.k.shape[-2]:
        fields.append("gqa")
    if call.v.shape[-1] != call.q.shape[-1]:
        fields.append("head_size_v")
    if call.return_lse:
        fields.append("return_lse")
    if call.q.dtype in FP8_DTYPES:
        fields.append("fp8_query")
    if call.k.dtype in FP8_DTYPES:
        fields.append("fp8_kv")
    if call.q_scale is not None:
        fields.append("q_scale")
    if call.k_scale is not None:
        fields.append("k_scale")
    if call.v_scale is not None:
        fields.append("v_scale")
    if call.per_head_scales:
        fields.append("per_head_scales")
    if call.dropout_p > 0.0:
        fields.append("dropout_p")
    if call.training:
        fields.append("training")
    if call.deterministic:
        fields.append("deterministic")
    return fields


def refusal(call: Call, honoured: frozenset[str]) -> str | None:
    """Name every field that the call uses and ``honoured`` lacks; None when there is none."""
    missing = [name for name in used_fields(call) if name not in honoured]
    if not missing:
        return None
    return "; ".join(f"{name} is not honoured ({FIELDS[name]})" for name in missing)
