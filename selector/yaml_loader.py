"""YAML files to plain data, with the place of every key and value.

A small, safe subset of YAML 1.2 is read: mappings with string keys, sequences, and the scalars text, `true`/`false`,
`null`, decimal integers and decimal fractions. Anchors, aliases, merge keys, tags and second documents are refused:
they make "where does this come from" ambiguous, and aliases nest exponentially. All mistakes of a file are reported
together in one `ManifestError`. Whatever a file is or holds, reading it takes bounded time and memory.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NoReturn

from selector.errors import Fault, ManifestError, Mark
from selector.yaml_reader import BREAK, FORBIDDEN, MAX_DEPTH, Data, Document, Path, read

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Data", "Document", "Path", "load_file", "load_text"]

#: Bytes of the largest file that is read.
MAX_BYTES = 1 << 20


def load_text(text: str | bytes, name: str) -> Document:
    """Read one document; `name` is what marks call the file.

    Raises:
        ManifestError: with every mistake that was found.
    """
    if len(text) > MAX_BYTES:
        _refuse(name, f"larger than {MAX_BYTES >> 20} MiB", "split it")
    decoded = _decode(text, name) if isinstance(text, bytes) else text
    decoded = decoded.removeprefix("\ufeff")
    bad = FORBIDDEN.search(decoded)
    if bad is not None:
        _refuse_at(
            name, decoded, bad.start(), f"the character U+{ord(bad.group()):04X} is not allowed", "remove it"
        )
    return read(decoded, name)


def load_file(path: str | os.PathLike[str], called: str | None = None) -> Document:
    """Read the regular file at `path`; at most `MAX_BYTES` of it are ever in memory.

    `called` is the name that marks carry, if it is not the path.

    Raises:
        ManifestError: the file cannot be read, is no regular file, or holds mistakes.
    """
    name = called if called is not None else os.fspath(path)
    place = os.fspath(path)
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        _check_regular(name, os.stat(place))  # before opening: opening a device can have effects
        descriptor = os.open(place, flags)
        try:
            status = os.fstat(descriptor)
            _check_regular(name, status)
            if status.st_size > MAX_BYTES:
                _refuse(name, f"{status.st_size} bytes, and at most {MAX_BYTES} are read", "split it")
            data = _read(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        message = _OS_MESSAGES.get(error.errno or 0) or f"cannot be read: {error.strerror or error}"
        _no_file(name, message)
    except ValueError:  # a NUL in the name
        _no_file(name, "not a possible file name")
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
        _no_file(name, "a directory, and a file was expected")
    if not stat.S_ISREG(status.st_mode):
        _no_file(name, "not a regular file")


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


def _no_file(name: str, message: str) -> NoReturn:
    """Raise ManifestError for what is no file to read: no place in it is meant."""
    raise ManifestError([Fault(Mark(name, 0, 0), "", message)])


def _refuse_at(name: str, text: str, index: int, message: str, hint: str) -> NoReturn:
    lines = BREAK.split(text[:index])
    start = index - len(lines[-1])
    end = BREAK.search(text, index)
    line = text[start : end.start() if end else len(text)]
    raise ManifestError([Fault(Mark(name, len(lines), len(lines[-1]) + 1), "", message, hint, line)])
