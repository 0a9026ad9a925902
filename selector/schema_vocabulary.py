"""The JSON Schema of `vocabulary.yaml`.

It says nothing of particular axes: it must hold before there is a vocabulary. What it leaves to the reader of the
vocabulary is whether the words inside conditions and operators are axes.
"""

from __future__ import annotations

from functools import cache

from selector.schema_axes import BOOLEAN, TEXT, Schema, never
from selector.schema_words import TYPES

#: What every axis may say, whatever its type.
_WORD_PATTERN = r"^[a-z][a-z0-9_]*$"
_TEXTS: Schema = {"type": "array", "items": TEXT, "minItems": 1}
_CONDITION: Schema = {
    "type": "object",
    "description": "Axis to constraint; all must hold. all, any and not nest.",
}
_OPERATOR: Schema = {"$ref": "#/definitions/operator"}
_OPERAND: Schema = {"type": ["string", "integer", "object"], "if": {"type": "object"}, "then": _OPERATOR}
_RESULT: Schema = {
    "type": ["string", "integer", "boolean", "object", "array", "null"],
    "if": {"type": "object"},
    "then": {"if": {"required": ["axis"]}, "then": {"properties": {"axis": TEXT}, "additionalProperties": False},
             "else": _OPERATOR},
    "description": "A value, {axis: name} or an operator.",
}  # fmt: skip


@cache
def vocabulary_schema() -> Schema:
    """The schema of a vocabulary: this project's, or the part of one that a pack adds. Always the same object."""
    return {
        "type": "object",
        "properties": {
            "vocabulary": {"const": 1, "description": "Version of this file format."},
            "axes": {
                "type": "object",
                "description": "Every axis by its name.",
                "patternProperties": {_WORD_PATTERN: {"$ref": "#/definitions/axis"}},
                "additionalProperties": False,
                "x-kind": "word",
            },
        },
        "required": ["vocabulary", "axes"],
        "additionalProperties": False,
        "definitions": {"axis": _axis(), "operator": _operator()},
    }


def _axis() -> Schema:
    properties: Schema = {
        "type": {"enum": list(TYPES), "description": "What its values are."},
        "of": {"enum": ["request", "environment"], "description": "Whose property it is."},
        "title": {**TEXT, "description": "Its name in messages and tables."},
        "doc": {**TEXT, "description": "One or two sentences for whoever meets it first."},
        "source": {**TEXT, "description": "Where its meaning can be read."},
        "note": {**TEXT, "description": "Free text."},
        "unit": {**TEXT, "description": "What a number counts: elements, tokens, bytes."},
        "aliases": {**_TEXTS, "description": "Other names that requests may use."},
        "values": {
            "type": ["array", "object"],
            "items": TEXT,
            "additionalProperties": {
                "type": ["object", "null"],
                "properties": {"aliases": _TEXTS, "tags": {"type": "array", "items": TEXT}, "doc": TEXT},
                "additionalProperties": False,
            },
            "description": "Of a choice: its values, or value: {aliases, tags, doc}.",
        },
        "open": {**BOOLEAN, "description": "Of a choice: values that are not listed are admitted.", "default": False},
        "min": {"type": "integer", "description": "The smallest number that makes sense."},
        "max": {"type": "integer", "description": "The largest number that makes sense."},
        "declare": {"enum": ["required", "optional"], "default": "optional",
                    "description": "required: every candidate must say what it takes."},
        "default": {
            "type": ["string", "integer", "boolean", "array", "object", "null"],
            "properties": {"same_as": TEXT},
            "additionalProperties": False,
            "minProperties": 1,
            "description": "Its value when not given, or {same_as: other_axis}.",
        },
        "applies_when": {**_CONDITION, "description": "Where this does not hold the axis counts as not given."},
        "undeclared": {"enum": ["any", "none"],
                       "description": "What a candidate that does not declare it accepts."},
        "identity": {**BOOLEAN, "default": False,
                     "description": "A property of the candidate itself; it stands at the top of a variant."},
        "variable": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "x-kind": "variable",
                     "description": "Of the environment: read from this process variable."},
        "fix": {"enum": ["request", "environment", "none"], "description": "Who can change it."},
        "words": {"type": "object", "properties": {"asked": TEXT, "allowed": TEXT}, "additionalProperties": False,
                  "description": "Templates for the two sides of a message."},
        "derive": {"type": "object", "allOf": [_OPERATOR],
                   "description": "Worked out from other axes; never given by a user."},
    }  # fmt: skip
    choice, number = never("only a choice has it"), never("only an integer or a pair has it")
    only_choice: Schema = {"properties": {"values": choice, "open": choice}}
    only_number: Schema = {"properties": {"min": number, "max": number, "unit": number}}
    derived = never("a derived axis cannot have it")
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        # An entry with nothing but values extends a choice of the vocabulary it is merged into.
        "if": {"propertyNames": {"enum": ["values", "aliases"]}},
        "else": {"required": ["type"], "if": {"required": ["derive"]}, "else": {"required": ["of"]}},
        "allOf": [
            _unless_type(("choice",), only_choice),
            _unless_type(("integer", "pair"), only_number),
            {"if": {"required": ["derive"]}, "then": {"properties": {"default": derived, "of": derived}}},
        ],
    }  # fmt: skip


def _unless_type(kinds: tuple[str, ...], schema: Schema) -> Schema:
    """`schema` for axes of every known type but `kinds` (an unknown type is one mistake, not three)."""
    others = [name for name in TYPES if name not in kinds]
    return {"if": {"required": ["type"], "properties": {"type": {"enum": others}}}, "then": schema}


def _operator() -> Schema:
    many: Schema = {"type": "array", "items": _OPERAND, "minItems": 1}
    two: Schema = {"type": "array", "items": _OPERAND, "minItems": 2, "maxItems": 2}
    properties: Schema = {name: {**many, "description": f"The {name} of the operands."} for name in _MANY}
    properties |= {name: {**two, "description": text} for name, text in _TWO.items()}
    properties |= {
        "element": {
            "type": "array", "minItems": 2, "maxItems": 2, "items": {"type": ["string", "integer"]},
            "description": "[axis, 0 or 1]: one number of a pair.",
        },
        "tag": {
            "type": "object", "properties": {"axis": TEXT, "tag": TEXT}, "required": ["axis", "tag"],
            "additionalProperties": False, "description": "Whether the value of a choice has a tag.",
        },
        "when": {**_CONDITION, "description": "Whether a condition definitely holds."},
        "table": {
            "type": "object",
            "properties": {"axis": TEXT, "map": {"type": "object", "minProperties": 1}, "else": _RESULT},
            "required": ["axis", "map"], "additionalProperties": False,
            "description": "Look-up of a value: {axis, map: {value: result}, else}.",
        },
        "case": {
            "type": "array", "minItems": 1,
            "items": {
                "type": "object", "properties": {"when": _CONDITION, "value": _RESULT},
                "required": ["when", "value"], "additionalProperties": False,
            },
            "description": "The value of the first entry whose condition holds, or else.",
        },
        "else": {**_RESULT, "description": "What case gives when no entry holds."},
    }  # fmt: skip
    one: Schema = {"minProperties": 1, "maxProperties": 1, "x-kind": "operator"}
    two_keys: Schema = {"maxProperties": 2, "x-kind": "operator"}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "if": {"required": ["case"]},
        "then": two_keys,
        "else": {"if": {"required": ["else"]}, "then": {"required": ["case"]}, "else": one},
    }


_MANY = ("max", "min", "sum", "product", "gcd")
_TWO = {
    "difference": "[a, b]: a - b.",
    "modulo": "[a, b]: what remains of a divided by b.",
    "floor_div": "[a, b]: a divided by b, rounded down.",
    "ratio": "[a, b]: a divided by b where that is exact, else null.",
    "round_up": "[a, b]: the smallest multiple of b that is at least a.",
}
