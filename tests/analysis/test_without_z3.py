"""Without the solver the commands that need it say what to install, and everything else works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from selector.analysis.encoder import EXTRA

ROOT = Path(__file__).resolve().parents[2]
#: A module of this name that cannot be imported, as if it were not there.
BLOCKED = "raise ModuleNotFoundError(\"No module named 'z3'\", name='z3')\n"


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "z3.py").write_text(BLOCKED, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}


def run(without: dict[str, str], *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "selector.cli", *words],
        env=without,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


NEED = [
    ("prove",),
    ("diff", "core", "vllm"),
    ("coverage", "--on", "h100", "dtype=bf16"),
]


@pytest.mark.parametrize("words", NEED, ids=lambda words: str(words[0]))
def test_a_command_that_needs_it_says_what_to_install(
    words: tuple[str, ...], without: dict[str, str]
) -> None:
    code, out, err = run(without, *words)
    assert code == 2
    assert out == ""
    assert "this needs z3, which is not installed" in err
    assert EXTRA in err
    assert "Traceback" not in err


def test_lint_finds_what_it_can_and_says_what_it_cannot(without: dict[str, str]) -> None:
    code, out, err = run(without, "lint", "manifests/core")
    assert (code, err) == (0, "")
    assert "1 checked: no errors" in out
    assert "nothing by proof: this needs z3" in out
    assert EXTRA in out


def test_why_not_answers_without_the_sets_of_changes(without: dict[str, str]) -> None:
    words = ("explain", "--on", "h100", "--without", "flash-attn-3", "head_size=128", "dtype=bf16")
    code, out, err = run(without, *words, "--why-not", "flash_attn/fa3")
    assert (code, err) == (0, "")
    assert "install flash-attn-3 >=3.0.0b1: flash_attn/fa3 works" in out
    assert EXTRA in out
    code, out, err = run(without, *words, "--why-not", "flash_attn/fa3", "--json")
    assert (code, err) == (0, "")
    assert '"changes": null' in out


OTHERS = [
    ("explain", "--on", "h100", "head_size=128", "dtype=bf16"),
    ("env", "--on", "h100"),
    ("matrix", "--pack", "core"),
    ("schema", "axes"),
    ("lint", "manifests/core", "--quick"),
    ("tune", "--help"),
]


@pytest.mark.parametrize("words", OTHERS, ids=lambda words: str(words[0]))
def test_everything_else_works(words: tuple[str, ...], without: dict[str, str]) -> None:
    code, out, err = run(without, *words)
    assert (code, err) == (0, "")
    assert out
