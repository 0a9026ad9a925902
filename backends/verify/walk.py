"""The walk: every candidate's calls, put to the kernel or to the wrapper, and what their answers say about the manifests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from backends.verify.blame import blame, cause_of, shrunk
from backends.verify.child import Answer, Child
from backends.verify.draws import FREE, Draw, Value, key_of, normal, request_of
from backends.verify.findings import Count, Finding, Result
from backends.verify.machines import in_order, machines_for, standing
from backends.verify.plan import Plan
from backends.verify.state import State
from selector.request import Request

if TYPE_CHECKING:
    import os

    from backends.verify.plan import Refused
    from selector.catalog import Catalog
    from selector.environment import Environment

__all__ = ["Options", "Progress", "verify"]

#: Seconds of a quick walk.
QUICK = 40.0

#: Rounds of a complete walk: each covers all pairs of values anew. After the first, only for kernels that took less than this.
ROUNDS, SLOW = 8, 120.0

#: Refused calls that are tried for one line of a manifest.
REFUSALS = 8

#: Seconds of one turn, where several candidates share a walk that has an end.
TURN = 1.0

#: Findings after which a candidate is not walked further.
ENOUGH = 20

#: Seconds beyond the end that looking for the cause of a failure may take.
CAUSE = 5.0


#: What kept a walk from its end.
OVER, INTERRUPTED = "the time was over", "interrupted"


class Options(NamedTuple):
    """How to walk. ``seconds`` bounds the walk as a whole, ``limit`` one call."""

    names: tuple[str, ...] = ()
    quick: bool = False
    rejected: bool = False
    limit: float = 180.0
    seconds: float | None = None
    state: str | os.PathLike[str] | None = None
    rounds: int = ROUNDS


class Progress(NamedTuple):
    """Where the walk is: a share of the pairs of one candidate's round."""

    candidate: str
    ran: bool
    round: int
    share: float
    calls: int
    failing: int


def verify(
    catalog: Catalog,
    environment: Environment,
    options: Options,
    progress: Callable[[Progress], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Walk the candidates that this machine can run, and ask the wrappers of the others.

    Ctrl-C ends the walk; what was found until then is the result. Raises ValueError for a state file that is something
    else, RuntimeError if the child process does not start.
    """
    total = options.seconds if options.seconds is not None else QUICK if options.quick else None
    end = None if total is None else time.monotonic() + total
    state = State(options.state, environment.fingerprint)
    if state.fresh is not None:
        say(state.fresh)
    found = in_order(standing(catalog, environment), catalog, environment)
    chosen = {c.id for name in options.names for c in catalog.find(name)} if options.names else set(found)
    candidates = {c.id: c for c in catalog.candidates if c.id in chosen}
    here = [candidates[i] for i, against in found.items() if i in candidates and not against]
    others = [candidates[i] for i, against in found.items() if i in candidates and against]
    elsewhere = {c.id: found[c.id][0].message for c in others}
    say(f"candidates that run here: {len(here)}; others, whose wrappers are asked: {len(others)}")
    walks: list[_Walk] = []
    interrupted = False
    with Child(options.limit) as child:
        tools = _Tools(child, state, options, progress)
        try:
            for candidate in here:
                walks.append(_Walk(Plan(catalog, environment, candidate), tools, ran=True))
            for candidate, machine in machines_for(catalog, others, every=not options.quick):
                elsewhere.pop(candidate.id, None)
                walks.append(_Walk(Plan(catalog, machine, candidate), tools, ran=False))
            _until(walks, end)
        except KeyboardInterrupt:
            interrupted = True
            begun = {walk.candidate.id for walk in walks}
            elsewhere.update({c.id: INTERRUPTED for c in (*here, *others) if c.id not in begun})
    state.close()
    return _result(walks, elsewhere, interrupted)


class _Tools(NamedTuple):
    child: Child
    state: State
    options: Options
    progress: Callable[[Progress], None]


def _until(walks: list[_Walk], end: float | None) -> None:
    """Advance all walks, one after another; with an end, in turns, whoever has used least time first."""
    if end is None:
        for walk in walks:
            walk.advance(None)
        return
    left = list(walks)
    while left and time.monotonic() < end:
        walk = min(left, key=lambda w: w.seconds)
        before = walk.seconds
        walk.advance(min(end, time.monotonic() + max(TURN, 2.0 * walk.longest)), end)
        if walk.finished or walk.seconds == before:
            left.remove(walk)  # nothing of it fits into what is left of the time


class _Walk:
    """One candidate's way through its plan; can be left and taken up again."""

    def __init__(self, plan: Plan, tools: _Tools, *, ran: bool) -> None:
        self.plan, self.tools, self.ran = plan, tools, ran
        self.candidate = plan.candidate
        self.finished = False
        self.found: list[tuple[dict[str, Value], Finding]] = []
        self.causes: list[dict[str, Value]] = []
        self.calls: dict[str, Answer] = {}
        self.seconds = self.longest = 0.0
        self.unsaid = 0
        self.undeclared: dict[tuple[tuple[str, str], ...], tuple[int, int, Finding | None]] = {}
        self._end: float | None = None
        self._at = (0, 0.0)
        device = str(plan.environment.get("device"))
        self.device = "cuda" if device == "rocm" else device
        self._steps = self._all()

    def advance(self, turn: float | None, end: float | None = None) -> None:
        """Go on until the plan or the turn is over; no call is begun that would not end before ``end``."""
        self._end = end
        while self.time_left() and (turn is None or time.monotonic() < turn):
            try:
                next(self._steps)
            except StopIteration:
                self.finished = True
                return

    def time_left(self) -> bool:
        """Whether another call as long as the longest so far would end in time."""
        return self._end is None or time.monotonic() + self.longest < self._end

    def ask(self, draw: dict[str, Value]) -> Answer | None:
        """The verdict on one call; None if there is no time for it."""
        key = key_of(draw)
        known = self.calls.get(key)
        if known is not None:
            return known
        state = self.tools.state
        stored = f"{self.candidate.kernel}:{self.candidate.variant}:{self.device}:{self.ran}:{key}"
        answer = state.known.get(stored)
        if answer is None:
            if not self.time_left():
                return None
            self.tell(*self._at)  # before the call, which may take long: it may compile
            began = time.monotonic()
            answer = self.tools.child.ask(
                {
                    "kernel": self.candidate.kernel,
                    "variant": self.candidate.variant,
                    "draw": draw,
                    "device": self.device,
                    "ran": self.ran,
                }
            )
            took = time.monotonic() - began
            self.seconds += took
            if len(self.calls) > 0 or took > 30.0:  # the first one may have started the process
                self.longest = max(self.longest, took)
            state.add(stored, answer)
        self.calls[key] = answer
        return answer

    # -- what is declared ---------------------------------------------------------------------------------------------

    def _all(self) -> Iterator[None]:
        base = self.plan.base
        if base is None:
            return
        if self.take(base):
            return  # the plainest call fails: what else fails says nothing
        rounds = 1 if self.tools.options.quick or not self.ran else self.tools.options.rounds
        for round in range(rounds):
            cover = self.plan.cover(round)
            whole = max(len(cover.left), 1)
            for row in cover.rows():
                self.take(row)
                self.tell(round, 1.0 - len(cover.left) / whole)
                if len(self.found) >= ENOUGH:
                    return
                yield
            if self.seconds > SLOW:
                break
        if self.tools.options.rejected and self.ran:
            for refused in self.plan.refused():
                self.try_refused(refused)
                self.tell(round, 1.0)
                yield

    def tell(self, round: int, share: float) -> None:
        """Say where the walk is."""
        self._at = round, share
        calls, failing = len(self.calls), len(self.found)
        self.tools.progress(Progress(self.candidate.id, self.ran, round, share, calls, failing))

    def take(self, row: dict[str, Value]) -> bool:
        """Ask one call, and find the cause if it fails. Whether it failed."""
        base = self.plan.base
        assert base is not None
        around = self.around(row)
        if around is None:
            return False
        answer = self.ask(around)
        if answer is None or not answer.fails:
            return False
        if self._end is not None:
            self._end = max(self._end, time.monotonic() + CAUSE)
        smallest, why = shrunk(around, answer, base, self.plan.accepts, self.ask)
        cause = cause_of(smallest, base)
        self.causes.append(cause)
        if why.outcome == "refused" and set(cause) & FREE:
            self.unsaid += 1
            return True
        at, also = blame(self.candidate, cause)
        self.found.append((cause, self.finding(why.outcome, smallest, why.message, at, also)))
        return True

    @property
    def findings(self) -> list[Finding]:
        """What failed, without what a smaller cause explains (one that was found later, or with more time)."""
        return [
            finding
            for cause, finding in self.found
            if not any(
                other.items() < cause.items() and smaller.outcome == finding.outcome
                for other, smaller in self.found
            )
        ]

    def around(self, row: dict[str, Value]) -> dict[str, Value] | None:
        """The row without what is known to fail, so that it can still show something else."""
        base = self.plan.base
        assert base is not None
        for cause in self.causes:
            if all(row[name] == value for name, value in cause.items()):
                row = normal({**row, **{name: base[name] for name in cause}})
        if any(all(row[n] == v for n, v in cause.items()) for cause in self.causes):
            return None
        return row if self.plan.accepts(row) else None

    def finding(self, outcome: str, draw: Draw, message: str, at: str, also: tuple[str, ...]) -> Finding:
        request = Request(request_of(draw), vocabulary=self.plan.catalog.vocabulary)
        call = {name: value for name, value in cause_of(draw, self.plan.base or draw).items() if name in FREE}
        where = self.plan.environment.name
        return Finding(
            self.candidate.id, outcome, request.to_dict(), call, message, at, also, where, self.ran
        )

    # -- what is refused ----------------------------------------------------------------------------------------------

    def try_refused(self, refused: Refused) -> None:
        """Run a call that the manifest refuses; calls that the same lines refuse for the same axes are one finding."""
        places = [(str(r.at) if r.at is not None else "", r.axis) for r in refused.reasons]
        key = tuple(dict.fromkeys(places))
        tried, works, first = self.undeclared.get(key, (0, 0, None))
        if tried >= REFUSALS:
            return
        answer = self.ask(refused.draw)
        if answer is None:
            return
        if answer.outcome == "ok":
            works += 1
            if first is None:
                lines = list(dict.fromkeys(place for place, _ in places if place))
                reasons = "; ".join(r.message for r in refused.reasons)
                first = self.finding("works", refused.draw, reasons, lines[0], tuple(lines[1:]))
        self.undeclared[key] = (tried + 1, works, first)

    def works(self) -> Iterator[Finding]:
        """Refused calls that work, a finding for each set of lines."""
        for tried, works, first in self.undeclared.values():
            if first is not None:
                yield first._replace(
                    message=f"works, though refused: {first.message} ({works} of {tried} such calls work)"
                )

    def count(self, interrupted: bool) -> Count:
        """How far it went."""
        memory = sum(a.outcome == "memory" for a in self.calls.values())
        note = None
        if self.plan.base is None:
            note = "no call was found that the manifest accepts"
        elif not self.finished:
            note = INTERRUPTED if interrupted else OVER
        elif len(self.found) >= ENOUGH:
            note = f"stopped after {ENOUGH} findings"
        elif self.causes == [{}]:
            note = "the plainest call fails, so nothing else was tried"
        return Count(
            self.candidate.id,
            self.plan.environment.name,
            self.ran,
            len(self.calls),
            self.seconds,
            self.unsaid,
            memory,
            note,
            self.finished or self.plan.base is None,
        )


def _result(walks: list[_Walk], elsewhere: Mapping[str, str], interrupted: bool) -> Result:
    alike: dict[tuple[str, str, str, str], Finding] = {}
    for finding in (f for walk in walks for f in walk.findings):
        # one machine is enough to show it
        alike.setdefault((finding.candidate, finding.outcome, finding.at, finding.message), finding)
    findings = list(alike.values())
    return Result(
        sum(len(walk.calls) for walk in walks if walk.ran),
        tuple(f for f in findings if f.outcome != "wrong"),
        tuple(f for f in findings if f.outcome == "wrong"),
        tuple(f for walk in walks for f in walk.works()),
        tuple(walk.count(interrupted) for walk in walks),
        dict(elsewhere),
        interrupted,
    )
