"""The checks behind :func:`backends.call.make_call`: metadata only, one function a subject."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

import torch

from backends._types import DTYPE_NAMES, FP8_DTYPES, CallError

if TYPE_CHECKING:
    from torch import Tensor

    from backends.call import Scale, Window

_STRIDED = torch.strided
_NAMES = ", ".join(DTYPE_NAMES.values())


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)


def _what(value: object) -> str | None:
    """A value that is of a wrong type, in a few words."""
    if value is None:
        return None
    shown = repr(value) if isinstance(value, (str, bool, int, float, complex)) else ""
    kind = type(value).__qualname__
    return f"{shown} of type {kind}" if 0 < len(shown) <= 40 else f"a value of type {kind}"


def _tensor(field: str, value: object) -> None:
    if not isinstance(value, torch.Tensor):
        found = None if value is None else f"a value of type {type(value).__qualname__}"
        raise CallError(field, found, "a tensor")


def _is_numpy_scalar(value: object, kinds: str) -> bool:
    """Whether it is one of numpy's scalars of these kinds (``i``, ``u``, ``f``, ``b``), without importing numpy."""
    if type(value).__module__ != "numpy" or getattr(value, "ndim", 1) != 0:
        return False
    return getattr(getattr(value, "dtype", None), "kind", " ") in kinds


def flag(field: str, value: object) -> bool:
    """A value that is neither True nor False itself: numpy's are taken, and nothing else."""
    if isinstance(value, (bool, torch.SymBool)):
        return bool(value)
    if _is_numpy_scalar(value, "b"):
        return bool(value)
    raise CallError(field, _what(value), "True or False")


def _integer(field: str, value: object, expected: str) -> int:
    """Numpy's integers become Python's; a float, a bool and a tensor (that would have to be waited for) are none."""
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return value  # type: ignore[return-value]
    if _is_numpy_scalar(value, "iu"):
        return operator.index(value)  # type: ignore[arg-type]
    raise CallError(field, _what(value), expected)


def _real(field: str, value: object, expected: str) -> float:
    """Numpy's numbers become Python's; text, a bool, a complex number and a tensor are none."""
    if isinstance(value, (float, int, torch.SymFloat, torch.SymInt)) and not isinstance(value, bool):
        return value  # type: ignore[return-value]
    if _is_numpy_scalar(value, "fiu"):
        return float(value)  # type: ignore[arg-type]
    raise CallError(field, _what(value), expected)


def tensors(q: Tensor, k: Tensor, v: Tensor, layout: str, *, packed_q: bool) -> None:
    """Ranks, dtypes, devices and head counts of the three main tensors."""
    if not (isinstance(q, torch.Tensor) and isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor)):
        for field, tensor in (("q", q), ("k", k), ("v", v)):
            _tensor(field, tensor)
    if not (q.layout is k.layout is v.layout is _STRIDED):
        field, tensor = next((n, t) for n, t in (("q", q), ("k", k), ("v", v)) if t.layout is not _STRIDED)
        expected = "torch.strided (sequences of many lengths: packed, with cu_seqlens_q)"
        raise CallError(field, f"layout {tensor.layout}", expected)
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
    elif layout != "varlen" and max_seqlen_q is not None:
        expected = f"nothing, or q's length {longest_q} (q is not packed)"
        if _integer("max_seqlen_q", max_seqlen_q, expected) != longest_q:
            raise CallError("max_seqlen_q", max_seqlen_q, expected)
    if layout == "paged":
        return batch, longest_q, _paged(k, q.device, batch, cu_seqlens_k, max_seqlen_k, block_table, seq_lens)
    if seq_lens is not None:
        raise CallError("seq_lens", "a tensor", "nothing without block_table (it describes a paged cache)")
    if layout == "dense":
        if max_seqlen_k is not None:
            expected = f"nothing, or k's length {k.shape[1]} (dense layout)"
            if _integer("max_seqlen_k", max_seqlen_k, expected) != k.shape[1]:
                raise CallError("max_seqlen_k", max_seqlen_k, expected)
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
    expected = f"0 to {capacity}, what the block table can hold"
    longest = _integer("max_seqlen_k", max_seqlen_k, expected)
    if longest < 0 or longest > capacity:
        raise CallError("max_seqlen_k", max_seqlen_k, expected)
    return longest


def _index(field: str, tensor: Tensor, what: str, rank: int, device: torch.device) -> None:
    _tensor(field, tensor)
    if tensor.dtype != torch.int32:
        raise CallError(field, f"dtype {tensor.dtype}", "torch.int32")
    if tensor.dim() != rank:
        raise CallError(field, f"shape {_shape(tensor)}", what)
    if tensor.device != device:
        raise CallError(field, f"device {tensor.device}", f"q's device {device}")


def _longest(field: str, value: int | None) -> int:
    longest = _integer(field, value, "an integer: a packed batch says its longest sequence")
    if longest < 0:
        raise CallError(field, value, "0 or more")
    return longest


def canonical_window(causal: bool, window: Window | None) -> tuple[bool, Window | None]:
    """One spelling of the band: a right bound of 0 is causal, and causal leaves no right bound to say."""
    if window is None:
        return causal, None
    if not isinstance(window, (tuple, list)):
        raise CallError("window", _what(window), "(left, right): two counts of keys, None for no bound")
    if len(window) != 2:
        raise CallError("window", window, "(left, right)")
    left, right = window
    if left is not None:
        left = _integer("window", left, "integers (left, right), None for no bound")
    if right is not None:
        right = _integer("window", right, "integers (left, right), None for no bound")
    if (left is not None and left < 0) or (right is not None and right < 0):
        raise CallError("window", window, "bounds of 0 or more, None for no bound")
    causal = causal or right == 0
    if causal:
        right = None
    return causal, (None if left is None and right is None else (left, right))


def alibi(slopes: Tensor, batch: int, heads: int, device: torch.device) -> None:
    """fp32 ``[heads]`` or ``[batch, heads]``."""
    _tensor("alibi_slopes", slopes)
    if slopes.dtype != torch.float32:
        raise CallError("alibi_slopes", f"dtype {slopes.dtype}", "torch.float32")
    shape = _shape(slopes)
    if shape != [heads] and shape != [batch, heads]:
        raise CallError("alibi_slopes", f"shape {shape}", f"[{heads}] or [{batch}, {heads}]")
    _same_device("alibi_slopes", slopes, device)


def sinks(values: Tensor, heads: int, device: torch.device) -> None:
    """A floating-point ``[heads]``."""
    _tensor("sinks", values)
    if not values.dtype.is_floating_point or values.dtype in FP8_DTYPES:
        raise CallError("sinks", f"dtype {values.dtype}", "a floating-point dtype of 16 bits or more")
    if _shape(values) != [heads]:
        raise CallError("sinks", f"shape {_shape(values)}", f"[{heads}]: one logit a query head")
    _same_device("sinks", values, device)


def mask(values: Tensor, full: tuple[int, int, int, int], device: torch.device) -> None:
    """bool or float, broadcastable to ``full``."""
    _tensor("mask", values)
    if values.dtype != torch.bool and (not values.dtype.is_floating_point or values.dtype in FP8_DTYPES):
        raise CallError("mask", f"dtype {values.dtype}", "torch.bool, or a floating-point bias")
    shape = _shape(values)
    if len(shape) > 4 or any(
        have not in (1, want) for have, want in zip(shape[::-1], full[::-1], strict=False)
    ):
        raise CallError("mask", f"shape {shape}", f"broadcastable to {list(full)} (batch, heads, q, k)")
    _same_device("mask", values, device)


def numbers(
    softcap: float | None, scale: float | None, dropout_p: float
) -> tuple[float | None, float | None, float]:
    """The plain numbers of a call, as Python's own; a softcap that is off is None."""
    if softcap is not None:
        expected = "a positive number (None or 0: off)"
        softcap = _real("softcap", softcap, expected)
        if not (0.0 <= softcap < math.inf):
            raise CallError("softcap", softcap, expected)
        softcap = softcap if softcap else None
    if scale is not None:
        scale = _real("scale", scale, "a finite number")
        if not math.isfinite(scale):
            raise CallError("scale", scale, "a finite number")
    if type(dropout_p) is not float:
        dropout_p = _real("dropout_p", dropout_p, "0 <= p < 1")
    if not 0.0 <= dropout_p < 1.0:
        raise CallError("dropout_p", dropout_p, "0 <= p < 1")
    return softcap, scale, dropout_p


def scale(field: str, value: float | Tensor, heads: int, device: torch.device) -> Scale:
    """A factor a tensor or a head; 1.0 is None, because it changes nothing."""
    if not isinstance(value, torch.Tensor):
        value = _real(field, value, "a finite number, or a tensor")
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
