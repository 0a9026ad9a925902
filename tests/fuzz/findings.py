"""What a finding is: its kind and place, a smaller input that still shows it, and the file that keeps it."""

from __future__ import annotations

import hashlib
import sys
import time
import traceback
from pathlib import Path

__all__ = ["KEPT", "keep", "place"]

KEPT = Path(__file__).resolve().parents[1] / "data" / "fuzz"


def place(error: BaseException) -> str:
    """The kind of an error and the line of ours it came from: what makes two findings the same."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/selector/" in f.filename] or frames
    last = ours[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno} in {last.name}"


def keep(name: str, data: bytes, where: str) -> None:
    """Make an input smaller while it still fails at the same place, write it down and tell it."""
    small = smaller(name, data, where)
    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(small).hexdigest()[:12]
    path.write_bytes(small)
    print(f"{name}: {where}\n  {path}: {small[:200]!r}", file=sys.stderr, flush=True)


def smaller(name: str, data: bytes, where: str) -> bytes:
    """By leaving out ever smaller pieces; at most a few seconds."""
    from tests.fuzz.targets import TARGETS, check

    def fails(part: bytes) -> bool:
        try:
            check(TARGETS[name], part)
        except Exception as error:
            return place(error) == where
        return False

    until = time.monotonic() + 10
    size = max(1, len(data) // 2)
    while size and time.monotonic() < until:
        at = 0
        while at < len(data) and time.monotonic() < until:
            part = data[:at] + data[at + size :]
            if fails(part):
                data = part
            else:
                at += size
        size //= 2
    return data
