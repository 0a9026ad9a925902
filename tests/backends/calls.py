"""Calls to test with, and the comparison with the float64 reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from backends import reference
from backends.bounds import bounds_of
from backends.call import Call, make_call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from torch import Tensor


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, size: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * size).to(dtype)


def dense(
    batch: int = 2,
    sq: int = 7,
    sk: int = 7,
    heads: int = 4,
    kv_heads: int = 4,
    size: int = 16,
    size_v: int | None = None,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    magnitude: float = 1.0,
    **fields: Any,
) -> Call:
    kv_dtype = kv_dtype or dtype
    q = random(batch, sq, heads, size, dtype=dtype, seed=1, size=magnitude)
    k = random(batch, sk, kv_heads, size, dtype=kv_dtype, seed=2, size=magnitude)
    v = random(batch, sk, kv_heads, size_v or size, dtype=kv_dtype, seed=3)
    return make_call(q, k, v, **fields)


def starts(lengths: Sequence[int]) -> Tensor:
    return torch.tensor([0, *torch.tensor(list(lengths)).cumsum(0).tolist()], dtype=torch.int32)


def varlen(
    lengths_q: Sequence[int] = (3, 0, 5, 1),
    lengths_k: Sequence[int] = (4, 2, 5, 9),
    heads: int = 4,
    kv_heads: int = 2,
    size: int = 16,
    size_v: int | None = None,
    dtype: torch.dtype = torch.float32,
    **fields: Any,
) -> Call:
    return make_call(
        random(sum(lengths_q), heads, size, dtype=dtype, seed=1),
        random(sum(lengths_k), kv_heads, size, dtype=dtype, seed=2),
        random(sum(lengths_k), kv_heads, size_v or size, dtype=dtype, seed=3),
        cu_seqlens_q=starts(lengths_q),
        cu_seqlens_k=starts(lengths_k),
        max_seqlen_q=max(lengths_q),
        max_seqlen_k=max(lengths_k),
        **fields,
    )


def paged(
    lengths_k: Sequence[int] = (9, 4, 1),
    sq: int = 2,
    lengths_q: Sequence[int] | None = None,
    block_size: int = 4,
    heads: int = 4,
    kv_heads: int = 2,
    size: int = 16,
    size_v: int | None = None,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    filler: float = float("nan"),
    **fields: Any,
) -> Call:
    """A cache whose blocks lie in no order, and whose unused slots and blocks hold ``filler``."""
    kv_dtype = kv_dtype or dtype
    counts = [-(-length // block_size) for length in lengths_k]
    blocks = sum(counts) + 2
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(7)).tolist()
    k = torch.full((blocks, block_size, kv_heads, size), filler, dtype=torch.float32)
    v = torch.full((blocks, block_size, kv_heads, size_v or size), filler, dtype=torch.float32)
    table = torch.full((len(lengths_k), max(counts, default=0)), blocks + 10**6, dtype=torch.int32)
    for index, (length, count) in enumerate(zip(lengths_k, counts, strict=True)):
        for place in range(count):
            block = order.pop()
            table[index, place] = block
            used = min(block_size, length - place * block_size)
            k[block, :used] = random(used, kv_heads, size, seed=100 * index + place)
            v[block, :used] = random(used, kv_heads, size_v or size, seed=100 * index + place + 50)
    where: dict[str, Any] = {
        "block_table": table,
        "seq_lens": torch.tensor(list(lengths_k), dtype=torch.int32),
    }
    if lengths_q is None:
        q = random(len(lengths_k), sq, heads, size, dtype=dtype, seed=1)
    else:
        q = random(sum(lengths_q), heads, size, dtype=dtype, seed=1)
        where |= {"cu_seqlens_q": starts(lengths_q), "max_seqlen_q": max(lengths_q)}
    return make_call(q, k.to(kv_dtype), v.to(kv_dtype), **where, **fields)


def run(module: ModuleType, call: Call, variant: str | None) -> tuple[Tensor, Tensor | None]:
    returned = module.run(call, variant=variant)
    return returned if isinstance(returned, tuple) else (returned, None)


def assert_matches(module: ModuleType, call: Call, variant: str | None) -> None:
    """The wrapper's result lies within the derived bounds of the float64 reference."""
    out, lse = run(module, call, variant)
    expected, expected_lse = reference.attend(call, torch.float64)
    bounds = bounds_of(call)
    assert out.shape == torch.Size(call.out_shape)
    assert out.dtype == call.out_dtype
    assert torch.isfinite(out).all()
    if out.numel():
        assert (out.double() - expected).abs().max().item() <= bounds.out
    assert (lse is not None) == call.return_lse
    if lse is not None:
        assert lse.dtype == torch.float32
        assert lse.shape == expected_lse.shape
        assert torch.equal(lse == -torch.inf, expected_lse == -torch.inf)
        error = (lse.double() - expected_lse).nan_to_num(0.0).abs()
        assert not error.numel() or error.max().item() <= bounds.lse
