"""Conditions on the fields of a configuration, and the axes that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from selector.model_config.architectures import Condition, Fact
from selector.model_config.section import Section
from selector.model_config.source import Json


class Value(NamedTuple):
    """The value of an axis, and where it comes from."""

    value: Json
    origin: str


def _equal(value: Json, operand: Json) -> bool:
    return type(value) is type(operand) and value == operand


def _not(value: Json, operand: Json) -> bool:
    return not _equal(value, operand)


def _given(value: Json, operand: Json) -> bool:
    return (value is not None) == bool(operand)


def _above(value: Json, operand: Json) -> bool:
    """A number above the operand; NaN is not."""
    numbers = isinstance(value, (int, float)) and isinstance(operand, (int, float))
    return numbers and not isinstance(value, bool) and value > operand  # type: ignore[operator]


def _ends(value: Json, operand: Json) -> bool:
    """Text that ends so, or a list with such an entry."""
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and text.endswith(str(operand)) for text in texts)


_OPERATORS: dict[str, Callable[[Json, Json], bool]] = {
    "equal": _equal,
    "not": _not,
    "given": _given,
    "above": _above,
    "ends": _ends,
}


def holds(condition: Condition, section: Section) -> bool:
    """Whether every check of a condition holds; a field that is not there has the value null."""
    for check in condition:
        found = section.find((check.field,))
        if not _OPERATORS[check.operator](None if found is None else found.value, check.operand):
            return False
    return True


def conclusions(facts: Iterable[Fact], section: Section, word: str, because: str | None) -> dict[str, Value]:
    """The axes that `facts` set for a layer of kind `word`.

    `because` names the architecture whose facts these are; facts of no architecture come from the field
    they read.
    """
    axes: dict[str, Value] = {}
    for fact in facts:
        if (fact.layers and word not in fact.layers) or not holds(fact.when, section):
            continue
        origins = [found.origin for check in fact.when if (found := section.find((check.field,)))]
        if because is not None:
            origins.insert(0, because)
        for axis, value in fact.axes.items():
            axes[axis] = Value(value, ", ".join(origins))
    return axes
