"""Running the winner: the only place where a manifest's entry point is resolved.

A kernel module offers `make_call(*tensors, **fields)`, `request_fields(call)`, `run(call, variant=...)`, `refuses(call, variant)`
(why it cannot run a call that its manifest accepts, or None) and `is_broken(error)` (whether a failure says that the kernel
cannot be used in this process). It may offer `shortcut(variant, general, clean)`: a function that runs what it can without
the checks here, and everything else through ``general``; None where a variant has none. What the runner does with a failure:

| failure | then |
| --- | --- |
| does not import, build or launch | quarantined for the process; the next candidate runs, with a warning |
| refuses the call | the next candidate runs, with a warning; nothing is quarantined |
| memory ran out, or the caller's mistake | raised as it is |
| any of the first two, and a binding pin names the candidate | PinError, unless the pin names another candidate that runs |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from selector import quarantine
from selector.errors import NoBackendError, PinError, Problem, RefusedCall, RequestError, SelectorError
from selector.quarantine import clear_quarantine, quarantined
from selector.vocabulary import MISSING

if TYPE_CHECKING:
    from selector.manifest import Candidate
    from selector.preferences import Preference
    from selector.selection import Selection

__all__ = ["KernelError", "Runner", "clear_quarantine", "quarantined"]

#: Calls and refusals remembered by one runner.
KEPT = 4096


class KernelError(SelectorError):
    """A candidate that has no kernel: its pack is for selection only."""

    exit_code = 3


def load_kernel(candidate: Candidate) -> Any:
    """The module of a candidate's wrapper. Raises KernelError if its pack has none, or it cannot be imported."""
    from importlib import import_module

    if candidate.kernel is None:
        raise KernelError(
            f"{candidate.id} of pack {candidate.pack} is for selection only: its manifest names no kernel"
        )
    try:
        return import_module(candidate.kernel)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{candidate.kernel}.".startswith(f"{error.name}."):
            raise  # what the wrapper needs is missing, not the wrapper
        raise ModuleNotFoundError(_not_on_path(candidate.kernel), name=error.name) from None


def _not_on_path(kernel: str) -> str:
    """Why a wrapper's module is not found, in one line."""
    import os

    path = kernel.replace(".", os.sep)
    text = f"No module named {kernel!r} on Python's path"
    if os.path.isfile(f"{path}.py") or os.path.isdir(path):
        return f"{text}: it lies in the current directory, so set PYTHONPATH=."
    return f"{text} (the kernel of the manifest is looked for there; PYTHONPATH adds directories)"


#: Arguments of other attention functions, and what to write here.
MEANT = {
    "is_causal": "did you mean causal?",
    "attn_mask": "did you mean mask?",
    "enable_gqa": "leave it out: fewer KV heads than query heads are understood as they are",
    "softmax_scale": "did you mean scale?",
    "sm_scale": "did you mean scale?",
    "window_size": "did you mean window?",
    "sliding_window": "did you mean window?",
    "return_softmax_lse": "did you mean return_lse?",
    "logits_soft_cap": "did you mean softcap?",
    "page_table": "did you mean block_table?",
}


def check_arguments(make_call: Callable[..., Any], name: str, fields: Mapping[str, Any]) -> None:
    """Raise TypeError in the name of the function that was called, if some field is no argument of ``make_call``."""
    known = getattr(make_call, "__kwdefaults__", None) or {}
    wrong = next((n for n in fields if n not in known and n not in ("q", "k", "v")), None)
    if not known or wrong is None:
        return
    from selector.vocabulary import nearest

    near = nearest(wrong, known)
    hint = MEANT.get(wrong) or (f"did you mean {near}?" if near else f"its fields: {', '.join(known)}")
    raise TypeError(f"{name}() has no argument {wrong!r} ({hint})") from None


def check_call(selection: Selection, got: Mapping[str, Any]) -> None:
    """Raise RequestError unless a call is what was selected for: no field differs, and no feature is used unasked."""
    vocabulary = selection.catalog.vocabulary
    given = dict(zip(selection.request._axes, selection.request._values, strict=False))
    problems = []
    for name, raw in got.items():
        axis = vocabulary.find(name)
        if axis is None:
            continue
        try:
            value = axis.canonical(raw)
        except ValueError as error:  # a device or a format that no axis has a word for
            problems.append(Problem(name, str(error)))
            continue
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
    """Runs one selection's candidates: the winner, and what may follow it where it cannot run."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.runs = selection.runs()
        self._pin = next((p for p in selection._prefs if p.kind == "pin" and p.binding), None)
        self._order = self._candidates()
        self._checked: dict[tuple[Any, ...], bool] = {}
        self._modules: dict[str, Any] = {}
        self._warned: dict[tuple[str, str], None] = {}
        self._call: Callable[..., Any] | None = None

    @property
    def ran(self) -> str | None:
        """The candidate that the last call ran on."""
        return self.runs.ran

    @property
    def call(self) -> Callable[..., Any]:
        """`__call__`, with the kernel's own short cut for plain calls where it has one."""
        if self._call is None:
            self._call = self.shortcut(self) or self
        return self._call

    def shortcut(self, general: Callable[..., Any]) -> Callable[..., Any] | None:
        """``general`` (which runs calls on this selection) behind the short cut of the winner's kernel, if that has one."""
        if not self._order or self._order[0].kernel is None:
            return None
        winner = self._order[0]
        try:
            offer = getattr(load_kernel(winner), "shortcut", None)
        except Exception:  # running will say so, and what takes its place
            return None
        found: Callable[..., Any] | None = (
            None if offer is None else offer(winner.variant, general, lambda: self._clean(winner))
        )
        return found

    def _clean(self, winner: Candidate) -> bool:
        """Whether the last call ran on the winner, with nothing that failed before it."""
        return self.runs.ran == winner.id and not self.runs.failed

    def __call__(self, *args: Any, **fields: Any) -> Any:
        """Make the call, check it against the request, run it."""
        return self._attempt(lambda module: self._checked_call(module, args, fields))

    def execute(self, call: Any) -> Any:
        """Run a call that was selected for as it is."""
        return self._attempt(lambda module: call)

    def _checked_call(self, module: Any, args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
        try:
            call = module.make_call(*args, **fields)
        except TypeError:
            check_arguments(module.make_call, "run", fields)
            raise
        got = module.request_fields(call)
        key = tuple(got.items())
        if key not in self._checked:
            check_call(self.selection, got)
            if len(self._checked) < KEPT:
                self._checked[key] = True
        return call

    def _attempt(self, prepare: Callable[[Any], Any]) -> Any:
        failed: dict[str, str] = {}
        cause: Exception | None = None
        for candidate in self._order:
            known = quarantine.why(candidate) if quarantine.KNOWN else None
            if known is not None:
                failed[candidate.id] = known
                continue
            module = self._modules.get(candidate.id)
            if module is None:
                try:
                    module = self._modules[candidate.id] = load_kernel(candidate)
                except (KernelError, MemoryError):
                    raise
                except Exception as error:
                    cause = cause or error
                    failed[candidate.id] = quarantine.put(candidate, _why(error))
                    continue
            call = prepare(module)
            try:
                out = module.run(call, variant=candidate.variant)
            except Exception as error:
                refusal = _refusal(module, call, candidate.variant, error)
                if refusal is not None:
                    failed[candidate.id] = refusal
                elif _is_broken(module, error):
                    failed[candidate.id] = quarantine.put(candidate, _why(error))
                else:
                    raise
                cause = cause or error
                continue
            self.runs.ran, self.runs.failed = candidate.id, failed
            if failed:
                self._warn(failed, candidate.id)
            return out
        self.runs.ran, self.runs.failed = None, failed
        raise self._nothing(failed) from cause

    def _candidates(self) -> tuple[Candidate, ...]:
        """What may run, in order: everything accepted, or what a binding pin names."""
        selection = self.selection
        chosen = [selection.catalog.candidates[i] for i in selection.outcome.ranked]
        if self._pin is not None:
            return tuple(c for c in chosen if _named(self._pin, c))
        return tuple(c for c in chosen if c is chosen[0] or c.kernel is not None)

    def _warn(self, failed: Mapping[str, str], ran: str) -> None:
        """One warning for each candidate and reason, naming it and what ran in its place."""
        known, level = quarantined(), _callers_level()
        for ident, why in failed.items():
            if (ident, why) in self._warned:
                continue
            if len(self._warned) < KEPT:
                self._warned[ident, why] = None
            said = (
                "failed and is not used again in this process" if ident in known else "cannot run this call"
            )
            warnings.warn(f"{ident} {said} ({why}); {ran} ran instead", RuntimeWarning, stacklevel=level)

    def _nothing(self, failed: Mapping[str, str]) -> NoBackendError:
        listed = "; ".join(f"{ident}: {why}" for ident, why in failed.items())
        if self._pin is not None:
            text = f"{self._pin.where} asks for {', '.join(self._pin.names)}, which cannot run: {listed}"
            return PinError(text, self.selection.report())
        return NoBackendError(f"no candidate can run this call: {listed}", self.selection.report())


def _callers_level() -> int:
    """The stack level, as `warnings.warn` counts in the function that asks, of the first frame outside this project."""
    import os
    import sys

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    own = tuple(os.path.join(here, name, "") for name in ("selector", "backends"))
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(own):
        level, frame = level + 1, frame.f_back
    return level + 1


def _named(pin: Preference, candidate: Candidate) -> bool:
    names = {name.lower() for name in pin.names}
    return candidate.id.lower() in names or candidate.backend.lower() in names


def _why(error: Exception) -> str:
    """The error's type and first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")


def _refusal(module: Any, call: Any, variant: str | None, error: Exception) -> str | None:
    """Why the wrapper refuses this call; None if the failure is another."""
    refuses = getattr(module, "refuses", None)
    reason = None if refuses is None else refuses(call, variant)
    if reason is not None:
        return str(reason)
    return error.reason if isinstance(error, RefusedCall) else None


def _is_broken(module: Any, error: Exception) -> bool:
    """Whether a failure is the kernel's own: not the caller's mistake, and not a lack of memory."""
    if isinstance(error, (SelectorError, MemoryError)):
        return False
    judge = getattr(module, "is_broken", None)
    if judge is not None:
        return bool(judge(error))
    return isinstance(error, (ImportError, OSError, RuntimeError))
