"""On which preset machines a request that does not fit here would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.errors import SelectorError

if TYPE_CHECKING:
    from selector.report import Report

__all__ = ["accepting"]


def accepting(report: Report) -> list[tuple[str, str]]:
    """(preset, winner) for every preset with all packages on which the same request and preferences are met.

    Costs one specialised engine a preset, some 10 ms each.
    """
    from selector.environment import Environment, preset_names
    from selector.selection import Engine

    catalog = report.catalog
    found = []
    try:
        names = preset_names(catalog.root)
    except SelectorError:
        return []
    for name in names:
        try:
            machine = Environment.preset(name, vocabulary=catalog.vocabulary, root=catalog.root)
            outcome = Engine(catalog, machine, report.strict).decide(report.request, report.preferences)
        except SelectorError:  # a broken preset or software list is lint's business, not this report's
            continue
        if outcome.ranked:
            found.append((name, catalog.candidates[outcome.ranked[0]].id))
    return found
