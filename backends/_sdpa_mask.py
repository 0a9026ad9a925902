"""What of a call's masking reaches torch's SDPA kernels as a mask, and what needs none.

The kernels know a square causal mask, aligned top-left, and one explicit mask. A call's causal mask is aligned
bottom-right, which is the same where queries and keys are equally many. Else:

* one query sees every key: no mask;
* more queries than keys: the first ``sq - sk`` rows see nothing, the rest is square (:class:`Plan`'s ``dead``);
* fewer queries than keys: a plane ``[sq, sk]`` for the whole batch is built. The flash kernels on CUDA take no mask, so
  they cannot run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor


class Plan(NamedTuple):
    """How one kernel call gets its mask."""

    causal: bool
    """Use the kernel's own square causal mask."""
    dead: int
    """Leave out this many queries at the start: they see no key."""
    bias: Tensor | None
    """Additive, ``[1 or batch, 1 or heads, 1 or sq, 1 or sk]``, in the query's dtype or float32."""
    may_be_dead: bool
    """Whether a row of ``bias`` may be ``-inf`` throughout."""


def needs_plane(causal: bool, queries: int, keys: int, masked: bool) -> bool:
    """Whether a causal mask has to be built as a tensor."""
    return causal and queries > 1 and (queries < keys or masked)


def plan(q: Tensor, keys: int, causal: bool, mask: Tensor | None) -> Plan:
    """The plan for ``q [batch, heads, sq, size]`` against ``keys`` keys; ``mask`` has up to four dimensions."""
    queries = q.shape[2]
    if mask is None:
        if not causal or queries == 1:
            return Plan(False, 0, None, False)
        if queries >= keys:
            return Plan(True, queries - keys, None, False)
    bias = None if mask is None else _bias(mask, q.dtype)
    if causal and queries > 1:
        position = torch.arange(queries, device=q.device)[:, None] + (keys - queries)
        allowed = torch.arange(keys, device=q.device)[None, :] <= position
        if bias is None:
            bias = torch.zeros(queries, keys, dtype=q.dtype, device=q.device).masked_fill_(
                ~allowed, -torch.inf
            )
            return Plan(False, 0, bias[None, None], False)
        bias = bias.masked_fill(~allowed, -torch.inf)
    return Plan(False, 0, bias, True)


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Four dimensions, additive, in the query's dtype, or float32 beside 16 bits: what the kernels take.

    The flash kernel on CPUs adds a float32 mask wrongly to 16 and more float64 scores (torch 2.13).
    """
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)
    if mask.dtype == dtype or (mask.dtype == torch.float32 and dtype.itemsize < 4):
        return mask
    return mask.to(dtype if dtype.itemsize >= 4 else torch.float32)
