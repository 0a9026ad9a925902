"""Requests with ever-new integers do not grow memory: every memo is bounded, and so is what is kept of a whole answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Selects ``count`` distinct requests in every way that remembers something, and prints the resident size (KiB) early and late.
SOURCE = """
import re, sys
from pathlib import Path
from selector import Catalog, Environment, NoBackendError, Request, explain, select
from selector.answers import answer_text

count, early = int(sys.argv[1]), int(sys.argv[2])
catalog, h100 = Catalog.load({pack!r}), Environment.preset("h100")

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1))

for n in range(count):
    fields = {{"head_size": n % 509 + 1, "num_heads": n % 65521 + 1, "num_kv_heads": n % 8191 + 1, "block_size": n % 127 + 1}}
    try:
        {body}
    except NoBackendError:
        pass
    if n == early:
        print(resident())
print(resident())
"""

WAYS = {
    "default": ("core", "select(Request(fields))"),
    "given": ("vllm", "select(fields, catalog=catalog, environment=h100)"),
    "wishes": (
        "core",
        'select(fields, catalog=catalog, environment=h100, avoid="flash_attn")',
    ),
    "explained": ("core", "explain(fields, catalog=catalog, environment=h100).rejected"),
    "written": (
        "transformer_engine",
        "answer_text(explain(fields, catalog=catalog, environment=h100), reasons=True)",
    ),
}


def grown(way: str, count: int, early: int) -> tuple[int, int]:
    """KiB after ``early`` requests, and after ``count``."""
    pack, body = WAYS[way]
    done = subprocess.run(
        [sys.executable, "-c", SOURCE.format(pack=pack, body=body), str(count), str(early)],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    first, last = map(int, done.stdout.split())
    return first, last


@pytest.mark.parametrize("way", WAYS)
def test_distinct_requests_do_not_grow_memory(way: str) -> None:
    """Every memo is full after some thousand requests."""
    count, early = (60_000, 20_000) if way in ("default", "given") else (5_000, 3_000)
    first, last = grown(way, count, early)
    assert last < first + 4096, (first, last)
    assert last < 120_000


@pytest.mark.slow
@pytest.mark.parametrize("way", ["default", "given"])
def test_a_million_distinct_requests_do_not_grow_memory(way: str) -> None:
    first, last = grown(way, 1_000_000, 20_000)
    assert last < first + 4096, (first, last)
