"""Axes as the vocabulary has them: names, canonical values, tags, and where an axis belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Raw: TypeAlias = Any
"""What a YAML file holds: mappings, lists, strings, numbers, booleans, None."""


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

    def of(self, axis: str) -> str:
        """Where an axis belongs. One derived from environment axes alone is the environment's."""
        entry = self.axes[axis]
        if "of" in entry or "derive" not in entry:
            return str(entry.get("of", "request"))
        read = {self.axis_name(name) for name in axes_read(entry["derive"])}
        return "environment" if read and {self.of(name) for name in read} == {"environment"} else "request"

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
        if kind == "integer" and not isinstance(value, bool | float):
            return int(value)  # the key of a table may be text
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


def named_in(condition: Raw) -> list[str]:
    """The axes that a condition names, as it writes them and in its order."""
    names: list[str] = []
    for key, part in (condition or {}).items():
        if key == "not":
            names += named_in(part)
        elif key in ("all", "any"):
            names += [name for item in part for name in named_in(item)]
        elif key not in NESTING:
            names.append(key)
    return names


def axes_read(operand: Raw) -> list[str]:
    """The axes that an operand or an operator of a derived axis reads."""
    if isinstance(operand, str):
        return [operand]
    if not isinstance(operand, Mapping):
        return []
    names: list[str] = []
    for operator, argument in operand.items():
        if operator == "case":
            for entry in argument:
                names += named_in(entry["when"])
                names += axes_read(entry["value"]) if isinstance(entry["value"], Mapping) else []
        elif operator == "else":
            names += axes_read(argument) if isinstance(argument, Mapping) else []
        elif operator == "when":
            names += named_in(argument)
        elif operator == "axis":
            names.append(argument)
        elif operator in ("tag", "table"):
            names.append(argument["axis"])
        elif operator == "element":
            names += axes_read(argument[0])
        else:
            names += [name for part in argument for name in axes_read(part)]
    return names
