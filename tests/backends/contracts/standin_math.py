"""Attention over one sequence in float64, as plainly as it can be said: what the stand-ins compute with.

It is written apart from the project's reference on purpose, so that each checks the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def band(rows: int, columns: int, left: int | None, right: int | None) -> Tensor:
    """bool ``[rows, columns]``: keys from ``p - left`` to ``p + right``, ``p = row + columns - rows``."""
    position = torch.arange(rows)[:, None] + (columns - rows)
    key = torch.arange(columns)[None, :]
    keep = torch.ones(rows, columns, dtype=torch.bool)
    if left is not None:
        keep &= key >= position - left
    if right is not None:
        keep &= key <= position + right
    return keep


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    keep: Tensor,
    *,
    softcap: float = 0.0,
    slopes: Tensor | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``[rows, heads, size_v]`` and the natural log-sum-exp ``[heads, rows]``; 0 and -inf without keys.

    ``q`` is ``[rows, heads, size]``, ``k`` and ``v`` ``[columns, kv_heads, ...]``; ``keep`` is bool
    ``[rows, columns]``; ``slopes`` and ``sinks`` are ``[heads]``.
    """
    # the kernels take the scale in after masking, as exp2(score * scale - max * scale), and keep it in float32
    assert scale >= 2.0**-126, "-inf times the scale"
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("ihd,jhd->hij", q, k) * scale
    if softcap > 0.0:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        rows, columns = keep.shape
        distance = (torch.arange(rows)[:, None] + (columns - rows) - torch.arange(columns)[None, :]).abs()
        scores = scores - slopes.double()[:, None, None] * distance
    scores = scores.masked_fill(~keep, -torch.inf)
    if sinks is not None:
        column = sinks.double()[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, column], -1)
    lse = torch.logsumexp(scores, -1) if scores.shape[-1] else torch.full(scores.shape[:-1], -torch.inf)
    weights = torch.exp(scores - lse[..., None]).nan_to_num(0.0)[..., : k.shape[0]]
    return torch.einsum("hij,jhd->ihd", weights, v), lse


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of ``q``, ``k`` and ``v`` for a ``grad`` of the output, written out: a kernel is called below autograd."""
    group = q.shape[1] // k.shape[1]
    grad, q, k, v = (x.double() for x in (grad, q, k, v))
    keys, values = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (torch.einsum("ihd,jhd->hij", q, keys) * scale).masked_fill(~keep, -torch.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    through = torch.einsum("ihd,jhd->hij", grad, values)
    slope = weights * (through - (weights * through).sum(-1, keepdim=True)) * scale
    of_keys = torch.einsum("hij,ihd->jhd", slope, q).reshape(k.shape[0], k.shape[1], group, -1)
    of_values = torch.einsum("hij,ihd->jhd", weights, grad).reshape(v.shape[0], v.shape[1], group, -1)
    return torch.einsum("hij,jhd->ihd", slope, keys), of_keys.sum(2), of_values.sum(2)


def starts(lengths: list[int]) -> list[tuple[int, int]]:
    """(start, end) of each sequence in a packed tensor."""
    spans, at = [], 0
    for length in lengths:
        spans.append((at, at + length))
        at += length
    return spans
