"""Short answers as JSON text, for thousands of requests: what explanations share is written once.

The text is that of `selector.render.data.answer_dict` through `json.dumps`, put together from pieces that are kept: the head
and tail of a decision with the decision, each reason with its evidence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from selector.decision import Decision, members
from selector.engine import engine_for

if TYPE_CHECKING:
    from selector.report import Report

__all__ = ["answer_text"]


def answer_text(report: Report, *, reasons: bool = True) -> str:
    """One line of `explain --requests`, without its line break."""
    outcome = report.outcome
    if not isinstance(outcome, Decision):
        from selector.render.data import answer_dict

        return _dump(answer_dict(report, reasons=reasons))
    written = outcome.written
    if written is None:
        ids = report.catalog.tables.ids
        names = [ids[i] for i in outcome.ranked]
        policy = report.catalog.tables.policy[outcome.policy].name if outcome.policy >= 0 else None
        head = f'{{"selected": {_dump(names[0] if names else None)}, "candidates": {_dump(names)}'
        written = outcome.written = (head, f', "policy_rule": {_dump(policy)}}}')
    if not reasons:
        return written[0] + written[1]
    return f'{written[0]}, "rejected": {_rejected(report, outcome)}{written[1]}'


def _rejected(report: Report, outcome: Decision) -> str:
    program = report.catalog.program
    engine = engine_for(report.catalog, report.environment, report.strict)
    texts = engine.explainer().texts(report.request)
    if program.adjusting:
        from selector.evidence import as_json

        for i in program.adjusting:  # judged on what they make of the request
            texts[i] = [as_json(reason) for reason in report.judged(i)]
    named = outcome.named
    if named is None:
        names = program.evidence.names
        refused = members(program.listed & ~outcome.accepted)
        named = outcome.named = tuple([(i, f"{names[i]}: [") for i in refused])
    return "{" + ", ".join([f"{name}{', '.join(texts[i])}]" for i, name in named]) + "}"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
