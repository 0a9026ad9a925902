"""`explain --why-not NAME`: what stands against one candidate, and what would help it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.cli import output
from selector.cli.errors import UsageError
from selector.errors import EXIT_NOTHING_FITS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from selector.analysis.changes import Answer
    from selector.report import Report

__all__ = ["why_not"]


def why_not(report: Report, arguments: Namespace) -> int:
    """Answer for the candidates that the name stands for. The exit code says whether anything is selected at all."""
    name: str = arguments.why_not
    ids = [c.id for c in report.catalog.find(name)]
    if not ids:
        from selector.engine import near_name

        near = near_name(name, report.catalog.names())
        raise UsageError(
            f"--why-not {name}: pack {report.catalog.name} has no such candidate",
            f"did you mean {near}?" if near else f"candidates: {', '.join(report.catalog.names())}",
        )
    if arguments.json:
        output.write_json(
            {"selected": report.selected, "asked": name, "candidates": [_answer(report, i) for i in ids]}
        )
    else:
        from selector.render.text import why_not_text

        exact = [_changes(report, ident) for ident in ids]
        nothing = not any(
            answer.sets and not answer.machine
            for answers in exact
            if answers is not None
            for answer in answers
        )
        output.write(why_not_text(report, ids, color=output.colors(), width=output.width(), nothing=nothing))
        output.write("\n".join(["", "All smallest sets of changes", *_changes_text(exact, ids)]))
    return 0 if report.selected is not None else EXIT_NOTHING_FITS


def _changes(report: Report, ident: str) -> tuple[Answer, Answer] | None:
    """The exact answers for one candidate; None without the solver."""
    from selector.analysis.encoder import AnalysisMissing

    try:
        from selector.analysis.changes import exact

        return exact(report, ident)
    except AnalysisMissing:
        return None


def _changes_text(exact: list[tuple[Answer, Answer] | None], ids: list[str]) -> Iterator[str]:
    from selector.analysis.changes import answers_text
    from selector.analysis.encoder import AnalysisMissing

    for ident, found in zip(ids, exact, strict=True):
        if found is None:
            yield f"  {AnalysisMissing()}".replace("\n", "\n  ")
            return
        yield from (f"  {line}" for line in answers_text(found, ident))


def _answer(report: Report, ident: str) -> dict[str, Any]:
    from selector.advice import suggestions

    ranks = {r.id: r.rank for r in report.ranked}
    if ident in ranks:
        state = "selected" if ident == report.selected else "accepted"
    else:
        state = "excluded" if ident in report.excluded else "rejected"
    refused = state == "rejected"
    changes = _changes(report, ident)
    return {
        "id": ident,
        "state": state,
        "rank": ranks.get(ident),
        "reasons": [r.to_dict() for r in report.reasons(ident)],
        "suggestions": [s.to_dict() for s in suggestions(report, ident)] if refused else [],
        "changes": None if changes is None else {a.goal: a.to_dict() for a in changes},
    }
