"""What the schemas of several kinds of file share: closed mappings, names, sources, and mappings by axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.schema_axes import TEXT, Schema, condition, forms, limit, value, word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from selector.schema_words import Axis

NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._+-]*$", "x-kind": "name"}
CANDIDATE: Schema = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)?$",
    "x-kind": "candidate",
    "examples": ["backend", "backend/variant"],
}
MODULE: Schema = {"type": "string", "pattern": r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", "x-kind": "module"}
CONDITION: Schema = {"$ref": "#/definitions/condition"}
SOURCE: Schema = {**TEXT, "description": "Where the fact can be read.", "examples": ["https://"]}
NOTE: Schema = {**TEXT, "description": "Free text, shown in reports."}
TITLE: Schema = {**TEXT, "description": "Its name for people."}
DOC: Schema = {**TEXT, "description": "One paragraph for whoever meets it first."}


def mapping(properties: Schema, required: Iterable[str] = (), more: Schema | None = None) -> Schema:
    """A closed mapping; `more` are further keywords."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    needed = list(required)
    return {**schema, **({"required": needed} if needed else {}), **(more or {})}


def sequence(items: Schema, description: str, minimum: int = 0) -> Schema:
    """A list of at least `minimum` entries."""
    schema: Schema = {"type": "array", "items": items, "description": description}
    return {**schema, "minItems": minimum} if minimum else schema


def file_format(kind: str) -> Schema:
    """The key that says what a file is and in which version of the format."""
    return {"const": 1, "description": f"Version of the {kind} format.", "default": 1}


def references(axes: Iterable[Axis], form: str) -> Schema:
    """Each axis to its definition in one of the forms `limit`, `when` and `value`."""
    return {axis.name: {"$ref": f"#/definitions/{form}.{axis.name}"} for axis in axes}


def axis_aliases(axes: Iterable[Axis]) -> Schema:
    """The annotation with the other names of axes, which files may not use but authors know."""
    aliases = {alias: axis.name for axis in axes for alias in axis.aliases}
    return {"x-aliases": aliases} if aliases else {}


def by_axis(
    axes: dict[str, Axis], of: str, form: str, description: str, elsewhere: str | None = None
) -> Schema:
    """A mapping from the axes of the request or the environment to what is said of each.

    `elsewhere` is the mapping in which the axes of the other side are found.
    """
    chosen = [axis for axis in axes.values() if axis.of == of and not (form == "value" and axis.derived)]
    more: Schema = {"description": description, **axis_aliases(chosen)}
    others = {axis.name: elsewhere for axis in axes.values() if axis.of != of}
    if elsewhere is not None and others:
        more["x-elsewhere"] = others
    return mapping(references(chosen, form), (), more)


def sources(axes: dict[str, Axis]) -> Schema:
    """Sources of single axes."""
    more: Schema = {"description": "Sources of single axes.", **axis_aliases(axes.values())}
    return mapping({name: {"$ref": "#/definitions/source"} for name in axes}, (), more)


def definitions(axes: dict[str, Axis], *wanted: str) -> Schema:
    """`word.AXIS`, the forms that are asked for, and with the form `when` also `condition`."""
    found: Schema = {f"word.{axis.name}": word(axis) for axis in axes.values() if axis.type == "choice"}
    found |= {**forms(), "source": SOURCE}
    for form in wanted:
        make = {"limit": limit, "when": condition, "value": value}[form]
        found |= {f"{form}.{axis.name}": make(axis) for axis in axes.values()}
    if "when" in wanted:
        found["condition"] = _condition(axes)
    return found


def without_unused(schema: Schema) -> Schema:
    """`schema` with those of its definitions that something refers to."""
    known = schema.get("definitions")
    if not isinstance(known, dict):
        return schema
    used: set[str] = set()
    waiting: list[object] = [part for key, part in schema.items() if key != "definitions"]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(part.values())
            reference = part.get("$ref")
            name = reference.rpartition("/")[2] if isinstance(reference, str) else ""
            if name in known and name not in used:
                used.add(name)
                waiting.append(known[name])
        elif isinstance(part, list):
            waiting.extend(part)
    return {**schema, "definitions": {name: part for name, part in known.items() if name in used}}


def _condition(axes: dict[str, Axis]) -> Schema:
    accepts: Schema = {
        "type": ["string", "array"],
        "pattern": CANDIDATE["pattern"],
        "x-kind": "candidate",
        "items": CANDIDATE,
        "minItems": 1,
        "description": "Another candidate (or each of a list) accepts the same request.",
    }
    return mapping(
        {
            **references(axes.values(), "when"),
            "all": sequence(CONDITION, "All of these conditions hold.", 1),
            "any": sequence(CONDITION, "At least one of these conditions holds.", 1),
            "not": CONDITION,
            "accepts": accepts,
        },
        (),
        {
            "minProperties": 1,
            "description": "Axis to constraint; all must hold. all, any and not nest.",
            **axis_aliases(axes.values()),
        },
    )
