"""What a comparison needs from a selector: one verdict on one request, environment and pin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from selector import Report

Fields: TypeAlias = dict[str, Any]
"""A request or an environment, as a JSON object holds it."""

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


class Adjusted(NamedTuple):
    """What a candidate changes: the axes it sets, and the candidate that runs in its place."""

    set: Mapping[str, Any]
    use: str | None


class Verdict:
    """The accepted candidates, best first. What takes longer to say is worked out when it is read."""

    def __init__(
        self,
        ranked: tuple[str, ...],
        rejected: Callable[[], Mapping[str, frozenset[str]]],
        adjusted: Callable[[], Mapping[str, Adjusted]],
    ) -> None:
        self.ranked = ranked
        self._rejected, self._adjusted = rejected, adjusted

    @cached_property
    def rejected(self) -> Mapping[str, frozenset[str]]:
        """For each candidate that is not accepted, the axes of its reasons."""
        return self._rejected()

    @cached_property
    def adjusted(self) -> Mapping[str, Adjusted]:
        """What accepted candidates change."""
        return self._adjusted()


class Refusals(Mapping[str, frozenset[str]]):
    """The refused candidates of a report and the axes of their reasons, worked out for those that are looked up."""

    def __init__(self, report: Report) -> None:
        candidates = report.catalog.candidates
        accepted = {*report.outcome.ranked, *report.outcome.excluded}
        self._names = {
            candidate.id: place
            for place, candidate in enumerate(candidates)
            if place not in accepted and not candidate.abstract
        }
        self._report = report

    def __getitem__(self, name: str) -> frozenset[str]:
        from selector.reasons import reasons_of

        place, report = self._names[name], self._report
        program = report.catalog.program
        if program.adjust[place] or place in report.outcome.removed:
            reasons = report.reasons(name)
        else:  # the same reasons, without those of every other candidate
            reasons = reasons_of(program, place, report.trace, strict=report.strict)
        return frozenset(axis for reason in reasons for axis in (reason.axes or (reason.axis,)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Judge(Protocol):
    """Anything that decides."""

    def __call__(self, request: Fields, environment: Fields, backend: str | None = None) -> Verdict:
        """The verdict; `backend` pins a backend or a candidate. Nothing fits: `ranked` is empty."""


def engine(pack: str) -> Judge:
    """The compiled engine on one pack."""
    from selector import Catalog, Environment, explain

    catalog = Catalog.load(pack, manifests=MANIFESTS)
    environments: dict[str, Environment] = {}

    def judge(request: Fields, environment: Fields, backend: str | None = None) -> Verdict:
        key = repr(environment)
        if key not in environments:
            environments[key] = Environment(environment, vocabulary=catalog.vocabulary)
        machine = environments[key]
        report = explain(catalog.request(request), environment=machine, catalog=catalog, backend=backend)
        return Verdict(
            tuple(catalog.candidates[place].id for place in report.outcome.ranked),
            lambda: Refusals(report),
            lambda: {
                candidate.id: Adjusted(
                    {axis: used for axis, _, used in candidate.adjusted.changes}, candidate.adjusted.use
                )
                for candidate in report.ranked
                if candidate.adjusted is not None
            },
        )

    return judge


def plain(pack: str) -> Judge:
    """The plain interpreter on one pack."""
    from tests.plain import interpreter

    catalog = interpreter.load_pack(MANIFESTS, pack)

    def judge(request: Fields, environment: Fields, backend: str | None = None) -> Verdict:
        decision = interpreter.decide(catalog, request, environment, backend=backend)
        return Verdict(
            tuple(decision.ranked),
            lambda: {
                name: frozenset(axis for reason in reasons for axis in reason.axes)
                for name, reasons in decision.rejected.items()
            },
            lambda: {
                name: Adjusted(change.get("set", {}), change.get("use"))
                for name, change in decision.adjusted.items()
            },
        )

    return judge
