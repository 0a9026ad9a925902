"""Fresh processes beside `python -c pass`, with a compiled catalog on disk and without one."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from selector.cache import VARIABLE
from tests.bench.harness import Figure, child, differences, interleaved, peak, spread

__all__ = ["command", "memory", "start"]

FIRST = "from selector import select; select(head_size=128, dtype='bf16')"
PRESET = "from selector import select; select(head_size=128, dtype='bf16', environment='h100')"
ASK = ("explain", "--on", "h100", "head_size=128", "dtype=bf16")


def _python(source: str, folder: str) -> Callable[[], float]:
    """A child with its cache in a directory."""
    environment = {**os.environ, VARIABLE: folder}
    return lambda: child([sys.executable, "-c", source], environment)


def _without(run: Callable[[dict[str, str]], float]) -> Callable[[], float]:
    """A child whose cache is empty and can be written to."""

    def once() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return run({**os.environ, VARIABLE: folder})

    return once


def start(quick: bool) -> list[Figure]:
    """`import selector` and the first `select`."""
    with tempfile.TemporaryDirectory() as folder:
        samples = interleaved(
            {
                "pass": _python("pass", folder),
                "warm": _python(FIRST, folder),
                "preset": _python(PRESET, folder),
                "cold": _without(lambda environment: child([sys.executable, "-c", FIRST], environment)),
            },
            2 if quick else 31,
        )
    warm, cold = differences(samples, "warm", "pass"), differences(samples, "cold", "pass")
    preset, bare = differences(samples, "preset", "pass"), spread(samples["pass"])
    return [
        Figure(
            "start/warm", "`import selector` and first `select` in a fresh process, this machine probed, less `python -c pass`",
            warm.median * 1e3, "ms", 60.0, low=warm.low * 1e3, high=warm.high * 1e3,
            note=f"`python -c pass`: {bare.median * 1e3:.0f} ms",
        ),
        Figure(
            "start/preset", "the same for a preset",
            preset.median * 1e3, "ms", 60.0, low=preset.low * 1e3, high=preset.high * 1e3,
        ),
        Figure(
            "start/cold", "this machine probed, without a compiled catalog, which is made and written",
            cold.median * 1e3, "ms", 250.0, low=cold.low * 1e3, high=cold.high * 1e3,
        ),
    ]  # fmt: skip


def command(quick: bool) -> list[Figure]:
    """`attn-select explain` as it stands in the environment's scripts."""
    script = str(Path(sys.executable).parent / "attn-select")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, VARIABLE: folder}
        samples = interleaved(
            {
                "pass": _python("pass", folder),
                "warm": lambda: child([script, *ASK], environment),
                "cold": _without(lambda own: child([script, *ASK], own)),
            },
            2 if quick else 31,
        )
        source = f"from selector.cli import main\nmain({list(ASK)!r})\nassert 'torch' not in sys.modules"
        peak(source, environment)
    warm, cold = spread(samples["warm"]), spread(samples["cold"])
    return [
        Figure(
            "command/cold", "`attn-select explain`, whole process, without a compiled catalog; torch is not imported",
            cold.median * 1e3, "ms", 200.0, low=cold.low * 1e3, high=cold.high * 1e3,
        ),
        Figure(
            "command/warm", "the same with one",
            warm.median * 1e3, "ms", 200.0, low=warm.low * 1e3, high=warm.high * 1e3,
        ),
    ]  # fmt: skip


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
