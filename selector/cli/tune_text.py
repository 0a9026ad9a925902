"""What `tune` shows: a table for each request, fastest first, and what is chosen from then on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.measured import Entry, Measurements, Timing, ordered

if TYPE_CHECKING:
    from selector.request import Request

__all__ = ["Tuned", "conclusion", "counted", "rows", "table"]


class Tuned(NamedTuple):
    """What was measured of one request: its name for people, the entry, and the candidates in the policy's order."""

    words: str
    entry: Entry
    ranked: tuple[str, ...]

    def chosen(self, request: Request) -> str:
        """Who is chosen where this entry counts and nobody says otherwise."""
        alone = Measurements("", "", {}, (self.entry,))
        wish = alone.preference(request, self.ranked)
        return self.ranked[0] if wish is None else wish.names[0]


def counted(number: int, noun: str) -> str:
    """`1 shape`, `2 shapes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """JSON-able form of entries; ``order`` is that of the ranking."""
    return [
        {
            "request": dict(e.request),
            "shapes": e.shapes,
            "order": [
                {
                    "candidate": t.candidate,
                    "median_us": round(t.median * 1e6, 3),
                    "low_us": round(t.low * 1e6, 3),
                    "high_us": round(t.high * 1e6, 3),
                    "runs": t.runs,
                }
                for t in ordered(e.timings)
            ],
        }
        for e in entries
    ]


def table(entry: Entry) -> str:
    """One request's times, fastest first, each with how many times the fastest's it is."""
    fields = " ".join(k if v is True else f"{k}={v}" for k, v in entry.request.items())
    lines = [fields, f"  {entry.shapes}"]
    if not entry.timings:
        return "\n".join([*lines, "  no times"])
    by_time = sorted(entry.timings, key=lambda t: t.median)
    first = by_time[0]
    lines.append(
        f"  median of {counted(first.runs, 'run')} (quartiles), and how many times the fastest's it is"
    )
    width = max(len(t.candidate) for t in by_time)
    for t in by_time:
        times = f"{t.median * 1e6:>10.1f} us  ({t.low * 1e6:.1f} to {t.high * 1e6:.1f})"
        note = "  within the spread: a tie" if t is not first and t.low <= first.high else ""
        lines.append(f"  {t.candidate:<{width}}  {times}  {t.median / first.median:>5.2f}x{note}")
    return "\n".join(lines)


def conclusion(timings: Sequence[Timing], chosen: str, policy: str) -> str:
    """Who is chosen from now on, who was by the policy, and why that is so."""
    by_name = {t.candidate: t for t in timings}
    fastest = min(timings, key=lambda t: t.median)
    if policy not in by_name:
        if chosen == policy:
            return f"{chosen} is chosen, as by the policy, though it was not measured"
        return f"{chosen} is chosen: it comes first of those measured; {policy}, the policy's choice, was not"
    if chosen != policy:
        gain = by_name[policy].median / by_name[chosen].median
        if chosen == fastest.candidate:
            return f"{chosen} is chosen: {gain:.2f}x as fast as {policy}, which the policy chose"
        return (
            f"{chosen} is chosen: {gain:.2f}x as fast as {policy}, which the policy chose;"
            f" {fastest.candidate} ties with it, and comes later in the policy"
        )
    if chosen == fastest.candidate:
        return f"{chosen} is chosen, as by the policy: it is the fastest"
    gain = by_name[chosen].median / fastest.median
    return (
        f"{chosen} is chosen, as by the policy: {fastest.candidate} is {gain:.2f}x as fast here,"
        " but that lies within the spread"
    )
