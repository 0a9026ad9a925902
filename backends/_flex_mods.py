"""Mask and score functions for FlexAttention: one small function for each thing a call asks for.

Their arguments are FlexAttention's: the score, and the indices of the batch, the query head, the query row and the
key, as tensors without dimensions. Other tensors are captured.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from backends._flex_rows import Rows

    MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    ScoreFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def in_band(rows: Rows, row_batch: bool) -> MaskFunction:
    """Keeps the keys from ``rows.first`` to ``rows.last``."""
    first, last = rows.first, rows.last

    def shared(batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return (key >= first[row]) & (key <= last[row])

    def own(batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return (key >= first[batch, row]) & (key <= last[batch, row])

    return own if row_batch else shared


def any_key(batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
    """Keeps every key of the blocks that are visited."""
    return key >= 0


def capped(softcap: float) -> ScoreFunction:
    """``softcap * tanh(score / softcap)``."""

    def function(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    return function


def sloped(rows: Rows, slopes: Tensor, row_batch: bool) -> ScoreFunction:
    """ALiBi: minus the head's slope times the distance; ``slopes [heads]`` or ``[batch, heads]``."""
    position, sequence = rows.position, rows.sequence

    def function(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        place = position[batch, row] if row_batch else position[row]
        if slopes.dim() == 1:
            slope = slopes[head]
        elif sequence is not None:
            slope = slopes[sequence[row], head]
        else:
            slope = slopes[batch, head]
        return score - slope * (place - key).abs()

    return function


def masked(mask: Tensor) -> ScoreFunction:
    """A boolean mask (True: keep) or an additive bias, ``[batch, heads, rows, keys]``."""

    def keep(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return torch.where(mask[batch, head, row, key], score, -math.inf)

    def add(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return score + mask[batch, head, row, key]

    return keep if mask.dtype == torch.bool else add


def limited(band: MaskFunction) -> ScoreFunction:
    """The band as a change of the score, for where a score function exists anyway.

    Not as a mask function beside it: where both read tensors, torch 2.13 gives two variables of its C++ one name.
    """

    def function(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return torch.where(band(batch, head, row, key), score, -math.inf)

    return function


def chained(steps: Sequence[ScoreFunction]) -> ScoreFunction:
    """The steps one after another."""

    def function(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        for step in steps:
            score = step(score, batch, head, row, key)
        return score

    return function
