"""The checks behind :func:`backends.call.make_call`: metadata only, one function a subject."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from backends._types import DTYPE_NAMES, FP8_DTYPES, CallError

if TYPE_CHECKING:
    from torch import Tensor

    from backends.call import Scale, Window

_NAMES = ", ".join(DTYPE_NAMES.values())


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)


def tensors(q: Tensor, k: Tensor, v: Tensor, layout: str, *, packed_q: bool) -> None:
    """Ranks, dtypes, devices and head counts of the three main tensors."""
    if not (isinstance(q, torch.Tensor) and isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor)):
        field, found = next(
            (n, t) for n, t in (("q", q), ("k", k), ("v", v)) if not isinstance(t, torch.Tensor)
        )
        raise CallError(
            field, None if found is None else f"a value of type {type(found).__qualname__}", "a tensor"
        )
    rank_q, rank_kv = (3 if packed_q else 4), (3 if layout == "varlen" else 4)
    shape_q, shape_k, shape_v = q.shape, k.shape, v.shape
    if len(shape_q) != rank_q:
        what = "[tokens, heads, head_size]" if packed_q else "[batch, seq, heads, head_size]"
        raise CallError("q", f"shape {_shape(q)}", f"{what} ({layout} layout)")
    if len(shape_k) != rank_kv:
        raise CallError("k", f"shape {_shape(k)}", f"{_kv_shape(layout)} ({layout} layout)")
    if shape_k != shape_v and shape_k[:-1] != shape_v[:-1]:
        what = f"k's shape but for the last dimension: {_shape(k)[:-1]} + [head_size_v]"
        raise CallError("v", f"shape {_shape(v)}", what)
    heads, size, kv_heads = shape_q[-2], shape_q[-1], shape_k[-2]
    if size != shape_k[-1]:
        raise CallError("k", f"head size {shape_k[-1]}", f"q's head size {size}")
    if size < 1 or shape_v[-1] < 1:
        raise CallError("q" if size < 1 else "v", "head size 0", "at least 1")
    if kv_heads < 1 or heads < 1 or heads % kv_heads != 0:
        raise CallError("k", f"{kv_heads} KV heads", f"a divisor of q's {heads} heads")
    if layout == "dense" and shape_q[0] != shape_k[0]:
        raise CallError("k", f"batch {shape_k[0]}", f"q's batch {shape_q[0]}")
    if layout == "paged" and shape_k[1] < 1:
        raise CallError("k", "blocks of 0 tokens", "blocks of at least 1 token")
    _dtypes(q, k, v)
    device = q.device
    if k.device != device or v.device != device:
        field, tensor = ("k", k) if k.device != device else ("v", v)
        raise CallError(field, f"device {tensor.device}", f"q's device {device}")


def _kv_shape(layout: str) -> str:
    return {
        "dense": "[batch, seq, kv_heads, head_size]",
        "varlen": "[tokens, kv_heads, head_size]",
        "paged": "[num_blocks, block_size, kv_heads, head_size]",
    }[layout]


def _dtypes(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.dtype not in DTYPE_NAMES:
        raise CallError("q", f"dtype {q.dtype}", f"one of {_NAMES}")
    if k.dtype != q.dtype and k.dtype not in FP8_DTYPES:
        raise CallError("k", f"dtype {k.dtype}", f"q's dtype {q.dtype}, or an fp8 dtype (a quantised cache)")
    if v.dtype != k.dtype:
        raise CallError("v", f"dtype {v.dtype}", f"k's dtype {k.dtype}")


def lengths(
    q: Tensor,
    k: Tensor,
    layout: str,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    block_table: Tensor | None,
    seq_lens: Tensor | None,
) -> tuple[int, int, int]:
    """Check what describes the sequences; the batch size and the longest query and key sequence."""
    batch = q.shape[0]
    longest_q = q.shape[1]
    if cu_seqlens_q is not None:
        _index("cu_seqlens_q", cu_seqlens_q, "[batch + 1]", 1, q.device)
        batch = cu_seqlens_q.shape[0] - 1
        if batch < 0:
            raise CallError("cu_seqlens_q", "shape [0]", "[batch + 1]: at least one entry")
        longest_q = _longest("max_seqlen_q", max_seqlen_q)
    elif layout != "varlen" and max_seqlen_q is not None and max_seqlen_q != longest_q:
        raise CallError("max_seqlen_q", max_seqlen_q, f"nothing, or q's length {longest_q} (q is not packed)")
    if layout == "paged":
        return batch, longest_q, _paged(k, q.device, batch, cu_seqlens_k, max_seqlen_k, block_table, seq_lens)
    if seq_lens is not None:
        raise CallError("seq_lens", "a tensor", "nothing without block_table (it describes a paged cache)")
    if layout == "dense":
        if max_seqlen_k is not None and max_seqlen_k != k.shape[1]:
            raise CallError(
                "max_seqlen_k", max_seqlen_k, f"nothing, or k's length {k.shape[1]} (dense layout)"
            )
        return batch, longest_q, k.shape[1]
    if cu_seqlens_k is None:
        raise CallError(
            "cu_seqlens_k", None, "a tensor, because cu_seqlens_q is given and there is no block_table"
        )
    if cu_seqlens_q is None:
        raise CallError("cu_seqlens_q", None, "a tensor, because cu_seqlens_k is given")
    _index("cu_seqlens_k", cu_seqlens_k, "[batch + 1]", 1, q.device)
    if cu_seqlens_k.shape[0] != batch + 1:
        raise CallError(
            "cu_seqlens_k", f"shape {_shape(cu_seqlens_k)}", f"cu_seqlens_q's shape [{batch + 1}]"
        )
    return batch, longest_q, _longest("max_seqlen_k", max_seqlen_k)


def _paged(
    k: Tensor,
    device: torch.device,
    batch: int,
    cu_seqlens_k: Tensor | None,
    max_seqlen_k: int | None,
    block_table: Tensor | None,
    seq_lens: Tensor | None,
) -> int:
    if block_table is None or seq_lens is None:
        raise CallError("seq_lens", None, "an int32 tensor [batch], because block_table is given")
    if cu_seqlens_k is not None:
        raise CallError("cu_seqlens_k", "a tensor", "nothing with block_table (seq_lens gives the lengths)")
    _index("block_table", block_table, "[batch, max_blocks]", 2, device)
    _index("seq_lens", seq_lens, "[batch]", 1, device)
    if block_table.shape[0] != batch:
        raise CallError(
            "block_table", f"shape {_shape(block_table)}", f"[{batch}, max_blocks]: one row a sequence"
        )
    if seq_lens.shape[0] != batch:
        raise CallError("seq_lens", f"shape {_shape(seq_lens)}", f"[{batch}]: one entry a sequence")
    capacity = block_table.shape[1] * k.shape[1]
    if max_seqlen_k is None:
        return capacity
    if max_seqlen_k < 0 or max_seqlen_k > capacity:
        raise CallError("max_seqlen_k", max_seqlen_k, f"0 to {capacity}, what the block table can hold")
    return max_seqlen_k


def _index(field: str, tensor: Tensor, what: str, rank: int, device: torch.device) -> None:
    if tensor.dtype != torch.int32:
        raise CallError(field, f"dtype {tensor.dtype}", "torch.int32")
    if tensor.dim() != rank:
        raise CallError(field, f"shape {_shape(tensor)}", what)
    if tensor.device != device:
        raise CallError(field, f"device {tensor.device}", f"q's device {device}")


def _longest(field: str, value: int | None) -> int:
    if value is None:
        raise CallError(field, None, "an integer: a packed batch says its longest sequence")
    if value < 0:
        raise CallError(field, value, "0 or more")
    return value


def canonical_window(causal: bool, window: Window | None) -> tuple[bool, Window | None]:
    """One spelling of the band: a right bound of 0 is causal, and causal leaves no right bound to say."""
    if window is None:
        return causal, None
    if len(window) != 2:
        raise CallError("window", window, "(left, right)")
    left, right = window
    for bound in (left, right):
        if bound is not None and bound < 0:
            raise CallError("window", window, "bounds of 0 or more, None for no bound")
    causal = causal or right == 0
    if causal:
        right = None
    return causal, (None if left is None and right is None else (left, right))


def alibi(slopes: Tensor, batch: int, heads: int, device: torch.device) -> None:
    """fp32 ``[heads]`` or ``[batch, heads]``."""
    if slopes.dtype != torch.float32:
        raise CallError("alibi_slopes", f"dtype {slopes.dtype}", "torch.float32")
    shape = _shape(slopes)
    if shape != [heads] and shape != [batch, heads]:
        raise CallError("alibi_slopes", f"shape {shape}", f"[{heads}] or [{batch}, {heads}]")
    _same_device("alibi_slopes", slopes, device)


def sinks(values: Tensor, heads: int, device: torch.device) -> None:
    """A floating-point ``[heads]``."""
    if not values.dtype.is_floating_point or values.dtype in FP8_DTYPES:
        raise CallError("sinks", f"dtype {values.dtype}", "a floating-point dtype of 16 bits or more")
    if _shape(values) != [heads]:
        raise CallError("sinks", f"shape {_shape(values)}", f"[{heads}]: one logit a query head")
    _same_device("sinks", values, device)


def mask(values: Tensor, full: tuple[int, int, int, int], device: torch.device) -> None:
    """bool or float, broadcastable to ``full``."""
    if values.dtype != torch.bool and (not values.dtype.is_floating_point or values.dtype in FP8_DTYPES):
        raise CallError("mask", f"dtype {values.dtype}", "torch.bool, or a floating-point bias")
    shape = _shape(values)
    if len(shape) > 4 or any(
        have not in (1, want) for have, want in zip(shape[::-1], full[::-1], strict=False)
    ):
        raise CallError("mask", f"shape {shape}", f"broadcastable to {list(full)} (batch, heads, q, k)")
    _same_device("mask", values, device)


def numbers(softcap: float | None, scale: float | None, dropout_p: float) -> None:
    """The plain numbers of a call."""
    if softcap is not None and not (0.0 <= softcap < math.inf):
        raise CallError("softcap", softcap, "a positive number (None or 0: off)")
    if scale is not None and not math.isfinite(scale):
        raise CallError("scale", scale, "a finite number")
    if not 0.0 <= dropout_p < 1.0:
        raise CallError("dropout_p", dropout_p, "0 <= p < 1")


def scale(field: str, value: float | Tensor, heads: int, device: torch.device) -> Scale:
    """A factor a tensor or a head; 1.0 is None, because it changes nothing."""
    if not isinstance(value, torch.Tensor):
        if not math.isfinite(value):
            raise CallError(field, value, "a finite number")
        return None if value == 1.0 else value
    if value.dtype != torch.float32:
        raise CallError(field, f"dtype {value.dtype}", "torch.float32")
    if _shape(value) not in ([], [1], [heads]):
        raise CallError(field, f"shape {_shape(value)}", f"one element, or [{heads}]: one factor a head")
    _same_device(field, value, device)
    return value


def _same_device(field: str, tensor: Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise CallError(field, f"device {tensor.device}", f"q's device {device}")
