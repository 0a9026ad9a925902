"""The records of a comparison of two catalogs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from selector.analysis.smallest import Witness
    from selector.analysis.space import Space

__all__ = ["KINDS", "Change", "Diff", "Region"]

#: What can change, the most important first.
KINDS = ("winner", "accepted", "reach", "order", "reasons", "warnings", "adjustments")


class Region(NamedTuple):
    """One general condition under which something changed. ``literals`` say it, for whoever wants to test membership.

    ``own`` is what it says of the request and the machine; ``others``: it speaks of other candidates, too.
    """

    condition: str
    parts: tuple[tuple[str, str], ...]
    witness: Witness
    literals: tuple[int, ...]
    own: str = ""
    others: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"condition": self.condition, "parts": dict(self.parts), "witness": self.witness.to_dict()}


class Change(NamedTuple):
    """One change and all regions where it is so.

    ``old`` and ``new`` say what was and what is; ``context`` what the conditions take for granted, in words, and
    ``within`` as literals. ``complete``: the regions are all there are.
    """

    kind: str
    subject: str
    old: str
    new: str
    context: str
    regions: tuple[Region, ...]
    complete: bool
    within: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "old": self.old,
            "new": self.new,
            "context": self.context,
            "complete": self.complete,
            "regions": [r.to_dict() for r in self.regions],
        }


class Diff(NamedTuple):
    """All changes between two catalogs; ``notes`` are about axes and candidates that only one of them has.

    ``strict``: of strict selection. ``on``: on this machine alone.
    """

    name: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    space: Space
    strict: bool
    on: str | None = None

    @property
    def complete(self) -> bool:
        """Nothing else changed: proved."""
        return all(c.complete for c in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "pack": self.name,
            "strict": self.strict,
            "on": self.on,
            "complete": self.complete,
            "changes": [c.to_dict() for c in self.changes],
            "notes": list(self.notes),
        }
