"""Every command of `docs/vllm-differences.md`, and the lines that it has to say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from selector.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "vllm-differences.md"


def commands() -> list[tuple[str, list[str]]]:
    """The commands of the page, each with the lines below it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^ *```console\n(.*?)^ *```", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        for line in map(str.strip, block.splitlines()):
            if line.startswith("$ attn-select "):
                found.append((line.removeprefix("$ attn-select "), []))
            elif found and "python" not in line.lower():
                found[-1][1].append(line)
    return found


def test_the_page_shows_its_findings() -> None:
    assert len(commands()) > 20
    assert all(lines for _, lines in commands())


@pytest.mark.parametrize(("command", "lines"), commands(), ids=lambda value: str(value)[:60])
def test_command(command: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status = main([*shlex.split(command), "--verbose"])
    said = " ".join(capsys.readouterr().out.split())
    assert status in (0, 3)
    for line in lines:
        assert line in said
