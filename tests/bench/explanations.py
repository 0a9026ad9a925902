"""Explanations: one with every reason, as an object and as text; a hundred thousand from a file, and the memory that takes."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

from selector import Catalog, Environment, explain
from tests.bench.draw import distinct
from tests.bench.harness import Figure, peak, spread

__all__ = ["explanation", "requests"]

COMMAND = "from selector.cli import main\nmain(sys.argv[1:])"


def explanation(quick: bool) -> list[Figure]:
    """New requests on h100 with the vllm pack, every reason of every candidate read."""
    catalog = Catalog.load("vllm")
    environment = Environment.preset("h100", vocabulary=catalog.vocabulary)
    drawn = list(distinct(60 if quick else 2_000, 2, catalog.vocabulary))
    reasons: list[float] = []
    texts: dict[bool, list[float]] = {True: [], False: []}
    told = 0
    for number, fields in enumerate(drawn):
        request = catalog.request(fields)
        began = time.perf_counter()
        report = explain(request, environment=environment, catalog=catalog)
        rejected, _ranked = report.rejected, report.ranked
        seen = time.perf_counter()
        report.to_text(verbose=True)
        if number >= len(drawn) // 10:
            reasons.append(seen - began)
            texts[bool(report.selected)].append(time.perf_counter() - began)
        told += sum(map(len, rejected.values()))
    whole, text, nothing = spread(reasons), spread(texts[True] + texts[False]), spread(texts[False])
    return [
        Figure(
            "explain/object", "full explanation of a new request with all reasons, as an object",
            whole.median * 1e3, "ms", 1.0, low=whole.low * 1e3, high=whole.high * 1e3,
            note=f"{told / len(drawn):.0f} reasons each; 99th percentile {whole.p99 * 1e3:.2f} ms",
        ),
        Figure(
            "explain/text", "the same, as text with every reason",
            text.median * 1e3, "ms", 3.0, low=text.low * 1e3, high=text.high * 1e3,
            note=f"99th percentile {text.p99 * 1e3:.2f} ms",
        ),
        Figure(
            "explain/nothing", "those of the texts that say that nothing fits, and what would",
            nothing.median * 1e3, "ms", low=nothing.low * 1e3, high=nothing.high * 1e3,
            note=f"{nothing.of} of {text.of}",
        ),
    ]  # fmt: skip


def requests(quick: bool) -> list[Figure]:
    """`explain --requests` in a child: lines a second over the whole process, and its peak memory for more lines."""
    few, many = (200, 1_000) if quick else (10_000, 100_000)
    environment = dict(os.environ)
    arguments = ("explain", "--on", "h100", "--pack", "vllm", "--requests")
    with tempfile.TemporaryDirectory() as folder:
        files = {count: Path(folder) / f"{count}.jsonl" for count in (few, many)}
        for count, path in files.items():
            lines = distinct(count, 3, Catalog.load("vllm").vocabulary)
            path.write_text("".join(json.dumps({"request": line}) + "\n" for line in lines), encoding="utf-8")
        figures = []
        for name, what, more, limit in (
            ("reasons", "all reasons", (), 5_000.0),
            ("winners", "winners only", ("--winners",), 30_000.0),
        ):
            taken = {
                count: [
                    peak(COMMAND, environment, *arguments, str(path), *more) for _ in range(1 if quick else 3)
                ]
                for count, path in files.items()
            }
            rate = spread([many / found.seconds for found in taken[many]])
            memory = {count: spread([p.megabytes for p in found]).median for count, found in taken.items()}
            figures.append(
                Figure(
                    f"requests/{name}", f"`explain --requests`, {many:,} different lines, {what}",
                    rate.median, "lines/s", limit, at_least=True, low=rate.low, high=rate.high,
                    note=f"{many / spread([p.spent for p in taken[many]]).median:,.0f} a second of processor time",
                )
            )  # fmt: skip
            figures.append(
                Figure(
                    f"requests/{name}-memory", f"peak memory at {many:,} lines less that at {few:,}, {what}",
                    memory[many] - memory[few], "MB", 5.0,
                    note=f"{memory[few]:.1f} and {memory[many]:.1f} MB",
                )
            )  # fmt: skip
    return figures
