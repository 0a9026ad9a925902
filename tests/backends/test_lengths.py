"""Values of `cu_seqlens`, `seq_lens` and `block_table` that do not fit: said in words wherever they are read."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch

from backends import flex_attention, reference, torch_sdpa
from backends.call import CallError, make_call
from tests.backends.calls import paged, random

if TYPE_CHECKING:
    from types import ModuleType

PACKED = [
    (reference, None),
    (torch_sdpa, "cpu_flash"),
    (torch_sdpa, "cpu_math"),
    (flex_attention, "eager"),
]
PAGED = [(reference, None), (flex_attention, "eager")]


@pytest.mark.parametrize(("module", "variant"), PACKED)
@pytest.mark.parametrize("side", ["cu_seqlens_q", "cu_seqlens_k"])
@pytest.mark.parametrize("starts", [[0, 5, 9], [0, 4, 2], [0, 3, 3], [1, 5, 5], [0, 6, 5], [0, -1, 5]])
def test_starts(module: ModuleType, variant: str | None, side: str, starts: list[int]) -> None:
    good = torch.tensor([0, 2, 5], dtype=torch.int32)
    lengths: dict[str, Any] = {
        "cu_seqlens_q": good,
        "cu_seqlens_k": good,
        side: torch.tensor(starts, dtype=torch.int32),
    }
    q, k, v = (random(5, 2, 8, seed=s) for s in range(3))
    call = make_call(q, k, v, max_seqlen_q=5, max_seqlen_k=5, **lengths)
    with pytest.raises(CallError, match="starts that rise from 0 to 5, the number of tokens") as caught:
        module.run(call, variant=variant)
    assert caught.value.field == side


@pytest.mark.parametrize(("module", "variant"), PACKED)
def test_a_sequence_longer_than_the_longest(module: ModuleType, variant: str | None) -> None:
    good = torch.tensor([0, 2, 5], dtype=torch.int32)
    q, k, v = (random(5, 2, 8, seed=s) for s in range(3))
    call = make_call(q, k, v, max_seqlen_q=3, max_seqlen_k=2, cu_seqlens_q=good, cu_seqlens_k=good)
    with pytest.raises(CallError, match=r"cu_seqlens_k: .*sequences of at most 2 tokens"):
        module.run(call, variant=variant)


@pytest.mark.parametrize(("module", "variant"), PAGED)
def test_the_cache(module: ModuleType, variant: str | None) -> None:
    call = paged((9, 4, 1), filler=0.0)
    assert call.block_table is not None
    blocks = call.k.shape[0]
    module.run(call, variant=variant)  # entries that no sequence reaches are not looked at
    for wrong in (-1, blocks, 10**6):
        table = call.block_table.clone()
        table[0, 2] = wrong
        with pytest.raises(CallError) as caught:
            module.run(dataclasses.replace(call, block_table=table), variant=variant)
        assert (
            str(caught.value) == f"block_table: got block {wrong} of sequence 0, expected 0 to {blocks - 1}"
        )
    for length in (-1, 13):
        lengths = torch.tensor([9, length, 1], dtype=torch.int32)
        with pytest.raises(CallError) as caught:
            module.run(dataclasses.replace(call, seq_lens=lengths), variant=variant)
        assert str(caught.value) == f"seq_lens: got {length} of sequence 1, expected 0 to 12"
