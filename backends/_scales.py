"""Per-tensor ``q_scale`` and ``k_scale`` for kernels that know no scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from backends.call import Call, Scale

__all__ = ["is_not_positive", "positive", "scaled_query"]

_SMALLEST = 2.0**-126
"""float32's smallest normal number: kernels keep the scale in float32, where a smaller one may be 0."""


def scaled_query(call: Call) -> tuple[Tensor, float]:
    """The query and the softmax scale that take up ``q_scale * k_scale``.

    A float joins the softmax scale, and so does a tensor of one element where reading it waits for nothing. On a
    device the query is multiplied instead, which copies it and rounds it once more. The scale is positive
    (:func:`positive`).
    """
    q, scale = call.q, call.softmax_scale
    for factor in (call.q_scale, call.k_scale):
        if factor is None:
            continue
        if not isinstance(factor, torch.Tensor):
            scale *= factor
        elif q.device.type == "cpu" and not factor.requires_grad and not torch.compiler.is_compiling():
            scale *= float(factor)
        else:
            q = (q * factor.reshape(())).to(q.dtype)
    return positive(q, scale)


def positive(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """The same scores with a scale above 0: its sign, or its being 0, goes into a copy of the query, which is exact.

    Flash kernels take the scale in after masking, as ``exp2(score * scale - max * scale)`` (``scale_apply_exp2`` of
    FlashAttention's ``softmax.h``, ``update_mdo_states`` of FlashInfer's ``prefill.cuh``, torch's ``FlashAttentionKernel.cpp``):
    ``-inf`` times a scale of 0 is NaN, times a negative one ``+inf``.
    """
    if scale >= _SMALLEST:
        return q, scale
    sign, rest = (-1.0, -scale) if scale <= -_SMALLEST else (scale, 1.0)
    if q.dtype.itemsize == 1:  # fp8 has no arithmetic
        return (q.to(torch.float32) * sign).to(q.dtype), rest
    return q * sign, rest


def is_not_positive(scale: Scale) -> bool:
    """Whether a scale is a number that a kernel which takes it in after masking cannot have; tensors are not read."""
    return scale is not None and not isinstance(scale, torch.Tensor) and scale < _SMALLEST
