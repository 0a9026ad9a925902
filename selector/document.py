"""One parsed file: plain data, and the place of every part of it."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from selector.errors import Fault, Mark, format_path

__all__ = ["BREAK", "Data", "Document", "Path", "Stored"]

Scalar: TypeAlias = "str | int | float | bool | None"
Data: TypeAlias = "Scalar | list[Data] | dict[str, Data]"
Path: TypeAlias = "tuple[str | int, ...]"

#: Where a node lies: (line, column) of its key, of its value (both from 0), and the places of its children.
Place: TypeAlias = "tuple[int, int, int, int, Places | None]"
Places: TypeAlias = "dict[str | int, Place]"

BREAK = re.compile(r"\r\n|\r|\n")
NO_PLACE: Place = (0, 0, 0, 0, None)


class Document:
    """One YAML document: `data` as plain Python values, and the place of every part of it."""

    __slots__ = ("_lines", "_place", "_text", "data", "name")

    def __init__(self, name: str, text: str, data: Data, place: Place) -> None:
        self.name = name
        self.data = data
        self._text = text
        self._place = place
        self._lines: list[str] | None = None

    @property
    def text(self) -> str:
        """The file's text as it was read."""
        return self._text

    def holding(self, data: Data) -> Document:
        """The same places and text with other data: a part of what was read."""
        return Document(self.name, self._text, data, self._place)

    def mark(self, path: Path, key: bool = False) -> Mark:
        """The place of the value at `path`, or of its key; of the nearest enclosing value where there is none."""
        place = self._place
        found = 0
        for step in path:
            children = place[4]
            if children is None or step not in children:
                break
            place = children[step]
            found += 1
        if key and found == len(path):
            return Mark(self.name, place[0] + 1, place[1] + 1)
        return Mark(self.name, place[2] + 1, place[3] + 1)

    def line(self, number: int) -> str:
        """The text of a line (from 1) without its break; empty outside the file."""
        if self._lines is None:
            self._lines = BREAK.split(self._text)
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def fault(self, path: Path, message: str, hint: str | None = None, *, key: bool = False,
              severity: str = "error") -> Fault:  # fmt: skip
        """A fault at `path` of this document, with the line it lies on."""
        at = self.mark(path, key)
        return Fault(at, format_path(path), message, hint, self.line(at.line), severity)


class Stored(Document):
    """A document that was read before, validated and kept: its places are nested lists in the order of its data."""

    __slots__ = ("_stored",)

    def __init__(self, name: str, text: str, data: Data, places: list[Any]) -> None:
        super().__init__(name, text, data, NO_PLACE)
        self._stored = places

    def holding(self, data: Data) -> Document:
        raise TypeError("a document that was validated is whole")

    def mark(self, path: Path, key: bool = False) -> Mark:
        """The place of the value at `path`, or of its key; of the nearest enclosing value where there is none."""
        place, node = self._stored, self.data
        found = 0
        for step in path:
            if isinstance(node, dict) and step in node:
                place, node = place[4][list(node).index(str(step))], node[str(step)]
            elif isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node):
                place, node = place[4][step], node[step]
            else:
                break
            found += 1
        if key and found == len(path):
            return Mark(self.name, place[0] + 1, place[1] + 1)
        return Mark(self.name, place[2] + 1, place[3] + 1)


def listed_places(document: Document) -> list[Any]:
    """The places of a document that holds no mistakes, as `Stored` takes them."""
    return document._stored if isinstance(document, Stored) else _listed(document.data, document._place)


def _listed(data: Data, place: Place) -> list[Any]:
    children = place[4]
    if children is None or not isinstance(data, (dict, list)):
        return list(place[:4])
    parts = data.items() if isinstance(data, dict) else enumerate(data)
    return [*place[:4], [_listed(part, children[step]) for step, part in parts]]
