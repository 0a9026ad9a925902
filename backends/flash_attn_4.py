"""FlashAttention 4 (distribution ``flash-attn-4``, import ``flash_attn.cute``): dense, packed, paged calls.

Facts, read from ``flash_attn/cute/interface.py`` of the pre-release wheels:

* A bound of the window is None for "none" - not -1 as in FlashAttention 2 and 3.
* Both functions return ``(out, lse)`` always; ``lse`` is None unless asked for. It is natural, counts the
  sink, and is ``-inf`` for a row that may attend to nothing.
* The paged cache is the varlen function's ``page_table`` with ``seqused_k``; queries packed or dense.
* ``learnable_sink`` is ``[num_heads]``; bfloat16 alone before 4.0.0b30, float16 and float32 too since.
* The public functions take fp8 (forward only, compute capability 10.x, output bfloat16) but expose no
  scales: a scale for the whole tensor joins the softmax scale (q and k) or the output (v).
* No ALiBi (a score modifier would have to be compiled), masks or dropout. The backward pass knows no page
  table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from backends._guard import NotSupported, refusal
from backends._launch import (
    folded_factor,
    has_nothing_to_do,
    import_first,
    nothing,
    result,
    scaled_output,
)
from backends._scales import positive
from backends.call import FP8_DTYPES

if TYPE_CHECKING:
    from backends._launch import Result
    from backends.call import Call

HONOURED: frozenset[str] = frozenset(
    {
        "dense",
        "varlen",
        "paged",
        "paged_varlen",
        "causal",
        "window_left",
        "window_right",
        "softcap",
        "sinks",
        "scale",
        "gqa",
        "head_size_v",
        "return_lse",
        "fp8_query",
        "fp8_kv",
        "q_scale",
        "k_scale",
        "v_scale",
        "training",
        "deterministic",
    }
)
_DTYPES = (torch.float16, torch.bfloat16, *sorted(FP8_DTYPES, key=str))


def refuses(call: Call) -> str | None:
    """Why this wrapper cannot run the call, or None."""
    reason = refusal(call, HONOURED)
    if reason is not None:
        return reason
    if call.q.dtype not in _DTYPES:
        return f"dtype {call.q.dtype}: FlashAttention 4 takes float16, bfloat16 and fp8"
    if call.k.dtype != call.q.dtype:
        return f"a {call.q.dtype} query with {call.k.dtype} keys: FlashAttention 4 takes one dtype"
    for name, scale in (("q_scale", call.q_scale), ("k_scale", call.k_scale)):
        if isinstance(scale, torch.Tensor):
            return f"{name} as a tensor: there are no scales, and only a number can join the softmax scale"
    if call.training:
        if call.k.dtype in FP8_DTYPES:
            return "gradients with fp8: FlashAttention 4 has a forward kernel only"
        if call.layout == "paged":
            return "gradients through a paged cache: the backward kernels know no page table"
    return None


def run(call: Call) -> Result:
    """Run the call on CUDA.

    Raises:
        NotSupported: the call uses something :func:`refuses` names.
        ImportError: the package is missing or broken.
    """
    reason = refuses(call)
    if reason is not None:
        raise NotSupported("flash_attn/fa4", reason)
    if has_nothing_to_do(call):
        return nothing(call)
    package = import_first("flash_attn.cute")
    q, scale = positive(call.q, call.softmax_scale * folded_factor(call))
    common = {
        "softmax_scale": scale,
        "causal": call.causal,
        "window_size": call.window or (None, None),
        "learnable_sink": call.sinks,
        "softcap": call.softcap or 0.0,
        "deterministic": call.deterministic,
        "return_lse": call.return_lse,
    }
    if call.layout == "dense":
        out, lse = package.flash_attn_func(q, call.k, call.v, **common)
    else:
        out, lse = package.flash_attn_varlen_func(
            q,
            call.k,
            call.v,
            cu_seqlens_q=call.cu_seqlens_q,
            cu_seqlens_k=call.cu_seqlens_k,
            max_seqlen_q=call.max_seqlen_q,
            max_seqlen_k=call.max_seqlen_k,
            seqused_k=call.seq_lens,
            page_table=call.block_table,
            **common,
        )
    return result(call, scaled_output(out, call.v_scale), lse)
