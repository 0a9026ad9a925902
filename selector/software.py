"""Names of packages: those that `software.yaml` lists, and those that a catalog's conditions read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from selector.vocabulary import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from selector.catalog import Catalog

__all__ = ["unknown_packages"]


def unknown_packages(names: Iterable[str], catalog: Catalog) -> dict[str, str | None]:
    """The names that nothing in a catalog knows, so that having the package changes no decision; each with a hint."""
    asked = list(names)
    listed = _listed(catalog.root) if asked else frozenset[str]()
    strange = [name for name in asked if name not in listed]
    if not strange:
        return {}
    known = listed | _read(catalog)
    hints = {name: nearest(name, known) for name in strange if name not in known}
    return {name: f"did you mean {near}?" if near else None for name, near in hints.items()}


def _listed(root: str) -> frozenset[str]:
    """What is looked up on a machine."""
    from selector.environment import _load

    path = os.path.join(root, "software.yaml")
    software: Any = _load(path).data if os.path.isfile(path) else None
    packages: Any = software.get("packages") if isinstance(software, dict) else None
    return frozenset(packages) if isinstance(packages, dict) else frozenset()


def _read(catalog: Catalog) -> frozenset[str]:
    """What some condition asks for."""
    from selector.analysis.observe import observe

    seen = observe(catalog.program)
    return frozenset(
        name
        for axis in catalog.vocabulary.axes
        if axis.type == "packages"
        for constraint in seen[axis.index].constraints
        for clause in constraint.clauses
        for _, (name, _) in clause
    )
