"""Random vocabularies: every axis type, defaults, `applies_when`, identities, tags and derived axes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from .axes import Raw
from .conditions import Axes, conditions, value_of

KINDS = ("flag", "mode", "choice", "integer", "version", "pair")


@st.composite
def choice_parts(draw: DrawFn, index: int) -> dict[str, Raw]:
    """The keys of a choice axis: values as a list, or as a mapping with aliases and tags; perhaps open."""
    names = ["a", "b", "c", "d"][: draw(st.integers(2, 4))]
    parts: dict[str, Raw] = {"values": names}
    if draw(st.booleans()):
        parts["values"] = {
            name: {
                "aliases": [f"{name}_alias{index}"],
                "tags": draw(st.lists(st.sampled_from(["red", "blue"]), unique=True)),
            }
            for name in names
        }
    if draw(st.integers(0, 4)) == 4:
        parts["open"] = True
    return parts


@st.composite
def plain_axes(draw: DrawFn, index: int, axes: Axes) -> dict[str, Raw]:
    """An axis that is given, with whatever its entry may say besides its type."""
    kind = draw(st.sampled_from(KINDS))
    of = draw(st.sampled_from(["request", "request", "environment"]))
    axis: dict[str, Raw] = {"type": kind, "of": of}
    if draw(st.booleans()):
        axis["aliases"] = [f"alias_{index}"]
    if kind == "choice":
        axis.update(draw(choice_parts(index)))
    how = draw(st.integers(0, 4))
    twins = [
        name
        for name, other in axes.items()
        if other["type"] == kind and kind in ("integer", "version", "pair")
    ]
    if how == 4 and twins:
        axis["default"] = {"same_as": draw(st.sampled_from(twins))}
    elif how >= 3:
        axis["default"] = draw(value_of(axis))
    if axes and draw(st.integers(0, 3)) == 3:
        axis["applies_when"] = draw(conditions(axes, (), depth=1))
    extra = draw(st.integers(0, 7))
    if extra == 7 and kind in ("choice", "integer") and of == "request":
        axis["identity"] = True
    elif extra == 6 and kind not in ("flag", "mode"):
        axis["undeclared"] = "none"
    elif extra == 5 and kind not in ("flag", "mode"):
        axis["declare"] = "required"
    return axis


@st.composite
def arithmetic(draw: DrawFn, numbers: list[str], *, depth: int = 1) -> dict[str, Raw]:
    """An arithmetic operator over integer axes, integers and nested operators."""
    operator = draw(
        st.sampled_from(
            ["max", "min", "sum", "product", "gcd", "difference", "modulo", "floor_div", "ratio", "round_up"]
        )
    )
    operand = st.one_of(
        st.sampled_from(numbers),
        st.integers(0, 4),
        *([arithmetic(numbers, depth=depth - 1)] if depth else []),
    )
    several = operator in ("max", "min", "sum", "product", "gcd")
    return {operator: draw(st.lists(operand, min_size=2, max_size=3 if several else 2))}


@st.composite
def derived_axes(draw: DrawFn, axes: Axes) -> dict[str, Raw]:
    """An axis derived from earlier ones. Flags and modes say what silence about them means."""
    by_type = {kind: [name for name, axis in axes.items() if axis["type"] == kind] for kind in KINDS}
    operators = ["when", "case"]
    operators += ["arithmetic"] if by_type["integer"] else []
    operators += ["element"] if by_type["pair"] else []
    operators += ["table"] if by_type["choice"] or by_type["integer"] else []
    tagged = [name for name in by_type["choice"] if tags_of(axes[name])]
    operators += ["tag"] if tagged else []
    operator = draw(st.sampled_from(operators))
    if operator == "arithmetic":
        return {"type": "integer", "derive": draw(arithmetic(by_type["integer"]))}
    if operator == "element":
        return {
            "type": "integer",
            "derive": {"element": [draw(st.sampled_from(by_type["pair"])), draw(st.integers(0, 1))]},
        }
    if operator == "tag":
        name = draw(st.sampled_from(tagged))
        return {
            "type": "flag",
            "derive": {"tag": {"axis": name, "tag": draw(st.sampled_from(tags_of(axes[name])))}},
        }
    if operator == "when":
        return {
            "type": draw(st.sampled_from(["flag", "mode"])),
            "derive": {"when": draw(conditions(axes, ()))},
        }
    if operator == "table":
        name = draw(st.sampled_from([*by_type["choice"], *by_type["integer"]]))
        keys = draw(st.lists(value_of(axes[name]), min_size=1, max_size=3, unique=True))
        table: dict[str, Raw] = {"axis": name, "map": {str(key): draw(st.integers(0, 6)) for key in keys}}
        if draw(st.booleans()):
            table["else"] = draw(st.integers(0, 6))
        return {"type": "integer", "derive": {"table": table}}
    return draw(case_axes(axes, by_type["integer"]))


@st.composite
def case_axes(draw: DrawFn, axes: Axes, numbers: list[str]) -> dict[str, Raw]:
    """An axis derived by `case`: an integer, a choice or a flag."""
    axis: dict[str, Raw] = draw(
        st.sampled_from(
            [{"type": "integer"}, {"type": "choice", "values": ["a", "b", "c"]}, {"type": "flag"}]
        )
    )
    results = value_of(axis)
    if axis["type"] == "integer" and numbers:
        results = st.one_of(
            results,
            st.sampled_from(numbers).map(lambda name: {"axis": name}),
            arithmetic(numbers, depth=0),
        )
    entries = [
        {"when": draw(conditions(axes, (), depth=1)), "value": draw(results)}
        for _ in range(draw(st.integers(1, 2)))
    ]
    derive: dict[str, Raw] = {"case": entries}
    if axis["type"] == "flag" or draw(st.booleans()):
        derive["else"] = draw(results)
    return {**axis, "derive": derive}


def tags_of(axis: dict[str, Raw]) -> list[str]:
    """The tags that values of a choice axis have."""
    values = axis["values"]
    return (
        sorted({tag for entry in values.values() for tag in entry.get("tags", [])})
        if isinstance(values, dict)
        else []
    )


@st.composite
def vocabularies(draw: DrawFn) -> dict[str, Raw]:
    """A vocabulary of a device, packages, three to seven given axes and up to three derived ones."""
    axes: Axes = {
        "device": {
            "type": "choice",
            "of": "environment",
            "declare": "required",
            "values": {"cpu": {}, "gpu": {"aliases": ["cuda"], "tags": ["fast"]}, "npu": {"tags": ["fast"]}},
        },
        "packages": {"type": "packages", "of": "environment"},
    }
    for index in range(draw(st.integers(3, 7))):
        axis = draw(plain_axes(index, axes))
        axes[f"{axis['type']}_{index}"] = axis
    for index in range(draw(st.integers(0, 3))):
        axes[f"derived_{index}"] = draw(derived_axes(axes))
    return {"vocabulary": 1, "axes": axes}
