"""What each query row may see, as an interval of keys, and the blocks of keys that follow from it.

Every limit of a call but an explicit mask keeps an interval of keys for each query row: causal and windows, the
sequence's own part of a packed batch, the length of a paged sequence. So one mask function serves them all, nothing
of ``seq_q * seq_k`` elements is built, and another window is not another kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor  # at run time: the operator's schema is read off its annotations

if TYPE_CHECKING:
    from backends.call import Call

BLOCK = 128
"""Rows and keys of one block of the block mask; FlexAttention's own default."""
_FAR = 1 << 30


class Rows(NamedTuple):
    """int32, one entry a query row: ``[rows]`` shared by the batch, or ``[batch, rows]``.

    Keys are numbered along the key tensor that the kernel gets (for a packed batch, along all sequences).
    """

    first: Tensor
    """First key the row may see."""
    last: Tensor
    """Last key the row may see; before ``first`` where there is none."""
    position: Tensor
    """The row's own place among the keys, which distances are counted from."""
    sequence: Tensor | None
    """The sequence of the row, in a packed batch."""


class Blocks(NamedTuple):
    """Arguments of ``BlockMask.from_kv_blocks``: int32, ``[1 or batch, 1, row blocks(, key blocks)]``."""

    counts: Tensor
    indices: Tensor
    full_counts: Tensor
    full_indices: Tensor


def dense_rows(call: Call) -> Rows:
    """Rows of a dense call: ``[seq_q]``."""
    queries, keys = call.max_seqlen_q, call.max_seqlen_k
    position = torch.arange(queries, dtype=torch.int32, device=call.q.device) + (keys - queries)
    return _limit(call, position, torch.zeros_like(position), torch.full_like(position, keys - 1), None)


def packed_rows(call: Call) -> Rows:
    """Rows of packed queries, ``[tokens_q]``: against packed keys, or a gathered cache with its sequences in a row."""
    starts = call.cu_seqlens_q
    assert starts is not None
    token = torch.arange(call.q.shape[0], dtype=torch.int32, device=starts.device)
    sequence = torch.searchsorted(starts[1:].contiguous(), token, right=True, out_int32=True)
    sequence = sequence.clamp(max=max(call.batch - 1, 0))
    if call.cu_seqlens_k is not None:
        first = call.cu_seqlens_k[sequence]
        end = call.cu_seqlens_k[sequence + 1]
    else:
        assert call.seq_lens is not None
        first = sequence * call.max_seqlen_k
        end = first + call.seq_lens[sequence]
    # the last query of a sequence stands at its last key
    position = token + end - starts[sequence + 1]
    return _limit(call, position, first, end - 1, sequence)


def cache_rows(call: Call) -> Rows:
    """Rows of dense queries against a gathered cache: ``[batch, seq_q]``."""
    assert call.seq_lens is not None
    queries = call.max_seqlen_q
    place = torch.arange(queries, dtype=torch.int32, device=call.q.device) - queries
    position = call.seq_lens[:, None] + place
    last = (call.seq_lens[:, None] - 1).expand_as(position)
    return _limit(call, position, torch.zeros_like(position), last, None)


def _limit(call: Call, position: Tensor, first: Tensor, last: Tensor, sequence: Tensor | None) -> Rows:
    left, right = call.window if call.window is not None else (None, None)
    if call.causal:
        right = 0
    if left is not None:
        first = torch.maximum(first, position - min(left, _FAR))
    if right is not None:
        last = torch.minimum(last, position + min(right, _FAR))
    return Rows(first.contiguous(), last.contiguous(), position.contiguous(), sequence)


def blocks(rows: Rows, keys: int) -> Blocks:
    """The blocks of keys that each block of rows needs, and those that every one of its rows sees whole."""
    empty = rows.first > rows.last
    first = _row_blocks(rows.first.masked_fill(empty, keys), keys)
    last = _row_blocks(rows.last.masked_fill(empty, -1), -1)
    # rows added to fill the last block limit nothing
    full_from = _row_blocks(rows.first.masked_fill(empty, keys), 0).amax(-1, keepdim=True)
    full_to = _row_blocks(rows.last.masked_fill(empty, -1), keys - 1).amin(-1, keepdim=True)
    start = torch.arange(0, keys, BLOCK, dtype=torch.int32, device=rows.first.device)
    end = (start + (BLOCK - 1)).clamp(max=keys - 1)
    some = (end >= first.amin(-1, keepdim=True)) & (start <= last.amax(-1, keepdim=True))
    whole = (start >= full_from) & (end <= full_to)
    return Blocks(*_packed(some & ~whole), *_packed(some & whole))


def _row_blocks(values: Tensor, filler: int) -> Tensor:
    """``[batch or 1, row blocks, BLOCK]``."""
    values = values if values.dim() == 2 else values[None]
    padding = -values.shape[1] % BLOCK
    values = torch.nn.functional.pad(values, (0, padding), value=filler)
    return values.view(values.shape[0], -1, BLOCK)


def _packed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Counts, and the chosen indices before the others."""
    order = torch.argsort(chosen.to(torch.int8), dim=-1, descending=True, stable=True).to(torch.int32)
    return chosen.sum(-1, dtype=torch.int32)[:, None].contiguous(), order[:, None].contiguous()


def gathered(call: Call) -> tuple[Tensor, Tensor]:
    """Keys and values of a paged cache as ``[batch, max_seqlen_k, kv_heads, size]``, zero where no token is.

    A copy: the kernels know no block table. Entries of the table beyond a sequence's length are not looked at, and
    what stands in unused slots of the cache (NaN included) does not reach the kernel.
    """
    table, lengths, size = call.block_table, call.seq_lens, call.block_size
    assert table is not None and lengths is not None and size is not None
    longest = call.max_seqlen_k
    table = table[:, : -(-longest // size)]
    begin = torch.arange(table.shape[1], dtype=torch.int32, device=table.device) * size
    table = torch.where(begin < lengths[:, None], table, 0).long()
    slot = torch.arange(longest, dtype=torch.int32, device=table.device)
    unused = (slot >= lengths[:, None])[..., None, None]
    k = call.k[table].flatten(1, 2)[:, :longest].masked_fill(unused, 0)
    v = call.v[table].flatten(1, 2)[:, :longest].masked_fill(unused, 0)
    return k, v


@torch.library.custom_op("attention_selector::realized", mutates_args=())
def _realized(x: Tensor) -> Tensor:
    return x.clone()


@_realized.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def realized(x: Tensor) -> Tensor:
    """``x`` as a tensor in memory, for a kernel that is part of somebody's graph on a CPU.

    The C++ template reads what its functions capture from memory, and takes its inputs by the shape that they have
    there; a tensor that the same graph computes, or a view of other rank, it does not (torch 2.13 says "no choices"). An
    operator that the compiler cannot see through puts it there. Elsewhere ``x`` itself.
    """
    if torch.compiler.is_compiling() and x.device.type == "cpu":
        copy: Tensor = _realized(x)
        return copy
    return x
