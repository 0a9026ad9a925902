"""What a report says of the machine: its facts, and the packages that matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from selector.conditions import AxisTest, packages_of
from selector.constraints import word
from selector.errors import printable
from selector.vocabulary import UNKNOWN, Packages

if TYPE_CHECKING:
    from collections.abc import Collection

    from selector.catalog import Catalog

__all__ = ["asked_packages", "facts_text"]


_ASKED: WeakKeyDictionary[Catalog, frozenset[str]] = WeakKeyDictionary()


def asked_packages(catalog: Catalog) -> frozenset[str]:
    """The packages that some candidate or rule of a catalog asks about."""
    found = _ASKED.get(catalog)
    if found is None:
        found = _ASKED[catalog] = _asked(catalog)
    return found


def _asked(catalog: Catalog) -> frozenset[str]:
    found: set[str] = set()
    for candidate in catalog.candidates:
        for declared in candidate.declared.values():
            found.update(packages_of(AxisTest(declared.axis, declared.constraint)))
        for rule in candidate.rules:
            for part in (rule.when, rule.unless, rule.require, rule.until):
                found.update(packages_of(part))
    return frozenset(found)


def facts_text(facts: dict[str, Any], packages: Collection[str]) -> str:
    """The known facts of a machine in one line, of its packages those that are named."""
    shown = []
    for name, value in facts.items():
        if isinstance(value, Packages):
            shown += [f"{n}={p.version or p.state}" for n, p in value.items() if n in packages]
        elif value is not UNKNOWN:
            shown.append(f"{name}={word(value)}")
    return printable(" ".join(shown))
