"""The command's frame: help, usage errors, exit codes, and that nothing ever ends in a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from selector.cli import app, explain
from selector.cli.commands import COMMANDS
from tests.selector.cli.command import ROOT, SMALL, Command, spawn

PIPED = ["explain", "--on", "h100", "head_size=128", "dtype=bf16", "--verbose"]


def test_help_lists_every_command(command: Command) -> None:
    ran = command("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert f"    {name} " in ran.out
    assert "exit codes" in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(command: Command, name: str) -> None:
    ran = command(name, "--help")
    assert ran.code == 0
    assert f"attn-select {name}" in ran.out.partition("examples:")[2]


def test_version(command: Command) -> None:
    ran = command("--version")
    assert ran.code == 0
    assert ran.out.startswith("attn-select 0.")


def test_no_command_is_a_usage_error_that_shows_help(command: Command) -> None:
    ran = command()
    assert (ran.code, ran.out) == (2, "")
    assert "explain" in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["explian"], "attn-select: no command is called 'explian'\n  did you mean attn-select explain?\n"),
        (["--verson"], "attn-select: no option --verson\n  did you mean --version?\n"),
        (["explain", "--jso"], "attn-select explain: no option --jso\n  did you mean --json?\n"),
        (["explain", "--back=x"], "attn-select explain: no option --back\n"),
        (["explain", "--on"], "attn-select explain: argument --on: expected one argument\n"),
        (["plan", "x", "--tp", "two"], "attn-select plan: argument --tp: invalid int value: 'two'\n"),
        (["env", "extra"], "attn-select env: one argument too many: 'extra'\n"),
        (["explain", "head_siz=128"], "error: unknown field 'head_siz' (did you mean head_size?)\n"),
        (["explain", "head_size"], "error: head_size needs a value: head_size=...\n"),
        (["explain", "head_size="], "error: head_size= has no value\n"),
        (["explain", "sinks=maybe"], "error: sinks is true or false, not 'maybe'\n"),
        (["explain", "sinks", "sinks"], "error: sinks is given twice\n"),
        (["explain", "=5"], "error: '=5' names no field\n"),
        (["explain", "device=cuda"], "error: device belongs to the environment, not to a request"),
        (["explain", "--env", "head_size=4"], "error: head_size belongs to the request"),
        (
            ["explain", "--env", "devise=cpu"],
            "error: unknown fact 'devise' of an environment (did you mean device?)",
        ),
        (["explain", "--env", "device"], "error: --env takes NAME=VALUE, not 'device'\n"),
        (["explain", "--on", "h1oo"], "error: no preset environment is called 'h1oo'"),
        (["explain", "--on", "./nothing.yaml"], "error: cannot read the environment ./nothing.yaml"),
        (["explain", "--pack", "cores"], "did you mean core?"),
        (["explain", "--manifests", "/nowhere"], "error: --manifests /nowhere: no such directory\n"),
        (["explain", "--on", "h100", "--profile", "ful"], "did you mean full?"),
        (["explain", "--on", "h100", "--without", "torchh"], "did you mean torch?"),
        (["explain", "--on", "h100", "--with", "flash_attn==2.8"], "did you mean flash-attn?"),
        (["explain", "--with", "nope==1"], "--with nope==1: nothing here asks for nope"),
        (
            ["explain", "--on", "h100", "--with", "torch=2"],
            "error: --with takes NAME==VERSION, not 'torch=2'\n",
        ),
        (["explain", "--profile", "bare"], "error: --profile is for presets (--on NAME)\n"),
        (["explain", "--winners"], "error: --winners goes with --requests\n"),
        (["explain", "--backend", "flashatn"], "no backend of pack core is called 'flashatn'"),
    ],
)
def test_wrong_usage_exits_2_with_one_screen_on_standard_error(
    command: Command, arguments: list[str], told: str
) -> None:
    ran = command(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert len(ran.err.splitlines()) <= app.SCREEN + 1


def test_all_mistakes_of_a_request_are_told_at_once(command: Command) -> None:
    ran = command("explain", "head_siz=128", "dtype=bf17", "num_heads=-1", "mla=perhaps")
    assert [line.partition(" ")[0] for line in ran.err.splitlines()] == [
        "error:",
        "'bf17'",
        "num_heads",
        "mla",
    ]


def test_broken_manifests_exit_2_with_their_places(command: Command, manifests: Path) -> None:
    path = manifests / "core" / "reference.yaml"
    path.write_text(path.read_text().replace("causal: true", "casual: true"))
    ran = command("explain", "--manifests", str(manifests))
    assert ran.code == 2
    assert f"{path}:" in ran.err
    assert "causal" in ran.err


def test_words_may_stand_between_options(command: Command) -> None:
    mixed = command("explain", "head_size=128", "--on", "h100", "dtype=bf16", "--json", "sinks")
    assert mixed.code == 0
    assert mixed.json["request"] == {"head_size": 128, "dtype": "bfloat16", "sinks": True}


def test_words_after_two_dashes_are_words(command: Command) -> None:
    ran = command("explain", "--on", "h100", "--json", "--", "head_size=128")
    assert ran.json["request"] == {"head_size": 128}


def test_what_nobody_foresaw_is_two_lines_and_says_how_to_see_more(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "_report", lambda arguments: 1 // 0)
    ran = command("explain")
    assert ran.code == app.EXIT_UNEXPECTED
    assert (
        ran.err.splitlines()[0] == "error: unexpected ZeroDivisionError: integer division or modulo by zero"
    )
    assert "ATTN_SELECTOR_DEBUG=1" in ran.err.splitlines()[1]
    monkeypatch.setenv("ATTN_SELECTOR_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        app.run(["explain"])


def test_debug_shows_the_traceback_of_a_known_error_too() -> None:
    ran = spawn("explain", "head_siz=1", env={"ATTN_SELECTOR_DEBUG": "1"})
    assert "Traceback" in ran.err


def test_interrupt_says_so_and_exits_130(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(explain, "_report", interrupted)
    ran = command("explain")
    assert (ran.code, ran.err) == (130, "error: interrupted\n")


def test_a_signal_while_it_waits_for_requests() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "selector.cli", "explain", "--on", "h100", "--requests", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    with child:
        child.stdin.write(b'{"request": {}}\n')
        child.stdin.flush()
        assert child.stdout.readline().startswith(b'{"selected"')
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        code = child.wait(30)
        told = child.stderr.read()
    assert (code, told) == (130, b"error: interrupted\n")


def test_a_closed_pipe_is_no_error() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "selector.cli", *PIPED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    assert child.stdout is not None and child.stderr is not None
    with child:
        child.stdout.close()
        told = child.stderr.read()
        code = child.wait(60)
    assert (code, told) == (app.EXIT_PIPE, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
def test_a_full_disk_is_told_in_a_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "selector.cli", *PIPED],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == b"error: No space left on device\n"


def test_a_terminal_without_unicode_gets_replacements() -> None:
    ran = spawn(
        "explain", "--on", "h100", "head_size=64", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    )
    assert ran.code == 0
    assert ran.out.isascii()
    assert "\\u201c" in ran.out


@pytest.mark.parametrize("where", ["-", "html", "save"])
def test_an_argument_that_is_no_text_is_written_as_an_escape(where: str, tmp_path: Path) -> None:
    """A byte that is no UTF-8 reaches Python as half a surrogate pair, which no output can hold."""
    machine: list[str | bytes] = ["--on", "h100", "--env", b"packages.flash-attn-4=\x99"]
    machine += ["--json"] if where == "-" else [f"--{where}", str(tmp_path / "file")]
    done = subprocess.run(
        [sys.executable, "-m", "selector.cli", "explain", "head_size=64", *machine],
        cwd=ROOT, capture_output=True, timeout=60, check=False, env={**os.environ, "LC_ALL": "C.UTF-8", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = done.stdout if where == "-" else (tmp_path / "file").read_bytes()
    assert b"\\udc99" in text
    if where != "html":
        json.loads(text)


def test_a_package_without_a_name_is_wrong_usage(command: Command) -> None:
    ran = command("explain", "--on", "h100", "head_size=64", "--env", "packages.=1")
    assert (ran.code, ran.out) == (2, "")
    assert "which package?" in ran.err


def test_no_color_in_a_pipe_and_none_where_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    from selector.cli import output

    assert not output.colors()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.colors()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.colors()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not output.colors()


def test_a_long_error_is_cut_to_a_screen(command: Command, tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "manifests"
    shutil.copytree(SMALL, root)
    lines = "\n".join(f"  nonsense_{n}: true" for n in range(200))
    path = root / "small" / "broad.yaml"
    path.write_text(path.read_text().replace("supports:\n", f"supports:\n{lines}\n"))
    ran = command("explain", "--manifests", str(root), "--pack", "small")
    assert ran.code == 2
    assert len(ran.err.splitlines()) <= app.SCREEN + 1
    assert "more" in ran.err.splitlines()[-1]
