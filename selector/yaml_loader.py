"""YAML text to plain data, with the place of every key and value.

A small, safe subset of YAML 1.2 is read: mappings with string keys, sequences, and the scalars text, `true`/`false`,
`null`, decimal integers and decimal fractions. Anchors, aliases, merge keys, tags and second documents are refused:
they make "where does this come from" ambiguous, and aliases nest exponentially.

The reader works on the parser's events with an explicit stack. It never builds the node graph, so the depth of a
file cannot overflow any stack, and an alias is refused before anything is expanded. All mistakes of a file are
reported together in one `ManifestError`.
"""

from __future__ import annotations

import errno
import math
import os
import re
import stat
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import yaml

from selector.errors import Fault, ManifestError, Mark, format_path
from selector.yaml_messages import syntax_message, unsafe_message

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of the largest file that is read.
MAX_BYTES = 1 << 20
#: Levels of nested mappings and sequences.
MAX_DEPTH = 64
#: Mistakes after which a file is given up.
MAX_FAULTS = 100
#: Digits of the longest number.
MAX_DIGITS = 18

Scalar: TypeAlias = "str | int | float | bool | None"
Data: TypeAlias = "Scalar | list[Data] | dict[str, Data]"
Path: TypeAlias = "tuple[str | int, ...]"

#: Where a node lies: (line, column) of its key, of its value (both from 0), and the places of its children.
_Place: TypeAlias = "tuple[int, int, int, int, _Places | None]"
_Places: TypeAlias = "dict[str | int, _Place]"

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
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_BREAK = re.compile(r"\r\n|\r|\n")
_NO_PLACE: _Place = (0, 0, 0, 0, None)


class Document:
    """One YAML document: `data` as plain Python values, and the place of every part of it."""

    __slots__ = ("_lines", "_place", "_text", "data", "name")

    def __init__(self, name: str, text: str, data: Data, place: _Place) -> None:
        self.name = name
        self.data = data
        self._text = text
        self._place = place
        self._lines: list[str] | None = None

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
            self._lines = _BREAK.split(self._text)
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def fault(self, path: Path, message: str, hint: str | None = None, *, key: bool = False,
              severity: str = "error") -> Fault:  # fmt: skip
        """A fault at `path` of this document, with the line it lies on."""
        at = self.mark(path, key)
        return Fault(at, format_path(path), message, hint, self.line(at.line), severity)


class _Level:
    """A mapping or sequence that is still open: its value, its children's places, and the key that waits."""

    __slots__ = ("column", "data", "key", "key_column", "key_line", "line", "places", "waiting")

    def __init__(self, data: dict[str, Data] | list[Data], line: int, column: int) -> None:
        self.data = data
        self.places: _Places = {}
        self.line = line
        self.column = column
        self.key: str | None = None  # None with `waiting`: the value belongs to a key that was refused
        self.key_line = line
        self.key_column = column
        self.waiting = False


class _Reader:
    """One pass over the events of one text."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.document = Document(name, text, None, _NO_PLACE)
        self.faults: list[Fault] = []
        self.stack: list[_Level] = []

    def read(self) -> Document:
        try:
            self._walk(yaml.parse(self.text, Loader=_Loader))
        except yaml.YAMLError as error:
            line, column, message, hint = syntax_message(error, self.document.line)
            self._fault(line, column, message, hint)
        except _Stop:
            pass
        if self.faults:
            raise ManifestError(self.faults)
        return self.document

    def _walk(self, events: Iterator[yaml.Event]) -> None:
        stack = self.stack
        documents = 0
        for event in events:
            kind = type(event)
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

    def _document_start(self, event: yaml.DocumentStartEvent, number: int) -> None:
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

    def _open(self, event: yaml.CollectionStartEvent, data: dict[str, Data] | list[Data]) -> None:
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

    def _key(self, level: _Level, event: yaml.ScalarEvent, line: int, column: int) -> None:
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

    def _add(self, value: Data, line: int, column: int, places: _Places | None) -> None:
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

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        value: str = event.value
        if not event.implicit[0]:  # quoted, or a block of text
            if not value.isprintable() and _FORBIDDEN.search(value):
                self._at(event, "a control character in text", "remove the escape")
            if event.style == ">" and not value:
                self._at(event, "> starts a block of text, and the block is empty",
                         'a comparison must be quoted: ">2"')  # fmt: skip
            return value
        if value in _WORDS:
            return _WORDS[value]
        if value[0] in _NUMBER_START:
            if _INTEGER.fullmatch(value):
                if len(value) > MAX_DIGITS:
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

    def _unsafe(self, event: yaml.NodeEvent) -> None:
        for message, hint in unsafe_message(event):
            self._at(event, message, hint)

    def _at(self, event: yaml.Event, message: str, hint: str | None) -> None:
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
        self.faults.append(Fault(at, format_path(steps), message, hint, self.document.line(line + 1)))

    def _stop(self, line: int, column: int, message: str, hint: str | None) -> NoReturn:
        self._fault(line, column, message, hint)
        raise _Stop


class _Stop(Exception):
    """Reading on would only produce noise."""


_KINDS = {bool: "a truth value", int: "a number", float: "a number", type(None): "nothing"}


def load_text(text: str | bytes, name: str) -> Document:
    """Read one document; `name` is what marks call the file.

    Raises:
        ManifestError: with every mistake that was found.
    """
    if len(text) > MAX_BYTES:
        _refuse(name, f"larger than {MAX_BYTES >> 20} MiB", "split it")
    decoded = _decode(text, name) if isinstance(text, bytes) else text
    if decoded.startswith("\ufeff"):
        decoded = decoded[1:]
    bad = _FORBIDDEN.search(decoded)
    if bad is not None:
        _refuse_at(
            name, decoded, bad.start(), f"the character U+{ord(bad.group()):04X} is not allowed", "remove it"
        )
    return _Reader(name, decoded).read()


def load_file(path: str | os.PathLike[str]) -> Document:
    """Read the regular file at `path`; at most `MAX_BYTES` of it are ever in memory.

    Raises:
        ManifestError: the file cannot be read, is no regular file, or holds mistakes.
    """
    name = os.fspath(path)
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        _check_regular(name, os.stat(name))  # before opening: opening a device can have effects
        descriptor = os.open(name, flags)
        try:
            status = os.fstat(descriptor)
            _check_regular(name, status)
            if status.st_size > MAX_BYTES:
                _refuse(name, f"{status.st_size} bytes, and at most {MAX_BYTES} are read", "split it")
            data = _read(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        _refuse(
            name, _OS_MESSAGES.get(error.errno or 0) or f"cannot be read: {error.strerror or error}", None
        )
    except ValueError:  # a NUL in the name
        _refuse(name, "not a possible file name", None)
    return load_text(data, name)


_OS_MESSAGES = {
    errno.ENOENT: "no such file",
    errno.ELOOP: "a symbolic link that leads back to itself",
    errno.EACCES: "may not be read (permission denied)",
    errno.ENOTDIR: "no such file (a part of the path is not a directory)",
    errno.ENAMETOOLONG: "the name is too long",
}


def _check_regular(name: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        _refuse(name, "a directory, and a file was expected", None)
    if not stat.S_ISREG(status.st_mode):
        _refuse(name, "not a regular file", None)


def _read(descriptor: int) -> bytes:
    """At most one byte more than allowed, however large the file has become."""
    parts = []
    left = MAX_BYTES + 1
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _decode(data: bytes, name: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        _refuse(name, "UTF-16 text", "save it as UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = data.decode("latin-1")
        before = len(data[: error.start].decode("utf-8"))
        _refuse_at(name, data[: error.start].decode("utf-8") + text[error.start :], before,
                   f"byte 0x{data[error.start]:02x} is not UTF-8 text", "save it as UTF-8")  # fmt: skip


def _refuse(name: str, message: str, hint: str | None) -> NoReturn:
    raise ManifestError([Fault(Mark(name, 1, 1), "", message, hint)])


def _refuse_at(name: str, text: str, index: int, message: str, hint: str) -> NoReturn:
    lines = _BREAK.split(text[:index])
    start = index - len(lines[-1])
    end = _BREAK.search(text, index)
    line = text[start : end.start() if end else len(text)]
    raise ManifestError([Fault(Mark(name, len(lines), len(lines[-1]) + 1), "", message, hint, line)])
