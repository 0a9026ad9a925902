"""The part of the JSON Schemas that the vocabulary decides: what may be written about one axis.

An axis is written in three ways: as a *value* (a request, a preset), as a *limit* (`supports`, `requires`) and as a
*condition* (`when`). The schemas hold for draft-07 and use neither `oneOf` nor `anyOf`, so that a validator names the
one thing that is wrong. What JSON Schema cannot say to a reader goes into annotations that validators skip:

* `x-values`: the canonical words of an `enum`, which itself lists aliases too;
* `x-aliases`: alias to canonical word, of an `enum` or of the keys of a mapping;
* `x-names`: the keys worth suggesting, of a mapping that takes aliases as keys too;
* `x-elsewhere`: keys that do exist, but in another mapping: key to the name of that mapping;
* `x-reason`: why a key is refused where it stands;
* `x-kind`: what a `pattern` stands for (`specifier`, `version`, `package`, `name`, ...).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from selector.vocabulary import STATES

if TYPE_CHECKING:
    from selector.schema_words import Axis

Schema: TypeAlias = "dict[str, object]"

ANY = "any"
BOOLEAN: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string", "minLength": 1}

#: PEP 440 as far as people write it; at most three suffixes keep the time of a match bounded.
_VERSION = (
    r"(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*"
    r"(?:[-_.]?(?:alpha|beta|preview|pre|post|rev|dev|rc|a|b|c|r)[-_.]?[0-9]*){0,3}"
    r"(?:\+[A-Za-z0-9]+(?:[-_.][A-Za-z0-9]+)*)?"
)
_CLAUSE = rf"(?:~=|===?|!=|<=|>=|<|>)\s*{_VERSION}(?:\.\*)?"
_CLAUSES = rf"{_CLAUSE}(?:\s*,\s*{_CLAUSE})*"
#: A version alone: exactly that one.
_BARE = rf"{_VERSION}(?:\.\*)?"
#: A package as its index spells it.
PACKAGE_NAME = r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$"

SPECIFIER: Schema = {"type": "string", "pattern": rf"^(?:{_BARE}|{_CLAUSES})$", "x-kind": "specifier"}
VERSION: Schema = {"type": "string", "pattern": rf"^{_VERSION}$", "x-kind": "version"}
PAIR: Schema = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2, "x-kind": "pair"}


def never(reason: str) -> Schema:
    """The schema of a key that exists, but not here."""
    return {"not": {}, "x-reason": reason}


def limit(axis: Axis) -> Schema:
    """What `supports`, `requires` and identity keys say of `axis`."""
    kind = "mode" if axis.type == "flag" and axis.of == "environment" else axis.type
    words = f"{_LIMIT_WORDS[kind]} Undeclared: {axis.undeclared}."
    return _with_examples(axis, _described(axis, _CONSTRAINTS[axis.type](axis, False), words))


def condition(axis: Axis) -> Schema:
    """What a condition says of `axis`."""
    return _with_examples(
        axis, _described(axis, _CONSTRAINTS[axis.type](axis, True), _CONDITION_WORDS[axis.type])
    )


def value(axis: Axis) -> Schema:
    """What a request or a preset says of `axis`; null leaves it open."""
    schema = _described(axis, _VALUES[axis.type](axis), _VALUE_WORDS[axis.type])
    if axis.default is None or isinstance(axis.default, (bool, int, str)):
        schema["default"] = axis.default
    return schema


def word(axis: Axis) -> Schema:
    """One word of a choice, in any spelling."""
    if axis.open:
        schema: Schema = {"type": "string", "minLength": 1}
        return {**schema, "examples": list(axis.values)} if axis.values else schema
    known = [*axis.values, *axis.value_aliases]
    schema = {"enum": known, "x-values": list(axis.values)}
    return {**schema, "x-aliases": axis.value_aliases} if axis.value_aliases else schema


def word_reference(axis: Axis) -> Schema:
    """Where `word(axis)` is found in every schema that speaks of axes."""
    return {"$ref": f"#/definitions/word.{axis.name}"}


def _flag_constraint(axis: Axis, given: bool) -> Schema:
    return {"enum": [True, False] if given else [True, False, ANY]}


def _choice_constraint(axis: Axis, given: bool) -> Schema:
    one = word_reference(axis)
    words: Schema = {"type": "array", "items": one, "minItems": 1}
    tag: Schema = {"enum": list(axis.tags)} if axis.tags else {"type": "string"}
    tags: Schema = {
        "type": ["string", "array"],
        "if": {"type": "string"},
        "then": tag,
        "items": tag,
        "minItems": 1,
    }
    operators: Schema = {"in": words, "not_in": words, "tagged": tags}
    return _or_any(
        {
            "type": ["string", "array", "object"],
            "if": {"type": "string"},
            "then": one,
            "items": one,
            "minItems": 1,
            **_operators(operators, given),
        }
    )


def _shared_constraint(axis: Axis, given: bool) -> Schema:
    """The types whose constraints do not depend on the axis share one definition."""
    return {"allOf": [{"$ref": f"#/definitions/{axis.type}.{'when' if given else 'limit'}"}]}


def forms() -> Schema:
    """The definitions that `limit` and `condition` of every axis refer to."""
    makers = {"integer": _integers, "version": _versions, "pair": _pairs}
    return {
        f"{kind}.{form}": make(given)
        for kind, make in makers.items()
        for form, given in (("limit", False), ("when", True))
    }


def _integers(given: bool) -> Schema:
    number: Schema = {"type": "integer"}
    numbers: Schema = {"type": "array", "items": number, "minItems": 1}
    multiple: Schema = {"type": "integer", "minimum": 1}
    operators: Schema = {
        "min": number,
        "max": number,
        "multiple_of": multiple,
        "in": numbers,
        "not_in": numbers,
    }
    whole = _operators(operators, given)
    return _or_any(
        {
            "type": ["integer", "array", "object"],
            "items": {"type": ["integer", "object"], **_operators(operators, False)},
            "minItems": 1,
            **whole,
        }
    )


def _versions(given: bool) -> Schema:
    many: Schema = {"type": "array", "items": SPECIFIER, "minItems": 1}
    whole = _operators({"in": many}, given)
    return _or_any(
        {**SPECIFIER, "type": ["string", "array", "object"], "items": SPECIFIER, "minItems": 1, **whole}
    )


def _pairs(given: bool) -> Schema:
    one_or_more: Schema = {
        "if": {"type": "array", "items": {"type": "integer"}},
        "then": {key: PAIR[key] for key in ("minItems", "maxItems", "x-kind")},
        "else": {"items": PAIR},
    }
    pairs: Schema = {"type": "array", **one_or_more}
    whole = _operators({"in": pairs, "not_in": pairs}, given)
    return _or_any({"type": ["array", "object"], **one_or_more, **whole})


def _or_any(schema: Schema) -> Schema:
    return {"if": {"const": ANY}, "else": schema}


def _packages_constraint(axis: Axis, given: bool) -> Schema:
    requirement: Schema = {
        "type": ["string", "array"],
        "pattern": rf"^(?:{ANY}|absent|{_BARE}|{_CLAUSES})$",
        "x-kind": "requirement",
        "items": SPECIFIER,
        "minItems": 1,
        "description": 'A specifier such as ">=2.4,<3", a list of them (any holds), any, or absent.',
        "examples": [">=2.4", ">=2.6,<3", ANY, "absent"],
    }
    return _by_package(requirement)


def _flag_value(axis: Axis) -> Schema:
    return {"type": ["boolean", "null"]}


def _choice_value(axis: Axis) -> Schema:
    one = word(axis)
    if axis.open:
        return {**one, "type": ["string", "null"]}
    return {**one, "enum": [*axis.values, *axis.value_aliases, None]}


def _integer_value(axis: Axis) -> Schema:
    schema: Schema = {"type": ["integer", "null"]}
    if axis.minimum is not None:
        schema["minimum"] = axis.minimum
    if axis.maximum is not None:
        schema["maximum"] = axis.maximum
    return schema


def _version_value(axis: Axis) -> Schema:
    return {**VERSION, "type": ["string", "null"]}


def _pair_value(axis: Axis) -> Schema:
    return {**PAIR, "type": ["array", "null"]}


def _packages_value(axis: Axis) -> Schema:
    state: Schema = {
        "type": ["string", "object", "null"],
        "pattern": VERSION["pattern"],
        "x-kind": "version",
        "properties": {
            "version": {**VERSION, "type": ["string", "null"]},
            "state": {"enum": list(STATES), "description": "usable, or what keeps it from being used"},
            "detail": {"type": ["string", "null"]},
        },
        "additionalProperties": False,
        "description": 'The installed version, such as "2.8.3", or {version, state, detail}.',
        "examples": ["2.8.3"],
    }
    return _by_package(state)


_CONSTRAINTS = {
    "flag": _flag_constraint,
    "mode": _flag_constraint,
    "choice": _choice_constraint,
    "integer": _shared_constraint,
    "version": _shared_constraint,
    "pair": _shared_constraint,
    "packages": _packages_constraint,
}
_VALUES = {
    "flag": _flag_value,
    "mode": _flag_value,
    "choice": _choice_value,
    "integer": _integer_value,
    "version": _version_value,
    "pair": _pair_value,
    "packages": _packages_value,
}

_LIMIT_WORDS = {
    "flag": "true: has it; false: does not; any: either.",
    "mode": "true: only with it; false: only without; any: either.",
    "choice": "A value, a list of values, any, or {in, not_in, tagged, required}.",
    "integer": "A number, {min, max, multiple_of, in, not_in, required}, a list of these (one must hold), or any.",
    "version": 'A specifier such as ">=8.0,<9", a list of them (one must hold), any, or {in, required}.',
    "pair": "A pair, a list of pairs, any, or {in, not_in, required}.",
    "packages": "Package names, each with a specifier, a list of them, any, or absent.",
}
_CONDITION_WORDS = {
    "flag": "true or false.",
    "mode": "true or false.",
    "choice": "A value, a list of values, any, or {in, not_in, tagged, required, given}.",
    "integer": "A number, {min, max, multiple_of, in, not_in, required, given}, or a list of these (one must hold).",
    "version": 'A specifier such as ">=8.0,<9", a list of them (one must hold), or {in, required, given}.',
    "pair": "A pair, a list of pairs, or {in, not_in, required, given}.",
    "packages": "Package names, each with a specifier, a list of them, any, or absent.",
}
_VALUE_WORDS = {
    "flag": "true or false.",
    "mode": "true or false.",
    "choice": "One value; null leaves it open.",
    "integer": "A number; null leaves it open.",
    "version": 'A version in quotes, such as "9.0"; null leaves it open.',
    "pair": "Two numbers; null leaves it open.",
    "packages": "Package names, each with its version.",
}
_EXAMPLES: dict[str, list[object]] = {
    "flag": [True, False],
    "mode": [True, False],
    "integer": [64, [64, 128], {"multiple_of": 8, "max": 256}],
    "version": [">=8.0", "==9.*"],
    "pair": [[[-1, 0]]],
    "packages": [{"some-package": ">=2.4"}],
}


def _operators(operators: Schema, given: bool) -> Schema:
    """The mapping form of a constraint."""
    properties = {
        **operators,
        "required": {**BOOLEAN, "description": "true: a request that leaves it open is refused"},
    }
    mapping: Schema = {"properties": properties, "additionalProperties": False, "minProperties": 1}
    if given:
        properties["given"] = {**BOOLEAN, "description": "alone: whether the request gives a value at all"}
        mapping["dependencies"] = {"given": {"maxProperties": 1, "x-kind": "alone"}}
    return mapping


def _by_package(entry: Schema) -> Schema:
    return {
        "type": "object",
        "patternProperties": {PACKAGE_NAME: entry},
        "additionalProperties": False,
        "x-kind": "package",
    }


def _described(axis: Axis, schema: Schema, forms: str) -> Schema:
    return {"description": f"{axis.description} {forms}", **schema}


def _with_examples(axis: Axis, schema: Schema) -> Schema:
    examples = _EXAMPLES.get(axis.type) or ([axis.values[0], list(axis.values[:2])] if axis.values else [])
    return {**schema, "examples": examples} if examples else schema
