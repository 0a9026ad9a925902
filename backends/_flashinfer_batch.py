"""A call's sequences in FlashInfer's terms: packed queries, index pointers, pages, one mask for all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from backends._launch import cumulative

if TYPE_CHECKING:
    from torch import Tensor

    from backends.call import Call


class Pages(NamedTuple):
    """A paged KV cache; ``num_pages`` is the number of pages that all sequences use."""

    indptr: Tensor
    """int32 ``[batch + 1]``: where each sequence's pages start in ``indices``."""
    indices: Tensor
    """int32 ``[num_pages]``, on the cache's device."""
    last_page_len: Tensor
    """int32 ``[batch]``: tokens in the last page; 0 of a sequence without tokens."""
    page_size: int


def tokens(q: Tensor) -> Tensor:
    """``[tokens, num_heads, head_size]`` of a packed or dense query; a view where the memory allows it."""
    return q if q.dim() == 3 else q.flatten(0, 1)


def query_starts(call: Call, device: torch.device) -> Tensor:
    """int32 ``[batch + 1]``: where each sequence's queries start among :func:`tokens`."""
    if call.cu_seqlens_q is not None:
        return call.cu_seqlens_q
    return _every(call.q.shape[1], call.batch, device)


def key_starts(call: Call, device: torch.device) -> Tensor:
    """int32 ``[batch + 1]``: the same of the keys of a dense or packed call."""
    if call.cu_seqlens_k is not None:
        return call.cu_seqlens_k
    return _every(call.k.shape[1], call.batch, device)


def _every(length: int, batch: int, device: torch.device) -> Tensor:
    return torch.arange(batch + 1, dtype=torch.int32, device=device) * length


def pages(call: Call) -> Pages:
    """The pages of a paged call. Reads ``seq_lens`` on the host, where FlashInfer plans: a wait."""
    assert call.block_table is not None
    assert call.seq_lens is not None
    size = call.k.shape[1]
    lens = call.seq_lens.cpu()
    counts = (lens + (size - 1)) // size
    indptr = cumulative(counts)
    rows = torch.repeat_interleave(torch.arange(lens.shape[0]), counts)
    columns = torch.arange(rows.shape[0]) - indptr[:-1][rows]
    device = call.block_table.device
    indices = call.block_table[rows.to(device, non_blocking=True), columns.to(device, non_blocking=True)]
    last = torch.where(lens > 0, (lens - 1) % size + 1, 0).to(torch.int32)
    return Pages(indptr, indices, last, size)


def pages_of_one(call: Call) -> tuple[Tensor, Tensor, Pages]:
    """Keys and values of a dense or packed call as pages of one token ``[tokens, 1, num_kv_heads, size]``."""
    starts = key_starts(call, torch.device("cpu"))
    k, v = (tokens(tensor).unsqueeze(1) for tensor in (call.k, call.v))
    indices = torch.arange(k.shape[0], dtype=torch.int32, device=call.k.device)
    last = (starts[1:] > starts[:-1]).to(torch.int32)
    return k, v, Pages(starts, indices, last, 1)


def cache_layout(call: Call) -> tuple[str, Tensor, Tensor]:
    """How the paged cache lies in memory, and the two tensors in that order of dimensions; never copies.

    A call has ``[num_blocks, block_size, num_kv_heads, size]`` (``NHD``). A cache whose heads lie outside
    its tokens is handed over as what it is: ``HND``, ``[num_blocks, num_kv_heads, block_size, size]``.
    """
    stride = call.k.stride()
    if call.k.shape[1] > 1 and call.k.shape[2] > 1 and stride[2] > stride[1]:
        return "HND", call.k.transpose(1, 2), call.v.transpose(1, 2)
    return "NHD", call.k, call.v


def keep_mask(call: Call) -> Tensor | None:
    """bool ``[batch, seq_q, seq_k]`` of a dense call's mask together with its causal and window limits.

    A custom mask replaces FlashInfer's causal mode, so that all limits go into one.
    """
    if call.mask is None:
        return None
    batch, rows, columns = call.batch, call.max_seqlen_q, call.max_seqlen_k
    device = call.q.device
    position = torch.arange(rows, device=device)[:, None] + (columns - rows)
    key = torch.arange(columns, device=device)[None, :]
    keep = torch.ones(rows, columns, dtype=torch.bool, device=device)
    if call.causal:
        keep &= key <= position
    if call.window is not None and call.window[0] is not None:
        keep &= key >= position - call.window[0]
    mask = call.mask if call.mask.dim() < 3 else call.mask.squeeze(-3)
    return (mask & keep).expand(batch, rows, columns)
