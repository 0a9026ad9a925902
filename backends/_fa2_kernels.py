"""What FlashAttention 2's kernels make of a call, whoever built them: the package ``flash-attn``, or torch.

Facts, read from ``csrc/flash_attn/flash_api.cpp`` of flash-attn 2.6 to 2.8 and from torch's copy of it
(``aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.call import Call

BLOCK = 256
"""The tokens of a block of a paged cache are a multiple of this (``mha_varlen_fwd``)."""
LARGEST = 256
"""The largest head size (``mha_fwd`` and its siblings)."""


def window_fault(call: Call) -> str | None:
    """The two windows whose meaning the kernel changes when queries outnumber keys (``set_params_fprop``).

    A bound on the right of the longest ``seqlen_k`` or more counts as none, and a left bound without a right one gets
    ``right = seqlen_k``.
    """
    if call.window is None or call.causal:
        return None
    left, right = call.window
    if right is None and left is not None and call.max_seqlen_q > call.max_seqlen_k + 1:
        return (
            f"window ({left}, None) with {call.max_seqlen_q} queries and {call.max_seqlen_k} keys: "
            "the kernel would bound it on the right"
        )
    if right is not None and call.max_seqlen_k <= right < call.max_seqlen_q - 1:
        return (
            f"window right bound {right} with {call.max_seqlen_q} queries and {call.max_seqlen_k} keys: "
            "the kernel would drop the bound"
        )
    return None


def window_of(call: Call) -> tuple[int, int]:
    """``(left, right)`` with -1 for no bound."""
    if call.window is None:
        return (-1, -1)
    left, right = call.window
    return (-1 if left is None else left, -1 if right is None else right)


def longest_query(call: Call) -> int:
    """The longest query sequence; 2 where 1 would pick the kernel that wants one query in every sequence.

    With ``max_seqlen_q == 1`` and grouped heads ``mha_varlen_fwd`` reshapes ``q`` to ``[batch, ...]``.
    """
    if call.max_seqlen_q == 1 and call.q.shape[0] != call.batch:
        return 2
    return call.max_seqlen_q
