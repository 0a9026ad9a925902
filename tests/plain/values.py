"""The values of one request on one environment: defaults, `applies_when`, derived axes, and conditions over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from .axes import UNKNOWN, Raw, Vocabulary, as_list
from .limits import meets

Accepts: TypeAlias = Callable[[str], bool]
"""Does the candidate of this id accept the request at hand?"""


class Situation:
    """One request on one environment: what was given, and every value that follows from it."""

    def __init__(self, vocabulary: Vocabulary, given: Mapping[str, Raw]) -> None:
        self.vocabulary = vocabulary
        self.given = dict(given)
        self.known: dict[str, Raw] = {}
        for axis in vocabulary.axes:
            self.value(axis)

    def value(self, axis: str) -> Raw:
        """The value of an axis, with everything it depends on worked out first."""
        axis = self.vocabulary.axis_name(axis)
        if axis not in self.known:
            self.known[axis] = self.work_out(axis)
        return self.known[axis]

    def work_out(self, axis: str) -> Raw:
        """`applies_when`, then derivation, then what was given, then the default."""
        entry = self.vocabulary.axes[axis]
        if "applies_when" in entry and not self.holds(entry["applies_when"], null=True, unknown=True):
            return self.vocabulary.neutral(axis)
        if "derive" in entry:
            return self.vocabulary.canonical(
                axis, self.derived(entry["derive"], self.vocabulary.neutral(axis))
            )
        if axis in self.given:  # null as well: what is left open on purpose takes no default
            return self.given[axis]
        default = entry.get("default")
        if isinstance(default, Mapping):
            return self.value(default["same_as"])
        if default is not None:
            return self.vocabulary.canonical(axis, default)
        if self.vocabulary.of(axis) == "environment":
            return UNKNOWN
        return self.vocabulary.neutral(axis)

    def holds(self, condition: Raw, *, null: bool, unknown: bool, accepts: Accepts | None = None) -> bool:
        """Does the condition hold, where an open atom counts as `null` and an unknown one as `unknown`?"""
        for key, part in (condition or {}).items():
            if key == "all":
                ok = all(self.holds(c, null=null, unknown=unknown, accepts=accepts) for c in part)
            elif key == "any":
                ok = any(self.holds(c, null=null, unknown=unknown, accepts=accepts) for c in part)
            elif key == "not":
                ok = not self.holds(part, null=not null, unknown=not unknown, accepts=accepts)
            elif key == "accepts":
                if accepts is None:
                    raise ValueError("`accepts` cannot be used in a vocabulary")
                ok = all(accepts(other) for other in as_list(part))
            else:
                axis = self.vocabulary.axis_name(key)
                ok = meets(self.vocabulary, axis, part, self.value(axis), null=null, unknown=unknown)
            if not ok:
                return False
        return True

    def operand(self, raw: Raw) -> Raw:
        """The value of an operand: an axis name, an integer or a nested operator."""
        if isinstance(raw, str):
            return self.value(raw)
        return self.derived(raw) if isinstance(raw, Mapping) else raw

    def result(self, raw: Raw) -> Raw:
        """The value a `case` or a `table` yields: a literal, `{axis: name}` or an operator."""
        if isinstance(raw, Mapping):
            return self.value(raw["axis"]) if "axis" in raw else self.derived(raw)
        return raw

    def derived(self, raw: Mapping[str, Raw], missing: Raw = None) -> Raw:
        """The result of one operator of a derived axis; `missing` is what a `case` or `table` without `else` yields."""
        if "case" in raw:
            for entry in raw["case"]:
                surely = self.holds(entry["when"], null=False, unknown=False)
                perhaps = self.holds(entry["when"], null=False, unknown=True)
                if perhaps and not surely:
                    return UNKNOWN
                if surely:
                    return self.result(entry["value"])
            return self.result(raw["else"]) if "else" in raw else missing
        ((operator, argument),) = raw.items()
        if operator == "when":
            return self.derived({"case": [{"when": argument, "value": True}], "else": False})
        if operator == "axis":
            return self.value(argument)
        if operator == "tag":
            return self.tagged(argument["axis"], argument["tag"])
        if operator == "table":
            return self.table(argument, missing)
        if operator == "element":
            pair = self.operand(argument[0])
            return pair if pair is None or pair is UNKNOWN else pair[argument[1]]
        return arithmetic(operator, [self.operand(part) for part in argument])

    def tagged(self, axis: str, tag: Raw) -> Raw:
        """Has the axis's value the tag? null has no tags."""
        value = self.value(axis)
        if value is UNKNOWN:
            return UNKNOWN
        tags = self.vocabulary.tags(self.vocabulary.axis_name(axis), value)
        return any(wanted in tags for wanted in as_list(tag))

    def table(self, argument: Mapping[str, Raw], missing: Raw) -> Raw:
        """A look-up; a value left open stays open, an unlisted one takes `else`."""
        axis = self.vocabulary.axis_name(argument["axis"])
        value = self.value(axis)
        if value is None or value is UNKNOWN:
            return value
        for key, result in argument["map"].items():
            if self.vocabulary.canonical(axis, key) == value:
                return self.result(result)
        return self.result(argument["else"]) if "else" in argument else missing


def arithmetic(operator: str, operands: list[Raw]) -> Raw:
    """Integer arithmetic: UNKNOWN if an operand is, else null if an operand is."""
    if any(value is UNKNOWN for value in operands):
        return UNKNOWN
    if any(value is None for value in operands):
        return None
    if operator == "max":
        return max(operands)
    if operator == "min":
        return min(operands)
    if operator == "sum":
        return sum(operands)
    if operator == "product":
        return math.prod(operands)
    if operator == "gcd":
        return math.gcd(*operands)
    a, b = operands
    if operator == "difference":
        return a - b
    if b == 0:
        return None
    if operator == "modulo":
        return a % b
    if operator == "floor_div":
        return a // b
    if operator == "ratio":
        return a // b if a % b == 0 else None
    if operator == "round_up":
        return -(-a // b) * b
    raise ValueError(f"no operator is called {operator!r}")
