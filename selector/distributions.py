"""Versions of installed distributions, read off the search path: `importlib.metadata` without the import (some 30 ms).

Only what is plain is answered here: a directory of the search path with a `*.dist-info` or `*.egg-info` whose metadata names
a version. Everything else - archives, other finders, broken metadata - is left to `importlib.metadata`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

__all__ = ["installed"]

#: Bytes of metadata that are read; `Version` stands among the first fields.
HEAD = 4096


def installed(names: Iterable[str]) -> dict[str, str | None] | None:
    """Versions by name: None for a distribution that is not there. Names that are not plain are left out.

    None altogether where the search path has anything but directories.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if not _usual(finder)):
        return None
    wanted = {_normal(name): name for name in names}
    found: dict[str, str | None] = dict.fromkeys(wanted.values())
    odd: set[str] = set()
    for place in dict.fromkeys(sys.path):
        try:
            entries = os.listdir(place or os.curdir)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        for entry in entries:
            stem, dot, suffix = entry.rpartition(".")
            if suffix not in ("dist-info", "egg-info", "egg") or not dot:
                continue
            name = wanted.get(_normal(stem.partition("-")[0]))
            if name is None or name in odd or found[name] is not None:
                continue
            version = _version(os.path.join(place, entry), suffix)
            if version is None:
                odd.add(name)
            found[name] = version
    return {name: version for name, version in found.items() if name not in odd}


def _usual(finder: object) -> bool:
    """Whether a finder is the interpreter's own for directories."""
    return getattr(finder, "__module__", "") == "_frozen_importlib_external"


def _normal(name: str) -> str:
    """One spelling of a distribution's name."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def _version(path: str, suffix: str) -> str | None:
    """The version that metadata names; None if that takes a closer look."""
    for inside in ("METADATA",) if suffix == "dist-info" else ("PKG-INFO",):
        try:
            with open(os.path.join(path, inside), encoding="utf-8") as file:
                head = file.read(HEAD)
        except (OSError, ValueError):
            return None
        for line in head.splitlines():
            if not line:
                return None
            key, _, value = line.partition(":")
            if key.lower() == "version":
                return value.strip() or None
    return None
