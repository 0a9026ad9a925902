"""Attention written out in plain torch operations: every field of a call, in the precision asked for.

One sequence at a time, one line for each step that :mod:`backends.call` states, no kernel and no trick: this is
what the other wrappers are compared with. It materialises the scores ``[num_heads, seq_q, seq_k]`` of one sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from backends._failure import is_broken
from backends._guard import FIELDS, refusal
from backends._lengths import cached, ranges
from backends.call import Call, make_call, request_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from backends.call import Scale

__all__ = ["HONOURED", "attend", "is_broken", "make_call", "refuses", "request_fields", "run"]

HONOURED: Mapping[str | None, frozenset[str]] = {None: frozenset(FIELDS)}
"""Every field there is."""


def refuses(call: Call, variant: str | None = None) -> str | None:
    """None: the reference takes every call that :func:`backends.call.make_call` accepts."""
    return refusal(call, HONOURED[variant])


def run(
    call: Call, *, variant: str | None = None, precision: torch.dtype | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """The output in the call's ``out_dtype``, with an fp32 log-sum-exp where the call asks for one.

    ``precision`` is the dtype of every step; None is float64, or float32 on a device that has no float64.

    Raises:
        CallError: values of ``cu_seqlens``, ``seq_lens`` or ``block_table`` that do not fit the tensors.
    """
    out, lse = attend(call, precision)
    out = out.to(call.out_dtype)
    return (out, lse.to(torch.float32)) if call.return_lse else out


def attend(call: Call, precision: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp, both still in ``precision``: nothing is rounded to the query's dtype."""
    dtype = precision if precision is not None else _widest(call.q.device.type)
    outs: list[Tensor] = []
    lses: list[Tensor] = []
    for index, (q, k, v) in enumerate(_sequences(call)):
        out, lse = _one_sequence(call, index, q, k, v, dtype)
        outs.append(out)
        lses.append(lse)
    if call.packed_q:
        empty = call.q.new_empty(call.out_shape, dtype=dtype)[:0]
        no_lse = call.q.new_empty((call.num_heads, 0), dtype=dtype)
        return torch.cat([empty, *outs]), torch.cat([no_lse, *lses], dim=1)
    if not outs:
        batch, seq, heads, _ = call.q.shape
        return call.q.new_empty(call.out_shape, dtype=dtype), call.q.new_empty(
            (batch, heads, seq), dtype=dtype
        )
    return torch.stack(outs), torch.stack(lses)


def _widest(device: str) -> torch.dtype:
    return torch.float32 if device == "mps" else torch.float64


def _one_sequence(
    call: Call, index: int, q: Tensor, k: Tensor, v: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """``q [sq, heads, size]``, ``k [sk, kv_heads, size]``, ``v [sk, kv_heads, size_v]`` of sequence ``index``.

    Returns ``out [sq, heads, size_v]`` and ``lse [heads, sq]``.
    """
    group = call.num_heads // call.num_kv_heads
    q = _dequantise(q, call.q_scale, dtype)
    k = _dequantise(k, call.k_scale, dtype).repeat_interleave(group, dim=1)
    v = _dequantise(v, call.v_scale, dtype).repeat_interleave(group, dim=1)
    sq, sk = q.shape[0], k.shape[0]
    key = torch.arange(sk, device=q.device)[None, :]
    position = torch.arange(sq, device=q.device)[:, None] + (sk - sq)

    scores = torch.einsum("ihd,jhd->hij", q, k) * call.softmax_scale
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    if call.alibi_slopes is not None:
        slopes = call.alibi_slopes if call.alibi_slopes.dim() == 1 else call.alibi_slopes[index]
        scores = scores - slopes.to(dtype)[:, None, None] * (position - key).abs()
    allowed = torch.ones(sq, sk, dtype=torch.bool, device=q.device)
    if call.mask is not None:
        plane = call.mask.expand(call.batch, call.num_heads, call.max_seqlen_q, call.max_seqlen_k)
        plane = plane[index, :, :sq, :sk]
        if plane.dtype == torch.bool:
            allowed = allowed & plane
        else:
            scores = scores + plane.to(dtype)
    if call.causal:
        allowed = allowed & (key <= position)
    if call.window is not None:
        left, right = call.window
        if left is not None:
            allowed = allowed & (key >= position - left)
        if right is not None:
            allowed = allowed & (key <= position + right)
    scores = scores.masked_fill(~allowed, -torch.inf)
    weights, lse = _softmax(scores, None if call.sinks is None else call.sinks.to(dtype))
    if call.dropout_p > 0.0:
        weights = torch.nn.functional.dropout(weights, call.dropout_p)
    return torch.einsum("hij,jhd->ihd", weights, v), lse


def _softmax(scores: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weights over the last dimension and the log of their denominator; a row of ``-inf`` weighs nothing."""
    logits = (
        scores
        if sinks is None
        else torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:2], 1)], dim=-1)
    )
    if logits.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], -torch.inf)
    top = logits.detach().amax(-1, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)
    total = torch.exp(logits - top).sum(-1, keepdim=True)
    dead = total == 0
    total = torch.where(dead, 1.0, total)
    lse = torch.where(dead, -torch.inf, top + torch.log(total))
    return torch.exp(scores - top) / total, lse.squeeze(-1)


def _dequantise(stored: Tensor, scale: Scale, dtype: torch.dtype) -> Tensor:
    """``[tokens, heads, size]`` in ``dtype``, times one factor or one a head."""
    values = stored.to(dtype)
    if scale is None:
        return values
    if isinstance(scale, torch.Tensor):
        return values * scale.to(dtype).reshape(-1, 1)
    return values * scale


def _sequences(call: Call) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Each sequence's queries, keys and values, cut from whatever layout the call has."""
    if call.layout == "dense":
        for index in range(call.batch):
            yield call.q[index], call.k[index], call.v[index]
        return
    queries = _query_slices(call)
    if call.layout == "varlen":
        assert call.cu_seqlens_k is not None
        for q, (start, end) in zip(
            queries,
            ranges("cu_seqlens_k", call.cu_seqlens_k, call.k.shape[0], call.max_seqlen_k),
            strict=True,
        ):
            yield q, call.k[start:end], call.v[start:end]
        return
    for q, (length, blocks) in zip(queries, cached(call), strict=True):
        yield q, call.k[blocks].flatten(0, 1)[:length], call.v[blocks].flatten(0, 1)[:length]


def _query_slices(call: Call) -> list[Tensor]:
    if call.cu_seqlens_q is None:
        return list(call.q)
    found = ranges("cu_seqlens_q", call.cu_seqlens_q, call.q.shape[0], call.max_seqlen_q)
    return [call.q[start:end] for start, end in found]
