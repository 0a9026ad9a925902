"""FP8 storage for keys and values, with one scale for the tensor or one for each head.

A scale is what a stored value is multiplied by. It maps the largest magnitude to the largest finite value of the
format (448 for e4m3, 57344 for e5m2), so nothing saturates. With one scale for all heads, the head with the largest
values sets it, and a head whose values are a few hundred times smaller is pushed into e4m3's subnormal range (below
``2**-6``, steps of ``2**-9``), where few bits are left. A scale for each head keeps every head in the format's
normal range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["dequantize", "quantize_kv"]


def quantize_kv(
    x: Tensor,
    granularity: Literal["head", "tensor"] = "head",
    dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[Tensor, Tensor]:
    """Store ``x [..., heads, size]`` in fp8.

    Returns:
        The stored tensor, in ``x``'s shape, and the fp32 scale: ``[heads]``, or ``[]`` for the whole tensor. A head
        (or tensor) of zeros has the scale 1.

    Raises:
        ValueError: an unknown granularity, or values that are not finite (they would set the scale).
    """
    if granularity not in ("head", "tensor"):
        raise ValueError(f"granularity: got {granularity!r}, expected 'head' or 'tensor'")
    values = x.detach().to(torch.float32)
    if granularity == "tensor":
        largest = values.abs().amax() if values.numel() else values.new_zeros(())
    elif values.numel():
        largest = values.abs().amax(dim=(*range(values.dim() - 2), values.dim() - 1))
    else:
        largest = values.new_zeros(values.shape[-2])
    if not bool(torch.isfinite(largest).all()):
        raise ValueError("values to quantise must be finite")
    limit = torch.finfo(dtype).max
    scale = torch.where(largest > 0, largest / limit, 1.0)
    # a scale that underflows to zero would lose everything
    scale = scale.clamp(min=torch.finfo(torch.float32).tiny)
    per_value = scale[:, None] if granularity == "head" else scale
    return (values / per_value).clamp(-limit, limit).to(dtype), scale


def dequantize(stored: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """``stored * scale`` in ``dtype``; ``scale`` is ``[heads]`` or has one element."""
    return stored.to(dtype) * (scale.to(dtype)[:, None] if scale.numel() > 1 else scale.to(dtype))
