"""Text in terminal cells: widths of wide characters, padding, cutting, wrapping, colour."""

from __future__ import annotations

import unicodedata

__all__ = ["PLAIN", "Paint", "cells", "cut", "pad", "wrap"]

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}


class Paint:
    """Colours text, or leaves it as it is. Widths are measured before painting."""

    __slots__ = ("on",)

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, text: str, *styles: str) -> str:
        if not self.on or not text or not styles:
            return text
        return f"\033[{';'.join(_CODES[s] for s in styles)}m{text}\033[0m"


PLAIN = Paint(False)


def cells(text: str) -> int:
    """Columns that a terminal gives to ``text`` (no control characters in it)."""
    if text.isascii():
        return len(text)
    return sum(_cell(c) for c in text)


def _cell(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, width: int) -> str:
    """``text`` with spaces up to ``width`` cells."""
    return text + " " * max(0, width - cells(text))


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells; what is cut off is marked."""
    if cells(text) <= width:
        return text
    kept, used = "", 0
    for char in text:
        size = _cell(char)
        if used + size > max(width - 1, 0):
            break
        kept += char
        used += size
    return kept + "…" if width > 0 else ""


def wrap(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` cells, broken at spaces where that is possible; never empty."""
    if len(text) <= width and text.isascii() and not text.startswith(" "):
        return [text]
    lines: list[str] = []
    line = ""
    for part in text.split(" "):
        piece = part
        joined = f"{line} {piece}" if line else piece
        if cells(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        while cells(piece) > max(width, 2):
            head = _head(piece, max(width, 2))
            lines.append(head)
            piece = piece[len(head) :]
        line = piece
    lines.append(line)
    return lines


def _head(text: str, width: int) -> str:
    used = 0
    for i, char in enumerate(text):
        used += _cell(char)
        if used > width:
            return text[: max(i, 1)]
    return text
