"""What a decision imports: neither a framework nor anything that is only needed for mistakes, pages or proofs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEAVY = (
    "torch",
    "numpy",
    "jsonschema",
    "referencing",
    "rich",
    "jinja2",
    "z3",
    "transformers",
    "backends",
    "dataclasses",
)

EXPLAIN = """
from selector import Environment, Request, explain
report = explain(Request(head_size=128, dtype="bf16"), environment=Environment.preset("h100"))
assert report.selected == "flash_attn/fa3"
"""
TEXT = EXPLAIN + "report.to_text(); report.to_json()\n"
COMMAND = """
import contextlib, io
from selector.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["explain", "--on", "h100", "head_size=128"]) == 0
    assert main(["explain", "--on", "h100", "head_size=576", "mla"]) == 3
"""
PROBED = "from selector import Environment\nEnvironment.probe()\n"


@pytest.mark.parametrize(
    "source", [EXPLAIN, TEXT, COMMAND, PROBED], ids=["explain", "text", "command", "probe"]
)
def test_nothing_heavy_is_imported(source: str) -> None:
    """In a fresh interpreter without site packages' start-up code that could import something itself."""
    check = f"\nimport sys\nprint([m for m in {HEAVY!r} if m in sys.modules])\n"
    done = subprocess.run(
        [sys.executable, "-c", source + check],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


def test_importing_the_package_imports_nothing_of_it() -> None:
    check = "import sys, selector; print(sorted(m for m in sys.modules if m.startswith('selector')))"
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['selector']\n"
