"""The rows of the table, each measured in a process of its own: nothing that another row imported is in it.

`python -m tests.bench.rows ROW [--quick]` measures one and prints its figures as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from typing import Any

from selector.cache import VARIABLE
from tests.bench.harness import ROOT, Figure

__all__ = ["ROWS", "figures", "measure"]

#: Where a row is measured, in the order of the table.
ROWS = {
    "known": "select",
    "equal": "select",
    "new": "select",
    "scale": "scale",
    "small": "attention",
    "long": "attention",
    "explain": "explanations:explanation",
    "requests": "explanations:requests",
    "start": "process",
    "command": "process",
    "memory": "process",
    "peers": "peers",
}


def measure(row: str, *, quick: bool) -> list[Figure]:
    """The figures of one row, from a child with an empty cache directory and without this user's settings."""
    arguments = [sys.executable, "-m", "tests.bench.rows", row, *(["--quick"] if quick else [])]
    # Bytecode is written where it is out of date, as an installation has it: the first, uncounted round does that.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ATTN_SELECTOR_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    with tempfile.TemporaryDirectory() as folder:
        environment |= {VARIABLE: folder, "XDG_CONFIG_HOME": folder}
        done = subprocess.run(
            arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, text=True
        )
    return figures(json.loads(done.stdout))


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """Figures from their JSON form."""
    return [Figure(**fields) for fields in raw]


def main(arguments: list[str]) -> int:
    """Measure the row that is named."""
    module, _, name = ROWS[arguments[0]].partition(":")
    found = getattr(import_module(f"tests.bench.{module}"), name or arguments[0])("--quick" in arguments)
    print(json.dumps([figure._asdict() for figure in found]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
