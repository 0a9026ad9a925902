"""Compiled catalogs and parsed files on disk, so that a new process need not read YAML again.

An entry is a text file: a line with its kind, key and checksum, then lines of JSON. A key is a hash of everything that the
entry was made from - the files' names and contents, and the code that made it - so an entry is never out of date, only
unused. Entries are written beside their place and moved into it, so two processes may write one at the same time. What is
damaged, foreign or not ours is ignored and made anew; a directory that cannot be written to is no error.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256

__all__ = ["UNSOUND", "VARIABLE", "folder", "load", "stamp", "store"]

#: Process variable that names another directory; `off` (or 0, false, no, nothing): no cache.
VARIABLE = "ATTN_SELECTOR_CACHE"
OFF = frozenset({"", "0", "off", "false", "no"})

#: Version of the entries' form.
FORMAT = 2
NAME = "attention-selector"
#: What reading a sound entry of another make may raise: it is made anew then.
UNSOUND = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
#: Entries kept, and bytes of the largest that is read.
KEPT, LARGEST = 256, 1 << 28

_HERE = os.path.dirname(os.path.abspath(__file__))
_STAMP: list[str] = []


def folder() -> str | None:
    """The directory of the entries: the variable's, or the platform's place for caches; None if switched off."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return None if named.strip().lower() in OFF else os.path.abspath(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(os.path.expanduser("~"), "AppData", "Local")
        return os.path.join(base, NAME, "Cache")
    if sys.platform == "darwin":
        return os.path.join(os.path.expanduser("~"), "Library", "Caches", NAME)
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(base):  # a relative one is to be ignored, says the XDG specification
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return None if base.startswith("~") else os.path.join(base, NAME)


def stamp() -> str:
    """What stands for the code that makes entries: this package's files and its schemas, with their sizes and times."""
    if not _STAMP:
        digest = sha256(f"{FORMAT} {sys.version_info[:2]} {_HERE}".encode(errors="surrogateescape"))
        for place, ending in ((_HERE, ".py"), (os.path.join(_HERE, "schema"), ".json")):
            with os.scandir(place) as found:
                for entry in sorted(found, key=lambda e: e.name):
                    if entry.name.endswith(ending):
                        status = entry.stat()
                        digest.update(f"\0{entry.name} {status.st_size} {status.st_mtime_ns}".encode())
        _STAMP.append(digest.hexdigest())
    return _STAMP[0]


def load(kind: str, key: str) -> list[str] | None:
    """The lines of an entry, or None."""
    place = folder()
    if place is None:
        return None
    data = regular(os.path.join(place, f"{kind}-{key}.json"), LARGEST, _trusted)
    if data is None:
        return None
    head, _, body = data.partition(b"\n")
    if head != _head(kind, key, body):
        return None
    try:
        return body.decode().split("\n")
    except UnicodeDecodeError:
        return None


def regular(path: str, largest: int, good: Callable[[os.stat_result], bool] | None = None) -> bytes | None:
    """The bytes of a regular file; None for any other, one that cannot be read, is larger, changes meanwhile or is not good.

    It never waits, as opening a pipe would.
    """
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before opening: opening a device can have effects
            return None
        descriptor = os.open(path, flags)
        try:
            status = os.fstat(descriptor)
            size = status.st_size
            if size > largest or not stat.S_ISREG(status.st_mode) or (good is not None and not good(status)):
                return None
            data = os.read(descriptor, size + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None
    return data if len(data) == size else None


def store(kind: str, key: str, lines: Sequence[str]) -> None:
    """Keep an entry. A line has no line break in it; a directory that cannot be written to is left alone."""
    place = folder()
    if place is None:
        return
    body = "\n".join(lines).encode()
    target = os.path.join(place, f"{kind}-{key}.json")
    passing = f"{target}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        descriptor = os.open(
            passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
        )
        try:
            with open(descriptor, "wb") as file:
                file.write(_head(kind, key, body) + b"\n" + body)
            os.replace(passing, target)
        except OSError:
            os.unlink(passing)
            return
        _prune(place)
    except OSError:
        return


def _head(kind: str, key: str, body: bytes) -> bytes:
    return f"{NAME} {FORMAT} {kind} {key} {sha256(body).hexdigest()}".encode()


def _trusted(status: os.stat_result) -> bool:
    """Whether nobody else can have written a file: it is ours, and only we may write to it."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _prune(place: str) -> None:
    """Remove the oldest entries where there are too many, and what a killed process left behind."""
    with os.scandir(place) as found:
        entries = [(e.stat().st_mtime, e.path) for e in found if e.name.endswith((".json", ".tmp"))]
    if len(entries) <= KEPT:
        return
    for _, path in sorted(entries)[: len(entries) - KEPT // 2]:
        os.unlink(path)
