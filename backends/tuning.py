"""Timing candidates against each other on this machine (`attn-select tune`)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from backends.trial import Shapes, Trial, make_trial

__all__ = ["Stopped", "Times", "shapes_text", "time_candidates", "trials_of"]

#: Runs before the clock starts; they compile, allocate and fill caches.
WARM_UP = 3


class Times(NamedTuple):
    """One candidate's times over some shapes: geometric means of the medians and quartiles, in seconds; runs a shape."""

    candidate: str
    median: float
    low: float
    high: float
    runs: int
    error: str | None = None


class Stopped(KeyboardInterrupt):
    """The user has stopped the clock; ``times`` has what was measured until then, of the shapes that all candidates ran."""

    def __init__(self, times: list[Times]) -> None:
        super().__init__()
        self.times = times


def shapes_text(shapes: Sequence[Shapes]) -> str:
    """The measured sizes in words: ``batch 1, 128 keys, 1 query``."""
    return "; ".join(
        f"batch {s.batch}, {s.keys} keys, {s.queries} quer{'y' if s.queries == 1 else 'ies'}" for s in shapes
    )


def _clock(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of one run: device events on a GPU, the wall clock elsewhere."""
    if device.type == "cuda":
        begin: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(max(v, 1e-12)) for v in values))


def trials_of(request: Mapping[str, Any], device: str, shapes: Sequence[Shapes]) -> list[Trial]:
    """Tensors for each shape. All must ask the selector the same: sizes that no axis names are no part of a request."""
    trials = [make_trial(request, device, s) for s in shapes]
    if any(t.request != trials[0].request for t in trials):
        raise ValueError(
            "these shapes make different requests (query_length or kv_length): measure them apart"
        )
    return trials


def time_candidates(
    trials: Sequence[Trial],
    runners: Mapping[str, Callable[..., object]],
    runs: int,
    limit: float,
    say: Callable[[str], None] = lambda _: None,
) -> list[Times]:
    """Times of each candidate over all trials.

    Candidates take turns run by run, so that a machine that slows down slows all of them. ``limit``: seconds that one candidate may
    take for one run; a slower one is dropped after its warm-up. One that raises is reported with its error. ``say`` is told
    what is next.

    Raises:
        Stopped: for Ctrl-C, with the times until then.
    """
    taken: dict[str, list[list[float]]] = {name: [] for name in runners}
    errors: dict[str, str] = {}
    try:
        for trial in trials:
            _time_trial(trial, runners, runs, limit, taken, errors, say)
    except KeyboardInterrupt:
        whole = min((sum(map(bool, t)) for n, t in taken.items() if n not in errors), default=0)
        cut = {name: by_trial[:whole] for name, by_trial in taken.items()}
        raise Stopped(_summary(cut, errors, whole) if whole else []) from None
    return _summary(taken, errors, len(trials))


def _time_trial(
    trial: Trial,
    runners: Mapping[str, Callable[..., object]],
    runs: int,
    limit: float,
    taken: dict[str, list[list[float]]],
    errors: dict[str, str],
    say: Callable[[str], None],
) -> None:
    """Add one trial's seconds to ``taken``, and whoever cannot be timed to ``errors``."""
    device = trial.tensors[0].device
    say(f"{shapes_text([trial.shapes])}: each is warmed up and run {runs} times")
    ready: dict[str, Callable[[], object]] = {}
    for name, run in runners.items():
        if name in errors:
            continue

        def call(run: Callable[..., object] = run) -> object:
            with torch.no_grad():
                return run(*trial.tensors, **trial.fields)

        try:
            for _ in range(WARM_UP):
                last = _clock(call, device)
        except Exception as error:  # whatever a kernel raises is its result here
            text = str(error).strip()
            errors[name] = f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
            continue
        if last > limit:
            errors[name] = f"one run takes {last:.3g} s, and --limit is {limit:g}"
            continue
        ready[name] = call
        taken[name].append([])
    for _ in range(runs):
        for name, prepared in ready.items():
            taken[name][-1].append(_clock(prepared, device))


def _summary(taken: Mapping[str, list[list[float]]], errors: Mapping[str, str], trials: int) -> list[Times]:
    found = []
    for name, by_trial in taken.items():
        if name in errors or len(by_trial) < trials:
            found.append(Times(name, math.inf, math.inf, math.inf, 0, errors.get(name, "not measured")))
            continue
        quartiles = [
            statistics.quantiles(t, n=4, method="inclusive") if len(t) > 1 else [t[0]] * 3 for t in by_trial
        ]
        low, median, high = (_mean([q[i] for q in quartiles]) for i in range(3))
        found.append(Times(name, median, low, high, min(map(len, by_trial))))
    return found
