"""Kernel wrappers, and `attention`: the request from the tensors, a cached selection, the winner's kernel.

>>> import torch
>>> from backends import attention
>>> q = k = v = torch.randn(1, 8, 4, 64)
>>> attention(q, k, v, causal=True).shape
torch.Size([1, 8, 4, 64])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backends.dispatch import attention

__all__ = ["attention"]


def __getattr__(name: str) -> Any:
    if name == "attention":
        from backends.dispatch import attention

        globals()["attention"] = attention
        return attention
    raise AttributeError(f"module 'backends' has no attribute {name!r}")
