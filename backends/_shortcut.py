"""Plain calls without what surrounds a kernel: dense, nothing but `causal`, like one that went the whole way before.

The whole way - checks of every field, the request, the selection, the runner - takes tens of microseconds, as long as a small
call itself. It is gone once for each kind of plain call; a later call that is of the same kind by everything that the checks
look at (ranks, head counts and sizes, dtype, relation of lengths, strides, autograd) is handed to the same operator at once.
Any other call, and one that fails, goes the whole way, which then says what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from selector.quarantine import KNOWN

if TYPE_CHECKING:
    from torch import Tensor

    General = Callable[..., Any]

__all__ = ["flash_on_cpu", "kind_of_lengths"]

_FLASH = torch._scaled_dot_product_flash_attention_for_cpu
_DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def kind_of_lengths(queries: int, keys: int) -> int:
    """1: one query and one key; 2: one query, several keys; 3: several, equally many; 0: anything else."""
    if queries == 1:
        return 2 if keys > 1 else keys
    return 3 if queries == keys and queries else 0


def flash_on_cpu(general: General, clean: Callable[[], bool]) -> General:
    """``general`` with a short cut to the flash kernel on CPUs.

    Arguments:
        general: goes the whole way with ``(q, k, v, causal=..., **fields)``.
        clean: whether the call that ``general`` made last ran on this kernel, without any failure before it.
    """
    dtype: torch.dtype | None = None
    q_shape: torch.Size | None = None
    k_shape: torch.Size | None = None
    alike: tuple[int, ...] | None = None
    flag = square = grad = False
    scale: float | None = None

    def like_before(q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Whether other shapes make the same kind of call; they are the usual ones from then on."""
        nonlocal q_shape, k_shape
        if _kind(q, k, v) != alike:
            return False
        q_shape, k_shape = q.shape, k.shape
        return True

    def run(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, **more: Any) -> Any:
        nonlocal dtype, q_shape, k_shape, alike, flag, square, grad, scale
        try:
            short = (
                causal is flag
                and q.dtype is dtype
                and not more
                and not KNOWN
                and (
                    (q.shape == q_shape and k.shape == k_shape and v.shape == k_shape) or like_before(q, k, v)
                )
                and q.is_contiguous()
                and k.is_contiguous()
                and v.is_contiguous()
                and q.is_cpu
                and k.is_cpu
                and v.is_cpu
            )
        except (AttributeError, RuntimeError):  # no tensor, or none with strides; the whole way names it
            short = False
        if short:
            try:
                if scale is None:
                    out = _FLASH(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, square)
                else:
                    out = _FLASH(
                        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, square, scale=scale
                    )
            except RuntimeError:  # another dtype; the whole way names it
                return general(q, k, v, causal=causal)
            result = out[0].transpose(1, 2)
            if grad or not result.requires_grad:
                return result
        result = general(q, k, v, causal=causal, **more)
        if not more and clean() and _is_plain(q, k, v):
            found = _kind(q, k, v)
            if found is not None:
                alike, dtype, q_shape, k_shape = found, q.dtype, q.shape, k.shape
                flag, grad, scale = causal, result.requires_grad, _scale(q.shape[3], q.dtype)
                square = causal and q.shape[1] > 1
        return result

    run.__qualname__ = "Selection.run"  # what a wrong number of arguments calls it
    return run


def _kind(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...] | None:
    """What has to stay for a call to be of the same kind, of two shapes; None where there is no short cut."""
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape:
        return None
    (batch, queries, heads, size), (batch_k, keys, kv_heads, size_k) = q.shape, k.shape
    kind = kind_of_lengths(queries, keys)
    if not kind or batch == 0 or batch != batch_k or size != size_k:
        return None
    return (kind, heads, kv_heads, size)


def _scale(size: int, dtype: torch.dtype) -> float | None:
    """The whole way's scale; None where the operator's own is the same to the kernel, which rounds it to its accumulator."""
    ours, own = float(size**-0.5), 1.0 / math.sqrt(size)
    precision = torch.float64 if dtype == torch.float64 else torch.float32
    alike = torch.tensor(ours, dtype=precision) == torch.tensor(own, dtype=precision)
    return None if bool(alike) else ours


def _is_plain(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return (
        type(q) is type(k) is type(v) is torch.Tensor
        and q.dtype is k.dtype is v.dtype
        and q.dtype in _DTYPES
        and q.device.type == "cpu"
    )
