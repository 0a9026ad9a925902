"""Running the winner: the only place where a manifest's entry point is resolved.

A kernel module offers `make_call(*tensors, **fields)`, `request_fields(call)`, `run(call, variant=...)` and
`refuses(call, variant)`; it may offer `is_user_error(error)` and `is_resource_error(error)` to tell its failures apart.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from selector.errors import NoBackendError, PinError, Problem, RequestError, SelectorError
from selector.vocabulary import MISSING

if TYPE_CHECKING:
    from selector.manifest import Candidate
    from selector.selection import Selection

__all__ = ["KernelError", "Runner", "clear_quarantine", "quarantined"]

_LOCK = threading.Lock()
_QUARANTINE: dict[str, str] = {}


class KernelError(SelectorError):
    """A kernel that could not be imported, built or launched, and that nothing may replace."""

    exit_code = 3


def quarantined() -> dict[str, str]:
    """Candidates that failed in this process, with the reason."""
    return dict(_QUARANTINE)


def clear_quarantine(ident: str | None = None) -> None:
    """Give one candidate, or all, another chance."""
    with _LOCK:
        if ident is None:
            _QUARANTINE.clear()
        else:
            _QUARANTINE.pop(ident, None)


def load_kernel(candidate: Candidate) -> Any:
    """The module of a candidate's wrapper. Raises KernelError if its pack has none, or it cannot be imported."""
    from importlib import import_module

    if candidate.kernel is None:
        raise KernelError(
            f"{candidate.id} of pack {candidate.pack} is for selection only: its manifest names no kernel"
        )
    return import_module(candidate.kernel)


def check_call(selection: Selection, got: Mapping[str, Any]) -> None:
    """Raise RequestError unless a call is what was selected for: no field differs, and no feature is used unasked."""
    vocabulary = selection.catalog.vocabulary
    given = dict(zip(selection.request._axes, selection.request._values, strict=False))
    problems = []
    for name, raw in got.items():
        axis = vocabulary.find(name)
        if axis is None:
            continue
        value = axis.canonical(raw)
        if axis.of == "environment":
            fact = selection.environment.get(axis.name)
            if (
                axis.type == "choice"
                and fact in axis.values
                and fact != value
                and not _same_device(fact, value)
            ):
                problems.append(Problem(name, f"{name}: selected for {fact}, called with {value}"))
            continue
        wanted = given.get(axis.index, MISSING)
        if wanted is MISSING:
            wanted = axis.default if axis.same_as is None else None
        if axis.type == "flag":
            if value and wanted is False:
                problems.append(Problem(name, f"{name}: the call needs it, the request did not ask for it"))
        elif wanted is not None and value is not None and wanted != value:
            problems.append(Problem(name, f"{name}: selected for {wanted}, called with {value}"))
    if problems:
        problems.append(
            Problem(
                "request",
                f"{selection.id} was selected for {selection.request!r}",
                "select again for this call",
            )
        )
        raise RequestError(problems)


def _same_device(fact: Any, value: Any) -> bool:
    """ROCm tensors say they live on `cuda`."""
    return {fact, value} == {"cuda", "rocm"}


class Runner:
    """Runs one selection's candidates: the winner, and what may follow it when it breaks."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.ran: str | None = None
        self._checked: dict[tuple[Any, ...], bool] = {}
        self._modules: dict[str, Any] = {}

    def __call__(self, *args: Any, **fields: Any) -> Any:
        """Make the call, check it against the request, run it."""
        return self._attempt(lambda module: self._checked_call(module, args, fields))

    def execute(self, call: Any) -> Any:
        """Run a call that was selected for as it is."""
        return self._attempt(lambda module: call)

    def _checked_call(self, module: Any, args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
        call = module.make_call(*args, **fields)
        got = module.request_fields(call)
        key = tuple(got.items())
        if key not in self._checked:
            check_call(self.selection, got)
            if len(self._checked) < 4096:
                self._checked[key] = True
        return call

    def _attempt(self, prepare: Callable[[Any], Any]) -> Any:
        first: tuple[str, Exception] | None = None
        for candidate in self._candidates():
            if candidate.id in _QUARANTINE:
                continue
            try:
                module = self._module(candidate)
            except ImportError as error:
                first = self._broken(candidate, error, first)
                continue
            call = prepare(module)
            try:
                out = module.run(call, variant=candidate.variant)
            except Exception as error:
                if not self._is_broken(module, error):
                    raise
                first = self._broken(candidate, error, first)
                continue
            if first is not None:
                self._warn(first, candidate.id)
            self.ran = candidate.id
            return out
        raise self._nothing(first)

    def _candidates(self) -> list[Candidate]:
        selection = self.selection
        pinned = any(p.kind == "pin" and p.binding for p in selection._prefs)
        chosen = [selection.catalog.candidates[i] for i in selection.outcome.ranked]
        if pinned:
            return chosen[:1]
        return [c for c in chosen if c is chosen[0] or c.kernel is not None]

    def _module(self, candidate: Candidate) -> Any:
        module = self._modules.get(candidate.id)
        if module is None:
            module = self._modules[candidate.id] = load_kernel(candidate)
        return module

    @staticmethod
    def _is_broken(module: Any, error: Exception) -> bool:
        """Whether a failure is the kernel's own: not the caller's mistake, and not a lack of memory."""
        if isinstance(
            error, (SelectorError, TypeError, ValueError, IndexError, KeyError, AssertionError, MemoryError)
        ):
            return False
        judge = getattr(module, "is_broken", None)
        return (
            bool(judge(error))
            if judge is not None
            else isinstance(error, (ImportError, OSError, RuntimeError))
        )

    def _broken(
        self, candidate: Candidate, error: Exception, first: tuple[str, Exception] | None
    ) -> tuple[str, Exception]:
        text = str(error).strip().splitlines()
        why = f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")
        with _LOCK:
            _QUARANTINE.setdefault(candidate.id, why)
        return first if first is not None else (candidate.id, error)

    @staticmethod
    def _warn(first: tuple[str, Exception], ran: str) -> None:
        ident, error = first
        why = _QUARANTINE.get(ident, str(error))
        warnings.warn(
            f"{ident} failed and is not used again in this process ({why}); {ran} ran instead",
            RuntimeWarning,
            stacklevel=4,
        )

    def _nothing(self, first: tuple[str, Exception] | None) -> Exception:
        pins = [p for p in self.selection._prefs if p.kind == "pin" and p.binding]
        broken = "; ".join(f"{k}: {v}" for k, v in _QUARANTINE.items() if k in self.selection.candidates)
        if pins:
            error: Exception = PinError(
                f"{pins[0].where} asks for {self.selection.id}, which failed: {broken}",
                self.selection.report(),
            )
        else:
            error = NoBackendError(f"every candidate failed: {broken}", self.selection.report())
        if first is not None:
            error.__cause__ = first[1]
        return error
