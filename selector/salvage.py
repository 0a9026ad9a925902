"""What is left of a document that its schema refuses: so that one run also tells the mistakes that no schema can see."""

from __future__ import annotations

import copy
from itertools import islice
from typing import TYPE_CHECKING, Any

from selector.schema_messages import explain
from selector.validate import MAX_ERRORS, checks_of
from selector.yaml_loader import Document

if TYPE_CHECKING:
    from selector.schema_axes import Schema

__all__ = ["salvage"]

#: Times that the rest is looked at again; taking an entry away may leave an empty mapping behind.
_ROUNDS = 6


def salvage(document: Document, schema: Schema) -> Document | None:
    """The document without the entries that are wrong, with the places of the whole; None where nothing can be judged.

    Nothing can where a key is missing, or where names that others refer to would be taken away.
    """
    checks = checks_of(schema)
    data: Any = copy.deepcopy(document.data)
    for _ in range(_ROUNDS):
        if checks.accepts(data):
            return document.holding(data)
        findings = [f for error in islice(checks.errors(data), MAX_ERRORS) for f in explain(error, document)]
        if not all(not f.missing and _take_away(data, f.path) for f in findings):
            return None
    return None


def _take_away(data: Any, path: tuple[str | int, ...]) -> bool:
    """Delete the innermost mapping entry on the path; False if that is the name of something, or there is none."""
    keys = [k for k, step in enumerate(path) if isinstance(step, str)]
    if not keys:
        return False
    end = keys[-1]
    if path[end] == "name" or path[: end + 1] == ("variants",):
        return False
    for step in path[:end]:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return True  # taken away with what it stood in
    if isinstance(data, dict):
        data.pop(path[end], None)
        return True
    return False
