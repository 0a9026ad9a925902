"""FlashAttention 2 (distribution ``flash-attn``, 2.6 to 2.8): dense, packed and paged calls.

Facts, read from the package's sdists (``flash_attn/flash_attn_interface.py``,
``csrc/flash_attn/flash_api.cpp``):

* ``window_size=(left, right)`` with -1 for no bound; a causal call sets the right bound to 0 itself.
* The log-sum-exp is natural, but a row that may attend to nothing has ``+inf`` (``softmax.h``, and the early
  exits of ``flash_fwd_kernel.h``); a call promises ``-inf``.
* The varlen kernel for one query a sequence (``max_seqlen_q == 1`` with grouped heads) reshapes ``q`` to
  ``[batch, ...]`` and so needs exactly one query in every sequence.
* A bound on the right of ``seqlen_k`` or more counts as none, and a left bound without a right one gets
  ``right = seqlen_k``: both change the result where there are more queries than keys (see
  :func:`backends._fa2_kernels.window_fault`).
* The paged kernel is ``flash_attn_with_kvcache`` (queries of equal length, no backward) or the varlen
  function with ``block_table``, whose backward ignores the table. A block has a multiple of 256 tokens.
* Softcap excludes dropout. No sinks, masks or fp8; the value head has the query's size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from backends._fa2_kernels import BLOCK, LARGEST, longest_query, window_fault, window_of
from backends._guard import NotSupported, refusal
from backends._launch import (
    cumulative,
    has_nothing_to_do,
    import_first,
    nothing,
    result,
)
from backends._scales import positive

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

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
        "alibi_slopes",
        "scale",
        "gqa",
        "return_lse",
        "dropout_p",
        "training",
        "deterministic",
    }
)
_DTYPES = (torch.float16, torch.bfloat16)


def refuses(call: Call) -> str | None:
    """Why this wrapper cannot run the call, or None."""
    reason = refusal(call, HONOURED)
    if reason is not None:
        return reason
    if call.q.dtype not in _DTYPES:
        return f"dtype {call.q.dtype}: FlashAttention 2 takes float16 and bfloat16"
    if call.head_size > LARGEST:
        return f"head_size {call.head_size}: FlashAttention 2 takes at most {LARGEST}"
    if call.softcap is not None and call.dropout_p > 0.0:
        return "softcap with dropout: FlashAttention 2 has no kernel for both"
    if call.layout == "paged":
        if call.training:
            return "gradients through a paged cache: the backward kernels know no block table"
        if call.dropout_p > 0.0:
            return "dropout with a paged cache"
        if call.block_size is not None and call.block_size % BLOCK != 0:
            return f"block_size {call.block_size}: a multiple of {BLOCK}"
        if call.head_size % 8 != 0:
            return (
                f"head_size {call.head_size} with a paged cache: a multiple of 8, because nothing is padded"
            )
    return window_fault(call)


def run(call: Call) -> Result:
    """Run the call on CUDA.

    Raises:
        NotSupported: the call uses something :func:`refuses` names.
        ImportError: the package is missing or broken.
    """
    reason = refuses(call)
    if reason is not None:
        raise NotSupported("flash_attn/fa2", reason)
    if has_nothing_to_do(call):
        return nothing(call)
    package = import_first("flash_attn")
    if not hasattr(package, "flash_attn_func"):
        raise ImportError("flash_attn is there without flash_attn_func: flash-attn-4 alone owns that name")
    out, lse = _launch(package, call)
    if lse is not None:
        # a row without keys has +inf here; out of place, because autograd keeps this tensor
        lse = torch.where(lse == torch.inf, -torch.inf, lse)
    return result(call, out, lse)


def _launch(package: ModuleType, call: Call) -> tuple[Tensor, Tensor | None]:
    if call.layout == "paged" and call.cu_seqlens_q is None:
        return _paged(package, call)
    window = window_of(call)
    softcap = call.softcap or 0.0
    q, scale = positive(call.q, call.softmax_scale)
    if call.layout == "dense":
        returned = package.flash_attn_func(
            q,
            call.k,
            call.v,
            dropout_p=call.dropout_p,
            softmax_scale=scale,
            causal=call.causal,
            window_size=window,
            softcap=softcap,
            alibi_slopes=call.alibi_slopes,
            deterministic=call.deterministic,
            return_attn_probs=call.return_lse,
        )
    else:
        starts_k = call.cu_seqlens_k if call.seq_lens is None else cumulative(call.seq_lens)
        returned = package.flash_attn_varlen_func(
            q,
            call.k,
            call.v,
            cu_seqlens_q=call.cu_seqlens_q,
            cu_seqlens_k=starts_k,
            max_seqlen_q=longest_query(call),
            max_seqlen_k=call.max_seqlen_k,
            dropout_p=call.dropout_p,
            softmax_scale=scale,
            causal=call.causal,
            window_size=window,
            softcap=softcap,
            alibi_slopes=call.alibi_slopes,
            deterministic=call.deterministic,
            return_attn_probs=call.return_lse,
            block_table=call.block_table,
        )
    if not call.return_lse:
        return returned, None
    out, lse, _ = returned  # the third is the dropout pattern, for tests
    return out, lse


def _paged(package: ModuleType, call: Call) -> tuple[Tensor, Tensor | None]:
    q, scale = positive(call.q, call.softmax_scale)
    returned = package.flash_attn_with_kvcache(
        q,
        call.k,
        call.v,
        cache_seqlens=call.seq_lens,
        block_table=call.block_table,
        softmax_scale=scale,
        causal=call.causal,
        window_size=window_of(call),
        softcap=call.softcap or 0.0,
        alibi_slopes=call.alibi_slopes,
        return_softmax_lse=call.return_lse,
    )
    if not call.return_lse:
        return returned, None
    out, lse = returned
    return out, lse
