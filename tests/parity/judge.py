"""What a comparison needs from a selector: one verdict on one request, environment and pin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

Fields: TypeAlias = dict[str, Any]
"""A request or an environment, as a JSON object holds it."""

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


class Adjusted(NamedTuple):
    """What a candidate changes: the axes it sets, and the candidate that runs in its place."""

    set: Mapping[str, Any]
    use: str | None


class Verdict(NamedTuple):
    """The accepted candidates, best first; for each other one the axes of its reasons; what the accepted ones change."""

    ranked: tuple[str, ...]
    rejected: Mapping[str, frozenset[str]]
    adjusted: Mapping[str, Adjusted]


class Judge(Protocol):
    """Anything that decides."""

    def __call__(self, request: Fields, environment: Fields, backend: str | None = None) -> Verdict:
        """The verdict; `backend` pins a backend or a candidate. Nothing fits: `ranked` is empty."""


def plain(pack: str) -> Judge:
    """The plain interpreter on one pack."""
    from tests.plain import interpreter

    catalog = interpreter.load_pack(MANIFESTS, pack)

    def judge(request: Fields, environment: Fields, backend: str | None = None) -> Verdict:
        decision = interpreter.decide(catalog, request, environment, backend=backend)
        return Verdict(
            ranked=tuple(decision.ranked),
            rejected={
                name: frozenset(axis for reason in reasons for axis in reason.axes)
                for name, reasons in decision.rejected.items()
            },
            adjusted={
                name: Adjusted(change.get("set", {}), change.get("use"))
                for name, change in decision.adjusted.items()
            },
        )

    return judge
