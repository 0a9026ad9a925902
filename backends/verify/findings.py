"""What verify has to say: findings, and the whole result as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Count", "Finding", "Result"]


class Finding(NamedTuple):
    """One disagreement between a manifest and a kernel.

    ``outcome``: refused (by the wrapper), error, crash, timeout, wrong (numbers) or works. ``request`` is the smallest request
    that shows it, ``call`` what else the call had (no axis says it), ``at`` the line of the manifest to change
    (``file:line:column``), ``also`` other lines that take part. ``ran`` is false where only the wrapper was asked, for a
    machine that is not this one.
    """

    candidate: str
    outcome: str
    request: Mapping[str, Any]
    call: Mapping[str, Any]
    message: str
    at: str
    also: tuple[str, ...]
    environment: str
    ran: bool = True

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "candidate": self.candidate,
            "outcome": self.outcome,
            "request": dict(self.request),
            "call": dict(self.call),
            "message": self.message,
            "at": self.at,
            "also": list(self.also),
            "environment": self.environment,
            "ran": self.ran,
        }


class Count(NamedTuple):
    """How far one candidate was walked. ``note`` says what kept it from being walked to the end."""

    candidate: str
    environment: str
    ran: bool
    calls: int
    seconds: float
    unsaid: int
    """Calls that the wrapper refuses for what no axis can say."""
    memory: int
    """Calls that did not fit into memory."""
    note: str | None
    finished: bool = True
    """Whether the walk went as far as it was to go; not where the time was over, or somebody interrupted it."""


class Result(NamedTuple):
    """The outcome of a walk: findings by kind, and how many distinct calls were run and compared."""

    checked: int
    declared_but_fails: tuple[Finding, ...]
    wrong_numbers: tuple[Finding, ...]
    works_but_undeclared: tuple[Finding, ...]
    counts: tuple[Count, ...]
    elsewhere: Mapping[str, str]
    """Candidates that were not walked at all, with the reason."""
    interrupted: bool = False
    """Whether somebody stopped the walk; the rest is what was found until then."""

    @property
    def ran(self) -> tuple[str, ...]:
        """Candidates that this machine can run."""
        return tuple(dict.fromkeys(count.candidate for count in self.counts if count.ran))

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Candidates that were not walked to the end."""
        return tuple(dict.fromkeys(count.candidate for count in self.counts if not count.finished))

    @property
    def clean(self) -> bool:
        """Whether everything that was declared held."""
        return not self.declared_but_fails and not self.wrong_numbers

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "checked": self.checked,
            "declared_but_fails": [f.to_dict() for f in self.declared_but_fails],
            "wrong_numbers": [f.to_dict() for f in self.wrong_numbers],
            "works_but_undeclared": [f.to_dict() for f in self.works_but_undeclared],
        }
