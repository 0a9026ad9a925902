"""`make bench`: measure every row, print one table.

    python -m tests.bench [--quick] [--only ROW] [--json FILE] [--compare FILE] [--write]

Figures that are compared were measured in one process, in turns. What the rows are, and why some are as they are:
docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.bench.harness import Figure
from tests.bench.machine import described
from tests.bench.rows import ROWS, figures, measure
from tests.bench.table import PAGE, beside, markdown, text, written


def main(arguments: list[str]) -> int:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="speed and memory against the targets"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few samples: whether everything runs, not how fast"
    )
    parser.add_argument(
        "--only", action="append", choices=[*ROWS], metavar="ROW", help=f"one of {', '.join(ROWS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and figures there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="show an older run's JSON beside")
    parser.add_argument("--write", action="store_true", help=f"write the table into docs/{PAGE.name}")
    chosen = parser.parse_args(arguments)
    if chosen.write and (chosen.quick or chosen.only):
        parser.error("--write takes a whole run: neither --quick nor --only")
    old: dict[str, Figure] = {}
    if chosen.compare is not None:
        old = {f.key: f for f in figures(json.loads(chosen.compare.read_text(encoding="utf-8"))["figures"])}

    machine = described()
    print("\n".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
    found: list[Figure] = []
    for row in chosen.only or ROWS:
        began = time.perf_counter()
        found += measure(row, quick=chosen.quick)
        print(f"{row}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    print("\n" + text(found))
    missed = [f.key for f in found if f.met is False]
    met = sum(f.met is True for f in found)
    print(f"\n{met} of {met + len(missed)} targets met" + (f"; not {', '.join(missed)}" if missed else ""))
    if old:
        print("\n" + beside(found, old))
    if chosen.json is not None:
        data = {"machine": machine, "figures": [f._asdict() for f in found]}
        chosen.json.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if chosen.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), markdown(found, machine)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
