"""Stand-ins for what torch's own operators need a GPU for, put where torch itself looks: its dispatcher and its registry.

:func:`flash_attention_on_cpu` gives ``aten::_flash_attention_forward`` and its backward a CPU kernel, so that the real
``varlen_attn`` runs, its checks, its autograd formula and its operators included. The kernel does what torch's
``flash_api.cpp`` does with its arguments. :func:`implementations` puts harmless implementations into torch's registry.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import _registry

from tests.backends.contracts import standin_flash
from tests.backends.contracts.standin import Launch, Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_NAMES = (
    "query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask",
)  # fmt: skip


def _forward(log: Log, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """``_flash_attention_forward`` with ``cum_seq_q``: ``mha_varlen_fwd``."""
    given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
    log.append(Launch("_flash_attention_forward", given))
    out, lse = _varlen_forward(SimpleNamespace(**given))
    empty = torch.empty(0)
    return out, lse, empty, empty, empty


def _varlen_forward(a: SimpleNamespace) -> tuple[Tensor, Tensor]:
    table, used = getattr(a, "block_table", None), getattr(a, "seqused_k", None)
    assert a.dropout_p == 0.0
    assert a.is_causal == (a.window_size_left == -1 and a.window_size_right == 0)
    assert all(x.stride(-1) == 1 for x in (a.query, a.key, a.value))
    assert a.cum_seq_q.dtype == a.cum_seq_k.dtype == torch.int32
    assert a.cum_seq_q.is_contiguous()
    assert a.cum_seq_k.is_contiguous()
    assert a.cum_seq_q.shape == a.cum_seq_k.shape
    if table is not None:
        assert used is not None, "block_table requires seqused_k"
        assert used.is_contiguous()
        assert table.stride(-1) == 1
        assert a.num_splits == 1, "the split kernel writes a packed output to wrong places"
        assert torch.equal(a.cum_seq_k[1:] - a.cum_seq_k[:-1], used)
    return standin_flash.varlen_2(_by_the_packages_names(a, table), used)


def _by_the_packages_names(a: SimpleNamespace, table: Tensor | None) -> SimpleNamespace:
    return SimpleNamespace(
        q=a.query,
        k=a.key,
        v=a.value,
        cu_seqlens_q=a.cum_seq_q,
        cu_seqlens_k=a.cum_seq_k,
        max_seqlen_q=a.max_q,
        max_seqlen_k=a.max_k,
        causal=a.is_causal,
        window_size=(a.window_size_left, a.window_size_right),
        softmax_scale=a.scale,
        softcap=0.0,
        dropout_p=0.0,
        alibi_slopes=None,
        block_table=table,
        return_attn_probs=True,
    )


def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """``_flash_attention_backward``; it takes a log-sum-exp of ``[heads, tokens]``."""
    names = (
        "cum_seq_q",
        "cum_seq_k",
        "max_q",
        "max_k",
        "dropout_p",
        "is_causal",
        "philox_seed",
        "philox_offset",
    )
    given = SimpleNamespace(
        query=query, key=key, value=value, **dict(zip(names, args, strict=True)), **kwargs
    )
    assert lse.shape == (query.shape[1], query.shape[0])
    assert out.shape == query.shape
    dq, dk, dv = standin_flash.gradients_2(_by_the_packages_names(given, None), grad, given.scale)
    return dq.to(query.dtype), dk.to(query.dtype), dv.to(query.dtype)


@contextmanager
def flash_attention_on_cpu() -> Iterator[Log]:
    """A CPU kernel for ``aten::_flash_attention_forward`` and its backward; the calls of the first."""
    log = Log()
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    forward = functools.partial(_forward, log)
    library.impl("_flash_attention_forward", forward, "CPU")  # type: ignore[no-untyped-call]
    library.impl("_flash_attention_backward", _backward, "CPU")  # type: ignore[no-untyped-call]
    try:
        yield log
    finally:
        library._destroy()  # type: ignore[no-untyped-call]


class Handle:
    """What a register function gives back; counts how often it was taken back."""

    def __init__(self) -> None:
        self.removed = 0

    def remove(self) -> None:
        self.removed += 1


@contextmanager
def implementations(*names: str) -> Iterator[list[tuple[str, Handle]]]:
    """Implementations of these names in torch's registry that change nothing; what was activated, in order.

    The registry is as it was afterwards.
    """
    activated: list[tuple[str, Handle]] = []
    known, active = dict(_registry._FLASH_ATTENTION_IMPLS), _registry._FLASH_ATTENTION_ACTIVE

    def register(name: str) -> Handle:
        activated.append((name, Handle()))
        return activated[-1][1]

    for name in names:
        torch.nn.attention.register_flash_attention_impl(name, register_fn=lambda name=name: register(name))
    try:
        yield activated
    finally:
        _registry._FLASH_ATTENTION_IMPLS.clear()
        _registry._FLASH_ATTENTION_IMPLS.update(known)
        _registry._FLASH_ATTENTION_ACTIVE = active
