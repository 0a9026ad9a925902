"""The value classes of one axis: every value that something tells from the others stands for all values like it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis.integers import Piece, cut, cuts_of
from selector.analysis.versions import named_versions, representatives
from selector.versions import contains
from selector.vocabulary import MISSING, STATES, UNKNOWN, PackageState

if TYPE_CHECKING:
    from selector.analysis.observe import Observed
    from selector.vocabulary import Axis

__all__ = ["NULL_CLASS", "UNKNOWN_CLASS", "Class", "Classes", "of_axis", "packages"]


Answers = Callable[[Any], Hashable]


class Class(NamedTuple):
    """Values that nothing tells apart.

    ``kind`` is value, null, unknown, or absent (not given, where that is not the same as some value). ``value`` stands for
    all; ``members`` are the values of a choice or flag, the pieces of an integer, the pairs of a pair, sample versions.
    A class of a choice or pair without members is "any other".
    """

    kind: str
    value: Any
    members: tuple[Any, ...]


class Classes(NamedTuple):
    """The classes of one axis, and what tells its values apart: equal answers, one class.

    ``specifiers`` are those of versions that something names.
    """

    found: list[Class]
    answers: Answers
    specifiers: tuple[str, ...] = ()

    def position(self, value: Any) -> int:
        """The class that a canonical value lies in. Raises KeyError for one that the axis cannot have here."""
        for kind, special in (("null", None), ("unknown", UNKNOWN), ("absent", MISSING)):
            if value is special:
                return self._kind(kind)
        wanted: Hashable = None
        for k, c in enumerate(self.found):
            if c.kind == "value" and c.members and isinstance(c.members[0], Piece):
                if any(p.holds(value) for p in c.members):
                    return k
                continue
            if wanted is None:
                wanted = self.answers(value)
            if c.kind == "value" and self.answers(c.value) == wanted:
                return k
            if c.kind == "value" and not c.members and type(value) is tuple:
                return k  # any other pair
        raise KeyError(value)

    def _kind(self, kind: str) -> int:
        for k, c in enumerate(self.found):
            if c.kind == kind:
                return k
        raise KeyError(kind)


NULL_CLASS = Class("null", None, ())
UNKNOWN_CLASS = Class("unknown", UNKNOWN, ())
ABSENT_CLASS = Class("absent", MISSING, ())


def of_axis(same: Sequence[Axis], seen: Observed, singles: Iterable[Any], *, everywhere: bool) -> Classes:
    """The classes of an axis that ``same`` describes in each catalog; one class if nothing tells any values apart.

    ``everywhere``: every catalog has the axis.
    """
    axis = same[0]
    keys = [v for v in (*seen.keys, *singles) if v is not None]
    if not (seen.constraints or seen.keys or seen.tags or seen.arithmetic or seen.element or singles):
        return Classes([Class("value", axis.default, ())], lambda _: None)
    answers = _told_apart(seen, keys)
    if axis.type == "pair" and seen.element:
        answers = _exactly(answers)
    found = _VALUES[axis.type](same, seen, keys, answers)
    found.append(NULL_CLASS)
    defaults = [(a.default, a.same_as, "default" in a.raw) for a in same]
    if axis.same_as is not None or any(d != defaults[0] for d in defaults) or not everywhere:
        found.append(ABSENT_CLASS)
    if axis.of == "environment" and any(a.raw.get("default") is None for a in same):
        found.append(UNKNOWN_CLASS)
    return Classes(found, answers, _specifiers(seen) if axis.type == "version" else ())


def _told_apart(seen: Observed, keys: Sequence[Any]) -> Answers:
    """What everything says of a value: equal answers, one class."""
    constraints = [c for c in seen.constraints if c.given is None]
    wanted = list(dict.fromkeys((type(k), k) for k in keys))

    def answers(value: Any) -> Hashable:
        return (
            tuple(c.holds(value) for c in constraints),
            tuple(value in tags for tags in seen.tags),
            tuple((type(value), value) == k for k in wanted),
        )

    return answers


def _exactly(answers: Answers) -> Answers:
    """Pairs whose elements are read: each that something names stands alone, the others are one class."""

    def exact(value: Any) -> Hashable:
        found = answers(value)
        return (found, value)

    return exact


def _grouped(values: Iterable[Any], answers: Answers) -> list[Class]:
    groups: dict[Hashable, list[Any]] = {}
    for value in values:
        groups.setdefault(answers(value), []).append(value)
    return [Class("value", members[0], tuple(members)) for members in groups.values()]


def _flags(same: Sequence[Axis], seen: Observed, keys: Sequence[Any], answers: Answers) -> list[Class]:
    return _grouped([False, True], answers)


def _choices(same: Sequence[Axis], seen: Observed, keys: Sequence[Any], answers: Answers) -> list[Class]:
    names: dict[str, None] = {}
    for axis in same:
        names.update(dict.fromkeys(axis.values))
    for constraint in seen.constraints:
        for clause in constraint.clauses:
            for _, operand in clause:
                names.update(dict.fromkeys(sorted(operand)))
    for members in seen.tags:
        names.update(dict.fromkeys(sorted(members)))
    names.update(dict.fromkeys(keys))
    valid = [n for n in names if all(a.open or n in a.values for a in same)]
    found = _grouped(valid, answers)
    if all(a.open for a in same):
        other = "other"
        while other in names:
            other += "_"
        for k, known in enumerate(found):
            if answers(known.value) == answers(other):
                del found[k]  # its names mean nothing to anybody: they are like any other
                break
        found.append(Class("value", other, ()))
    return found


def _integers(same: Sequence[Axis], seen: Observed, keys: Sequence[Any], answers: Answers) -> list[Class]:
    lows = [a.min for a in same if a.min is not None]
    highs = [a.max for a in same if a.max is not None]
    starts, moduli = cuts_of(seen.constraints, keys)
    if seen.arithmetic:
        starts.update((0, 1))
    pieces = cut(max(lows, default=None), min(highs, default=None), starts, moduli)
    if seen.arithmetic:
        return [Class("value", p.example, (p,)) for p in pieces]
    groups: dict[Hashable, list[Piece]] = {}
    for piece in pieces:
        groups.setdefault(answers(piece.example), []).append(piece)
    return [Class("value", members[0].example, tuple(members)) for members in groups.values()]


def _versions(same: Sequence[Axis], seen: Observed, keys: Sequence[Any], answers: Answers) -> list[Class]:
    found = representatives([*named_versions(_specifiers(seen)), *keys], answers)
    return [Class("value", text, samples) for text, samples in found]


def _specifiers(seen: Observed) -> tuple[str, ...]:
    found = (operand for c in seen.constraints for clause in c.clauses for _, operand in clause)
    return tuple(dict.fromkeys(found))


def _pairs(same: Sequence[Axis], seen: Observed, keys: Sequence[Any], answers: Answers) -> list[Class]:
    low = max((a.min for a in same if a.min is not None), default=None)
    high = min((a.max for a in same if a.max is not None), default=None)
    named = dict.fromkeys(
        pair
        for c in seen.constraints
        for clause in c.clauses
        for _, operand in clause
        for pair in sorted(operand)
    )
    named.update(dict.fromkeys(keys))
    inside = [p for p in named if all((low is None or n >= low) and (high is None or n <= high) for n in p)]
    found = _grouped(inside, answers)
    other = _unlisted_pair(set(inside), low, high)
    if other is not None:
        found.append(Class("value", other, ()))
    return found


def _unlisted_pair(named: set[tuple[int, int]], low: int | None, high: int | None) -> tuple[int, int] | None:
    """A pair of the domain that is not listed; None if all are."""
    start = low if low is not None else (high if high is not None else 0)
    step = 1 if low is not None or high is None else -1
    for k in range(len(named) + 1):
        number = start + step * k
        if (low is not None and number < low) or (high is not None and number > high):
            break
        for j in range(len(named) + 1):
            second = start + step * j
            if (low is not None and second < low) or (high is not None and second > high):
                break
            if (number, second) not in named:
                return number, second
    return None


_VALUES: dict[str, Callable[[Sequence[Axis], Observed, Sequence[Any], Answers], list[Class]]] = {
    "flag": _flags,
    "mode": _flags,
    "choice": _choices,
    "integer": _integers,
    "version": _versions,
    "pair": _pairs,
}


def whole(same: Sequence[Axis]) -> Classes:
    """The classes of all packages together: known one by one, null, or unknown as a whole."""
    found = [Class("value", True, ()), NULL_CLASS]
    if any(a.raw.get("default") is None for a in same):
        found.append(UNKNOWN_CLASS)
    return Classes(found, lambda _: True)


#: A version that no specifier takes and that orders nowhere.
UNREADABLE = "unreadable version"


def packages(seen: Observed, singles: Iterable[Any]) -> dict[str, Classes]:
    """The classes of each package that something names: missing, usable in some version, or not usable."""
    named: dict[str, dict[tuple[str, ...] | None, None]] = {}
    for constraint in seen.constraints:
        for clause in constraint.clauses:
            for _, (name, specifiers) in clause:
                named.setdefault(name, {})[specifiers] = None
    states: dict[str, dict[PackageState, None]] = {}
    for mapping in singles:
        for name, state in mapping.items():
            if name in named:
                states.setdefault(name, {})[state] = None
    return {name: _package(name, list(tests), list(states.get(name, ()))) for name, tests in named.items()}


def _package(name: str, tests: list[tuple[str, ...] | None], singles: list[PackageState]) -> Classes:
    listed = [specifiers for specifiers in tests if specifiers]
    exact = [s.version for s in singles if s.state == "usable" and s.version is not None]

    def versions(version: str) -> Hashable:
        return (
            tuple(any(contains(s, version) for s in specifiers) for specifiers in listed),
            tuple(version == e for e in exact),
        )

    def answers(state: PackageState) -> Hashable:
        if state.state in ("missing", "unknown"):
            return state.state
        if state.state != "usable":
            return "broken"
        if state.version is None:
            return "no version" if listed else versions("0")
        return versions(state.version)

    found = [Class("value", PackageState(None, "missing"), ())]
    samples = representatives([*named_versions(s for t in listed for s in t), *exact], versions)
    found += [Class("value", PackageState(text), members) for text, members in samples]
    unordered = [v for v in (UNREADABLE, *exact) if all(versions(v) != versions(text) for text, _ in samples)]
    found += [Class("value", PackageState(v), (v,)) for v in unordered if listed or v != UNREADABLE]
    if listed:
        found.append(Class("value", PackageState(None), ()))
    broken = next(s for s in STATES if s not in ("usable", "missing", "unknown"))
    found.append(Class("value", PackageState(None, broken), ()))
    found.append(Class("value", PackageState(None, "unknown"), ()))
    return Classes(found, answers, tuple(dict.fromkeys(s for t in listed for s in t)))
