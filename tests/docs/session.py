"""A reader who works through a page: a folder like a fresh checkout, in which the commands of the page run one after the other."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from selector import preferences
from selector.cli.app import run as attn_select
from tests.docs.pages import ROOT

__all__ = ["Session", "UnknownCommand"]

#: What a page's commands find beside each other.
LINKED = ("tests/data/configs", "selector/schema")

#: Programs whose effects are not this project's to show.
NOT_RUN = ("pip",)

#: No colour and the width of a pipe, whatever the terminal of the tests is.
CLEAN = {"NO_COLOR": "1", "COLUMNS": "110"}

#: Seconds for one command that runs as a process of its own.
LIMIT = 60


class UnknownCommand(ValueError):
    """A command that pages may not show as one that runs."""


class Session:
    """One page's folder, with the exit code of the last command. With ``edits`` it has manifests of its own."""

    def __init__(self, folder: Path, *, edits: bool = False) -> None:
        self.folder = folder
        self.code = 0
        self.settings = {**CLEAN, "XDG_CONFIG_HOME": str(folder / ".config")}
        if edits:
            shutil.copytree(ROOT / "manifests", folder / "manifests")
            self.settings["ATTN_SELECTOR_MANIFESTS"] = str(folder / "manifests")
        for name in LINKED if edits else ("manifests", *LINKED):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(ROOT / name)

    def run(self, command: str) -> str:
        """What a terminal would show of one command line; sets `code`. Raises UnknownCommand."""
        return self._run(command).replace(f"{self.folder}{os.sep}", "")

    def _run(self, command: str) -> str:
        settings, words = _split(command)
        if words[:1] == ["attn-select"]:
            if (
                "PYTHONPATH" in settings
            ):  # modules of the page's folder, which a later command may have edited
                return self._process([sys.executable, "-m", "selector.cli", *words[1:]], settings)
            return self._attn_select(words[1:], settings)
        if words[:1] and words[0] in NOT_RUN:
            self.code = 0
            return ""
        if words == ["echo", "$?"]:
            return f"{self.code}\n"
        if words[:1] == ["cat"] and len(words) == 2:
            self.code = 0
            return (self.folder / words[1]).read_text(encoding="utf-8")
        if words[:2] == ["cp", "-r"] and len(words) == 4:
            self.code = 0
            shutil.copytree(self.folder / words[2], self.folder / words[3])
            return ""
        if words[:1] == ["python"]:
            return self._process([sys.executable, *words[1:]], settings)
        if words == ["make", "demo"]:
            return self._process([sys.executable, "-m", "tests.demo"], settings, ROOT)
        raise UnknownCommand(
            f"{words[0]}: no command that a page's test runs; mark the block `console no-run`"
        )

    def _attn_select(self, words: list[str], settings: dict[str, str]) -> str:
        words, target = _redirected(words)
        out = io.StringIO()
        with self.inside(settings), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            self.code = attn_select(words)
        if target is None:
            return out.getvalue()
        (self.folder / target).write_text(out.getvalue(), encoding="utf-8")
        return ""

    def _process(self, words: list[str], settings: dict[str, str], folder: Path | None = None) -> str:
        settings = {**self.settings, **settings}
        settings["PYTHONPATH"] = os.pathsep.join([settings.get("PYTHONPATH", "."), str(ROOT)])
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ATTN_SELECTOR_")} | settings
        done = subprocess.run(
            words,
            cwd=folder or self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        self.code = done.returncode
        return done.stdout

    @contextlib.contextmanager
    def inside(self, settings: dict[str, str]) -> Iterator[None]:
        """The page's folder and process variables, for the time of one command."""
        before, kept = os.getcwd(), dict(os.environ)
        os.chdir(self.folder)
        for name in [name for name in os.environ if name.startswith("ATTN_SELECTOR_")]:
            del os.environ[name]
        os.environ.update({**self.settings, **settings})
        preferences.forget()
        try:
            yield
        finally:
            preferences.forget()
            os.chdir(before)
            os.environ.clear()
            os.environ.update(kept)


def _split(command: str) -> tuple[dict[str, str], list[str]]:
    """`NAME=value` in front, then the words."""
    words = shlex.split(command)
    settings: dict[str, str] = {}
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    return settings, words


def _redirected(words: list[str]) -> tuple[list[str], str | None]:
    """The words without `> FILE`, and the file."""
    if ">" in words:
        at = words.index(">")
        return words[:at], words[at + 1]
    return words, None
