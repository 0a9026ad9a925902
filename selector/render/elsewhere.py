"""On which preset machines a request that does not fit here would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from selector.errors import SelectorError

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.report import Report

__all__ = ["accepting"]

#: The presets as they were when a catalog's first such report was written.
_PRESETS: WeakKeyDictionary[Catalog, tuple[Environment, ...]] = WeakKeyDictionary()


def accepting(report: Report) -> list[tuple[str, str]]:
    """(preset, winner) for every preset with all packages on which the same request and preferences are met.

    The first of a catalog costs one specialised engine a preset, some milliseconds each; the catalog keeps them.
    """
    from selector.selection import engine_for

    catalog = report.catalog
    machines = _PRESETS.get(catalog)
    if machines is None:
        machines = _PRESETS[catalog] = _presets(catalog)
    found = []
    for machine in machines:
        try:
            outcome = engine_for(catalog, machine, report.strict).decide(report.request, report.preferences)
        except SelectorError:  # the software list may be broken for one of them
            continue
        if outcome.best >= 0:
            found.append((machine.name, catalog.candidates[outcome.best].id))
    return found


def _presets(catalog: Catalog) -> tuple[Environment, ...]:
    """Every preset that can be read: a broken one is lint's business, not a report's."""
    from selector.environment import Environment, preset_names

    found = []
    try:
        for name in preset_names(catalog.root):
            try:
                found.append(Environment.preset(name, vocabulary=catalog.vocabulary, root=catalog.root))
            except SelectorError:
                continue
    except SelectorError:
        return ()
    return tuple(found)
