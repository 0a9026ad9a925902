"""``torch.nn.attention.varlen.varlen_attn``: FlashAttention 2 of torch's own build for packed batches and paged caches.

Facts, read from ``torch/nn/attention/varlen.py`` and ``flash_attn/flash_api.cpp`` (``mha_varlen_fwd``) of torch 2.12 to 2.14:

* ``window_size=(left, right)`` with -1 for no bound, aligned bottom-right; ``(-1, 0)`` is causal.
* Its documentation gives the log-sum-exp as ``[tokens, heads]``; the kernel allocates ``[heads, tokens]``, as the operator's
  registered fake says. The shape decides, and where both are one number, the fake. It is natural, ``+inf`` for a row
  without keys, and has no gradient: the operator's backward drops what comes in for it, so it is detached here.
* Nothing is padded: head sizes are multiples of 8. The last stride has to be 1. A block has a multiple of 256 tokens.
* The split kernel writes a packed paged output to wrong places (https://github.com/pytorch/pytorch/issues/194167), and torch
  2.13 would split by itself: ``num_splits=1`` forbids it. In torch 2.12 FlashAttention 2 takes no ``num_splits``.
* From torch 2.14 on a call may go to cuDNN instead, but not one with ``num_splits`` (the backward pass does not look at it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from backends._fa2_kernels import BLOCK, LARGEST, longest_query, window_fault, window_of
from backends._launch import cumulative

if TYPE_CHECKING:
    from torch import Tensor

    from backends.call import Call

HONOURED = frozenset(
    {
        "varlen",
        "paged",
        "paged_varlen",
        "causal",
        "window_left",
        "window_right",
        "scale",
        "gqa",
        "return_lse",
        "training",
        "q_scale",
        "k_scale",
        "v_scale",
    }
)


def refuses(call: Call) -> str | None:
    """Why the function cannot run the call, whose fields and dtypes are honoured, or None."""
    if call.head_size > LARGEST or call.head_size % 8 != 0:
        return f"head_size {call.head_size}: a multiple of 8, at most {LARGEST}"
    if call.layout == "paged":
        if call.training:
            return "gradients through a paged cache: block tables are for inference"
        if call.block_size is not None and call.block_size % BLOCK != 0:
            return f"block_size {call.block_size}: a multiple of {BLOCK}"
        if not _takes_splits():
            return f"a paged cache with torch {torch.__version__}: from 2.13 on"
    return window_fault(call)


def attend(call: Call, q: Tensor, scale: float) -> tuple[Tensor, Tensor | None]:
    """Output in the shape of ``q``; float32 log-sum-exp ``[batch, heads, sq]``, or ``[heads, tokens]`` of packed queries.

    A paged call with queries ``[batch, sq, ...]`` is packed first: a view where the batch lies in one piece.
    """
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    left, right = window_of(call)
    longest = longest_query(call)
    paged: dict[str, Any] = {}
    if call.layout == "paged":
        assert call.block_table is not None and call.seq_lens is not None
        starts_k = cumulative(call.seq_lens)
        paged = {"seqused_k": call.seq_lens.contiguous(), "block_table": _last_stride_one(call.block_table)}
    else:
        assert call.cu_seqlens_k is not None
        starts_k = call.cu_seqlens_k.contiguous()
    if _takes_splits() and (paged or longest > 1):
        paged["num_splits"] = 1
    returned = varlen_attn(
        _last_stride_one(q if call.packed_q else q.flatten(0, 1)),
        _last_stride_one(call.k),
        _last_stride_one(call.v),
        _starts_q(call),
        starts_k,
        longest,
        call.max_seqlen_k,
        return_aux=AuxRequest(lse=True) if call.return_lse else None,
        scale=scale,
        window_size=(left, 0 if call.causal else right),
        enable_gqa=call.num_heads != call.num_kv_heads,
        **paged,
    )
    if not isinstance(returned, tuple):
        return returned.reshape(q.shape), None
    out, lse = returned
    return out.reshape(q.shape), _log_sum_exp(call, lse)


def _takes_splits() -> bool:
    """Whether torch's own FlashAttention 2 takes ``num_splits``: not told by any signature, in 2.12 for FA3 only."""
    return bool(torch.__version__ >= "2.13")


def _last_stride_one(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _starts_q(call: Call) -> Tensor:
    if call.cu_seqlens_q is not None:
        return call.cu_seqlens_q.contiguous()
    length = call.max_seqlen_q
    return torch.arange(
        0, (call.batch + 1) * length, length, dtype=torch.int32, device=call.q.device
    )  # of an empty length there is nothing to do


def _log_sum_exp(call: Call, lse: Tensor) -> Tensor:
    heads = call.num_heads
    tokens = lse.numel() // heads
    if lse.shape != (heads, tokens):
        lse = lse.t()
    lse = lse.detach()
    lse = torch.where(lse == torch.inf, -torch.inf, lse)
    return lse if call.packed_q else lse.reshape(heads, call.batch, call.max_seqlen_q).transpose(0, 1)
