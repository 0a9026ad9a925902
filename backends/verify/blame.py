"""From a call that fails to the line of the manifest that says it should not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from backends.verify.draws import FREE, Draw, Value, normal
from backends.verify.pairwise import with_needs

if TYPE_CHECKING:
    from backends.verify.child import Answer
    from selector.manifest import Candidate

__all__ = ["blame", "cause_of", "shrunk"]

#: Calls that putting values back may take; fewer where each that fails costs a process, or all the time that a call has.
TRIES = {"crash": 12, "timeout": 3}
TRIES_OTHERWISE = 80


def shrunk(
    draw: dict[str, Value],
    answer: Answer,
    base: Draw,
    accepts: Callable[[Draw], bool],
    ask: Callable[[dict[str, Value]], Answer | None],
) -> tuple[dict[str, Value], Answer]:
    """The draw without what the failure does not need; and how that one fails.

    First each of its values alone on the base - mostly one is enough, and only that one costs a process where a kernel
    crashes - then values are put back to the base's one by one. ``ask`` may return None: there is no time to ask.
    """
    left = TRIES.get(answer.outcome, TRIES_OTHERWISE)
    # first what an axis says, and flags before sizes: the likeliest causes, and those that a manifest can say
    order = sorted(cause_of(draw, base), key=lambda name: (name in FREE, draw[name] is not True))
    for name in order:
        alone = {name: draw[name]}
        if with_needs(alone):
            single = normal({**base, **alone})
            if single[name] == draw[name] and accepts(single):
                found = ask(single)
                if found is None:
                    return draw, answer
                if found.outcome == answer.outcome:
                    draw, answer = single, found
                    break
    changed = True
    while changed and left > 0:
        changed = False
        for name in reversed(order):
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
