"""What the site's generator does not do by itself: pages that a star in `nav` stands for, and words behind a fence's language."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from typing import Any

__all__ = ["on_files", "on_page_markdown"]

FENCE = re.compile(r"^( *```\w+)[ ]+[^\n`]+$", re.M)


def on_files(files: Any, config: Any) -> Any:
    """Replace every entry of `nav` that has a star by the pages that match it, in alphabetical order."""
    names = sorted(file.src_uri for file in files if file.src_uri.endswith(".md"))
    config["nav"] = _expanded(config["nav"], names)
    return files


def _expanded(entries: list[Any], names: list[str]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            inside = {
                key: _expanded(part, names) if isinstance(part, list) else part for key, part in entry.items()
            }
            found += [inside] if all(inside.values()) else []
        elif "*" in entry:
            found += [name for name in names if fnmatch(name, entry)]
        else:
            found.append(entry)
    return found


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Leave only the language of a fence: the other words are for the tests of the examples."""
    return FENCE.sub(r"\1", markdown)
