"""Classes of whole numbers: cut at every threshold and number that a test names, and apart by what divides them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from selector.constraints import Constraint

__all__ = ["Piece", "cut", "cuts_of"]


class Piece(NamedTuple):
    """The numbers from ``low`` to ``high`` (None: no end) that the moduli in ``by`` divide and those in ``no`` do not."""

    low: int | None
    high: int | None
    by: frozenset[int]
    no: frozenset[int]
    example: int

    def holds(self, number: int) -> bool:
        """Whether a number is in it."""
        return (
            (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
            and all(number % m == 0 for m in self.by)
            and all(number % m for m in self.no)
        )

    def members(self, most: int) -> Iterator[int]:
        """Some of its numbers: from the small ones upwards, then the largest."""
        step = math.lcm(*self.by)
        start = self.low if self.low is not None else (self.high if self.high is not None else 0) - 64 * step
        number = -(-start // step) * step
        shown = 0
        for _ in range(64 * most):
            if shown >= most or (self.high is not None and number > self.high):
                break
            if all(number % m for m in self.no):
                shown += 1
                yield number
            number += step
        if self.high is not None:
            number = self.high // step * step
            for _ in range(64):
                if self.holds(number):
                    yield number
                    return
                number -= step


def cuts_of(constraints: Iterable[Constraint], keys: Iterable[int]) -> tuple[set[int], set[int]]:
    """(numbers at which a new range begins, moduli) of all tests."""
    starts: set[int] = set()
    moduli: set[int] = set()
    singles = set(keys)
    for constraint in constraints:
        for clause in constraint.clauses:
            for op, operand in clause:
                if op == "min":
                    starts.add(operand)
                elif op == "max":
                    starts.add(operand + 1)
                elif op == "multiple_of":
                    moduli.add(operand)
                else:
                    singles.update(operand)
    for number in singles:
        starts.update((number, number + 1))
    return starts, moduli - {1}


def cut(low: int | None, high: int | None, starts: Iterable[int], moduli: Iterable[int]) -> list[Piece]:
    """The pieces of a domain, in order; within a range apart by divisibility. None has no numbers in it."""
    inside = sorted(s for s in set(starts) if (low is None or s > low) and (high is None or s <= high))
    edges: list[tuple[int | None, int | None]] = []
    begin = low
    for start in inside:
        edges.append((begin, start - 1))
        begin = start
    edges.append((begin, high))
    wanted = sorted(set(moduli))
    patterns = _patterns(wanted)
    return [piece for first, last in edges for piece in _pieces(first, last, wanted, patterns)]


def _patterns(moduli: list[int]) -> list[frozenset[int]]:
    """Every set of moduli that can divide a number while the others do not."""
    found = {frozenset[int]()}
    pending = [frozenset[int]()]
    while pending:
        base = pending.pop()
        for m in moduli:
            step = math.lcm(m, *base)
            closed = frozenset(k for k in moduli if step % k == 0)
            if closed not in found:
                found.add(closed)
                pending.append(closed)
    return sorted(found, key=lambda p: (len(p), sorted(p)))


def _pieces(
    low: int | None, high: int | None, moduli: list[int], patterns: list[frozenset[int]]
) -> Iterator[Piece]:
    if low is not None and low == high:
        by = frozenset(m for m in moduli if low % m == 0)
        yield Piece(low, high, by, frozenset(moduli) - by, low)
        return
    for by in patterns:
        no = frozenset(moduli) - by
        example = _first(low, high, by, no)
        if example is not None:
            yield Piece(low, high, by, no, example)


def _first(low: int | None, high: int | None, by: frozenset[int], no: frozenset[int]) -> int | None:
    """The first number of a range that ``by`` divides and ``no`` does not, or None.

    A range as long as the least common multiple of all moduli meets every combination, so the search ends there.
    """
    step = math.lcm(*by)
    period = math.lcm(step, *no)
    if low is None and high is not None:
        number = high // step * step
        end = high - period
        while number >= end:
            if all(number % m for m in no):
                return number
            number -= step
        return None
    start = 0 if low is None else low
    number = -(-start // step) * step
    end = start + period if high is None else min(high, start + period)
    while number <= end:
        if all(number % m for m in no):
            return number
        number += step
    return None
