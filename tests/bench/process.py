"""Fresh processes beside `python -c pass`, with a compiled catalog on disk and without one."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from selector.cache import VARIABLE
from tests.bench.harness import Child, Figure, Spread, differences, interleaved, peak, spread

__all__ = ["command", "memory", "start"]

FIRST = "from selector import select; select(head_size=128, dtype='bf16')"
PRESET = "from selector import select; select(head_size=128, dtype='bf16', environment='h100')"
ASK = ("explain", "--on", "h100", "head_size=128", "dtype=bf16")


def _warm(child: Child, folder: str) -> Callable[[], float]:
    """A child with its cache in a directory that stays."""
    environment = {**os.environ, VARIABLE: folder}
    return lambda: child(environment)


def _cold(child: Child) -> Callable[[], float]:
    """A child whose cache is empty and can be written to."""

    def once() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return child({**os.environ, VARIABLE: folder})

    return once


def _figure(key: str, what: str, taken: Spread, limit: float, child: Child) -> Figure:
    """A figure in milliseconds; beside it the processor's time, which a busy machine stretches less."""
    return Figure(
        key, what, taken.median * 1e3, "ms", limit, low=taken.low * 1e3, high=taken.high * 1e3,
        note=f"processor time {median(child.spent) * 1e3:.0f} ms",
    )  # fmt: skip


def start(quick: bool) -> list[Figure]:
    """`import selector` and the first `select`."""
    bare, first = Child(sys.executable, "-c", "pass"), Child(sys.executable, "-c", FIRST)
    preset, cold = Child(sys.executable, "-c", PRESET), Child(sys.executable, "-c", FIRST)
    with tempfile.TemporaryDirectory() as folder:
        samples = interleaved(
            {
                "pass": _warm(bare, folder),
                "first": _warm(first, folder),
                "preset": _warm(preset, folder),
                "cold": _cold(cold),
            },
            2 if quick else 31,
        )
    beside = spread(samples["pass"])
    return [
        _figure(
            "start/warm",
            "`import selector` and first `select` in a fresh process, this machine probed, less `python -c pass`, "
            f"{beside.median * 1e3:.0f} ms",
            differences(samples, "first", "pass"),
            60.0,
            first,
        ),
        _figure(
            "start/preset", "the same for a preset", differences(samples, "preset", "pass"), 60.0, preset
        ),
        _figure(
            "start/cold",
            "this machine probed, without a compiled catalog, which is made and written",
            differences(samples, "cold", "pass"),
            250.0,
            cold,
        ),
    ]


def command(quick: bool) -> list[Figure]:
    """`attn-select explain` as it stands in the environment's scripts."""
    script = str(Path(sys.executable).parent / "attn-select")
    warm, cold = Child(script, *ASK), Child(script, *ASK)
    with tempfile.TemporaryDirectory() as folder:
        samples = interleaved({"warm": _warm(warm, folder), "cold": _cold(cold)}, 2 if quick else 31)
        source = f"from selector.cli import main\nmain({list(ASK)!r})\nassert 'torch' not in sys.modules"
        peak(source, {**os.environ, VARIABLE: folder})
    return [
        _figure(
            "command/cold",
            "`attn-select explain`, whole process, without a compiled catalog; torch is not imported",
            spread(samples["cold"]),
            200.0,
            cold,
        ),
        _figure("command/warm", "the same with one", spread(samples["warm"]), 200.0, warm),
    ]


def memory(quick: bool) -> list[Figure]:
    """Peak memory of a process that decides with the vllm pack, over a bare interpreter's."""
    load = (
        "from selector import Catalog, Environment, select\npack = Catalog.load('vllm')\n"
        "here = Environment.preset('h100', vocabulary=pack.vocabulary)\n"
        "chosen = select(pack.request(head_size=128, dtype='bf16'), environment=here, catalog=pack)\n"
    )
    explained = load + "chosen.report().to_text(verbose=True)\n"
    found: dict[str, list[float]] = {"bare": [], "warm": [], "cold": []}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, VARIABLE: folder}
        peak(load, environment)
        for _ in range(1 if quick else 7):
            found["bare"].append(peak("", environment).megabytes)
            found["warm"].append(peak(load, environment).megabytes)
            with tempfile.TemporaryDirectory() as empty:
                found["cold"].append(peak(explained, {**os.environ, VARIABLE: empty}).megabytes)
    warm, cold = differences(found, "warm", "bare"), differences(found, "cold", "bare")
    return [
        Figure(
            "memory/cold",
            "peak memory with the vllm pack over a bare interpreter: compiled here, one decision with every reason as text",
            cold.median, "MB", 40.0, low=cold.low, high=cold.high,
            note=f"bare: {spread(found['bare']).median:.1f} MB",
        ),
        Figure(
            "memory/warm", "the same from a compiled catalog, one decision",
            warm.median, "MB", 40.0, low=warm.low, high=warm.high,
        ),
    ]  # fmt: skip
