"""Timing: samples in interleaved rounds, what is made of them, and the figures that a run gives.

What is compared runs in turns within one process, forwards in one round and backwards in the next, so that a machine that
slows down or speeds up meanwhile does so for all of them; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from timeit import Timer
from typing import Any, NamedTuple

__all__ = [
    "ROOT",
    "Child",
    "Figure",
    "Spread",
    "differences",
    "interleaved",
    "loop",
    "peak",
    "ratios",
    "spread",
]

ROOT = Path(__file__).resolve().parents[2]

#: Runs something once, or as many times as it thinks good; seconds for one time.
Timed = Callable[[], float]


class Spread(NamedTuple):
    """The median of some samples, the quartiles around it, and the 99th percentile."""

    median: float
    low: float
    high: float
    p99: float
    of: int


class Figure(NamedTuple):
    """One number of the table: `row/name`, what it is, the number with quartiles, and what it is to be (None: shown only)."""

    key: str
    what: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def row(self) -> str:
        """The row it belongs to."""
        return self.key.partition("/")[0]

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def spread(samples: Sequence[float]) -> Spread:
    """What is told of samples."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return Spread(
        median(ordered), ordered[last // 4], ordered[last * 3 // 4], ordered[last * 99 // 100], len(ordered)
    )


def loop(statement: str, number: int, **names: Any) -> Timed:
    """Runs a statement ``number`` times in a compiled loop, the garbage collector off; seconds for one time."""
    timer = Timer(statement, globals=names)
    return lambda: timer.timeit(number) / number


def interleaved(subjects: Mapping[str, Timed], rounds: int, seconds: float = 20.0) -> dict[str, list[float]]:
    """Samples of each subject, in turns, fewer rounds where they take too long; one before them is not counted."""
    found: dict[str, list[float]] = {name: [] for name in subjects}
    names = list(subjects)
    for name in names:
        subjects[name]()
    ends = time.perf_counter() + seconds
    for number in range(rounds):
        if time.perf_counter() > ends and number > 2:
            break
        for name in names if number % 2 else reversed(names):
            found[name].append(subjects[name]())
    return found


def ratios(samples: Mapping[str, Sequence[float]], one: str, other: str) -> Spread:
    """One subject over another, round by round."""
    return spread([a / b for a, b in zip(samples[one], samples[other])])


def differences(samples: Mapping[str, Sequence[float]], one: str, other: str) -> Spread:
    """One subject less another, round by round."""
    return spread([a - b for a, b in zip(samples[one], samples[other])])


class Child:
    """Runs a process: seconds from start to end, and in ``spent`` those that processors worked on it.

    Raises CalledProcessError with what it said if it fails.
    """

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments
        self.spent: list[float] = []

    def __call__(self, environment: Mapping[str, str]) -> float:
        before, began = _spent(), time.perf_counter()
        subprocess.run(
            self.arguments,
            env=environment,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=True,
        )
        taken = time.perf_counter() - began
        self.spent.append(_spent() - before)
        return taken


def _spent() -> float:
    """Seconds of processor time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


#: The largest resident size so far: getrusage would tell the parent's where that was larger when it forked.
_PEAK = (
    "\nprint([l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')][0], file=sys.stderr)"
)


class Peak(NamedTuple):
    """What a child took: seconds from start to end, those of processor time, and its largest resident size in MB (10**6)."""

    seconds: float
    spent: float
    megabytes: float


def peak(source: str, environment: Mapping[str, str], *arguments: str) -> Peak:
    """Run Python source in a child of its own, its output thrown away."""
    before, began = _spent(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{source}{_PEAK}", *arguments],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - began
    return Peak(seconds, _spent() - before, int(done.stderr.split()[-1]) * 1024 / 1e6)
