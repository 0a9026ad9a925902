"""Stand-ins of FlashAttention 2, 3 and 4 on the CPU, by their documented and source-read meaning."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from packaging.version import Version

from tests.backends.contracts.standin import Log, function
from tests.backends.contracts.standin_math import attend, band, gradients, starts

if TYPE_CHECKING:
    from torch import Tensor

    from tests.backends.contracts.signatures import Contract

    Bound = int | None
    Sequences = list[tuple[Tensor, Tensor, Tensor]]

HALF_SINKS = Version("4.0.0b30")
"""The first recorded FlashAttention 4 whose sinks may be float16 or float32; older ones take bfloat16."""


def dry(contract: Contract, log: Log) -> dict[str, object]:
    """Functions of any of the three that only have their results' shapes, also of tensors without storage."""
    return {
        name: function(contract, name, partial(_shapes, name, contract.package), log)
        for name in contract.callables
    }


def _shapes(name: str, package: str, a: SimpleNamespace) -> object:
    v = a.v_cache if name == "flash_attn_with_kvcache" else a.v
    dtype = torch.bfloat16 if a.q.dtype.itemsize == 1 else a.q.dtype
    out = a.q.new_empty((*a.q.shape[:-1], v.shape[-1]), dtype=dtype)
    rows = (a.q.shape[0], a.q.shape[2], a.q.shape[1]) if a.q.dim() == 4 else (a.q.shape[1], a.q.shape[0])
    lse = a.q.new_empty(rows, dtype=torch.float32)
    if package == "flash-attn-4":
        return out, (lse if a.return_lse else None)
    if not (getattr(a, "return_attn_probs", False) or getattr(a, "return_softmax_lse", False)):
        return out
    if package == "flash-attn-3":
        return (out, lse, None, None) if name == "flash_attn_with_kvcache" else (out, lse)
    return (out, lse) if name == "flash_attn_with_kvcache" else (out, lse, None)


def flash_attn_2(contract: Contract, log: Log) -> dict[str, object]:
    """``flash_attn``'s three functions."""
    bodies = {
        "flash_attn_func": lambda a: _fa2(a, _dense(a), packed=False),
        "flash_attn_varlen_func": lambda a: _fa2(a, _varlen(a, a.block_table, None), packed=True),
        "flash_attn_with_kvcache": _fa2_kvcache,
    }
    return {name: function(contract, name, body, log) for name, body in bodies.items()}


def _dense(a: SimpleNamespace) -> Sequences:
    return list(zip(a.q, a.k, a.v, strict=True))


def _varlen(a: SimpleNamespace, table: Tensor | None, used: Tensor | None) -> Sequences:
    queries = _split(a.q, a.cu_seqlens_q)
    if table is None:
        keys, values = _split(a.k, a.cu_seqlens_k), _split(a.v, a.cu_seqlens_k)
    else:
        lengths = used if used is not None else a.cu_seqlens_k[1:] - a.cu_seqlens_k[:-1]
        keys, values = _gather(a.k, table, lengths), _gather(a.v, table, lengths)
    assert max(q.shape[0] for q in queries) <= a.max_seqlen_q
    assert max(k.shape[0] for k in keys) <= a.max_seqlen_k
    return list(zip(queries, keys, values, strict=True))


def _split(tensor: Tensor, cumulative: Tensor) -> list[Tensor]:
    assert cumulative.dtype == torch.int32
    assert int(cumulative[-1]) == tensor.shape[0]
    return [tensor[start:end] for start, end in pairwise(cumulative.tolist())]


def _gather(cache: Tensor, table: Tensor, lengths: Tensor) -> list[Tensor]:
    """The tokens of each sequence out of ``[num_blocks, block_size, ...]``."""
    assert table.dtype == torch.int32
    assert lengths.dtype == torch.int32
    return [
        cache[row.long()].flatten(0, 1)[: int(length)] for row, length in zip(table, lengths, strict=True)
    ]


def _fa2_kvcache(a: SimpleNamespace) -> object:
    keys = _gather(a.k_cache, a.block_table, a.cache_seqlens)
    values = _gather(a.v_cache, a.block_table, a.cache_seqlens)
    a.max_seqlen_k = a.block_table.shape[1] * a.k_cache.shape[1]
    a.k, a.v, a.dropout_p, a.return_attn_probs = a.k_cache, a.v_cache, 0.0, a.return_softmax_lse
    returned = _fa2(a, list(zip(a.q, keys, values, strict=True)), packed=False)
    if not a.return_softmax_lse:
        return returned
    assert isinstance(returned, tuple)
    return returned[:2]


def _fa2(a: SimpleNamespace, sequences: Sequences, *, packed: bool) -> object:
    """``flash_api.cpp``: its checks, its reading of the window, its log-sum-exp of empty rows."""
    assert a.q.dtype in (torch.float16, torch.bfloat16)
    assert a.k.dtype == a.v.dtype == a.q.dtype
    assert a.v.shape[-1] == a.q.shape[-1] <= 256
    assert a.q.shape[-1] % 8 == 0
    table = getattr(a, "block_table", None)
    assert table is None or a.k.shape[1] % 256 == 0
    assert a.softcap == 0.0 or a.dropout_p == 0.0
    longest_q = a.max_seqlen_q if packed else a.q.shape[1]
    longest_k = getattr(a, "max_seqlen_k", None) or a.k.shape[1]
    grouped = a.q.shape[-2] != a.k.shape[-2]
    if packed and longest_q == 1 and grouped and a.window_size == (-1, -1) and a.alibi_slopes is None:
        assert a.q.shape[0] == len(sequences), "the kernel for one query a sequence reshapes q by the batch"
    limits = _fa2_limits(a.window_size, a.causal, longest_k)
    outs, lses = _each(a, sequences, limits, a.softmax_scale, a.alibi_slopes)
    lses = [torch.where(lse == -torch.inf, torch.inf, lse) for lse in lses]
    out, lse = _joined(outs, lses, packed=packed, dtype=a.q.dtype)
    return (out, lse, None) if a.return_attn_probs else out


def _fa2_limits(window: tuple[int, int], causal: bool, longest_k: int) -> tuple[Bound, Bound]:
    """What ``mha_varlen_fwd`` and ``set_params_fprop`` make of a window."""
    left, right = window
    left, right = (-1 if left >= longest_k else left), (-1 if right >= longest_k else right)
    if causal:
        right = 0
    if left < 0 <= right:
        left = longest_k
    if right < 0 <= left:
        right = longest_k
    return (None, None) if left < 0 and right < 0 else (left, right)


def varlen_2(a: SimpleNamespace, used: Tensor | None) -> tuple[Tensor, Tensor]:
    """``mha_varlen_fwd`` by the names of ``flash_attn_varlen_func``; ``[tokens, heads, size]`` and ``[heads, tokens]``."""
    returned = _fa2(a, _varlen(a, a.block_table, used), packed=True)
    assert isinstance(returned, tuple)
    return returned[0], returned[1]


def gradients_2(a: SimpleNamespace, grad: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """``mha_varlen_bwd`` of a packed batch; in double, like ``q``, ``k`` and ``v``."""
    limits = _fa2_limits(a.window_size, a.causal, a.max_seqlen_k)
    found = [
        gradients(rows, q, k, v, scale, band(q.shape[0], k.shape[0], *limits))
        for rows, (q, k, v) in zip(_split(grad, a.cu_seqlens_q), _varlen(a, None, None), strict=True)
    ]
    dq, dk, dv = (torch.cat(parts) for parts in zip(*found, strict=True))
    return dq, dk, dv


def _each(
    a: SimpleNamespace,
    sequences: Sequences,
    limits: tuple[Bound, Bound],
    scale: float,
    slopes: Tensor | None = None,
    sinks: Tensor | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    outs, lses = [], []
    for index, (q, k, v) in enumerate(sequences):
        keep = band(q.shape[0], k.shape[0], *limits)
        own = slopes[index] if slopes is not None and slopes.dim() == 2 else slopes
        out, lse = attend(q, k, v, scale, keep, softcap=a.softcap, slopes=own, sinks=sinks)
        outs.append(out)
        lses.append(lse)
    return outs, lses


def _joined(
    outs: list[Tensor], lses: list[Tensor], *, packed: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    if packed:
        return torch.cat(outs).to(dtype), torch.cat(lses, 1).float()
    return torch.stack(outs).to(dtype), torch.stack(lses).float()


def flash_attn_3(contract: Contract, log: Log) -> dict[str, object]:
    """The Hopper interface's three functions."""
    bodies = {
        "flash_attn_func": lambda a: _fa3(a, _dense(a), packed=False),
        "flash_attn_varlen_func": lambda a: _fa3(a, _varlen(a, None, None), packed=True),
        "flash_attn_with_kvcache": _fa3_kvcache,
    }
    return {name: function(contract, name, body, log) for name, body in bodies.items()}


def _fa3_kvcache(a: SimpleNamespace) -> object:
    packed = a.cu_seqlens_q is not None
    queries = _split(a.q, a.cu_seqlens_q) if packed else list(a.q)
    assert not packed or a.max_seqlen_q is not None
    if a.page_table is None:
        keys, values = list(a.k_cache), list(a.v_cache)
    else:
        keys = _gather(a.k_cache, a.page_table, a.cache_seqlens)
        values = _gather(a.v_cache, a.page_table, a.cache_seqlens)
    a.k, a.v, a.return_attn_probs = a.k_cache, a.v_cache, a.return_softmax_lse
    if not packed:
        a.max_seqlen_q = a.q.shape[1]
    a.max_seqlen_k = max(key.shape[0] for key in keys)
    returned = _fa3(a, list(zip(queries, keys, values, strict=True)), packed=packed)
    return (*returned, None, None) if isinstance(returned, tuple) else returned


def _fa3(a: SimpleNamespace, sequences: Sequences, *, packed: bool) -> Tensor | tuple[Tensor, Tensor]:
    """``hopper/flash_api.cpp``: one dtype, descales ``[batch, num_kv_heads]`` that only fp8 reads."""
    assert a.q.dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn)
    assert a.k.dtype == a.v.dtype == a.q.dtype, "one dtype"
    fp8 = a.q.dtype == torch.float8_e4m3fn
    batch, kv_heads = len(sequences), a.k.shape[-2]
    factors = []
    for descale in (a.q_descale, a.k_descale, a.v_descale):
        if descale is not None:
            assert descale.shape == (batch, kv_heads)
            assert descale.dtype == torch.float32
        factors.append(torch.ones(batch, kv_heads) if descale is None or not fp8 else descale)
    group = a.q.shape[-2] // kv_heads
    scaled: Sequences = []
    for index, (q, k, v) in enumerate(sequences):
        q_factor, k_factor, v_factor = (factor[index].double()[None, :, None] for factor in factors)
        grouped = q_factor.repeat_interleave(group, 1)
        scaled.append((q.double() * grouped, k.double() * k_factor, v.double() * v_factor))
    left, right = a.window_size
    longest_q = a.max_seqlen_q if packed else max(q.shape[0] for q, _, _ in sequences)
    longest_k = getattr(a, "max_seqlen_k", None) or max(k.shape[0] for _, k, _ in sequences)
    left = -1 if left >= longest_k - 1 else left
    right = -1 if right >= longest_q - 1 else right
    if a.causal:
        right = 0
    limits = (None if left < 0 else left, None if right < 0 else right)
    outs, lses = _each(a, scaled, limits, a.softmax_scale)
    out, lse = _joined(outs, lses, packed=packed, dtype=torch.bfloat16 if fp8 else a.q.dtype)
    return (out, lse) if getattr(a, "return_attn_probs", False) else out


def flash_attn_4(contract: Contract, log: Log) -> dict[str, object]:
    """``flash_attn.cute``'s two functions."""
    half_sinks = contract.version >= HALF_SINKS
    bodies = {
        "flash_attn_func": lambda a: _fa4(a, _dense(a), packed=False, half_sinks=half_sinks),
        "flash_attn_varlen_func": lambda a: _fa4_varlen(a, half_sinks=half_sinks),
    }
    return {name: function(contract, name, body, log) for name, body in bodies.items()}


def _fa4_varlen(a: SimpleNamespace, *, half_sinks: bool) -> tuple[Tensor, Tensor | None]:
    packed = a.cu_seqlens_q is not None
    assert a.page_table is None or a.cu_seqlens_k is None
    if packed:
        sequences = _varlen(a, a.page_table, a.seqused_k)
    else:
        keys = _gather(a.k, a.page_table, a.seqused_k)
        values = _gather(a.v, a.page_table, a.seqused_k)
        sequences = list(zip(a.q, keys, values, strict=True))
    return _fa4(a, sequences, packed=packed, half_sinks=half_sinks)


def _fa4(
    a: SimpleNamespace, sequences: Sequences, *, packed: bool, half_sinks: bool
) -> tuple[Tensor, Tensor | None]:
    """``_flash_attn_fwd`` and ``_resolve_causal_local_window`` of ``flash_attn/cute/interface.py``."""
    fp8 = (torch.float8_e4m3fn, torch.float8_e5m2)
    assert a.q.dtype in (torch.float16, torch.bfloat16, *fp8)
    assert a.k.dtype == a.v.dtype == a.q.dtype
    sinks = a.learnable_sink
    if sinks is not None:
        assert sinks.shape == (a.q.shape[-2],)
        assert half_sinks or sinks.dtype == torch.bfloat16
    left, right = a.window_size
    assert left is None or left >= 0, "FlashAttention 4 says None for no bound"
    assert right is None or right >= 0, "FlashAttention 4 says None for no bound"
    if a.causal:
        right = 0
    outs, lses = _each(a, sequences, (left, right), a.softmax_scale, None, sinks)
    out, lse = _joined(outs, lses, packed=packed, dtype=torch.bfloat16 if a.q.dtype in fp8 else a.q.dtype)
    return out, (lse if a.return_lse else None)


def spans(lengths: list[int]) -> Tensor:
    """int32 ``cu_seqlens`` of these lengths."""
    return torch.tensor([0] + [end for _, end in starts(lengths)], dtype=torch.int32)
