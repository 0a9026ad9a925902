"""`attention`: what a call needs is read off the tensors, the selection is cached, the winner runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from backends._shortcut import kind_of_lengths
from backends.call import Call, make_call, request_fields
from selector.quarantine import LISTENERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from torch import Tensor

    from selector.environment import Environment
    from selector.runner import Runner

__all__ = ["attention", "report_of"]

#: Distinct calls remembered.
KEPT = 4096

_RUNNERS: dict[tuple[object, ...], Runner] = {}
#: By what tells plain calls apart, how the winner runs them.
_PLAIN: dict[tuple[object, ...], Callable[..., Any]] = {}


def _forget() -> None:
    """Replaced, not emptied: a thread that began before stores its answer where nobody reads any more.

    Short cuts are made from runners and go last: what is stored in the new ones comes from new runners.
    """
    global _RUNNERS, _PLAIN
    _RUNNERS = {}
    _PLAIN = {}


LISTENERS.append(_forget)


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, backend: str | None = None, **fields: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention by the best kernel that accepts this call on the tensors' device.

    Arguments:
        q, k, v: ``[batch, seq, heads, head_size]``; packed or paged forms and all further ``fields`` as `make_call` says.
        causal: the last query sees the last key, and so on backwards.
        backend: insist on one backend or candidate.

    Raises NoBackendError when nothing accepts the call, with every reason and what to change.

    Under ``torch.compile`` the winner is chosen while the call is traced, and sizes that were symbols are settled. On CPUs packed
    calls are run one sequence at a time, whose lengths cannot be traced: the graph breaks there, and ``fullgraph=True`` is an
    error of torch's about a data-dependent expression.
    """
    if torch.compiler.is_compiling():
        call = make_call(q, k, v, causal=causal, **fields)
        return _traced(call, request_fields(call), backend)
    if not fields:
        try:
            _, queries, heads, size = q.shape
            _, keys, kv_heads, _ = k.shape
            training = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        except (ValueError, AttributeError):  # not dense, or no tensor
            return _attend(q, k, v, causal=causal, backend=backend)
        kind = kind_of_lengths(queries, keys)
        key = (heads, size, kv_heads, q.dtype, q.device, kind, causal, backend, training)
        try:
            plain = _PLAIN.get(key)
        except TypeError:  # a list for a name or a flag; the whole way names it
            return _attend(q, k, v, causal=causal, backend=backend)
        if plain is not None:
            return plain(q, k, v, causal=causal)  # type: ignore[no-any-return]
        out = _attend(q, k, v, causal=causal, backend=backend)
        if kind:
            _offer(key, make_call(q, k, v, causal=causal), backend)
        return out
    return _attend(q, k, v, causal=causal, backend=backend, **fields)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, *, backend: str | None, **fields: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """The whole way: every check, the request, the selection, the runner."""
    call = _made(q, k, v, fields)
    if backend is not None and not isinstance(backend, str):
        raise TypeError(
            f"attention: backend is the name of a backend or candidate, not a {type(backend).__qualname__}"
        )
    needed = request_fields(call)
    key = (backend, *needed.values())
    runner = _RUNNERS.get(key)
    if runner is None:
        runner = _runner(key, needed, backend)
    return runner.execute(call)  # type: ignore[no-any-return]


def _made(q: Tensor, k: Tensor, v: Tensor, fields: dict[str, Any]) -> Call:
    """The call. Raises TypeError in `attention`'s name for a field that does not exist, with the one that was meant."""
    try:
        return make_call(q, k, v, **fields)
    except TypeError:
        from selector.runner import check_arguments

        check_arguments(make_call, "attention", fields)
        raise


def _offer(key: tuple[object, ...], call: Call, backend: str | None) -> None:
    """Remember the winner's short cut for calls like one that has just run; for a winner without one, the whole way."""
    kept = _PLAIN  # as it is before the runner is looked up
    needed = request_fields(call)
    general = partial(_attend, backend=backend)
    runner = _RUNNERS.get((backend, *needed.values()))
    if runner is not None:
        if len(kept) >= KEPT:
            kept.clear()
        kept[key] = runner.shortcut(general) or general


def report_of(q: Tensor, k: Tensor, v: Tensor, *, backend: str | None = None, **fields: Any) -> Any:
    """The report of the selection that `attention` makes for the same call."""
    call = _made(q, k, v, fields)
    needed = request_fields(call)
    return _runner((backend, *needed.values()), needed, backend).selection.report()


def _runner(key: tuple[object, ...], needed: dict[str, object], backend: str | None) -> Runner:
    from selector.selection import default_state, select

    kept = _RUNNERS  # as it is before anything is decided
    request = {name: value for name, value in needed.items() if name != "device"}
    selection = select(
        default_state().catalog.request(request),
        environment=_environment(str(needed["device"])),
        backend=backend,
    )
    runner: Runner = selection.runner()
    if len(kept) >= KEPT:
        kept.clear()
    kept[key] = runner
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
        if len(_ENVIRONMENTS) >= 16:  # a machine probed anew may be another
            _ENVIRONMENTS.clear()
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
    """A size or flag as a constant of the graph: where sizes are symbols, a branch settles one, the length of a range the other."""
    if isinstance(value, bool):
        return True if value else False  # noqa: SIM210 - bool(value) stays a symbol
    return len(range(value)) if isinstance(value, int) else value


def _traced(call: Call, needed: dict[str, object], backend: str | None) -> Tensor | tuple[Tensor, Tensor]:
    """The call inside a graph: the winner is chosen while tracing, nothing is caught."""
    kernel, variant = _winner(backend, tuple(needed), tuple(_constant(value) for value in needed.values()))
    return _MODULES[kernel].run(call, variant=variant)  # type: ignore[no-any-return]
