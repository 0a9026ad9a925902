"""What a comparison needs from a selector: one verdict on one request, environment and pin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

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
            lambda: {
                name: frozenset(axis for reason in reasons for axis in (reason.axes or (reason.axis,)))
                for name, reasons in report.rejected.items()
            },
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
