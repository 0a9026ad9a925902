"""Conditions: the tree that `when`, `unless`, `require` and the policy's `when` are made of.

`parse` turns raw YAML into a tree of frozen records and reports every mistake with its path. What null and UNKNOWN do to
a condition depends on where it stands; that is decided when the tree is compiled (`selector.nodes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from selector.constraints import Constraint, ConstraintError, parse_condition
from selector.vocabulary import Axis, Vocabulary

__all__ = [
    "Accepts",
    "All",
    "AnyOf",
    "AxisTest",
    "Condition",
    "Not",
    "accepted_ids",
    "axes_of",
    "comparisons",
    "describe",
    "holds",
    "packages_of",
    "parse",
]

Path = tuple[str | int, ...]
Report = Callable[[Path, str, str | None], None]


class AxisTest(NamedTuple):
    """One axis against one constraint."""

    axis: Axis
    constraint: Constraint


class Accepts(NamedTuple):
    """Another candidate accepts the same request."""

    candidate: str


class All(NamedTuple):
    """Every part holds (an empty one always does)."""

    parts: tuple[Condition, ...]


class AnyOf(NamedTuple):
    """Some part holds."""

    parts: tuple[Condition, ...]


class Not(NamedTuple):
    """The part does not hold."""

    part: Condition


Condition = AxisTest | Accepts | All | AnyOf | Not


#: Conditions in one `any` or `all`.
MAX_PARTS = 1000


def parse(raw: Any, vocabulary: Vocabulary, report: Report, path: Path = ()) -> Condition:
    """The tree of a raw condition. Mistakes go to ``report``; what they leave out holds always."""
    if not isinstance(raw, Mapping):
        report(path, "a condition is a mapping of axis to constraint", None)
        return All(())
    parts: list[Condition] = []
    for key, value in raw.items():
        here = (*path, key)
        if key in ("all", "any"):
            if not isinstance(value, list):
                report(here, f"{key} takes a list of conditions", None)
                continue
            if len(value) > MAX_PARTS:
                message = f"{key} of {len(value)} conditions, and at most {MAX_PARTS} are read"
                report(here, message, "write a list of values, or bounds, for one axis")
                continue
            inner = tuple(parse(item, vocabulary, report, (*here, i)) for i, item in enumerate(value))
            parts.append(All(inner) if key == "all" else AnyOf(inner))
        elif key == "not":
            parts.append(Not(parse(value, vocabulary, report, here)))
        elif key == "accepts":
            names = value if isinstance(value, list) else [value]
            if not all(isinstance(n, str) for n in names):
                report(here, "accepts takes a candidate's name, or a list of them", None)
                continue
            parts.extend(Accepts(n) for n in names)
        else:
            axis = vocabulary.find(key)
            if axis is None:
                near = vocabulary.nearest(key)
                report(here, f"unknown axis {key!r}", f"did you mean {near}?" if near else None)
                continue
            try:
                parts.append(AxisTest(axis, parse_condition(axis, value)))
            except ConstraintError as error:
                report((*here, *error.path), error.message, error.hint)
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def holds(condition: Condition | None, values: Mapping[int, Any]) -> bool:
    """Whether a condition definitely holds for plain values (a missing one is unknown). For data beside the manifests."""
    return condition is None or _judge(condition, values) is True


def _judge(condition: Condition, values: Mapping[int, Any]) -> bool | None:
    if isinstance(condition, AxisTest):
        value = values.get(condition.axis.index)
        return None if value is None else condition.constraint.judge(value)
    if isinstance(condition, Accepts):
        return None
    if isinstance(condition, Not):
        inner = _judge(condition.part, values)
        return None if inner is None else not inner
    found = [_judge(p, values) for p in condition.parts]
    decisive = isinstance(condition, AnyOf)
    if decisive in found:
        return decisive
    return None if None in found else not decisive


def _walk(condition: Condition) -> Iterator[AxisTest | Accepts]:
    if isinstance(condition, (AxisTest, Accepts)):
        yield condition
    elif isinstance(condition, Not):
        yield from _walk(condition.part)
    else:
        for part in condition.parts:
            yield from _walk(part)


def comparisons(condition: Condition | None) -> int:
    """How many comparisons a condition has."""
    return 0 if condition is None else sum(1 for _ in _walk(condition))


def axes_of(condition: Condition | None) -> tuple[Axis, ...]:
    """The axes a condition names, in the order written, each once."""
    if condition is None:
        return ()
    return tuple(dict.fromkeys(leaf.axis for leaf in _walk(condition) if isinstance(leaf, AxisTest)))


def packages_of(condition: Condition | None) -> tuple[str, ...]:
    """The packages a condition asks about."""
    if condition is None:
        return ()
    tests = (leaf for leaf in _walk(condition) if isinstance(leaf, AxisTest) and leaf.axis.type == "packages")
    return tuple(dict.fromkeys(t.operand[0] for leaf in tests for c in leaf.constraint.clauses for t in c))


def accepted_ids(condition: Condition | None) -> tuple[str, ...]:
    """The candidates a condition refers to."""
    if condition is None:
        return ()
    return tuple(dict.fromkeys(leaf.candidate for leaf in _walk(condition) if isinstance(leaf, Accepts)))


def describe(condition: Condition, top: bool = True) -> str:
    """A condition in words: ``kv_cache_dtype fp8_e4m3 and alibi true``."""
    if isinstance(condition, AxisTest):
        constraint = condition.constraint
        if condition.axis.type in ("flag", "mode") and len(constraint.clauses) == 1 and constraint.clauses[0]:
            wanted = condition.constraint.holds(True)
            return condition.axis.name if wanted else f"no {condition.axis.name}"
        if condition.axis.type == "packages":
            return constraint.describe()
        return f"{condition.axis.name} {constraint.describe()}"
    if isinstance(condition, Accepts):
        return f"{condition.candidate} accepts it"
    if isinstance(condition, Not):
        return f"not ({describe(condition.part)})"
    if not condition.parts:
        return "always" if isinstance(condition, All) else "never"
    joint = " and " if isinstance(condition, All) else " or "
    text = joint.join(describe(p, top=False) for p in condition.parts)
    return text if top or len(condition.parts) == 1 else f"({text})"
