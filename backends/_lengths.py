"""The values of what describes sequences: read where reading waits for nothing, or where everything is waited for anyway.

:func:`backends.call.make_call` looks at shapes only. A kernel that is handed wrong values reads memory that is not the
tensor's; so what reads them anyway - the reference, and CPU kernels that run one sequence at a time - checks them here.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from backends._types import CallError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from backends.call import Call


def ranges(field: str, starts: Tensor, tokens: int, longest: int) -> list[tuple[int, int]]:
    """(start, end) of every sequence of a packed tensor.

    Raises:
        CallError: starts that do not rise from 0 to ``tokens`` (rows after the last end belong to no sequence, and have no
            result), or a sequence longer than ``longest``.
    """
    bounds: list[int] = starts.tolist()
    found = list(itertools.pairwise(bounds))
    if bounds[0] != 0 or bounds[-1] != tokens or any(end < start for start, end in found):
        raise CallError(field, bounds, f"starts that rise from 0 to {tokens}, the number of tokens")
    if any(end - start > longest for start, end in found):
        raise CallError(field, bounds, f"sequences of at most {longest} tokens")
    return found


def check(call: Call) -> None:
    """Read the values of a call, on any device.

    Raises:
        CallError: as :func:`ranges` and :func:`cached` do.
    """
    if call.cu_seqlens_q is not None:
        ranges("cu_seqlens_q", call.cu_seqlens_q, call.q.shape[0], call.max_seqlen_q)
    if call.cu_seqlens_k is not None:
        ranges("cu_seqlens_k", call.cu_seqlens_k, call.k.shape[0], call.max_seqlen_k)
    if call.layout == "paged":
        for _ in cached(call):
            pass


def cached(call: Call) -> Iterator[tuple[int, Tensor]]:
    """Of every sequence of a paged call the number of its keys, and the blocks that hold them (int64).

    Entries of the table after a sequence's last block mean nothing and are not looked at.

    Raises:
        CallError: a length below 0 or above ``max_seqlen_k``, or a block that the cache does not have.
    """
    table, lengths, size = call.block_table, call.seq_lens, call.block_size
    assert table is not None and lengths is not None and size is not None
    count = call.k.shape[0]
    for index, length in enumerate(lengths.tolist()):
        if not 0 <= length <= call.max_seqlen_k:
            raise CallError("seq_lens", f"{length} of sequence {index}", f"0 to {call.max_seqlen_k}")
        blocks = table[index, : -(-length // size)].long()
        wrong = blocks[(blocks < 0) | (blocks >= count)].tolist()
        if wrong:
            raise CallError("block_table", f"block {wrong[0]} of sequence {index}", f"0 to {count - 1}")
        yield length, blocks
