"""Does a value meet a constraint? One plain function for each form a constraint can have."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.specifiers import SpecifierSet

from .axes import UNKNOWN, Raw, Vocabulary, as_list


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
    if key == "required" and not wanted:
        return True
    if value is UNKNOWN:
        return unknown
    if key == "given":
        return bool((value is not None) == wanted)
    if key == "required":
        return value is not None
    if value is None:
        return null
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
