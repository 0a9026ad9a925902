"""The report of a decision: evidence as data. Renderers (text, JSON, HTML) are siblings over `Report.to_dict`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from selector.nodes import evaluate
from selector.preferences import Preference
from selector.reasons import Reason, Warned, adjustment_reasons, reasons_of, warnings_of
from selector.vocabulary import UNKNOWN

if TYPE_CHECKING:
    import os

    from selector.catalog import Catalog
    from selector.decision import Decision
    from selector.environment import Environment
    from selector.manifest import Candidate
    from selector.program import Trace
    from selector.request import Request
    from selector.selection import Outcome

__all__ = ["Adjusted", "Ranked", "Report", "Runs"]

T = TypeVar("T")

#: Version of the JSON form.
FORMAT = 1


class Adjusted(NamedTuple):
    """What a candidate changes in the request to run it: (axis, asked, used), and what runs in its place."""

    changes: tuple[tuple[str, Any, Any], ...]
    use: str | None
    note: str | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "changes": {a: {"from": b, "to": c} for a, b, c in self.changes},
            "use": self.use,
            "note": self.note,
        }


class Ranked(NamedTuple):
    """An accepted candidate: its place, why it stands there, and what is to be said of it."""

    id: str
    title: str
    rank: int
    because: str
    adjusted: Adjusted | None
    warnings: tuple[Warned, ...]
    note: str | None
    option: str | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "id": self.id,
            "title": self.title,
            "rank": self.rank,
            "because": self.because,
            "adjusted": None if self.adjusted is None else self.adjusted.to_dict(),
            "warnings": [w.to_dict() for w in self.warnings],
            "note": self.note,
            "option": self.option,
        }


class Runs:
    """What the last call of a selection did: the candidate that ran, and those before it that could not, with the reason."""

    __slots__ = ("failed", "ran")

    def __init__(self) -> None:
        self.ran: str | None = None
        self.failed: dict[str, str] = {}


class Report:
    """Everything there is to say about one decision. Its parts are computed when they are read, then kept."""

    def __init__(
        self,
        catalog: Catalog,
        environment: Environment,
        request: Request,
        outcome: Outcome | Decision,
        preferences: tuple[Preference, ...],
        strict: bool,
        origins: Mapping[str, str] | None = None,
        runs: Runs | None = None,
    ) -> None:
        self.catalog, self.environment, self.request = catalog, environment, request
        self.outcome, self.preferences, self.strict = outcome, preferences, strict
        #: Where a field's value comes from, by axis name, when it was not the caller ("config.json: head_dim").
        self.origins = dict(origins or {})
        self._runs = runs
        self._kept: dict[str, Any] = {}

    # -- parts --------------------------------------------------------------------------------------------------------

    @property
    def selected(self) -> str | None:
        """The winner's id, or None."""
        return None if not self.outcome.ranked else self.catalog.candidates[self.outcome.ranked[0]].id

    @property
    def ran(self) -> str | None:
        """The candidate that the selection's last call ran on; None before the first."""
        return None if self._runs is None else self._runs.ran

    @property
    def failed(self) -> dict[str, str]:
        """Candidates that the selection's last call could not use, with the reason; what ran comes after them."""
        return {} if self._runs is None else dict(self._runs.failed)

    @property
    def policy_rule(self) -> str | None:
        """The name of the policy rule that gave the order."""
        k = self.outcome.policy
        return None if k < 0 else self.catalog.program.policy[k].rule.name

    @property
    def ranked(self) -> tuple[Ranked, ...]:
        """Accepted candidates in order."""
        return self._once(
            "ranked", lambda: tuple(self._ranked(i, n) for n, i in enumerate(self.outcome.ranked, start=1))
        )

    @property
    def excluded(self) -> tuple[str, ...]:
        """Accepted candidates that only an explicit choice reaches here."""
        return tuple(self.catalog.candidates[i].id for i in self.outcome.excluded)

    @property
    def rejected(self) -> dict[str, tuple[Reason, ...]]:
        """Every refused candidate, in catalog order, with every reason."""
        return self._once("rejected", self._rejected)

    @property
    def values(self) -> dict[str, Any]:
        """Every axis's value after defaults, derivation and `applies_when`; UNKNOWN facts as the text "unknown"."""
        trace = self.trace
        axes = self.catalog.vocabulary.axes
        return {
            a.name: "unknown" if trace.values[a.index] is UNKNOWN else trace.values[a.index] for a in axes
        }

    @property
    def order(self) -> dict[int, None]:
        """The order of the policy rule in force for this request, as positions of candidates, whether they fit or not."""
        return self._once("order", self._order)

    @property
    def trace(self) -> Trace:
        """The full evaluation of the request as asked."""
        return self._once("trace", lambda: self.catalog.program.trace(self._raw(), strict=self.strict))

    def fits(self, ident: str) -> bool:
        """Whether a candidate is accepted, ranked or only for an explicit choice; no reason is worked out for that."""
        i = self.catalog.program.position[ident]
        return i in self.outcome.ranked or i in self.outcome.excluded

    def reasons(self, ident: str) -> tuple[Reason, ...]:
        """Why one candidate was refused; empty if it was not."""
        return self.rejected.get(ident, ())

    # -- computing ----------------------------------------------------------------------------------------------------

    def _once(self, key: str, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def _raw(self) -> list[Any]:
        program = self.catalog.program
        fields = dict(zip(self.request._axes, self.request._values, strict=False))
        return program.template(self.environment.values(program.vocabulary), fields)

    def _view(self, i: int) -> tuple[Trace, Adjusted | None, list[Reason]]:
        """The trace a candidate is judged on, its adjustment, and strict selection's objections to that."""
        program = self.catalog.program
        if not program.adjust[i]:
            return self.trace, None, []
        changed, changes, applied, use = program.adjusted(i, self._raw(), strict=self.strict)
        if not applied:
            return self.trace, None, []
        axes = program.vocabulary.axes
        note = "; ".join(a.adjustment.note for a in applied if a.adjustment.note) or None
        adjusted = Adjusted(tuple((axes[k].name, b, c) for k, (b, c) in changes.items()), use, note)
        objections = adjustment_reasons(program, i, changes, use, applied) if self.strict else []
        return program.trace(changed, strict=self.strict), adjusted, objections

    def _ranked(self, i: int, rank: int) -> Ranked:
        candidate = self.catalog.candidates[i]
        trace, adjusted, _ = self._view(i)
        warned = warnings_of(self.catalog.program, i, trace)
        return Ranked(
            candidate.id,
            candidate.title,
            rank,
            self._because(i, candidate),
            adjusted,
            warned,
            candidate.note,
            candidate.option,
        )

    def _order(self) -> dict[int, None]:
        if self.outcome.policy < 0:
            return {}
        entries = self.catalog.program.policy[self.outcome.policy].order
        holding = [e for e in entries if evaluate(e.node, self.trace.atoms)]
        return dict.fromkeys(i for entry in holding for i in entry.members)

    def _because(self, i: int, candidate: Candidate) -> str:
        for preference in self.preferences:
            if preference.kind in ("pin", "prefer") and _names(preference, candidate):
                verb = "asked for" if preference.kind == "pin" else "preferred"
                return f"{verb} by {preference.where}"
        rule = self.policy_rule
        if rule is None:
            return "in catalog order"
        return f"policy “{rule}”" if i in self.order else f"not in the order of policy “{rule}”"

    def _rejected(self) -> dict[str, tuple[Reason, ...]]:
        program = self.catalog.program
        accepted = {*self.outcome.ranked, *self.outcome.excluded}
        found: dict[str, tuple[Reason, ...]] = {}
        usual = program.evidence.everyone(self.trace, strict=self.strict)
        for i, candidate in enumerate(program.candidates):
            if i in accepted or candidate.abstract:
                continue
            reasons = usual.get(i, []) if not program.adjust[i] else self.judged(i)
            found[candidate.id] = (*self.outcome.removed.get(i, ()), *reasons)
        return found

    def judged(self, i: int) -> list[Reason]:
        """The reasons of one candidate on its own view of the request, which may adjust it."""
        program = self.catalog.program
        trace, adjusted, objections = self._view(i)
        reasons = [*objections, *reasons_of(program, i, trace, strict=self.strict)]
        if adjusted is not None and adjusted.use is not None and not objections:
            reasons.extend(self._replacement(i, program.candidates[i], adjusted.use))
        return reasons

    def _replacement(self, i: int, candidate: Candidate, use: str) -> list[Reason]:
        """The reason that what would run in a candidate's place refuses; empty if it accepts."""
        program = self.catalog.program
        changed, _, applied, _ = program.adjusted(i, self._raw(), strict=self.strict)
        j = program.position.get(use)
        if j is not None and program.accepts(j, changed, strict=self.strict):
            return []
        inner = (
            ()
            if j is None
            else reasons_of(program, j, program.trace(changed, strict=self.strict), strict=self.strict)
        )
        why = f": {inner[0].message}" if inner else ""
        at = inner[0].at if inner else applied[0].adjustment.at
        source = inner[0].source if inner else applied[0].adjustment.source
        message = f"{candidate.id} would run as {use}, which refuses{why}"
        return [
            Reason(
                "backend",
                "adjustment",
                candidate.id,
                use,
                message,
                None,
                at,
                source,
                (),
                "adjustment",
                "none",
            )
        ]

    # -- forms --------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The whole report as JSON-able data (see `selector/schema/report.schema.json`)."""
        from selector.render.data import report_dict

        return report_dict(self)

    def to_json(self, indent: int | None = 2) -> str:
        """The whole report as JSON."""
        import json

        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def to_text(self, *, color: bool = False, width: int = 110, verbose: bool = False) -> str:
        """One screen for people; ``verbose`` shows every reason of every candidate."""
        from selector.render.text import report_text

        return report_text(self, color=color, width=width, verbose=verbose)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a snapshot: request, environment, catalog hash and decision (`attn-select replay` takes it)."""
        from selector.snapshot import save

        save(self, path)

    def to_html(self) -> str:
        """One self-contained page."""
        from selector.render.html import report_html

        return report_html(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from selector.render.html import notebook_html

        return notebook_html(self)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"Report({self.selected or 'nothing fits'}, {len(self.outcome.ranked)} accepted)"


def _names(preference: Preference, candidate: Candidate) -> bool:
    folded = {n.lower() for n in preference.names}
    return candidate.id.lower() in folded or candidate.backend.lower() in folded
