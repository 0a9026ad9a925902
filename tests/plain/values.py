"""Axes and their values: canonical spelling, defaults, `applies_when`, derived axes. Nothing is shared with `selector`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from packaging.specifiers import SpecifierSet

Raw: TypeAlias = Any
"""What a YAML file holds: mappings, lists, strings, numbers, booleans, None."""

Accepts: TypeAlias = Callable[[str], bool]
"""Does the candidate of this id accept the request at hand?"""


class Unknown:
    """The type of `UNKNOWN`, a fact of the environment that nobody could establish."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()

NESTING: Final = ("all", "any", "not", "accepts")
"""Keys of a condition that are not axes."""


def as_list(raw: Raw) -> list[Raw]:
    """A list as it is, anything else as a list of one."""
    return list(raw) if isinstance(raw, list | tuple) else [raw]


class Vocabulary:
    """The axes of a catalog, from the raw text of `vocabulary.yaml`."""

    def __init__(self, raw: Mapping[str, Raw]) -> None:
        self.axes: dict[str, dict[str, Raw]] = {name: dict(axis) for name, axis in raw["axes"].items()}
        self.alias: dict[str, str] = {}
        for name, axis in self.axes.items():
            for alias in [name, *as_list(axis.get("aliases") or [])]:
                self.alias[alias] = name

    def axis_name(self, name: str) -> str:
        """The canonical name of an axis. ValueError for a name nobody knows."""
        if name not in self.alias:
            raise ValueError(f"no axis is called {name!r}")
        return self.alias[name]

    def choices(self, axis: str) -> dict[str, dict[str, Raw]]:
        """The values of a choice axis, each with its entry (aliases, tags)."""
        values = self.axes[axis].get("values") or {}
        if isinstance(values, Mapping):
            return {value: dict(entry or {}) for value, entry in values.items()}
        return {value: {} for value in values}

    def canonical(self, axis: str, value: Raw) -> Raw:
        """One value of an axis as the rules compare it. ValueError where the axis has no such value."""
        kind = self.axes[axis]["type"]
        if value is None or value is UNKNOWN:
            return value
        if kind in ("flag", "mode") and isinstance(value, bool):
            return value
        if kind == "choice":
            for name, entry in self.choices(axis).items():
                spellings = [name, *as_list(entry.get("aliases") or [])]
                if str(value).lower() in [str(spelling).lower() for spelling in spellings]:
                    return name
            if self.axes[axis].get("open"):
                return value
        if kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
            return value
        if kind == "version":
            return str(value)
        if kind == "pair" and len(value) == 2:
            return (value[0], value[1])
        if kind == "packages":
            return {name: package(entry) for name, entry in value.items()}
        raise ValueError(f"{axis} ({kind}) cannot be {value!r}")

    def neutral(self, axis: str) -> Raw:
        """The value of an axis nobody gave and that has no default."""
        return False if self.axes[axis]["type"] in ("flag", "mode") else None

    def tags(self, axis: str, value: Raw) -> list[str]:
        """The tags of one value of a choice axis; an unlisted value has none."""
        return as_list(self.choices(axis).get(value, {}).get("tags") or [])


def package(entry: Raw) -> dict[str, Raw]:
    """One package of an environment; a bare version means that it is usable, null that it is missing."""
    if entry is None:
        return {"version": None, "state": "missing"}
    if isinstance(entry, Mapping):
        return {"version": entry.get("version"), "state": entry.get("state", "usable")}
    return {"version": entry, "state": "usable"}


def in_specifiers(specifiers: Raw, version: str) -> bool:
    """Is the version inside one of the specifiers?"""
    return any(SpecifierSet(spec).contains(version, prereleases=True) for spec in as_list(specifiers))


def meets(vocabulary: Vocabulary, axis: str, limit: Raw, value: Raw, *, null: bool, unknown: bool) -> bool:
    """Does the value meet the constraint? `null` and `unknown` are what an open or unknown value counts as."""
    kind = vocabulary.axes[axis]["type"]
    if kind == "packages":
        return all(meets_package(wanted, value, name, unknown=unknown) for name, wanted in limit.items())
    if limit == "any":
        return True
    if value is None and needs_value(limit):
        return False
    if isinstance(limit, Mapping):
        return all(
            meets_key(vocabulary, axis, key, wanted, value, null=null, unknown=unknown)
            for key, wanted in limit.items()
        )
    if isinstance(limit, list) and not (kind == "pair" and limit and isinstance(limit[0], int)):
        return any(meets(vocabulary, axis, item, value, null=null, unknown=unknown) for item in limit)
    if value is None:
        return null
    if value is UNKNOWN:
        return unknown
    if kind == "version":
        return in_specifiers(limit, value)
    return bool(vocabulary.canonical(axis, limit) == value)


def needs_value(limit: Raw) -> bool:
    """Does the constraint, or an item of it, say `required: true`?"""
    if isinstance(limit, list):
        return any(needs_value(item) for item in limit)
    return isinstance(limit, Mapping) and bool(limit.get("required"))


def meets_key(
    vocabulary: Vocabulary, axis: str, key: str, wanted: Raw, value: Raw, *, null: bool, unknown: bool
) -> bool:
    """Does the value meet one key of a constraint that is a mapping?"""
    if key == "given":
        return bool((value is not None) == wanted)
    if key == "required":
        return True  # what it asks of null is settled before
    if value is None:
        return null
    if value is UNKNOWN:
        return unknown
    if key == "in":
        return any(
            meets(vocabulary, axis, item, value, null=null, unknown=unknown) for item in as_list(wanted)
        )
    if key == "not_in":
        return value not in [vocabulary.canonical(axis, item) for item in as_list(wanted)]
    if key == "tagged":
        return any(tag in vocabulary.tags(axis, value) for tag in as_list(wanted))
    if key == "min":
        return bool(value >= wanted)
    if key == "max":
        return bool(value <= wanted)
    if key == "multiple_of":
        return bool(value % wanted == 0)
    raise ValueError(f"{axis}: no constraint is called {key!r}")


def meets_package(wanted: Raw, packages: Raw, name: str, *, unknown: bool) -> bool:
    """Does one package of the environment meet its constraint?"""
    if packages is UNKNOWN or packages is None:
        return unknown
    found = packages.get(name, {"version": None, "state": "missing"})
    if found["state"] == "unknown":
        return unknown
    if wanted == "absent":
        return bool(found["state"] == "missing")
    if found["state"] != "usable":
        return False
    if wanted == "any":
        return True
    if found["version"] is None:
        return unknown
    return in_specifiers(wanted, str(found["version"]))


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
            return self.vocabulary.canonical(axis, self.derived(entry["derive"]))
        if axis in self.given:
            return self.given[axis]
        default = entry.get("default")
        if isinstance(default, Mapping):
            return self.value(default["same_as"])
        if default is not None:
            return self.vocabulary.canonical(axis, default)
        if entry.get("of") == "environment":
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

    def derived(self, raw: Mapping[str, Raw]) -> Raw:
        """The result of one operator of a derived axis."""
        if "case" in raw:
            for entry in raw["case"]:
                surely = self.holds(entry["when"], null=False, unknown=False)
                perhaps = self.holds(entry["when"], null=False, unknown=True)
                if perhaps and not surely:
                    return UNKNOWN
                if surely:
                    return self.result(entry["value"])
            return self.result(raw.get("else"))
        ((operator, argument),) = raw.items()
        if operator == "when":
            return self.holds(argument, null=False, unknown=False)
        if operator == "axis":
            return self.value(argument)
        if operator == "tag":
            return self.tagged(argument["axis"], argument["tag"])
        if operator == "table":
            return self.table(argument)
        if operator == "element":
            pair = self.operand(argument[0])
            return pair if pair is None or pair is UNKNOWN else pair[argument[1]]
        return arithmetic(operator, [self.operand(part) for part in argument])

    def tagged(self, axis: str, tag: str) -> Raw:
        """Has the axis's value the tag? null has no tags."""
        value = self.value(axis)
        if value is UNKNOWN:
            return UNKNOWN
        return tag in self.vocabulary.tags(self.vocabulary.axis_name(axis), value)

    def table(self, argument: Mapping[str, Raw]) -> Raw:
        """A look-up; a value left open stays open, an unlisted one takes `else` (null without it)."""
        axis = self.vocabulary.axis_name(argument["axis"])
        value = self.value(axis)
        if value is None or value is UNKNOWN:
            return value
        for key, result in argument["map"].items():
            if self.vocabulary.canonical(axis, key) == value:
                return self.result(result)
        return self.result(argument.get("else"))


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
