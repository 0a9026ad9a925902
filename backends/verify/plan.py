"""Which calls one candidate is asked: a base that it accepts, rows that cover all pairs, and what its manifest refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from backends.verify.draws import DIMENSIONS, FREE, PLAIN, Draw, Value, key_of, normal, request_of
from backends.verify.pairwise import Cover, complete
from backends.verify.space import values_of
from selector.request import Request

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.manifest import Candidate
    from selector.reasons import Reason

__all__ = ["Plan", "Refused", "reasons_of"]


class Refused(NamedTuple):
    """A call that the manifest refuses, and why."""

    draw: dict[str, Value]
    reasons: tuple[Reason, ...]


def reasons_of(catalog: Catalog, environment: Environment, ident: str, draw: Draw) -> tuple[Reason, ...]:
    """Why the manifest refuses a call; empty if it accepts."""
    from selector.selection import decide

    request = Request(request_of(draw), vocabulary=catalog.vocabulary)
    return decide(request, catalog, environment).reasons(ident)


class Plan:
    """The calls for one candidate on one machine.

    ``base`` is the plainest call that the manifest accepts, None where it accepts none that could be found.
    """

    def __init__(
        self, catalog: Catalog, environment: Environment, candidate: Candidate, seed: int = 0
    ) -> None:
        from selector.selection import engine_for

        self.catalog, self.environment, self.candidate = catalog, environment, candidate
        self.position = catalog.program.position[candidate.id]
        self._engine = engine_for(catalog, environment, False)
        self._known: dict[str, bool] = {}
        self._rng = random.Random(seed)
        offered = values_of(candidate, catalog.vocabulary)
        self.base = self._base(offered)
        self.values: dict[str, tuple[Value, ...]] = {}
        self.alone: dict[tuple[str, Value], None] = {}
        """Values that no accepted call has."""
        if self.base is not None:
            self._singles(self.base, offered)

    def accepts(self, draw: Draw) -> bool:
        """Whether the manifest accepts the call; False too where there is no such call. Takes a normal draw."""
        key = key_of({k: v for k, v in draw.items() if k not in FREE or k == "length"})
        known = self._known.get(key)
        if known is None:
            request = request_of(draw)
            known = False
            if request is not None:
                outcome = self._engine.decide(Request(request, vocabulary=self.catalog.vocabulary), ())
                known = self.position in outcome.ranked or self.position in outcome.excluded
            self._known[key] = known
        return known

    def cover(self, round: int = 0) -> Cover:
        """Accepted calls that cover all pairs; each round covers them with other calls."""
        assert self.base is not None, "asked of candidates that accept something"
        return Cover(self.base, self.values, self.accepts, seed=round)

    def refused(self) -> Iterator[Refused]:
        """Calls that the manifest refuses: for one value each, then for two that it takes apart only.

        Where it can be, the call is refused for one reason alone.
        """
        if self.base is None:
            return
        seen: set[str] = set()
        for name, value in self.alone:
            yield from self._refusal({name: value}, seen)
        cover = self.cover()
        for _ in cover.rows():
            pass
        for pair in cover.apart:
            if not {name for name, _ in pair} & FREE:
                yield from self._refusal(dict(pair), seen)

    def _refusal(self, pinned: Mapping[str, Value], seen: set[str]) -> Iterator[Refused]:
        """The call with the fewest reasons against it, that the machine alone does not refuse."""
        assert self.base is not None
        best: Refused | None = None
        draw = complete(pinned, self.base, self.values, lambda d: request_of(d) is not None, self._rng)
        if draw is None or self.accepts(draw):
            return
        reasons = reasons_of(self.catalog, self.environment, self.candidate.id, draw)
        best = Refused(draw, reasons)
        for name in ("dtype", "kv_cache_dtype", "layout", "head_size", "causal", "training"):
            for value in self.values.get(name, ()) if len(best.reasons) > 1 else ():
                if name in pinned:
                    continue
                other = normal({**draw, name: value})
                held = all(other[k] == v for k, v in pinned.items())
                if held and request_of(other) is not None:
                    found = reasons_of(self.catalog, self.environment, self.candidate.id, other)
                    if 0 < len(found) < len(best.reasons):
                        best = Refused(other, found)
        key = key_of(best.draw)
        if key not in seen:
            seen.add(key)
            yield best

    def _base(self, offered: Mapping[str, Sequence[Value]]) -> dict[str, Value] | None:
        plain = normal(PLAIN)
        for dtype in offered["dtype"]:
            found = complete({"dtype": dtype}, plain, offered, self.accepts, self._rng)
            if found is not None:
                return found
        return None

    def _singles(self, base: Draw, offered: Mapping[str, Sequence[Value]]) -> None:
        """Divide the values into those that some accepted call has and the others."""
        for dimension in DIMENSIONS:
            name = dimension.name
            kept: list[Value] = []
            for value in dict.fromkeys((base[name], *offered[name])):
                if complete({name: value}, base, offered, self.accepts, self._rng) is not None:
                    kept.append(value)
                else:
                    self.alone[name, value] = None
            self.values[name] = tuple(kept)
