"""Shell completion: what may follow, and the scripts that ask for it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from selector.cli.commands import COMMANDS
from selector.cli.complete import _split, complete
from selector.cli.completion import SCRIPTS
from tests.selector.cli.command import ROOT, SMALL, Command


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ex"], ["explain"]),
        (["--v"], ["--version"]),
        (["nonsense", ""], []),
        (["explain", "--on", "h"], ["h100", "h200"]),
        (["explain", "--on=h1"], ["--on=h100"]),
        (["explain", "--profile", ""], ["full", "bare"]),
        (["explain", "--pack", "tr"], ["transformer_engine"]),
        (["explain", "--backend", "flash_attn/"], ["flash_attn/fa2", "flash_attn/fa3", "flash_attn/fa4"]),
        (["explain", "--pack", "sglang", "--avoid", "cute"], ["cutedsl_mla"]),
        (
            ["explain", "--manifests", str(SMALL), "--pack", "small", "--prefer", "swift/t"],
            ["swift/two", "swift/three"],
        ),
        (["explain", "--wi"], ["--with", "--without", "--winners"]),
        (["explain", "head_size"], ["head_size=", "head_size_v="]),
        (["explain", "head_size=64", "head_size"], ["head_size_v="]),
        (["explain", "per_h"], ["per_head_scales"]),
        (["explain", "per_head_scales="], ["per_head_scales=true", "per_head_scales=false"]),
        (["explain", "dtype=fp8_e4"], ["dtype=fp8_e4m3"]),
        (["explain", "kv_dtype=nvfp4_4"], ["kv_dtype=nvfp4_4over6"]),
        (["explain", "nonsense="], []),
        (["explain", "--env", "compute"], ["compute_capability="]),
        (["plan", ""], []),
        (["plan", "config.json", "--kv-cache-dtype", "fp8_e5"], ["fp8_e5m2"]),
        (["plan", "config.json", "sin"], ["sinks"]),
        (["run", "--see"], ["--seed"]),
        (["schema", "axes", "kv_q"], ["kv_quantized"]),
        (["schema", "soft"], ["software"]),
        (["matrix", "alib"], ["alibi"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["doctor", "--de"], ["--deep"]),
        (["lint", ""], []),
    ],
)
def test_what_may_follow(words: list[str], found: list[str]) -> None:
    assert complete(words) == found


def test_every_command_completes(command: Command) -> None:
    assert command("__complete", "--", "").out.split() == [*COMMANDS, "--help", "--version"]


def test_bash_breaks_words_at_equals_signs(command: Command) -> None:
    assert command("__complete", "--bash", "--", "attn-select explain dtype=bf").out.split() == [
        "bfloat16",
        "bf16",
    ]
    assert "dtype=" in command("__complete", "--bash", "--", "attn-select explain dt").out.split()


def test_mistakes_complete_to_nothing(command: Command, tmp_path: Path) -> None:
    for words in (
        ["explain", "--pack", "nothing", "--backend", ""],
        ["explain", "--manifests", str(tmp_path), "d"],
    ):
        ran = command("__complete", "--", *words)
        assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_lines_as_a_shell_has_them() -> None:
    assert _split("attn-select explain 'a b' c") == ["explain", "a b", "c"]
    assert _split("attn-select explain ") == ["explain", ""]
    assert _split("attn-select explain 'open quote") == ["explain", "'open", "quote"]


def test_scripts_and_usage(command: Command) -> None:
    for shell in SCRIPTS:
        assert "attn-select __complete" in command("completion", shell).out
    assert "did you mean bash?" in command("completion", "bahs").err
    assert command("completion").code == 2


@pytest.mark.parametrize("shell", SCRIPTS)
def test_scripts_parse(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    path = tmp_path / "script"
    path.write_text(SCRIPTS[shell])
    subprocess.run([program, "-n", str(path)], check=True, timeout=30)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("attn-select expl", ["explain"]),
        ("attn-select explain --on h10", ["h100"]),
        ("attn-select explain --on h100 dtype=bfl", ["bfloat16"]),
        ("attn-select explain --on h100 head_size_", ["head_size_v="]),
    ],
)
def test_bash_itself_completes(line: str, found: list[str], tmp_path: Path) -> None:
    program = tmp_path / "attn-select"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m selector.cli "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    script = f"""{SCRIPTS["bash"]}
compopt() {{ :; }}
COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}
_attn_select; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == found
