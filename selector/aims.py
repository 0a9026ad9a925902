"""What a refused candidate needs of single axes, and values that serve it: a test that has to hold, or must not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from selector.conditions import Accepts, AxisTest, Condition, Not
from selector.constraints import Constraint
from selector.vocabulary import Axis

__all__ = ["Aim", "aims_of", "options"]

#: Values of a choice that are tried of one list.
TRIED = 4


class Aim(NamedTuple):
    """A test of one axis that should hold, or (``truth`` is false) should not."""

    axis: Axis
    constraint: Constraint
    truth: bool


def aims_of(condition: Condition | None, truth: bool) -> Iterator[Aim]:
    """The tests that could give a condition that truth, in the order written. Of other candidates nothing is asked."""
    if condition is None or isinstance(condition, Accepts):
        return
    if isinstance(condition, AxisTest):
        yield Aim(condition.axis, condition.constraint, truth)
    elif isinstance(condition, Not):
        yield from aims_of(condition.part, not truth)
    else:
        for part in condition.parts:
            yield from aims_of(part, truth)


def options(axis: Axis, aims: Iterable[Aim], declared: Constraint, value: Any) -> list[Any]:
    """A few values that serve an aim, the nearest first. ``declared``: what the candidate takes of the axis at all."""
    found: dict[Any, None] = {}
    for aim in aims:
        constraint = aim.constraint
        if constraint.given is not None:
            continue
        tried = _inside(axis, constraint, value) if aim.truth else _outside(axis, constraint, declared, value)
        found.update(dict.fromkeys(v for v in tried if constraint.holds(v) == aim.truth))
    return [v for v in found if _possible(axis, v)]


def _inside(axis: Axis, constraint: Constraint, value: Any) -> Iterator[Any]:
    for tests in _clauses(constraint):
        if "in" in tests:
            yield from sorted(tests["in"], key=lambda v: _distance(v, value))[:TRIED]
        elif axis.type == "integer":
            yield from _near(tests, value)


def _outside(axis: Axis, constraint: Constraint, declared: Constraint, value: Any) -> Iterator[Any]:
    """Values that a constraint does not have, within what is declared."""
    if axis.identity:
        return

    def taken(option: Any) -> bool:
        return not constraint.holds(option) and (declared.given is not None or declared.holds(option))

    if axis.type in ("flag", "mode"):
        yield from (v for v in (False, True) if taken(v))
    elif axis.type == "choice":
        yield from [v for v in axis.values if taken(v)][:TRIED]
    elif axis.type == "integer":
        within = _clauses(declared) if declared.given is None else [{}]
        for limits in _beyond(_clauses(constraint), value):
            for tests in within:
                yield from (v for v in _near(_both(tests, limits), value) if taken(v))


def _beyond(clauses: Sequence[Mapping[str, Any]], value: Any) -> Iterator[dict[str, int]]:
    """Bounds of numbers just outside of some clauses."""
    for tests in clauses:
        if "max" in tests:
            yield {"min": tests["max"] + 1}
        if "min" in tests:
            yield {"max": tests["min"] - 1}
        if isinstance(value, int) and not {"min", "max"} & tests.keys():
            yield {"min": value + 1}
            yield {"max": value - 1}


def _both(tests: Mapping[str, Any], limits: Mapping[str, int]) -> dict[str, Any]:
    found = {op: operand for op, operand in tests.items() if op in ("min", "max", "multiple_of")}
    if "min" in limits:
        found["min"] = max(limits["min"], found.get("min", limits["min"]))
    if "max" in limits:
        found["max"] = min(limits["max"], found.get("max", limits["max"]))
    return found


def _clauses(constraint: Constraint) -> list[dict[str, Any]]:
    return [{t.op: t.operand for t in clause} for clause in constraint.clauses]


def _possible(axis: Axis, value: Any) -> bool:
    try:
        axis.canonical(value)
    except ValueError:
        return False
    return True


def _distance(member: Any, value: Any) -> Any:
    if isinstance(member, int) and isinstance(value, int):
        return (0, abs(member - value), "")
    return (1, 0, str(member))


def _near(tests: Mapping[str, Any], value: Any) -> list[int]:
    """The nearest numbers within bounds and a modulus, below and above."""
    step = tests.get("multiple_of", 1)
    low = tests.get("min", step if step > 1 else 1)
    high = tests.get("max")
    if not isinstance(value, int):
        return [-(-low // step) * step]
    found = []
    for target in (value // step * step, -(-value // step) * step):
        target = max(target, -(-low // step) * step)
        if high is not None:
            target = min(target, high // step * step)
        found.append(target)
    return sorted(set(found), key=lambda v: abs(v - value))
