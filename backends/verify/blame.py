"""From a call that fails to the line of the manifest that says it should not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from backends.verify.draws import DIMENSIONS, FREE, Draw, Value, normal

if TYPE_CHECKING:
    from backends.verify.child import Answer
    from selector.manifest import Candidate

__all__ = ["blame", "cause_of", "shrunk"]

#: Calls that looking for the cause of one failure may take; fewer where each costs a process.
TRIES, TRIES_OF_CRASH = 80, 12


def shrunk(
    draw: dict[str, Value],
    answer: Answer,
    base: Draw,
    accepts: Callable[[Draw], bool],
    ask: Callable[[dict[str, Value]], Answer | None],
) -> tuple[dict[str, Value], Answer]:
    """The draw with every value put back to the base's that the failure does not need; and how that one fails.

    ``ask`` may return None: there is no time to ask.
    """
    left = {"timeout": 0, "crash": TRIES_OF_CRASH}.get(answer.outcome, TRIES)
    # first what no axis says, so that what remains is what a manifest can say
    order = sorted((d.name for d in DIMENSIONS), key=lambda name: name not in FREE)
    changed = True
    while changed and left > 0:
        changed = False
        for name in order:
            if draw[name] == base[name] or left <= 0:
                continue
            other = normal({**draw, name: base[name]})
            if other == draw or not accepts(other):
                continue
            left -= 1
            found = ask(other)
            if found is None:
                return draw, answer
            if found.outcome == answer.outcome:
                draw, answer, changed = other, found, True
    return draw, answer


def cause_of(draw: Draw, base: Draw) -> dict[str, Value]:
    """What a draw has that the base has not."""
    return {name: value for name, value in draw.items() if value != base[name]}


def blame(candidate: Candidate, cause: Mapping[str, Value]) -> tuple[str, tuple[str, ...]]:
    """The manifest's line to change for a cause, and other lines that take part.

    A flag's declaration before a limit's or a list's, a variant's own before its family's; the candidate itself where nothing
    is declared about the cause, or where its plainest call fails.
    """
    marks = []
    for name, value in cause.items():
        declared = candidate.declared.get("num_heads" if name == "group" else name)
        if declared is not None:
            marks.append((value is not True, declared.family, declared.at))
    lines = list(dict.fromkeys(str(mark) for _, _, mark in sorted(marks)))
    return (lines[0], tuple(lines[1:])) if lines else (str(candidate.at), ())
