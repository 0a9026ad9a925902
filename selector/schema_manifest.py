"""The JSON Schema of a manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.schema_axes import BOOLEAN, TEXT, Schema, never
from selector.schema_parts import (
    CANDIDATE,
    CONDITION,
    DOC,
    MODULE,
    NAME,
    NOTE,
    SOURCE,
    TITLE,
    axis_aliases,
    by_axis,
    definitions,
    file_format,
    mapping,
    references,
    sequence,
    sources,
)

if TYPE_CHECKING:
    from selector.schema_words import Axis


def manifest_schema(axes: dict[str, Axis]) -> Schema:
    """The schema of one backend: its defaults, its variants and its rules."""
    parts: Schema = {
        "requires": by_axis(axes, "environment", "limit", "What the environment must be.", "supports"),
        "supports": by_axis(axes, "request", "limit", "What a request may ask for.", "requires"),
        "rules": sequence(_rule(axes), "Joint limits: what a flat list cannot say."),
        "known_wrong": sequence(_known_wrong(axes), "Silently wrong results; they outrank every preference."),
        "adjust": sequence(_adjust(axes), "How the candidate changes a request before it runs it."),
        "sources": sources(axes),
    }
    shared: Schema = {
        **{name: {"$ref": f"#/definitions/{name}"} for name in parts},
        "source": {**SOURCE, "description": "Default source of every fact below."},
        "option": {**TEXT, "description": "How the user of the described project asks for it."},
        "note": NOTE,
        **references((axis for axis in axes.values() if axis.identity), "limit"),
    }
    variant: Schema = {
        "name": {**NAME, "description": "The candidate is called backend/name."},
        "title": TITLE,
        "doc": DOC,
        "extends": {**NAME, "description": "Start from this other variant."},
        "abstract": {**BOOLEAN, "default": False, "description": "Never listed; only extended or asked."},
        **shared,
    }
    manifest: Schema = {
        "manifest": file_format("manifest"),
        "name": {**NAME, "description": "The backend."},
        "title": TITLE,
        "doc": DOC,
        "kernel": {
            **MODULE,
            "description": "Module of the wrapper; left out where selection is all there is.",
        },
        "homepage": {**TEXT, "description": "Where the project lives.", "examples": ["https://"]},
        **shared,
        "variants": sequence(
            mapping(variant, ["name"], _misplaced(axes)),
            "Kernels of one backend that differ in what they can do.",
            1,
        ),
    }
    return mapping(
        manifest,
        ["manifest", "name"],
        {**_misplaced(axes), "definitions": {**parts, **definitions(axes, "limit", "when", "value")}},
    )


def _misplaced(axes: dict[str, Axis]) -> Schema:
    """Where an axis belongs that somebody wrote beside `supports` instead of into it."""
    inside = {
        name: "supports" if axis.of == "request" else "requires"
        for name, axis in axes.items()
        if not axis.identity
    }
    return {**axis_aliases(axis for axis in axes.values() if axis.identity), "x-elsewhere": inside}


def _common(axes: dict[str, Axis]) -> Schema:
    names: Schema = {"enum": list(axes), "x-values": list(axes), **axis_aliases(axes.values())}
    return {
        "name": {**TEXT, "description": "How other files and reports call it."},
        "when": CONDITION,
        "unless": CONDITION,
        "require": CONDITION,
        "variants": _variants(),
        "reject": {**TEXT, "description": "Why it cannot be used: when, and not unless, and not require."},
        "axis": {
            "type": ["string", "array"],
            "if": {"type": "string"},
            "then": names,
            "items": names,
            "minItems": 1,
            "description": "The axes it is reported under (default: those of require, when, unless).",
        },
        "source": SOURCE,
        "note": NOTE,
    }


def _variants() -> Schema:
    return sequence(NAME, "Only these variants (default: all).", 1)


def _rule(axes: dict[str, Axis]) -> Schema:
    both = never("a rule either rejects or warns")
    return mapping(
        {
            **_common(axes),
            "warn": {**TEXT, "description": "Said beside an accepted candidate; it never rejects."},
            "strict": {
                **BOOLEAN,
                "default": False,
                "description": "With strict selection the warning rejects.",
            },
        },
        (),
        {
            "dependencies": {"strict": ["warn"]},
            "if": {"required": ["warn"]},
            "then": {"properties": {"reject": both}},
            "else": {"required": ["reject"]},
        },
    )


def _known_wrong(axes: dict[str, Axis]) -> Schema:
    return mapping({**_common(axes), "until": CONDITION}, ["reject"])


def _adjust(axes: dict[str, Axis]) -> Schema:
    changed = by_axis(axes, "request", "value", "The candidate runs the request with these values.")
    return mapping(
        {
            "when": CONDITION,
            "set": {**changed, "minProperties": 1},
            "use": {**CANDIDATE, "description": "This candidate runs in its place."},
            "variants": _variants(),
            "source": SOURCE,
            "note": NOTE,
        },
        (),
        {"if": {"required": ["use"]}, "else": {"required": ["set"]}},
    )
