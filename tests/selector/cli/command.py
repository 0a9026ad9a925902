"""Running the command as its users do: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from selector.cli import main

ROOT = Path(__file__).resolve().parents[3]
SMALL = ROOT / "tests" / "data" / "render"


class Ran(NamedTuple):
    """Exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class Command:
    """`attn-select` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        self.capsys.readouterr()
        code = main([str(a) for a in arguments])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        return Ran(code, out, err)


def spawn(*arguments: str, env: dict[str, str] | None = None, stdin: bytes = b"", cwd: Path = ROOT) -> Ran:
    """`attn-select` as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "selector.cli", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        cwd=cwd,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
