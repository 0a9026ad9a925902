"""`attention`: what a call needs is read off the tensors, the selection is cached, the winner runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from backends.call import Call, make_call, request_fields

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from selector.environment import Environment
    from selector.runner import Runner

__all__ = ["attention", "report_of"]

#: Distinct calls remembered.
KEPT = 4096

_RUNNERS: dict[tuple[object, ...], Runner] = {}


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, backend: str | None = None, **fields: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention by the best kernel that accepts this call on the tensors' device.

    Arguments:
        q, k, v: ``[batch, seq, heads, head_size]``; packed or paged forms and all further ``fields`` as `make_call` says.
        backend: insist on one backend or candidate.

    Raises NoBackendError when nothing accepts the call, with every reason and what to change.
    """
    call = make_call(q, k, v, **fields)
    needed = request_fields(call)
    if torch.compiler.is_compiling():
        return _traced(call, needed, backend)
    key = (backend, *needed.values())
    runner = _RUNNERS.get(key)
    if runner is None:
        runner = _runner(key, needed, backend)
    return runner.execute(call)  # type: ignore[no-any-return]


def report_of(q: Tensor, k: Tensor, v: Tensor, *, backend: str | None = None, **fields: Any) -> Any:
    """The report of the selection that `attention` makes for the same call."""
    call = make_call(q, k, v, **fields)
    needed = request_fields(call)
    return _runner((backend, *needed.values()), needed, backend).selection.report()


def _runner(key: tuple[object, ...], needed: dict[str, object], backend: str | None) -> Runner:
    from selector.quarantine import LISTENERS
    from selector.selection import default_state, select

    if _RUNNERS.clear not in LISTENERS:
        LISTENERS.append(_RUNNERS.clear)
    request = {name: value for name, value in needed.items() if name != "device"}
    selection = select(
        default_state().catalog.request(request),
        environment=_environment(str(needed["device"])),
        backend=backend,
    )
    runner: Runner = selection.runner()
    if len(_RUNNERS) >= KEPT:
        _RUNNERS.clear()
    _RUNNERS[key] = runner
    return runner


_ENVIRONMENTS: dict[tuple[str, str], Environment] = {}


def _environment(device: str) -> Environment:
    """This machine as tensors on ``device`` see it (a host with a GPU runs CPU tensors too)."""
    from selector.selection import default_state

    here = default_state().environment
    mine = here.get("device")
    if mine == device or (device == "cuda" and mine == "rocm"):
        return here
    key = (here.fingerprint, device)
    found = _ENVIRONMENTS.get(key)
    if found is None:
        found = _ENVIRONMENTS[key] = here.replace(device=device)
    return found


#: Kernel modules that traced calls use: filled while a winner is chosen, since imports cannot be traced.
_MODULES: dict[str, ModuleType] = {}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _winner(
    backend: str | None, names: tuple[str, ...], values: tuple[object, ...]
) -> tuple[str, str | None]:
    """(module, variant) of the winner; folded into the graph as a constant."""
    from selector.runner import load_kernel

    needed = dict(zip(names, values))
    candidate = _runner((backend, *values), needed, backend).selection.candidate
    module = load_kernel(candidate)
    _MODULES[module.__name__] = module
    return module.__name__, candidate.variant


def _constant(value: object) -> object:
    """A size as a number of the graph's own: where sizes are symbols, the length of a range settles them."""
    return len(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value


def _traced(call: Call, needed: dict[str, object], backend: str | None) -> Tensor | tuple[Tensor, Tensor]:
    """The call inside a graph: the winner is chosen while tracing, nothing is caught."""
    kernel, variant = _winner(backend, tuple(needed), tuple(_constant(value) for value in needed.values()))
    return _MODULES[kernel].run(call, variant=variant)  # type: ignore[no-any-return]
