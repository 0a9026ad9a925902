"""Writing to the terminal: its width, whether it takes colour, and JSON."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selector.report import Report

__all__ = ["colors", "paint", "report_text", "told", "width", "write", "write_file", "write_json"]

#: Columns where no terminal says how many it has.
WIDTH = 110


def colors() -> bool:
    """Whether standard output takes colour: a terminal that is not dumb, unless `NO_COLOR` is set to anything."""
    if os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def paint() -> Any:
    """A painter for standard output."""
    from selector.render.cells import Paint

    return Paint(colors())


def width() -> int:
    """Columns of the terminal (`COLUMNS` overrules); a fixed number where output goes to a file or a pipe."""
    import shutil

    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return WIDTH
    return shutil.get_terminal_size((WIDTH, 24)).columns


def report_text(report: Report, *, verbose: bool = False) -> str:
    """A report for this terminal, with options where a program has arguments."""
    from selector.render.text import report_text as text

    return text(report, colors(), width(), verbose, command=True)


def write(text: str) -> None:
    """Text on standard output, ending with a line break."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def write_json(value: Any) -> None:
    """One JSON value on standard output."""
    import json

    write(json.dumps(value, indent=2, ensure_ascii=False))


def write_file(path: str, text: str) -> None:
    """A whole file, and a line on standard error that says so. Raises SelectorError if it cannot be written."""
    from selector.errors import SelectorError

    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise SelectorError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
    told(path)


def told(path: str) -> None:
    """Say on standard error that a file is there now."""
    from selector.errors import printable

    sys.stderr.write(f"{printable(path)} written\n")
