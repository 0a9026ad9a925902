"""FlashInfer's wrapper objects: made once, planned for a batch, given back.

A FlashInfer wrapper owns an integer workspace on the device (8 MiB) and a pinned copy on the host, and holds
one plan at a time. This module keeps free wrappers for each thread and stream, and one floating-point
workspace beside them.

A plan is made from the *values* of the index tensors, on the host: planning waits for the device. Inside
:func:`reuse_plans` the caller promises not to change index tensors, and a plan is made once for every layer
that gives the same ones; outside it every call plans, because a change in place could not be seen.
"""

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

WORKSPACE_BYTES = 394 * 2**20
"""Size of the workspace, which holds partial results of a split KV; the size vLLM settled on."""

STREAMS = 8
"""Workspaces that one thread keeps, each of a device and stream, with the wrappers that use them."""


class Shared(NamedTuple):
    """What makes two calls able to use one wrapper object, whatever their plans."""

    kind: str
    device: torch.device
    stream: int
    kv_layout: str
    backend: str
    masked: bool
    """FlashInfer's ragged wrapper keeps a custom mask when the next plan has none."""
    specialised: tuple[object, ...]
    """What the wrapper's constructor compiles in (the sink kernel's dtypes and head sizes)."""


class _PlanKey(NamedTuple):
    shared: Shared
    numbers: tuple[object, ...]
    tensors: tuple[int, ...]


class _Kept(NamedTuple):
    wrapper: object
    tensors: tuple[Tensor, ...]  # held, so that no other tensor gets their ids


class _Pool(threading.local):
    def __init__(self) -> None:
        self.free: dict[Shared, list[object]] = {}
        self.workspaces: dict[tuple[torch.device, int], Tensor] = {}


_POOL = _Pool()
_SCOPE: ContextVar[dict[_PlanKey, _Kept] | None] = ContextVar("flashinfer_plans", default=None)


def stream_of(device: torch.device) -> int:
    """The current CUDA stream as a number; 0 elsewhere. Work on two streams must not share a workspace."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def workspace(device: torch.device, stream: int) -> Tensor:
    """The floating-point workspace of this thread, device and stream."""
    key = (device, stream)
    found = _POOL.workspaces.get(key)
    if found is None:
        if len(_POOL.workspaces) >= STREAMS:
            _let_go(next(iter(_POOL.workspaces)))
        found = _POOL.workspaces[key] = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    return found


def _let_go(oldest: tuple[torch.device, int]) -> None:
    """Forget a workspace and the free wrappers that hold it; those in use keep it until they are done."""
    del _POOL.workspaces[oldest]
    for shared in [s for s in _POOL.free if (s.device, s.stream) == oldest]:
        del _POOL.free[shared]


def clear() -> None:
    """Let go of this thread's free wrappers and workspaces."""
    _POOL.free.clear()
    _POOL.workspaces.clear()


@contextlib.contextmanager
def reuse_plans() -> Iterator[None]:
    """Plan once for calls that give the same index tensors: the layers of one step.

    Inside, the values of ``cu_seqlens``, ``block_table``, ``seq_lens`` and ``mask`` tensors must not change.
    """
    if _SCOPE.get() is not None:
        yield
        return
    plans: dict[_PlanKey, _Kept] = {}
    token = _SCOPE.set(plans)
    try:
        yield
    finally:
        _SCOPE.reset(token)
        for key, kept in plans.items():
            _POOL.free.setdefault(key.shared, []).append(kept.wrapper)


@contextlib.contextmanager
def planned(
    shared: Shared,
    numbers: tuple[object, ...],
    tensors: tuple[Tensor | None, ...],
    build: Callable[[], object],
    plan: Callable[[object], None],
) -> Iterator[Any]:
    """A wrapper that holds the plan for ``numbers`` and ``tensors``; built and planned only where need be."""
    plans = _SCOPE.get()
    held = tuple(tensor for tensor in tensors if tensor is not None)
    key = _PlanKey(shared, numbers, tuple(id(tensor) for tensor in tensors))
    if plans is not None and key in plans:
        yield plans[key].wrapper
        return
    free = _POOL.free.setdefault(shared, [])
    wrapper = free.pop() if free else build()
    plan(wrapper)  # a wrapper whose plan failed is not put back
    if plans is not None:
        plans[key] = _Kept(wrapper, held)
        yield wrapper
        return
    try:
        yield wrapper
    finally:
        free.append(wrapper)
