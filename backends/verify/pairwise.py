"""Draws that cover every pair of values that some acceptable draw holds.

A greedy generator under a constraint that can only be asked ("does the manifest accept this?"): a row starts from a pair that
no row has yet and takes, dimension by dimension, the value that adds most new pairs and is still accepted.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from backends.verify.draws import FREE, NEEDS, PLAIN, Draw, Value, normal

__all__ = ["Cover", "complete", "with_needs"]

#: Random attempts to bring two values together, beside every single further change.
ATTEMPTS = 60

#: Values of one dimension that are tried for a row before its plain value is kept.
OPTIONS = 4


def complete(
    pinned: Mapping[str, Value],
    base: Draw,
    values: Mapping[str, Sequence[Value]],
    accepts: Callable[[Draw], bool],
    rng: random.Random,
) -> dict[str, Value] | None:
    """An accepted draw, in its normal form, that holds the pinned values; ``base`` elsewhere, if that is possible."""
    fixed = dict(pinned)
    if not with_needs(fixed):
        return None

    def tried(changes: Mapping[str, Value]) -> dict[str, Value] | None:
        wanted = {**fixed, **{k: v for k, v in changes.items() if k not in fixed}}
        if not with_needs(wanted):
            return None
        draw = normal({**base, **wanted})
        if all(draw[k] == v for k, v in pinned.items()) and accepts(draw):
            return draw
        return None

    found = tried({})
    # what no axis says changes nothing about acceptance
    free = [d for d in values if d not in fixed and d not in FREE and len(values[d]) > 1]
    singles = ({d: v} for d in free for v in values[d] if v != base[d])
    for changes in singles if found is None else ():
        found = tried(changes)
        if found is not None:
            return found
    for _ in range(ATTEMPTS if found is None and free else 0):
        some = rng.sample(free, min(rng.choice((2, 2, 3, 4)), len(free)))
        found = tried({d: rng.choice(values[d]) for d in some})
        if found is not None:
            return found
    return found


def with_needs(fixed: dict[str, Value]) -> bool:
    """Add what fixed values need in order to count; False where that contradicts another fixed value."""
    pending = list(fixed)
    while pending:
        name = pending.pop()
        if fixed[name] == PLAIN[name]:
            continue
        for other, allowed in NEEDS[name].items():
            if other not in fixed:
                fixed[other] = allowed[0]
                pending.append(other)
            elif fixed[other] not in allowed:
                return False
    return True


class Cover:
    """Rows for one candidate; ``values`` holds only values that some accepted draw has."""

    def __init__(
        self,
        base: Draw,
        values: Mapping[str, Sequence[Value]],
        accepts: Callable[[Draw], bool],
        seed: int,
    ) -> None:
        self.base, self.values, self.accepts = base, values, accepts
        self.rng = random.Random(seed)
        names = [name for name in values if len(values[name]) > 1]
        pairs = [
            ((a, x), (b, y))
            for a, b in itertools.combinations(names, 2)
            for x in values[a]
            for y in values[b]
        ]
        self.rng.shuffle(pairs)
        self.left = dict.fromkeys(pairs)
        self.apart: list[tuple[tuple[str, Value], tuple[str, Value]]] = []
        """Pairs that no accepted draw holds, though each value alone is accepted."""
        self.names = names

    def rows(self) -> Iterator[dict[str, Value]]:
        """Accepted draws until every pair is covered, or found to be impossible."""
        while self.left:
            pair = next(iter(self.left))
            start = complete(dict(pair), self.base, self.values, self.accepts, self.rng)
            if start is None:
                del self.left[pair]
                self.apart.append(pair)
                continue
            row = self._grown(start, pair)
            self.cover(row)
            yield row

    def cover(self, row: Draw) -> None:
        """Strike out the pairs that a row holds."""
        for a, b in itertools.combinations(self.names, 2):
            self.left.pop(((a, row[a]), (b, row[b])), None)

    def _grown(self, row: dict[str, Value], pair: tuple[tuple[str, Value], ...]) -> dict[str, Value]:
        """The row with as many new pairs as a greedy choice finds."""
        kept = dict(pair)
        with_needs(kept)
        for name in self.rng.sample(self.names, len(self.names)):
            if name in kept:
                continue
            for value in self._by_gain(name, row)[:OPTIONS]:
                wanted = {**kept, name: value}
                if not with_needs(wanted):
                    continue
                draw = normal({**row, **wanted})
                if all(draw[k] == v for k, v in wanted.items()) and self.accepts(draw):
                    row, kept = draw, wanted
                    break
            else:
                kept[name] = row[name]
        return row

    def _by_gain(self, name: str, row: Draw) -> list[Value]:
        """The dimension's values, those in most pairs that are left first; none that is in no pair."""
        gains: list[tuple[int, int, Value]] = []
        for n, value in enumerate(self.values[name]):
            gain = 0
            for other in self.names:
                if other != name:
                    mine, its = (name, value), (other, row[other])
                    gain += (mine, its) in self.left or (its, mine) in self.left
            if gain:
                gains.append((-gain, n, value))
        return [value for _, _, value in sorted(gains, key=lambda g: g[:2])]
