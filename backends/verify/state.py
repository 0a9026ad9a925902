"""Verdicts that are known already: kept while a walk lasts, and in a file where a later one is to go on from there.

A verdict is about a kernel, a call and a machine, not about a manifest: an edit of a manifest leaves it valid. It is not valid
for other wrappers or packages, so the file begins with what it is about.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import IO, Any

from backends.verify.child import Answer

__all__ = ["State"]

#: Version of the file's form.
FORMAT = 1


class State:
    """Verdicts by call; with a path, each is written when it is known. ``fresh`` says why an old file was not used."""

    def __init__(self, path: str | os.PathLike[str] | None, machine: str) -> None:
        self.known: dict[str, Answer] = {}
        self.fresh: str | None = None
        self._file: IO[str] | None = None
        if path is None:
            return
        head = {"verify": FORMAT, "machine": machine, "wrappers": _wrappers()}
        lines = self._read(Path(path), head)
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # closed by close()
        for entry in (head, *lines):
            self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def _read(self, path: Path, head: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        entries = []
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                break  # the line that was being written when the last walk was stopped
            if isinstance(entry, dict):
                entries.append(entry)
        if not entries or "verify" not in entries[0]:
            if text.strip():
                raise ValueError(f"{path} holds no verdicts: it is left as it is")
            return []
        if entries[0] != head:
            changed = [name for name, value in head.items() if entries[0].get(name) != value]
            self.fresh = f"{path} is about another {' and '.join(changed)}: begun anew"
            return []
        for entry in entries[1:]:
            self.known[entry["call"]] = Answer(entry["outcome"], entry["message"], entry["seconds"])
        return entries[1:]

    def add(self, call: str, answer: Answer) -> None:
        """Keep a verdict."""
        self.known[call] = answer
        if self._file is not None:
            self._file.write(json.dumps({"call": call, **answer._asdict()}) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _wrappers() -> str:
    """A digest of the wrappers' sources."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
