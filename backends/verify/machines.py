"""Which candidates this machine can run, in which order they matter, and on which machine the others could run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from selector.request import Request

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.manifest import Candidate
    from selector.reasons import Reason

__all__ = ["in_order", "machines_for", "standing"]

#: Facts in which machines differ for a kernel, beside what is installed on them.
KIND = ("device", "compute_capability", "gcn_arch", "cpu_arch")


def standing(catalog: Catalog, environment: Environment) -> dict[str, tuple[Reason, ...]]:
    """Every candidate that can be chosen, with what this machine has against it (nothing: usable)."""
    from selector.selection import decide

    report = decide(Request({}, vocabulary=catalog.vocabulary), catalog, environment)
    by_name = catalog.vocabulary.by_name
    found = {}
    for candidate in catalog.candidates:
        if not candidate.abstract and candidate.kernel is not None:
            reasons = report.reasons(candidate.id)
            found[candidate.id] = tuple(
                r for r in reasons if r.axis in by_name and by_name[r.axis].of == "environment"
            )
    return found


def in_order(
    found: dict[str, tuple[Reason, ...]], catalog: Catalog, environment: Environment
) -> dict[str, tuple[Reason, ...]]:
    """The candidates in the policy's order on this machine: what runs most is walked first."""
    from selector.selection import decide

    report = decide(Request({}, vocabulary=catalog.vocabulary), catalog, environment)
    order = {ranked.id: None for ranked in report.ranked}
    return {i: found[i] for i in (*(i for i in order if i in found), *(i for i in found if i not in order))}


def machines_for(
    catalog: Catalog, candidates: list[Candidate], *, every: bool
) -> Iterator[tuple[Candidate, Environment]]:
    """Presets on which each candidate can be used: the first, or one of every kind that differs in what kernels ask for."""
    from selector.environment import Environment, preset_names

    waiting = {c.id: c for c in candidates}
    seen: set[tuple[str, ...]] = set()
    for name in preset_names(catalog.root) if waiting else ():
        machine = Environment.preset(name, vocabulary=catalog.vocabulary, root=catalog.root)
        kind = tuple(str(machine.get(fact)) for fact in KIND)
        if kind in seen:
            continue
        seen.add(kind)
        against = standing(catalog, machine)
        for ident in [i for i in waiting if not against[i]]:
            yield waiting[ident], machine
            if not every:
                del waiting[ident]
