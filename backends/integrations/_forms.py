"""The ways to state one layer's attention as a call.

Most masks can be said in more than one way, with the same result: a window as a window or as a tensor, padding by leaving the
padding out or as a tensor. Which way is best depends on the kernels of the machine, so all of them are listed, the one with the
most structure first, and the selector is asked about each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from backends.call import Call, make_call
from backends.integrations._structure import StructuredMask, View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

__all__ = ["Form", "forms"]


class Form(NamedTuple):
    """One way: its name, how to make the call, and how its output becomes ``[batch, queries, heads, head_size_v]``."""

    name: str
    make: Callable[[], Call]
    finish: Callable[[Tensor], Tensor]


def _same(out: Tensor) -> Tensor:
    return out


def forms(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    bias: Tensor | None,
    options: Mapping[str, Any],
) -> list[Form]:
    """Every way to say this layer, the one with the most structure first.

    Arguments:
        q, k, v: ``[batch, length, heads, size]``.
        mask: a tensor ``[batch or 1, heads or 1, queries, keys]`` (bool, or a bias), or one that knows its structure.
        bias: added to the scores, broadcastable to ``[batch, heads, queries, keys]``, or None.
        options: further fields of the call.
    """
    if not isinstance(mask, StructuredMask):
        return [_tensor(q, k, v, mask, bias, options)]
    view = mask.view_of_keys()
    if not view.aligned or view.start >= view.end:
        return [_tensor(q, k, v, mask.dense(), bias, options)]
    structured = view.padding is None and view.documents is None
    found = []
    if structured and bias is None:
        found.append(Form("structure", lambda: _structured(q, k, v, view, options, None), _same))
        if view.window is None:
            return found
    elif bias is None:
        packed = _packed(q, k, v, mask, view, options)
        if packed is not None:
            found.append(packed)
    found.append(Form("mask", lambda: _masked(q, k, v, mask, view, bias, options), _same))
    if q.shape[1] == 1 and not structured:
        # one query a sequence: a row of the mask costs less than a copy of the keys without their padding
        found.reverse()
    return found


def _tensor(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None, options: Mapping[str, Any]
) -> Form:
    """The mask says everything."""
    return Form("mask", lambda: make_call(q, k, v, mask=_with_bias(mask, bias), **options), _same)


def _with_bias(mask: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return mask
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, -torch.inf)
    return mask + bias


def _cut(view: View, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The keys that any query sees."""
    if view.start == 0 and view.end == k.shape[1]:
        return k, v
    return k[:, view.start : view.end], v[:, view.start : view.end]


def _structured(
    q: Tensor, k: Tensor, v: Tensor, view: View, options: Mapping[str, Any], mask: Tensor | None
) -> Call:
    k, v = _cut(view, k, v)
    return make_call(q, k, v, causal=view.causal, window=view.window, mask=mask, **options)


def _masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: StructuredMask,
    view: View,
    bias: Tensor | None,
    options: Mapping[str, Any],
) -> Call:
    """The mask as a tensor; where it is causal and padded only, a row of ``[batch, 1, 1, keys]`` is enough."""
    if bias is not None:
        bias = bias[..., view.start : view.end] if bias.shape[-1] != 1 else bias
    if view.window is None and view.documents is None:
        row = None if view.padding is None else view.padding[:, None, None, :]
        tensor = bias if row is None else _with_bias(row, bias)
        return _structured(q, k, v, view, options, tensor)
    plane = mask.dense()[..., view.start : view.end]
    k, v = _cut(view, k, v)
    return make_call(q, k, v, mask=_with_bias(plane, bias), **options)


# -- leaving padding out ----------------------------------------------------------------------------------------------


class _Packing(NamedTuple):
    """Which rows of ``[batch * length]`` are tokens (None: all), and where each sequence starts."""

    rows_q: Tensor | None
    rows_k: Tensor | None
    starts_q: Tensor
    starts_k: Tensor
    longest_q: int
    longest_k: int


def _packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: StructuredMask,
    view: View,
    options: Mapping[str, Any],
) -> Form | None:
    """Sequences one after the other, without what lies between them; None where that is not the same attention."""
    batch, queries = q.shape[:2]
    packing: _Packing | None = mask.once("packing", lambda: _packing(view, batch, queries, q.device))
    if packing is None:
        return None

    def make() -> Call:
        keys, values = _cut(view, k, v)
        return make_call(
            _rows(q, packing.rows_q),
            _rows(keys, packing.rows_k),
            _rows(values, packing.rows_k),
            cu_seqlens_q=packing.starts_q,
            cu_seqlens_k=packing.starts_k,
            max_seqlen_q=packing.longest_q,
            max_seqlen_k=packing.longest_k,
            causal=view.causal,
            window=view.window,
            **options,
        )

    def finish(out: Tensor) -> Tensor:
        if packing.rows_q is not None:
            whole = out.new_zeros(batch * queries, *out.shape[1:])
            out = whole.index_copy(0, packing.rows_q, out)
        return out.view(batch, queries, *out.shape[1:])

    return Form("packed", make, finish)


def _rows(x: Tensor, kept: Tensor | None) -> Tensor:
    flat = x.flatten(0, 1)
    return flat if kept is None else flat.index_select(0, kept)


def _packing(view: View, batch: int, queries: int, device: torch.device) -> _Packing | None:
    if view.documents is not None:
        return None if view.padding is not None else _of_documents(view.documents, device)
    assert view.padding is not None
    padding = view.padding.to(device)
    keys = padding.shape[1]
    lengths_k = padding.sum(1)
    if view.window is not None:
        if not view.causal:
            return None
        # distances survive only where nothing is left out between two tokens
        place = torch.arange(keys, device=device)
        first = torch.where(padding, place, keys).amin(1)
        last = torch.where(padding, place, -1).amax(1)
        if not bool(((last - first + 1 == lengths_k) | (lengths_k == 0)).all()):
            return None
    if view.causal:
        if queries > keys:
            return None
        tokens = padding[:, keys - queries :]
        lengths_q = tokens.sum(1)
        rows_q: Tensor | None = tokens.flatten().nonzero().flatten()
    else:
        lengths_q = torch.full((batch,), queries, device=device)
        rows_q = None
    longest_q, longest_k = torch.stack([lengths_q.amax(), lengths_k.amax()]).tolist()
    return _Packing(
        rows_q,
        padding.flatten().nonzero().flatten(),
        _starts(lengths_q),
        _starts(lengths_k),
        longest_q,
        longest_k,
    )


def _of_documents(documents: Tensor, device: torch.device) -> _Packing:
    documents = documents.to(device)
    batch, length = documents.shape
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = begins.flatten().nonzero().flatten()
    starts = torch.cat([starts, starts.new_tensor([batch * length])]).to(torch.int32)
    longest = int((starts[1:] - starts[:-1]).amax())
    return _Packing(None, None, starts, starts, longest, longest)


def _starts(lengths: Tensor) -> Tensor:
    starts = torch.zeros(lengths.shape[0] + 1, dtype=torch.int32, device=lengths.device)
    torch.cumsum(lengths, 0, dtype=torch.int32, out=starts[1:])
    return starts
