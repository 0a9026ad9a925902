"""Reports as JSON-able data. The stable form: `selector/schema/report.schema.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.advice import losses, near_misses, suggestions
from selector.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from selector.report import Report

__all__ = ["answer_dict", "report_dict"]


def answer_dict(report: Report, *, reasons: bool = True) -> dict[str, Any]:
    """The short form, one line of `explain --requests`."""
    found: dict[str, Any] = {
        "selected": report.selected,
        "candidates": [report.catalog.candidates[i].id for i in report.outcome.ranked],
    }
    if reasons:
        found["rejected"] = {
            ident: [
                {
                    "axis": r.axis,
                    "code": r.code,
                    "message": r.message,
                    "at": None if r.at is None else str(r.at),
                }
                for r in rs
            ]
            for ident, rs in report.rejected.items()
        }
    found["policy_rule"] = report.policy_rule
    return found


def report_dict(report: Report) -> dict[str, Any]:
    """The whole report."""
    from selector.report import FORMAT

    nothing = report.selected is None
    return {
        "format": FORMAT,
        "selected": report.selected,
        "ran": report.ran,
        "failed": report.failed,
        "request": report.request.to_dict(),
        "origins": report.origins,
        "open": open_fields(report),
        "environment": {
            "name": report.environment.name,
            "origin": report.environment.origin,
            "fingerprint": report.environment.fingerprint,
            "facts": report.environment.to_dict(),
        },
        "catalog": {"packs": [p.name for p in report.catalog.packs], "hash": report.catalog.hash},
        "policy_rule": report.policy_rule,
        "preferences": [p.to_dict() for p in report.preferences],
        "strict": report.strict,
        "candidates": [r.to_dict() for r in report.ranked],
        "excluded": list(report.excluded),
        "rejected": {ident: [r.to_dict() for r in rs] for ident, rs in report.rejected.items()},
        "losses": [x.to_dict() for x in losses(report)],
        "near_misses": near_misses(report)[:5] if nothing else [],
        "suggestions": [s.to_dict() for s in suggestions(report)] if nothing else [],
    }


def open_fields(report: Report) -> list[str]:
    """Axes that every candidate must declare and that the request leaves open, and unknown facts that are asked about."""
    found = []
    for axis in report.catalog.vocabulary.axes:
        value = report.trace.values[axis.index]
        if axis.declare_required and (value is None or value is UNKNOWN):
            found.append(axis.name)
    return found
