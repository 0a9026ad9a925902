"""Random values, constraints and conditions for given axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from .axes import Raw, as_list

Axes: TypeAlias = dict[str, dict[str, Raw]]

PACKAGES: Final = ("torch", "kernel-lib", "other_lib")
STATES: Final = ("usable", "usable", "usable", "missing", "broken import", "wrong build", "unknown")
VERSIONS: Final = ("8.0", "8.9", "9.0", "9.0.1", "10.0", "10.1rc1")
SPECIFIERS: Final = (">=8.9", "==9.*", "<9", ">=8,<10", "!=8.9", "==8.0", ">=10.0,!=10.1")


def choice_values(axis: dict[str, Raw], *, alias: bool = False) -> list[str]:
    """The values of a choice; with `alias` their other spellings too, and an unlisted one where that is allowed."""
    values = axis["values"]
    names = list(values)
    if alias and isinstance(values, dict):
        names += [
            spelling for entry in values.values() for spelling in as_list((entry or {}).get("aliases") or [])
        ]
    return [*names, "unlisted"] if axis.get("open") else names


def value_of(axis: dict[str, Raw], *, alias: bool = False) -> SearchStrategy[Raw]:
    """A value of an axis as a request, an environment or a manifest may write it."""
    kind = axis["type"]
    if kind in ("flag", "mode"):
        return st.booleans()
    if kind == "choice":
        return st.sampled_from(choice_values(axis, alias=alias))
    if kind == "integer":
        return st.integers(0, 6)
    if kind == "version":
        return st.sampled_from(VERSIONS)
    if kind == "pair":
        return st.lists(st.integers(0, 1), min_size=2, max_size=2)
    raise ValueError(f"{kind} has no single values")


@st.composite
def integer_forms(draw: DrawFn) -> dict[str, Raw]:
    """One mapping form of an integer constraint."""
    keys = draw(
        st.lists(
            st.sampled_from(["min", "max", "multiple_of", "in", "not_in"]),
            min_size=1,
            max_size=2,
            unique=True,
        )
    )
    form: dict[str, Raw] = {}
    for key in keys:
        if key in ("in", "not_in"):
            form[key] = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True))
        else:
            form[key] = draw(st.integers(1, 5))
    if {"min", "max"} <= set(form):
        form["min"], form["max"] = sorted((form["min"], form["max"]))
    if draw(st.integers(0, 4)) == 4:
        form["required"] = True
    return form


@st.composite
def integer_limits(draw: DrawFn) -> Raw:
    """A number, a list, a mapping, or a list of those."""
    how = draw(st.integers(0, 3))
    if how == 0:
        return draw(st.integers(0, 6))
    if how == 1:
        return draw(st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True))
    if how == 2:
        return draw(integer_forms())
    return draw(st.lists(st.one_of(integer_forms(), st.integers(0, 6)), min_size=1, max_size=3))


@st.composite
def choice_limits(draw: DrawFn, axis: dict[str, Raw]) -> Raw:
    """A value, a list, or `{in, not_in, tagged, required}`."""
    one = st.sampled_from(choice_values(axis, alias=True))
    some = st.lists(one, min_size=1, max_size=3, unique=True)
    how = draw(st.integers(0, 2))
    if how == 0:
        return draw(one)
    if how == 1:
        return draw(some)
    form: dict[str, Raw] = {}
    values = axis["values"]
    entries = values.values() if isinstance(values, dict) else []
    tags = sorted({tag for entry in entries for tag in (entry or {}).get("tags", [])})
    key = draw(st.sampled_from(["in", "not_in", *(["tagged"] if tags else [])]))
    if key == "tagged":
        form[key] = draw(
            st.one_of(st.sampled_from(tags), st.lists(st.sampled_from(tags), min_size=1, unique=True))
        )
    else:
        form[key] = draw(some)
    if draw(st.integers(0, 3)) == 3:
        form["required"] = True
    return form


@st.composite
def version_limits(draw: DrawFn) -> Raw:
    """A specifier, a list of them, or `{in, required}`."""
    some = st.lists(st.sampled_from(SPECIFIERS), min_size=1, max_size=2, unique=True)
    how = draw(st.integers(0, 2))
    if how == 0:
        return draw(st.sampled_from(SPECIFIERS))
    return draw(some) if how == 1 else {"in": draw(some), "required": draw(st.booleans())}


@st.composite
def pair_limits(draw: DrawFn) -> Raw:
    """A list of pairs, or `{in, required}`."""
    pair = st.lists(st.integers(0, 1), min_size=2, max_size=2)
    pairs = draw(st.lists(pair, min_size=1, max_size=2))
    return pairs if draw(st.booleans()) else {"in": pairs, "required": draw(st.booleans())}


def package_limits() -> SearchStrategy[Raw]:
    """Package names with a specifier, a list of them, `any` or `absent`."""
    wanted = st.one_of(
        st.sampled_from(SPECIFIERS),
        st.lists(st.sampled_from(SPECIFIERS), min_size=1, max_size=2, unique=True),
        st.sampled_from(["any", "absent"]),
    )
    return st.dictionaries(st.sampled_from(PACKAGES), wanted, min_size=1, max_size=2)


@st.composite
def constraints(draw: DrawFn, axis: dict[str, Raw]) -> Raw:
    """What a condition may say of an axis."""
    kind = axis["type"]
    if kind == "packages":
        return draw(package_limits())
    if kind in ("flag", "mode"):
        return draw(st.booleans())
    how = draw(st.integers(0, 9))
    if how == 9:
        return "any"
    if how >= 7:
        return {"given": draw(st.booleans())}
    return draw(plain_limits(axis))


def plain_limits(axis: dict[str, Raw]) -> SearchStrategy[Raw]:
    """A constraint on the value of an axis that is no flag, mode or packages."""
    if axis["type"] == "choice":
        return choice_limits(axis)
    if axis["type"] == "integer":
        return integer_limits()
    return version_limits() if axis["type"] == "version" else pair_limits()


@st.composite
def declared_limits(draw: DrawFn, axis: dict[str, Raw]) -> Raw:
    """What `supports` or `requires` may say of an axis."""
    if axis["type"] == "packages":
        return draw(package_limits())
    if axis["type"] in ("flag", "mode"):
        return draw(st.sampled_from([True, True, "any", False]))
    return "any" if draw(st.integers(0, 3)) == 3 else draw(plain_limits(axis))


@st.composite
def conditions(draw: DrawFn, axes: Axes, accepts: Sequence[str], *, depth: int = 2) -> dict[str, Raw]:
    """A condition: axes, nested `any`, `all` and `not`, and `accepts` of the candidates given."""
    condition: dict[str, Raw] = {}
    for name in draw(st.lists(st.sampled_from(sorted(axes)), max_size=2, unique=True)):
        condition[name] = draw(constraints(axes[name]))
    if depth and draw(st.integers(0, 2)) == 2:
        key = draw(st.sampled_from(["any", "all", "not"]))
        inner = conditions(axes, accepts, depth=depth - 1)
        condition[key] = draw(inner) if key == "not" else draw(st.lists(inner, min_size=1, max_size=2))
    if accepts and draw(st.integers(0, 3)) == 3:
        condition["accepts"] = draw(
            st.one_of(
                st.sampled_from(list(accepts)),
                st.lists(st.sampled_from(list(accepts)), min_size=1, max_size=2, unique=True),
            )
        )
    if not condition:
        name = draw(st.sampled_from(sorted(axes)))
        condition[name] = draw(constraints(axes[name]))
    return condition
