"""What there is to ask one candidate: the usual values of every dimension, and both sides of every limit it declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from backends.verify.draws import DIMENSIONS, Value
from selector.conditions import AxisTest, Condition, _walk

if TYPE_CHECKING:
    from selector.constraints import Constraint
    from selector.manifest import Candidate
    from selector.vocabulary import Axis, Vocabulary

__all__ = ["LARGEST", "values_of"]

#: The largest number that is tried: limits beyond it stay untested, because tensors are to be small.
LARGEST = {"head_size": 576, "head_size_v": 576, "num_kv_heads": 16, "num_heads": 64, "block_size": 1024}

#: Dimension that a limit on an axis is tried with.
_DIMENSION = {"num_heads": "group"}


def values_of(candidate: Candidate, vocabulary: Vocabulary) -> dict[str, tuple[Value, ...]]:
    """The values of every dimension for one candidate, the plain one first."""
    found: dict[str, dict[Value, None]] = {d.name: dict.fromkeys(d.values) for d in DIMENSIONS}
    for axis, constraint in _limits(candidate):
        sides = list(_sides(constraint))
        for base in _given(axis, vocabulary):
            name = _DIMENSION.get(base.name, base.name)
            if base.name in LARGEST:
                inside = [n for n in sides if 1 <= n <= LARGEST[base.name]]
                found[name].update(dict.fromkeys(n for n in inside if name != "group" or n <= 8))
    return {name: tuple(values) for name, values in found.items()}


def _limits(candidate: Candidate) -> Iterator[tuple[Axis, Constraint]]:
    """Every axis and constraint that the candidate's declarations and rules name."""
    for declared in candidate.declared.values():
        yield declared.axis, declared.constraint
    for rule in candidate.rules:
        for condition in (rule.when, rule.unless, rule.require, rule.until):
            yield from ((test.axis, test.constraint) for test in _tests(condition))


def _tests(condition: Condition | None) -> Iterable[AxisTest]:
    return () if condition is None else (t for t in _walk(condition) if isinstance(t, AxisTest))


def _given(axis: Axis, vocabulary: Vocabulary) -> list[Axis]:
    """The axes that a request gives: those that a derived one comes from."""
    if axis.derive is None:
        return [axis]
    return [base for i in vocabulary.depends[axis.index] for base in _given(vocabulary.axes[i], vocabulary)]


def _sides(constraint: Constraint) -> Iterator[int]:
    """Numbers on both sides of every limit of a constraint."""
    for clause in constraint.clauses:
        for op, operand in clause:
            if op == "min":
                yield from (operand, operand - 1)
            elif op == "max":
                yield from (operand, operand + 1, operand + 8)
            elif op == "multiple_of":
                yield from (operand, 3 * operand, operand + 1)
            elif op in ("in", "not_in"):
                yield from (n for n in operand if isinstance(n, int) and not isinstance(n, bool))
