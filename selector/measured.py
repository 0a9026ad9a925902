"""Measured orders: what `attn-select tune` found on a machine, used for ranking after the policy.

A file belongs to one environment, by its fingerprint: another driver or another version of any package makes it stale, and a stale
file changes nothing but says so. An entry is one request with the times of the candidates that accept it. Candidates whose times
overlap are a tie and keep the policy's order. A measurement is a wish: explicit choices outrank it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector import quarantine
from selector.errors import ManifestError
from selector.preferences import Preference

if TYPE_CHECKING:
    from selector.environment import Environment
    from selector.request import Request
    from selector.yaml_loader import Document

__all__ = [
    "VARIABLE",
    "Entry",
    "Measurements",
    "Timing",
    "default_path",
    "forget",
    "in_use",
    "load",
    "switch_off",
    "unused",
]

#: Process variable that names the file; empty: none is used.
VARIABLE = "ATTN_SELECTOR_MEASURED"
FORMAT = 1

#: Fields of another request that are named where this one was not measured.
FIELDS = 6


class Timing(NamedTuple):
    """One candidate's times for one request, in seconds: median, first and third quartile, and how many runs."""

    candidate: str
    median: float
    low: float
    high: float
    runs: int


class Entry(NamedTuple):
    """One request with the times of its candidates; ``shapes`` says which sizes were measured."""

    request: Mapping[str, Any]
    shapes: str
    timings: tuple[Timing, ...]


class Measurements:
    """The content of one file."""

    def __init__(
        self, name: str, fingerprint: str, facts: Mapping[str, Any], entries: Iterable[Entry]
    ) -> None:
        self.name, self.fingerprint, self.facts = name, fingerprint, dict(facts)
        self.entries = tuple(entries)
        self._by_request = {_key(e.request): e for e in self.entries}

    def entry(self, request: Mapping[str, Any]) -> Entry | None:
        """The entry of a request, by its fields."""
        return self._by_request.get(_key(request))

    def stale(self, environment: Environment) -> str | None:
        """Why the file is not about this environment: the first fact that differs; None if it is."""
        if environment.fingerprint == self.fingerprint:
            return None
        now = environment.to_dict()
        for name in ("device", *self.facts):  # another device says more than what follows from it
            was = self.facts.get(name)
            if name != "packages" and now.get(name) != was:
                return f"{name} was {was} and is {now.get(name)}"
        before, after = self.facts.get("packages") or {}, now.get("packages") or {}
        for name in sorted({*before, *after}):
            was, found = (p.get(name, {}).get("version") for p in (before, after))
            if was != found:
                return f"{name} was {was or 'missing'} and is {found or 'missing'}"
        return "the environment is another one"

    def preference(self, request: Request, ranked: Sequence[str]) -> Preference | None:
        """The measured order of the candidates that the policy ranks, as a wish; None where nothing was measured."""
        entry = self.entry(request.to_dict())
        if entry is None:
            return None
        found = {t.candidate: t for t in entry.timings}
        known = [found[ident] for ident in ranked if ident in found]
        if len(known) < 2:
            return None
        order = ordered(known)
        if [t.candidate for t in order] == [t.candidate for t in known]:
            return None
        first, before = order[0], known[0]
        gain = before.median / first.median
        where = (
            f"measurement: {first.candidate} is {gain:.2g}x as fast as {before.candidate}"
            f" ({entry.shapes}; {first.runs} runs; {self.name})"
        )
        return Preference("prefer", tuple(t.candidate for t in order), "measurement", where)

    def silent(self, request: Request, environment: Environment) -> str:
        """Why these measurements have changed nothing about a decision."""
        stale = self.stale(environment)
        if stale is not None:
            return f"does not count: {stale}"
        if not self.entries:
            return "is empty"
        if self.entry(request.to_dict()) is not None:
            return (
                "has this request, and the policy's order stands: nothing is faster by more than the spread"
            )
        asked = request.to_dict()
        differing = [
            [k for k in {**asked, **e.request} if asked.get(k) != e.request.get(k)] for e in self.entries
        ]
        nearest, fields = min(zip(self.entries, differing), key=lambda pair: len(pair[1]))
        said = [f"{k}={nearest.request[k]}" if k in nearest.request else f"no {k}" for k in fields]
        more = f" and {len(said) - FIELDS} more" if len(said) > FIELDS else ""
        return f"does not count: another request was measured, with {', '.join(said[:FIELDS])}{more}"

    def to_text(self) -> str:
        """The file's YAML."""
        import yaml

        data = {
            "measured": FORMAT,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "facts": self.facts,
            "entries": [
                {
                    "request": dict(e.request),
                    "shapes": e.shapes,
                    "times": [
                        {
                            "candidate": t.candidate,
                            "median_us": _micro(t.median),
                            "low_us": _micro(t.low),
                            "high_us": _micro(t.high),
                            "runs": t.runs,
                        }
                        for t in e.timings
                    ],
                }
                for e in self.entries
            ],
        }
        head = "# Written by `attn-select tune`; used for ranking on the machine with this fingerprint.\n"
        return head + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _key(request: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in request.items()))


def ordered(policy: Sequence[Timing]) -> list[Timing]:
    """Candidates, fastest first; those that overlap with the fastest of the rest are a tie and keep the given order."""
    rest = list(policy)
    found: list[Timing] = []
    while rest:
        fastest = min(rest, key=lambda t: t.median)
        tied = [t for t in rest if t.low <= fastest.high]
        found.extend(tied)
        rest = [t for t in rest if t not in tied]
    return found


# -- reading ----------------------------------------------------------------------------------------------------------


def default_path(environ: Mapping[str, str] | None = None) -> str | None:
    """The file in use: the variable's, or the platform's data directory; None where the variable is empty."""
    variables = os.environ if environ is None else environ
    named = variables.get(VARIABLE)
    if named is not None:
        return named or None
    base = variables.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "attention-selector", "measured.yaml")


def load(path: str) -> Measurements:
    """Read a file of measurements. Raises ManifestError with every mistake and its place."""
    from selector.yaml_loader import load_file

    document = load_file(path)
    reader = _Reader(document)
    found = reader.read()
    if reader.faults:
        raise ManifestError(reader.faults)
    return found


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.faults: list[Any] = []

    def fault(self, path: tuple[str | int, ...], message: str) -> None:
        self.faults.append(self.document.fault(path, message))

    def read(self) -> Measurements:
        data: Any = self.document.data
        if not isinstance(data, dict) or data.get("measured") != FORMAT:
            self.fault(("measured",), f"no file of measurements of format {FORMAT}")
            return Measurements("", "", {}, ())
        facts = data.get("facts")
        if not isinstance(facts, dict):
            self.fault(("facts",), "facts are a mapping")
            facts = {}
        entries = data.get("entries")
        if not isinstance(entries, list):
            self.fault(("entries",), "entries are a list")
            entries = []
        found = [e for i, raw in enumerate(entries) for e in [self.entry(i, raw)] if e is not None]
        return Measurements(str(data.get("name", "")), str(data.get("fingerprint", "")), facts, found)

    def entry(self, i: int, raw: Any) -> Entry | None:
        path: tuple[str | int, ...] = ("entries", i)
        if (
            not isinstance(raw, dict)
            or not isinstance(raw.get("request"), dict)
            or not isinstance(raw.get("times"), list)
        ):
            self.fault(path, "an entry has request, shapes and times")
            return None
        timings = [
            t
            for j, item in enumerate(raw["times"])
            for t in [self.timing((*path, "times", j), item)]
            if t is not None
        ]
        return Entry(raw["request"], str(raw.get("shapes", "")), tuple(timings))

    def timing(self, path: tuple[str | int, ...], raw: Any) -> Timing | None:
        numbers = (
            [raw.get(k) for k in ("median_us", "low_us", "high_us", "runs")]
            if isinstance(raw, dict)
            else [None]
        )
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and n > 0 for n in numbers):
            self.fault(path, "a time has candidate, median_us, low_us, high_us and runs, all above 0")
            return None
        median, low, high, runs = (float(n) for n in numbers if n is not None)
        return Timing(str(raw.get("candidate", "")), median * 1e-6, low * 1e-6, high * 1e-6, int(runs))


_IN_USE: tuple[Measurements | None] | None = None
#: Another one after each `forget`, so that what a thread began to read before is not kept.
_TURN = object()


def in_use() -> Measurements | None:
    """The measurements of this user, read once (see `forget`). A file that the variable names has to be there."""
    global _IN_USE
    known = _IN_USE  # looked at once: another thread may forget it
    if known is None:
        turn = _TURN
        known = (read(),)
        if turn is _TURN:
            _IN_USE = known
    return known[0]


def read() -> Measurements | None:
    """The measurements of this user as their file says now; None where there is no file."""
    path = default_path()
    named = bool(os.environ.get(VARIABLE))
    return load(path) if path is not None and (named or os.path.isfile(path)) else None


def use(found: Measurements | None) -> None:
    """Go by measurements that were just read; the caller has decisions forgotten."""
    global _IN_USE, _TURN
    _IN_USE, _TURN = (found,), object()


def unused(request: Request, environment: Environment) -> str | None:
    """Why the measurements that somebody has did not count for a request that none has changed; None where nobody asks.

    A user's file is about one machine: for others it is spoken of only where the variable names it.
    """
    found = in_use()
    if found is None or not (environment.live or os.environ.get(VARIABLE)):
        return None
    return f"{default_path()} {found.silent(request, environment)}"


def forget() -> None:
    """Read the measurements anew at the next decision; those made before are forgotten."""
    global _IN_USE, _TURN
    _IN_USE, _TURN = None, object()
    quarantine.changed()


def switch_off() -> None:
    """Decide without measurements in this process, as measuring itself must."""
    global _IN_USE, _TURN
    _IN_USE, _TURN = (None,), object()
    quarantine.changed()
