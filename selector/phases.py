"""Phases: packs that answer prefill and decode apart, and the rules about which answers go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.conditions import holds
from selector.pack import PHASE
from selector.preferences import Preference
from selector.selection import decide

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.pack import PairRule
    from selector.report import Ranked, Report
    from selector.request import Request

__all__ = ["PHASE", "PhasePlan", "phases_of", "select_phases"]


class PhasePlan(NamedTuple):
    """One report a phase, the candidate chosen in each (None where none fits), and what pairing changed, in words.

    ``rules`` are the pair rules whose conditions hold for the request.
    """

    reports: Mapping[str, Report]
    chosen: Mapping[str, str | None]
    notes: tuple[str, ...]
    rules: tuple[PairRule, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every phase has a candidate."""
        return all(self.chosen.values())

    def runs(self, phase: str) -> str | None:
        """What runs in a phase: the chosen candidate, or what its adjustment puts in its place."""
        ident = self.chosen[phase]
        return None if ident is None else _runs(self._ranked(phase, ident))

    def allows(self, prefill: str, decode: str) -> bool:
        """Whether two accepted candidates may serve the two phases together."""
        return _allowed(self.rules, self._ranked("prefill", prefill), self._ranked("decode", decode))

    def paired(self) -> tuple[str, ...]:
        """The pair rules that the two choices fall under, in words."""
        prefill, decode = (self.chosen.get(phase) for phase in ("prefill", "decode"))
        if prefill is None or decode is None:
            return ()
        left, right = self._ranked("prefill", prefill), self._ranked("decode", decode)
        return tuple(_say(r) for r in self.rules if _named(left, r.prefill) and _named(right, r.decode))

    def differing(self) -> dict[str, dict[str, Any]]:
        """Fields that one phase changes and the other has otherwise: phase to value, by axis. Both share one cache."""
        after: dict[str, dict[str, Any]] = {}
        for phase, ident in self.chosen.items():
            adjusted = None if ident is None else self._ranked(phase, ident).adjusted
            for axis, _, value in adjusted.changes if adjusted is not None else ():
                after.setdefault(axis, {})[phase] = value
        found = {}
        for axis, values in after.items():
            each = {p: values.get(p, self.reports[p].request.get(axis)) for p, c in self.chosen.items() if c}
            if len({repr(v) for v in each.values()}) > 1:
                found[axis] = each
        return found

    def _ranked(self, phase: str, ident: str) -> Ranked:
        return next(r for r in self.reports[phase].ranked if r.id == ident)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "phases": {
                phase: {"selected": self.chosen[phase], "runs": self.runs(phase), "report": report.to_dict()}
                for phase, report in self.reports.items()
            },
            "notes": list(self.notes),
            "paired": list(self.paired()),
            "differing": self.differing(),
        }


def phases_of(catalog: Catalog) -> tuple[str, ...]:
    """The phases that the catalog's packs answer apart; empty if they do not."""
    return tuple(dict.fromkeys(p for pack in catalog.packs for p in pack.phases))


def select_phases(
    request: Request,
    catalog: Catalog,
    environment: Environment,
    preferences: tuple[Preference, ...] = (),
    *,
    strict: bool = False,
    origins: Mapping[str, str] | None = None,
) -> PhasePlan:
    """One candidate a phase, such that every pair rule holds: the best ranks together, decode's first in a tie."""
    bound = request.within(catalog.vocabulary)
    reports = {
        phase: decide(
            bound.replace(**{PHASE: phase}), catalog, environment, preferences, strict=strict, origins=origins
        )
        for phase in phases_of(catalog)
    }
    best: dict[str, str | None] = {phase: report.selected for phase, report in reports.items()}
    rules = tuple(rule for pack in catalog.packs for rule in pack.pairs)
    if set(reports) != {"prefill", "decode"} or not rules or not all(best.values()):
        return PhasePlan(reports, best, ())
    values = dict(enumerate(reports["decode"].trace.values))
    rules = tuple(rule for rule in rules if holds(rule.when, values))
    pairs = [
        (p.rank + d.rank, d.rank, p, d)
        for p in reports["prefill"].ranked
        for d in reports["decode"].ranked
        if _allowed(rules, p, d)
    ]
    if not pairs:
        return PhasePlan(reports, {"prefill": None, "decode": None}, tuple(_say(r) for r in rules), rules)
    _, _, prefill, decode = min(pairs, key=lambda entry: entry[:2])
    chosen: dict[str, str | None] = {"prefill": prefill.id, "decode": decode.id}
    changed = [phase for phase in chosen if chosen[phase] != best[phase]]
    notes = [f"{phase}: {chosen[phase]} in place of {best[phase]}" for phase in changed]
    if changed:
        notes.extend(_say(rule) for rule in rules)
    return PhasePlan(reports, chosen, tuple(notes), rules)


def _runs(ranked: Ranked) -> str:
    return ranked.adjusted.use if ranked.adjusted is not None and ranked.adjusted.use else ranked.id


def _named(ranked: Ranked, names: tuple[str, ...]) -> bool:
    ident = _runs(ranked)
    return ident in names or ident.partition("/")[0] in names


def _allowed(rules: tuple[PairRule, ...], prefill: Ranked, decode: Ranked) -> bool:
    for rule in rules:
        left, right = _named(prefill, rule.prefill), _named(decode, rule.decode)
        if rule.given in ("decode", "both") and right and not left:
            return False
        if rule.given in ("prefill", "both") and left and not right:
            return False
    return True


def _say(rule: PairRule) -> str:
    prefill, decode = " or ".join(rule.prefill), " or ".join(rule.decode)
    told = rule.note or (
        f"prefill by {prefill} needs decode by {decode}"
        if rule.given == "prefill"
        else f"decode by {decode} needs prefill by {prefill}"
    )
    return f"{told} ({rule.at})"
