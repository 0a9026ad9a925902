"""Parsed files that are no part of a catalog (presets, the software list), kept on disk by their content."""

from __future__ import annotations

from selector import cache, sources
from selector.document import Document, Stored, listed_places

__all__ = ["load_stored"]

#: Documents kept in memory.
KEPT = 64
_KNOWN: dict[str, Document] = {}


def load_stored(path: str) -> Document:
    """The document of a YAML file, parsed only if its content was not parsed before.

    Raises:
        ManifestError: with every mistake of the file.
    """
    data = sources.contents([path])
    if data is None:
        from selector.yaml_loader import load_file

        return load_file(path)
    key = sources.key_of(data, path, cache.stamp())
    found = _KNOWN.get(key)
    if found is None:
        if len(_KNOWN) >= KEPT:
            _KNOWN.clear()
        found = _KNOWN[key] = _stored(path, key, data[path]) or _parsed(path, key, data[path])
    return found


def _stored(path: str, key: str, data: bytes) -> Document | None:
    from json import loads

    lines = cache.load("file", key)
    if lines is None:
        return None
    try:
        raw, places = loads(lines[0])
        return Stored(path, data.removeprefix(b"\xef\xbb\xbf").decode(), raw, places)
    except cache.UNSOUND:
        return None


def _parsed(path: str, key: str, data: bytes) -> Document:
    from selector.image import dump
    from selector.yaml_loader import load_text

    document = load_text(data, path)
    cache.store("file", key, [dump([document.data, listed_places(document)])])
    return document
