"""The JSON Schemas of every file of the language, generated from a vocabulary.

    python -m selector.schema_build [--check]

writes those of `manifests/vocabulary.yaml` to `selector/schema/`, where editors find them. The catalog builds the
same schemas in memory for a vocabulary that packs have extended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.schema_axes import TEXT, VERSION, Schema
from selector.schema_invariants import invariants_schema
from selector.schema_manifest import manifest_schema
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
    without_unused,
)
from selector.schema_vocabulary import vocabulary_schema
from selector.schema_words import read_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from selector.schema_words import Axis

__all__ = ["WRITTEN", "build", "render", "vocabulary_schema"]

#: The schemas that are kept as files.
WRITTEN = ("vocabulary", "manifest", "pack", "environment", "software", "request", "invariants", "fleet")

_DRAFT = "http://json-schema.org/draft-07/schema#"
_UNLISTED: Schema = {
    "enum": ["last", "excluded"],
    "default": "last",
    "description": "Candidates that no order names: after the others, or only by an explicit choice.",
}


def build(vocabulary: Mapping[str, object]) -> dict[str, Schema]:
    """The schemas for `vocabulary` (merged data that has passed `vocabulary_schema()`), by the kind of file."""
    axes = read_axes(vocabulary)
    schemas = {
        "vocabulary": vocabulary_schema(),
        "manifest": manifest_schema(axes),
        "pack": _pack(axes),
        "environment": _environment(axes),
        "software": _software(axes),
        "request": _request(axes),
        "invariants": invariants_schema(axes),
        "fleet": _fleet(axes),
    }
    return {
        kind: {"$schema": _DRAFT, "title": f"attention-selector: {kind}", **without_unused(schema)}
        for kind, schema in schemas.items()
    }


def _pack(axes: dict[str, Axis]) -> Schema:
    entry: Schema = {"candidate": CANDIDATE, "when": CONDITION, "unless": CONDITION, "note": NOTE}
    ordered: Schema = {
        **CANDIDATE,
        "type": ["string", "object"],
        "properties": entry,
        "required": ["candidate"],
        "additionalProperties": False,
    }
    rule: Schema = {
        "name": {**TEXT, "description": "How a report calls this rule."},
        "when": CONDITION,
        "order": sequence(ordered, "Candidates, the best first; a backend stands for all its variants."),
        "unlisted": _UNLISTED,
        "source": SOURCE,
        "note": NOTE,
    }
    some = sequence(CANDIDATE, "Candidates.", 1)
    given: Schema = {
        "enum": ["prefill", "decode", "both"],
        "default": "both",
        "description": "Which side is the condition; both: each implies the other.",
    }
    pair: Schema = {
        "given": given,
        "when": CONDITION,
        "prefill": some,
        "decode": some,
        "source": SOURCE,
        "note": NOTE,
    }
    return mapping(
        {
            "pack": file_format("pack"),
            "name": {**NAME, "description": "What --pack takes."},
            "error": _error(axes),
            "title": TITLE,
            "version": {**TEXT, "description": "What it describes, with its version."},
            "source": SOURCE,
            "doc": DOC,
            "note": NOTE,
            "option": {**TEXT, "description": "How the user of the described project asks for a candidate."},
            "unlisted": _UNLISTED,
            "phases": sequence(TEXT, "The pack answers these apart.", 1),
            "pairs": sequence(
                mapping(pair, ["prefill", "decode"]), "Which answers of two phases go together."
            ),
            "policy": sequence(
                mapping(rule, ["name", "order"]), "The first rule whose condition holds decides."
            ),
        },
        ["pack", "name"],
        {"definitions": definitions(axes, "when")},
    )


def _error(axes: dict[str, Axis]) -> Schema:
    """How the described project says that nothing fits; all markers are literal text, white space does not matter."""

    def between(description: str) -> Schema:
        after: Schema = {**TEXT, "description": "The text before it."}
        before: Schema = {**TEXT, "description": "The text behind it."}
        return mapping({"after": after, "before": before}, ["after", "before"], {"description": description})

    said = (a.name for a in axes.values() if a.of == "environment" and not a.derived and a.type != "packages")
    facts: Schema = {name: between(f"Where it says the {name}.") for name in said}
    return mapping(
        {
            "request": between(
                "Where the fields of the request stand, as NAME=VALUE with commas between them."
            ),
            "backend": between(
                "Where it names a backend that was asked for; the last part of a dotted name counts."
            ),
            "environment": mapping(facts, (), {"description": "Where it says what the machine is."}),
            "refusals": between("Where it gives its own reasons: NAME: [TEXT, ...] for each backend."),
            "refusal": between("Where it gives its own reasons against the backend that was asked for."),
            "doc": DOC,
            "source": SOURCE,
            "note": NOTE,
        },
        ["request"],
        {"description": "The text of its error when nothing fits; `explain --from-NAME-error` reads it."},
    )


def _environment(axes: dict[str, Axis]) -> Schema:
    return mapping(
        {
            "environment": file_format("environment"),
            "name": {**NAME, "description": "What --on takes."},
            "title": TITLE,
            "doc": DOC,
            "aliases": sequence(NAME, "Other names for it."),
            "facts": by_axis(axes, "environment", "value", "What is known of the machine."),
            "source": SOURCE,
            "sources": sources(axes),
            "note": NOTE,
        },
        ["environment", "name", "facts"],
        {"definitions": definitions(axes, "value")},
    )


def _software(axes: dict[str, Axis]) -> Schema:
    package: Schema = {
        "version": {**VERSION, "description": "The version that the profiles install."},
        "import": {**MODULE, "description": "The module that tells whether it works."},
        "when": CONDITION,
        "install": {**TEXT, "description": "The command that installs it."},
        "title": TITLE,
        "doc": DOC,
        "source": SOURCE,
        "note": NOTE,
    }
    facts = by_axis(axes, "environment", "value", "Facts that come with the software.")
    entry: Schema = {"when": CONDITION, "set": {**facts, "minProperties": 1}, "source": SOURCE, "note": NOTE}
    profile: Schema = {
        "packages": {
            "if": {"const": "all"},
            "else": {"type": "array", "items": TEXT},
            "description": "all, or a list of packages.",
            "examples": ["all"],
        },
        "facts": sequence(mapping(entry, ["set"]), "Facts that come with it."),
        "doc": DOC,
        "source": SOURCE,
        "note": NOTE,
    }
    return mapping(
        {
            "software": file_format("software"),
            "packages": _named(mapping(package, ["version"]), "Distributions by name."),
            "profiles": _named(mapping(profile, ["packages"]), "What a preset environment has installed."),
            "source": SOURCE,
            "note": NOTE,
        },
        ["software", "packages", "profiles"],
        {"definitions": definitions(axes, "when", "value")},
    )


def _named(entry: Schema, description: str) -> Schema:
    return {"type": "object", "additionalProperties": entry, "description": description}


def _request(axes: dict[str, Axis]) -> Schema:
    """Unlike files, a request may use every alias of an axis."""
    asked = [axis for axis in axes.values() if axis.of == "request" and not axis.derived]
    aliases: Schema = {
        alias: {"$ref": f"#/definitions/value.{axis.name}"}
        for axis in asked
        for alias in axis.aliases
        if alias not in axes
    }
    return mapping(
        {**references(asked, "value"), **aliases},
        (),
        {
            "x-names": [axis.name for axis in asked],
            **axis_aliases(asked),
            "definitions": definitions(axes, "value"),
        },
    )


def _fleet(axes: dict[str, Axis]) -> Schema:
    version: Schema = {**VERSION, "description": "The version that is installed."}
    machine: Schema = {
        "on": {**TEXT, "description": "A preset, or a file beside this one that describes a machine."},
        "count": {"type": "integer", "minimum": 1, "default": 1, "description": "How many there are."},
        "name": {**TEXT, "description": "How a plan calls them; the machine's own name if it is left out."},
        "profile": {**NAME, "description": "What a preset has installed."},
        "with": _named(version, "Packages that are installed as well, or in another version."),
        "without": sequence(TEXT, "Packages that are not installed."),
        "facts": by_axis(axes, "environment", "value", "Facts that are otherwise."),
        "note": NOTE,
    }
    return mapping(
        {
            "fleet": file_format("fleet"),
            "title": TITLE,
            "machines": sequence(mapping(machine, ["on"]), "Kinds of machines.", 1),
            "doc": DOC,
            "note": NOTE,
        },
        ["fleet", "machines"],
        {"definitions": definitions(axes, "value")},
    )


def render(schema: Schema) -> str:
    """A schema as its file holds it."""
    import json

    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` only tell (and exit 1) which are stale."""
    from pathlib import Path

    from selector.validate import load_valid

    root = Path(__file__).resolve().parent
    document = load_valid(root.parent / "manifests" / "vocabulary.yaml", vocabulary_schema())
    assert isinstance(document.data, dict)  # the schema says so
    schemas = build(document.data)
    stale = []
    for kind in WRITTEN:
        path = root / "schema" / f"{kind}.schema.json"
        text = render(schemas[kind])
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path}: {'stale' if '--check' in arguments else 'written'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    import sys

    from selector.errors import SelectorError

    try:
        sys.exit(main(sys.argv[1:]))
    except SelectorError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
