"""The reader of the YAML subset: parser events to plain data, with the place of every key and value.

It works on the parser's events with an explicit stack and never builds the node graph, so the depth of a text cannot
overflow any stack, and an alias is refused before anything is expanded.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

import yaml

from selector.document import BREAK, NO_PLACE, Data, Document, Path, Places, Scalar
from selector.errors import Fault, ManifestError, Mark, format_path
from selector.yaml_messages import MAX_DEPTH, shortened, syntax_message, unsafe_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    class _Mark(Protocol):
        line: int
        column: int

    class _Event(Protocol):
        """What is read of the parser's events; each kind of event has a part of it."""

        anchor: str | None
        tag: str | None
        implicit: tuple[bool, bool]
        value: str
        style: str | None
        version: tuple[int, int] | None
        tags: dict[str, str] | None
        start_mark: _Mark


__all__ = ["BREAK", "FORBIDDEN", "MAX_DEPTH", "Data", "Document", "Path", "read"]

#: Mistakes after which a file is given up.
MAX_FAULTS = 100
#: Digits of the longest number.
MAX_DIGITS = 18

#: The C parser where PyYAML was built with it (8 times as fast), else the one in Python.
_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NUMBER_START = frozenset("+-.0123456789")
#: Characters that no file may hold: control characters, other line breaks than CR and LF, surrogates, a second byte
#: order mark. Line numbers then mean the same here, in the parser and in every editor.
FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


class _Level:
    """A mapping or sequence that is still open: its value, its children's places, and the key that waits."""

    __slots__ = ("column", "data", "key", "key_column", "key_line", "line", "places", "waiting")

    def __init__(self, data: dict[str, Data] | list[Data], line: int, column: int) -> None:
        self.data = data
        self.places: Places = {}
        self.line = line
        self.column = column
        self.key: str | None = None  # None with `waiting`: the value belongs to a key that was refused
        self.key_line = line
        self.key_column = column
        self.waiting = False


def read(text: str, name: str) -> Document:
    """Read one document from text without forbidden characters; `name` is what marks call the file.

    Raises:
        ManifestError: with every mistake that was found.
    """
    return _Reader(name, text).read()


class _Reader:
    """One pass over the events of one text."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.document = Document(name, text, None, NO_PLACE)
        self.faults: list[Fault] = []
        self.stack: list[_Level] = []

    def read(self) -> Document:
        try:
            self._walk(cast("Iterator[_Event]", yaml.parse(self.text, Loader=_Loader)))
        except yaml.YAMLError as error:
            line, column, message, hint = syntax_message(error, self.document.line)
            if len(self.faults) < MAX_FAULTS:
                self._fault(line, column, message, hint)
        except _Stop:
            pass
        if self.faults:
            raise ManifestError(self.faults)
        return self.document

    def _walk(self, events: Iterator[_Event]) -> None:
        stack = self.stack
        documents = 0
        for event in events:
            kind: type = type(event)
            if kind is yaml.ScalarEvent:
                if event.anchor is not None or event.tag is not None:
                    self._unsafe(event)
                level = stack[-1] if stack else None
                mark = event.start_mark
                if level is not None and not level.waiting and type(level.data) is dict:
                    self._key(level, event, mark.line, mark.column)
                else:
                    self._add(self._scalar(event), mark.line, mark.column, None)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._open(event, {} if kind is yaml.MappingStartEvent else [])
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                level = stack.pop()
                self._add(level.data, level.line, level.column, level.places)
            elif kind is yaml.AliasEvent:
                self._unsafe(event)
                level = stack[-1] if stack else None
                mark = event.start_mark
                if level is not None and not level.waiting and type(level.data) is dict:
                    level.waiting, level.key = True, None
                else:
                    self._add(None, mark.line, mark.column, None)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                self._document_start(event, documents)

    def _document_start(self, event: _Event, number: int) -> None:
        mark = event.start_mark
        if number > 1:
            self._stop(
                mark.line, mark.column, "a second document in one file", "keep one document in each file"
            )
        if event.version is not None and tuple(event.version) != (1, 2):
            version = ".".join(str(part) for part in event.version)
            self._fault(
                mark.line, mark.column, f"%YAML {version} is not read", "remove the line, or say %YAML 1.2"
            )
        if event.tags:
            self._fault(mark.line, mark.column, "%TAG is not read: tags are refused", "remove the line")

    def _open(self, event: _Event, data: dict[str, Data] | list[Data]) -> None:
        if event.anchor is not None or event.tag is not None:
            self._unsafe(event)
        mark = event.start_mark
        if len(self.stack) >= MAX_DEPTH:
            self._stop(mark.line, mark.column, f"nested deeper than {MAX_DEPTH} levels", None)
        parent = self.stack[-1] if self.stack else None
        if parent is not None and not parent.waiting and type(parent.data) is dict:
            self._stop(mark.line, mark.column, "a key must be a word, not a list or a mapping",
                       'text that starts with "{" or "[" must be quoted')  # fmt: skip
        self.stack.append(_Level(data, mark.line, mark.column))

    def _key(self, level: _Level, event: _Event, line: int, column: int) -> None:
        level.waiting, level.key_line, level.key_column = True, line, column
        key = self._scalar(event)
        level.key = None
        if type(key) is not str:
            written = event.value or "an empty key"
            self._fault(line, column, f"a key must be text, and {written} is {_KINDS[type(key)]}",
                        f'quote it: "{event.value}"' if event.value else "write a name before the colon")  # fmt: skip
        elif key == "<<" and event.implicit[0]:
            self._fault(line, column, "merge keys (<<) are refused", "repeat the entries, or use `extends`")
        elif key in level.places:
            first = level.places[key]
            self._fault(line, column, f"{key} is given twice (first on line {first[0] + 1})", "keep one", key)
        else:
            level.key = key

    def _add(self, value: Data, line: int, column: int, places: Places | None) -> None:
        """Store a finished value where it belongs."""
        if not self.stack:
            self.document.data = value
            self.document._place = (line, column, line, column, places)
            return
        level = self.stack[-1]
        if type(level.data) is list:
            level.places[len(level.data)] = (line, column, line, column, places)
            level.data.append(value)
            return
        level.waiting = False
        if level.key is not None and type(level.data) is dict:
            level.data[level.key] = value
            level.places[level.key] = (level.key_line, level.key_column, line, column, places)

    def _scalar(self, event: _Event) -> Scalar:
        value: str = event.value
        if not event.implicit[0]:  # quoted, or a block of text
            if not value.isprintable() and FORBIDDEN.search(value):
                self._at(event, "a control character in text", "remove the escape")
            if event.style == ">" and not value:
                self._at(event, "> starts a block of text, and the block is empty",
                         'a comparison must be quoted: ">2"')  # fmt: skip
            return value
        if value in _WORDS:
            return _WORDS[value]
        if value[0] in _NUMBER_START:
            if _INTEGER.fullmatch(value):
                if len(value.lstrip("+-")) > MAX_DIGITS:
                    self._at(event, f"a number of more than {MAX_DIGITS} digits", "quote it if it is text")
                    return 0
                return int(value)
            if _FLOAT.fullmatch(value):
                number = float(value)
                if math.isinf(number):
                    self._at(event, f"{value[:40]} is too large for a number", "quote it if it is text")
                    return 0.0
                return number
        return value

    def _unsafe(self, event: _Event) -> None:
        alias = isinstance(event, yaml.AliasEvent)
        for message, hint in unsafe_message(event.anchor, None if alias else event.tag, alias):
            self._at(event, message, hint)

    def _at(self, event: _Event, message: str, hint: str | None) -> None:
        self._fault(event.start_mark.line, event.start_mark.column, message, hint)

    def _fault(self, line: int, column: int, message: str, hint: str | None, key: str | None = None) -> None:
        if len(self.faults) >= MAX_FAULTS:
            raise _Stop
        steps: list[str | int] = []
        for level in self.stack:
            if type(level.data) is list:
                steps.append(len(level.data))
            elif level.waiting and level.key is not None:
                steps.append(level.key)
        if key is not None:
            steps.append(key)
        at = Mark(self.name, line + 1, column + 1)
        self.faults.append(
            Fault(at, format_path(steps), shortened(message), shortened(hint), self.document.line(line + 1))
        )

    def _stop(self, line: int, column: int, message: str, hint: str | None) -> NoReturn:
        self._fault(line, column, message, hint)
        raise _Stop


class _Stop(Exception):
    """Reading on would only produce noise."""


_KINDS = {bool: "a truth value", int: "a number", float: "a number", type(None): "nothing"}
