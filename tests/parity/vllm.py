"""vLLM's recorded decisions against the pack `vllm`.

A row has `env`, `model`, `request` and, where they are known, `explicit` (the backend asked for), `winner`, `order` (the
priority list), `valid`, `reasons` (for every other backend of the list) and `refused` (the reasons against the explicit
one). A reason is a list of axis names.

A row whose explicit choice vLLM quietly replaced by another backend is counted and not compared: an explicit choice is
obeyed or refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from .judge import Judge, Verdict, engine
from .result import Difference, Result, Row, compare_rows, read_rows
from .vllm_map import backend_of, environment_of, explains, request_of

FIELDS: Final = ("winner", "valid", "reasons", "explicit", "refused")


def valid_of(verdict: Verdict) -> list[str]:
    """The accepted backends, best first, each once."""
    return list(dict.fromkeys(candidate.partition("/")[0] for candidate in verdict.ranked))


def reasons_of(verdict: Verdict, backend: str) -> frozenset[str]:
    """The axes under which the variants of a backend are rejected; those for another device speak only where all are."""
    variants = [verdict.rejected[name] for name in verdict.rejected if name.partition("/")[0] == backend]
    here = [axes for axes in variants if "device" not in axes]
    return frozenset().union(*(here or variants))


def unexplained(recorded: Iterable[Iterable[str]], axes: frozenset[str]) -> list[list[str]]:
    """The recorded reasons that none of the axes explains."""
    return [list(reason) for reason in recorded if not explains(reason, axes)]


def replaced(row: Row) -> bool:
    """Did vLLM run another backend than the one asked for?"""
    asked, winner = row.get("explicit"), backend_of(row.get("winner"))
    return asked is not None and winner is not None and winner != asked


def compare_automatic(judge: Judge, row: Row, *, winner: bool) -> Iterator[Difference]:
    """The differences where no backend was asked for; `winner`: the row records the winner of this question."""
    verdict = judge(request_of(row), environment_of(row["env"]))
    valid = valid_of(verdict)
    best = valid[0] if valid else None
    if winner and best != backend_of(row["winner"]):
        yield Difference("winner", row["winner"], best)
    if "valid" not in row:
        return
    if valid != row["valid"]:
        yield Difference("valid", row["valid"], valid)
    reasons: Mapping[str, Iterable[Iterable[str]]] = row["reasons"]
    for backend, recorded in reasons.items():
        axes = reasons_of(verdict, backend)
        left = unexplained(recorded, axes)
        if left:
            yield Difference("reasons", {backend: left}, {backend: sorted(axes)})


def compare_explicit(judge: Judge, row: Row) -> Iterator[Difference]:
    """The differences where a backend was asked for."""
    verdict = judge(request_of(row), environment_of(row["env"]), row["explicit"])
    accepted = valid_of(verdict)[:1]
    winner = backend_of(row["winner"])
    if accepted != ([] if winner is None else [winner]):
        yield Difference("explicit", row["winner"], accepted or None)
    axes = reasons_of(verdict, row["explicit"])
    left = unexplained(row.get("refused") or [], axes)
    if left:
        yield Difference("refused", left, sorted(axes))


def compare_row(judge: Judge, row: Row) -> Iterator[Difference]:
    """The differences between a row and the pack's answers."""
    explicit = row.get("explicit") is not None
    if not explicit or "valid" in row:
        yield from compare_automatic(judge, row, winner=not explicit)
    if explicit and not replaced(row):
        yield from compare_explicit(judge, row)


def compare(rows: Iterable[Row]) -> Result:
    """Compare rows."""
    judge = engine("vllm")
    return compare_rows("vllm", rows, FIELDS, lambda row: compare_row(judge, row))


def compare_file(path: Path, limit: int | None = None) -> Result:
    """Compare the rows of a file, at most `limit`."""
    return compare(read_rows(path, limit))
