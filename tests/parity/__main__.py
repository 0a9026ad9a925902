"""`python -m tests.parity NAME [FILE.jsonl[.gz|.xz]] [--limit N] [--output FILE]`: recorded decisions against a pack.

Prints one line of rates and writes the rows that differ, one JSON object a line, to standard error or to a file. Without
a file it takes the decisions that are kept here; the name `all` takes those of every pack.
Exit status 0 where every row agrees, else 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .result import Result

DATA: Final = Path(__file__).resolve().parents[1] / "data"

KEPT: Final = {
    "vllm": DATA / "vllm.sample.jsonl.xz",
    "te": DATA / "te.sample.jsonl.gz",
    "sglang": DATA / "sglang.sample.jsonl.gz",
}
"""The decisions that are kept here, by the name of their comparison."""


def compare(name: str, path: Path, limit: int | None) -> Result:
    """The comparison of that name on a file."""
    module = importlib.import_module(f"{__package__}.{name}")
    result: Result = module.compare_file(path, limit)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("name", choices=[*KEPT, "all"])
    parser.add_argument("file", type=Path, nargs="?", help="recorded decisions (default: those kept here)")
    parser.add_argument("--limit", type=int, help="compare the first N rows only")
    parser.add_argument("--output", type=Path, help="where the rows that differ go (default: standard error)")
    options = parser.parse_args(arguments)
    if options.name == "all" and options.file is not None:
        parser.error("`all` takes no file")
    names = list(KEPT) if options.name == "all" else [options.name]
    results = []
    for name in names:
        results.append(compare(name, options.file or KEPT[name], options.limit))
        print(results[-1].line(), flush=True)
    lines = [
        json.dumps(
            {"row": m.row, "differences": [d._asdict() for d in m.differences], "recorded": m.recorded}
        )
        for result in results
        for m in result.mismatches
    ]
    text = "".join(line + "\n" for line in lines)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stderr.write(text)
    return 0 if all(result.agrees for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
