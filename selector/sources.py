"""The files that make a catalog: which they are, their bytes, and one key for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from hashlib import sha256

from selector.cache import regular

__all__ = [
    "ENTRY_POINTS",
    "MAX_BYTES",
    "contents",
    "files_of",
    "installed_packs",
    "key_of",
    "pack_folder",
    "pack_names",
]

#: Group of entry points by which installed distributions bring packs.
ENTRY_POINTS = "attention_selector.packs"
#: Bytes of the largest file that is read.
MAX_BYTES = 1 << 20


def pack_folder(name: str, root: str) -> str | None:
    """The directory of a pack given by name, by path, or by an installed distribution; None if there is none."""
    if os.sep in name or name in (".", "..") or os.path.isfile(os.path.join(name, "pack.yaml")):
        path = os.path.abspath(name)
        return path if os.path.isfile(os.path.join(path, "pack.yaml")) else None
    path = os.path.join(root, name)
    if os.path.isfile(os.path.join(path, "pack.yaml")):
        return path
    return installed_packs().get(name)


def files_of(folders: Iterable[str], root: str) -> list[str]:
    """The files of some packs and the vocabulary under them, in the order of reading; unreadable directories have none."""
    found = [os.path.join(root, "vocabulary.yaml")]
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            names = ["pack.yaml"]
        ordered: list[str] = [n for n in ("vocabulary.yaml", "pack.yaml") if n in names]
        ordered += [n for n in names if is_manifest(n)]
        found += [os.path.join(folder, n) for n in ordered]
    return found


def is_manifest(name: str) -> bool:
    """Whether a file of a pack's directory is a manifest, by its name."""
    return (
        name.endswith((".yaml", ".yml"))
        and name not in ("pack.yaml", "vocabulary.yaml")
        and not name.startswith(".")
    )


def contents(paths: Iterable[str]) -> dict[str, bytes] | None:
    """The bytes of some files; None if one cannot be read, is no regular file or too large (reading it again says why)."""
    found: dict[str, bytes] = {}
    for path in paths:
        data = regular(path, MAX_BYTES)
        if data is None:
            return None
        found[path] = data
    return found


def key_of(files: Mapping[str, bytes], root: str, *more: str) -> str:
    """A hash of files, of where they are, and of anything else that counts."""
    digest = sha256("\0".join((root, *more)).encode(errors="surrogateescape"))
    for path, data in files.items():
        digest.update(f"\0{path}\0{len(data)}\0".encode(errors="surrogateescape"))
        digest.update(data)
    return digest.hexdigest()


def pack_names(root: str) -> list[str]:
    """The packs of a manifests directory."""
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    return [n for n in names if os.path.isfile(os.path.join(root, n, "pack.yaml"))]


def installed_packs() -> dict[str, str]:
    """Packs of installed distributions: entry points whose value is a package that holds a pack's files."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    found: dict[str, str] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: p.name):
        # find_spec of a top-level package runs no code of it; nothing of the pack is imported.
        top, _, rest = point.value.partition(".")
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            continue
        for location in (spec.submodule_search_locations if spec is not None else None) or ():
            folder = os.path.join(location, *rest.split(".")) if rest else location
            if os.path.isfile(os.path.join(folder, "pack.yaml")):
                found[point.name] = folder
    return found
