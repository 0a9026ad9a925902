"""The schemas that are generated from a vocabulary."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from selector import schema_build
from selector.schema_build import WRITTEN, build, main, render
from selector.schema_words import read_axes
from selector.validate import load_valid, validate
from selector.yaml_loader import load_file, load_text
from tests.selector.schema_samples import FILES, SCHEMAS, VOCABULARY, data_of

ROOT = Path(schema_build.__file__).resolve().parent
MANIFESTS = ROOT.parent / "manifests"

KEYWORDS = {
    "$schema", "$ref", "title", "description", "examples", "default", "definitions", "type", "enum", "const", "pattern",
    "minimum", "minLength", "minItems", "maxItems", "minProperties", "maxProperties", "maximum", "items", "properties",
    "patternProperties", "additionalProperties", "propertyNames", "required", "dependencies", "if", "then", "else",
    "allOf", "not", "x-values", "x-aliases", "x-elsewhere", "x-names", "x-reason", "x-kind",
}  # fmt: skip


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """`schema` and every schema inside it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, part in schema.items():
        if key in ("properties", "patternProperties", "definitions", "dependencies"):
            for inner in part.values():
                yield from subschemas(inner)
        elif key in ("items", "additionalProperties", "propertyNames", "if", "then", "else", "not"):
            yield from subschemas(part)
        elif key == "allOf":
            for inner in part:
                yield from subschemas(inner)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_draft_07_and_good_for_messages(kind: str) -> None:
    schema = SCHEMAS[kind]
    Draft7Validator.check_schema(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    for part in subschemas(schema):
        assert set(part) <= KEYWORDS  # above all neither oneOf nor anyOf
        if "properties" in part and part.get("type") == "object":
            assert part["additionalProperties"] is False
        if "$ref" in part:
            assert set(part) == {"$ref"}  # draft-07 ignores what stands beside it
            assert part["$ref"].removeprefix("#/definitions/") in schema["definitions"]  # type: ignore[operator]
    used = {part["$ref"].rpartition("/")[2] for part in subschemas(schema) if "$ref" in part}
    assert used == set(schema.get("definitions", {}))  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", FILES)
def test_what_the_language_has_is_valid(kind: str) -> None:
    document = load_text(json.dumps(data_of(FILES[kind])), f"{kind}.yaml")
    assert validate(document, SCHEMAS[kind]) == []


def definition(kind: str, name: str) -> dict[str, Any]:
    definitions = SCHEMAS[kind]["definitions"]
    assert isinstance(definitions, dict)
    part = definitions[name]
    assert isinstance(part, dict)
    return part


def test_an_editor_gets_descriptions_words_and_defaults() -> None:
    head_size = definition("manifest", "limit.head_size")
    assert head_size["description"].startswith("head size (elements): Elements of a head. A number, {min,")
    assert definition("manifest", "word.dtype")["enum"] == [
        "float16",
        "bfloat16",
        "fp8_e4m3",
        "fp16",
        "half",
        "bf16",
    ]
    assert definition("manifest", "when.sinks")["enum"] == [True, False]
    assert definition("manifest", "limit.mla")["enum"] == [True, False, "any"]
    assert definition("request", "value.attn_type")["default"] == "decoder"
    assert definition("request", "value.head_size")["maximum"] == 65536
    for name, part in SCHEMAS["manifest"]["definitions"].items():  # type: ignore[attr-defined]
        if name.partition(".")[0] in ("limit", "when", "value"):
            assert part["description"]
    for axis in ("compute_capability", "packages", "sinks", "window", "head_size", "dtype"):
        assert definition("manifest", f"limit.{axis}")["examples"]


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        ("head_size", "an error"), ("dtype", "no limit"), ("sinks", "false"), ("mla", "false"), ("amx", "no limit"),
        ("quantized", "no limit"), ("fa_version", "no value"), ("hopper", "no limit"),
    ],
)  # fmt: skip
def test_an_editor_says_what_silence_means(axis: str, words: str) -> None:
    assert definition("manifest", f"limit.{axis}")["description"].endswith(f" Undeclared: {words}.")


def properties(kind: str, name: str) -> set[str]:
    return set(definition(kind, name)["properties"])


def test_an_axis_stands_where_it_belongs() -> None:
    supports, requires = properties("manifest", "supports"), properties("manifest", "requires")
    assert "head_size" in supports
    assert "rounded" in supports  # derived from the request
    assert "device" in requires
    assert "hopper" in requires  # derived from the environment alone
    assert not supports & requires
    assert properties("manifest", "condition") == {*VOCABULARY["axes"], "all", "any", "not", "accepts"}
    manifest = SCHEMAS["manifest"]["properties"]
    assert isinstance(manifest, dict)
    assert "fa_version" in manifest
    assert "fa_version" in manifest["variants"]["items"]["properties"]
    assert "head_size" not in manifest
    facts = SCHEMAS["environment"]["properties"]["facts"]["properties"]  # type: ignore[index]
    assert set(facts) == {"device", "device_name", "arch", "compute_capability", "amx", "packages"}
    asked = set(SCHEMAS["request"]["properties"])  # type: ignore[call-overload]
    assert {"head_size", "head_dim", "use_mla"} <= asked
    assert not asked & {"rounded", "quantized", "device"}


def test_a_new_axis_is_one_entry() -> None:
    new = {"type": "flag", "of": "request", "title": "attention chunk", "aliases": ["chunked"]}
    axes = {**VOCABULARY["axes"], "attention_chunk": new}
    schemas = build({"vocabulary": 1, "axes": axes})
    manifest = load_text(
        "manifest: 1\nname: a\nsupports: {attention_chunk: true}\n"
        "rules: [{when: {attention_chunk: true}, reject: x, axis: [attention_chunk]}]\n"
        "sources: {attention_chunk: x}\nadjust: [{set: {attention_chunk: false}}]",
        "a.yaml",
    )
    assert validate(manifest, schemas["manifest"]) == []
    assert len(validate(manifest, SCHEMAS["manifest"])) == 5
    assert validate(load_text("chunked: true", "r"), schemas["request"]) == []


def test_the_owner_of_a_derived_axis() -> None:
    axes = read_axes(
        data_of("""\
            axes:
              d: {type: choice, of: environment, values: [x]}
              r: {type: integer, of: request}
              a: {type: integer, derive: {table: {axis: d, map: {x: 1}, else: 0}}}
              b: {type: integer, derive: {sum: [a, 1]}}
              c: {type: flag, derive: {when: {d: x, not: {r: 1}}}}
              e: {type: integer, derive: {max: [b, r]}}
              loop: {type: integer, derive: {sum: [pool, a]}}
              pool: {type: integer, derive: {sum: [loop, a]}}
              odd: {type: integer, derive: 3}
            """)
    )
    assert {name: axis.of for name, axis in axes.items() if axis.derived} == {
        "a": "environment", "b": "environment", "c": "request", "e": "request",
        "loop": "request", "pool": "request", "odd": "request",
    }  # fmt: skip


@pytest.mark.parametrize(
    "vocabulary", [{}, {"axes": None}, {"axes": {"a": None}}, {"axes": {"a": {"type": "nope", "values": 3}}}]
)
def test_a_broken_vocabulary_does_not_break_the_build(vocabulary: dict[str, object]) -> None:
    """The catalog reports the vocabulary's own faults; manifests can still be looked at."""
    for schema in build(vocabulary).values():
        Draft7Validator.check_schema(schema)


# -- the written files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_written_schemas_are_current(kind: str) -> None:
    vocabulary = load_file(MANIFESTS / "vocabulary.yaml").data
    assert isinstance(vocabulary, dict)
    written = (ROOT / "schema" / f"{kind}.schema.json").read_text(encoding="utf-8")
    assert written == render(build(vocabulary)[kind]), "stale: run python -m selector.schema_build"


def test_the_command_tells_what_is_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"]) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(schema_build, "render", lambda schema: render(schema) + " ")
    assert main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"{ROOT / 'schema' / 'vocabulary.schema.json'}: stale"


def test_the_command_runs_as_a_module() -> None:
    child = subprocess.run(
        [sys.executable, "-W", "error", "-m", "selector.schema_build", "--check"],
        cwd=ROOT.parent, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


def test_shipped_files_that_need_no_pack_are_valid() -> None:
    kinds = {
        "environments/*.yaml": "environment",
        "software.yaml": "software",
        "vocabulary.yaml": "vocabulary",
    }
    vocabulary = load_file(MANIFESTS / "vocabulary.yaml").data
    assert isinstance(vocabulary, dict)
    schemas = build(vocabulary)
    for pattern, kind in kinds.items():
        paths = sorted(MANIFESTS.glob(pattern))
        assert paths
        for path in paths:
            load_valid(path, schemas[kind])
