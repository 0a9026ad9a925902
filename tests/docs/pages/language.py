"""`docs/reference/language.md`: every key of every file, from the schemas; what constraints and operators do, from the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from selector.schema_build import WRITTEN, build
from selector.schema_words import TYPES
from tests.docs.pages import MANIFESTS, worked
from tests.docs.pages.markdown import code, escape, fence, head, literal, table
from tests.docs.pages.schemas import Walker

__all__ = ["FILES", "OPERATORS", "pages"]

#: The kinds of file: where they stand, and what they are, in the order of the page.
FILES = {
    "vocabulary": (
        "manifests/vocabulary.yaml, PACK/vocabulary.yaml",
        "the axes that requests and machines have",
    ),
    "manifest": ("PACK/BACKEND.yaml", "what one backend can do"),
    "pack": ("PACK/pack.yaml", "which candidate comes first where"),
    "environment": ("manifests/environments/NAME.yaml, `--on FILE`", "what a machine is"),
    "software": ("manifests/software.yaml", "what a preset machine has installed"),
    "invariants": ("manifests/invariants.yaml", "sentences that `attn-select prove` proves"),
    "fleet": ("`plan --fleet FILE`", "many machines with how many there are of each"),
    "request": ("words of the command, lines of `--requests`, keywords of `Request`", "what one layer needs"),
}

#: The operators of constraints in their mapping form.
OPERATORS = {
    "min": "at least this",
    "max": "at most this",
    "multiple_of": "divisible by this",
    "in": "one of these",
    "not_in": "none of these",
    "tagged": "a value with this tag, or with one of these",
    "required": "with true: a request that leaves the axis open is refused",
    "given": "alone, and in conditions only: whether the request gives a value at all",
}

#: The examples: a shipped file, and the beginnings of the lines that are quoted (all of it where there are none).
QUOTES: dict[str, tuple[str, tuple[str, ...]]] = {
    "vocabulary": (
        "vocabulary.yaml",
        ("vocabulary: 1", "axes:", "  head_size:", "  head_size_v:", "  kv_quantized:"),
    ),
    "manifest": ("sglang/fa4.yaml", ()),
    "pack": ("transformer_engine/pack.yaml", ()),
    "environment": ("environments/h100.yaml", ()),
    "software": ("software.yaml", ("software: 1", "packages:", "  flash-attn:", "profiles:")),
    "invariants": (
        "invariants.yaml",
        ("invariants:", "  - name: per-head scales need", "  - name: sinks on FlashAttention"),
    ),
}
WHOLE = ("profiles:",)

NAMES = {"condition": "[condition](#conditions)", "source": "an address"}
FORMS = {
    "limit": "[limit](#constraints)",
    "when": "[constraint](#constraints)",
    "value": "value",
    "source": "an address",
}


def pages() -> dict[str, str]:
    """The page."""
    lines = head(
        "Language reference",
        "selector/schema_build.py and manifests/vocabulary.yaml",
        "Every word of every file. Why it is like this, and how null and unknown values count, is in [the design](../design.md); what the "
        "language cannot say is in [its limits](../language.md); the axes are in [the vocabulary](vocabulary.md).",
    )
    schemas = build(_vocabulary())
    assert set(FILES) == set(WRITTEN), (
        f"files that this page and the schemas do not share: {set(FILES) ^ set(WRITTEN)}"
    )
    lines += _files()
    lines += _axes(schemas)
    lines += _constraints(schemas)
    lines += _conditions(schemas)
    lines += _operators(schemas)
    for kind in FILES:
        lines += _file(kind, schemas[kind])
    lines += _architectures()
    return {"reference/language.md": "\n".join(lines).rstrip() + "\n"}


def _vocabulary() -> dict[str, Any]:
    """One axis of each type on either side: the schemas then show the forms without the shipped axes."""
    axes: dict[str, Any] = {}
    for kind in TYPES:
        values = {"values": {"one": {"tags": ["tag"]}, "two": {}}} if kind == "choice" else {}
        axes[kind] = {
            "type": kind,
            "of": "environment" if kind == "packages" else "request",
            "title": kind,
            **values,
        }
    axes["fa_version"] = {"type": "integer", "of": "request", "identity": True}
    axes["machine"] = {"type": "version", "of": "environment"}
    return {"vocabulary": 1, "axes": axes}


def _files() -> list[str]:
    rows = []
    for kind, (place, text) in FILES.items():
        rows.append(
            (f"[{kind}](#file-{kind})", escape(place), text, code(f"selector/schema/{kind}.schema.json"))
        )
    return [
        "## Files",
        "",
        *table(("kind", "where", "what it says", "schema"), rows),
        "All are YAML 1.2 without anchors, aliases, merge keys and tags. Versions are text and stand in quotes: an unquoted `9.10` is the "
        "number 9.1. A first line such as",
        "",
        *fence("# yaml-language-server: $schema=../../selector/schema/manifest.schema.json", "yaml"),
        "lets an editor complete every axis and check every value; `attn-select schema KIND` prints the schema with the axes of "
        "the packs in use, and `attn-select lint` reports every mistake with its line.",
        "",
    ]


def _axes(schemas: dict[str, Any]) -> list[str]:
    rows = []
    limits, whens = schemas["manifest"]["definitions"], schemas["manifest"]["definitions"]
    values = {**schemas["request"]["definitions"], **schemas["environment"]["definitions"]}
    for kind in TYPES:
        said = [
            part[f"{form}.{kind}"]["description"]
            for part, form in ((values, "value"), (limits, "limit"), (whens, "when"))
        ]
        rows.append((f"`{kind}`", *(escape(text.removeprefix(f"{kind}. ")) for text in said)))
    return [
        "## Types of axes",
        "",
        *table(
            (
                "type",
                "a request or a machine says",
                "a manifest says (`supports`, `requires`)",
                "a condition says",
            ),
            rows,
        ),
    ]


def _constraints(schemas: dict[str, Any]) -> list[str]:
    found = sorted(_mapping_keys(schemas["manifest"]["definitions"]))
    missing = set(found) ^ set(OPERATORS)
    assert not missing, f"operators that this page and the schema do not share: {missing}"
    rows = []
    for example in worked.CONSTRAINTS:
        holds, fails = worked.accepted(example)
        said = [", ".join(code(literal(v)) for v in values) or "nothing" for values in (holds, fails)]
        rows.append((code(f"{example.axis}: {literal(example.text)}"), *said))
    return [
        "## Constraints",
        "",
        "A constraint speaks of one axis. In `supports` and `requires` it is a *limit*: what the candidate takes. A value, a list of values, "
        "`any`, or a mapping with these operators, all of which must hold:",
        "",
        *table(("operator", "the value is"), [(code(k), v) for k, v in OPERATORS.items()]),
        "Tried on some values:",
        "",
        *table(("constraint", "holds for", "does not hold for"), rows),
        "Version specifiers are those of PEP 440; pre-releases count (`>=2.8` takes `2.9.0rc1`, and `>=2.8.dev0` also the builds before "
        "2.8.0). A value that is left open (null) satisfies a limit unless it says `required: true`.",
        "",
    ]


def _mapping_keys(definitions: dict[str, Any]) -> set[str]:
    """The operators in all forms of constraints."""
    found: set[str] = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            keys = part.get("properties", {})
            if "required" in keys and "required" not in part.get("required", ()):
                found.update(keys)
            for sub in part.values():
                walk(sub)
        elif isinstance(part, list):
            for sub in part:
                walk(sub)

    for name, part in definitions.items():
        if name.partition(".")[0] in ("limit", "when", *TYPES):
            walk(part)
    return found


def _conditions(schemas: dict[str, Any]) -> list[str]:
    condition = schemas["manifest"]["definitions"]["condition"]
    rows = [("an axis", FORMS["when"], "Its value satisfies the constraint.")]
    takes = {
        "all": "list of conditions",
        "any": "list of conditions",
        "not": "condition",
        "accepts": "candidate, or list of them",
    }
    for key, text in takes.items():
        said = condition["properties"][key].get("description", "This condition does not hold.")
        rows.append((code(key), text, escape(said)))
    return [
        "## Conditions",
        "",
        escape(condition["description"]),
        "",
        *table(("key", "takes", "holds when"), rows),
        *fence(
            'when:\n  device: cuda\n  compute_capability: "==10.*"\n  any: [{kv_cache_dtype: {tagged: fp8}}, {num_heads: {max: 16}}]\n'
            "  not: {head_size: [64, 128]}",
            "yaml",
        ),
    ]


def _operators(schemas: dict[str, Any]) -> list[str]:
    operator = schemas["vocabulary"]["definitions"]["operator"]["properties"]
    results = worked.derived()
    missing = set(operator) - set(results) - {"else"}
    assert not missing, f"operators without an example: {missing}"
    rows = []
    for name, part in operator.items():
        if name == "else":
            continue
        found = "; ".join(
            f"{code(', '.join(f'{k}={literal(v)}' for k, v in given.items()) or 'nothing given')} → {code(literal(value))}"
            for given, value in results[name]
        )
        rows.append(
            (
                code(name),
                escape(part["description"]),
                code(f"derive: {literal(worked.DERIVED[name].derive)}"),
                found,
            )
        )
    return [
        "## Derived axes",
        "",
        "An axis with `derive:` is worked out from others, and nobody gives it. It has one operator; operands are axes, numbers or further "
        "operators. A null operand makes the result null, an unknown one unknown.",
        "",
        *table(("operator", "result", "example", "comes to"), rows),
    ]


def _file(kind: str, schema: dict[str, Any]) -> list[str]:
    place, text = FILES[kind]
    lines = [f"## File: {kind}", "", f"{text[0].upper()}{text[1:]}: {escape(place)}.", ""]
    lines += _example(kind)
    if kind == "request":
        return [
            *lines,
            "Its keys are the axes of the request and their aliases; `attn-select schema axes` lists them.",
            "",
        ]
    if kind == "vocabulary":
        return [*lines, *_vocabulary_file(schema)]
    walker = Walker(schema, NAMES, FORMS)
    walker.top = kind
    return [*lines, *walker.lines(3, kind)]


def _vocabulary_file(schema: dict[str, Any]) -> Iterator[str]:
    yield from [
        "`vocabulary: 1`, and under `axes:` each axis by its name (small letters, digits and `_`):",
        "",
    ]
    axis = {**schema["definitions"]["axis"], "required": ["type"], "definitions": schema["definitions"]}
    walker = Walker(axis, {"operator": "[operator](#derived-axes)"}, FORMS)
    walker.top = "axis"
    yield from walker.lines(3, "axis")
    yield (
        "`of` is required unless the axis is derived. An entry that has nothing but `values` and `aliases` extends an axis of the vocabulary "
        "that a pack builds on."
    )
    yield ""


def _architectures() -> list[str]:
    """What the file about models says of itself: it has no schema, because it is about other people's files."""
    text = (MANIFESTS / "architectures.yaml").read_text(encoding="utf-8")
    about = text.partition("architectures: 1")[0].splitlines()
    return [
        "## File: architectures",
        "",
        "What `attn-select plan` knows of models' `config.json`: manifests/architectures.yaml. From its head:",
        "",
        *fence("\n".join(line.removeprefix("# ").removeprefix("#") for line in about), "text"),
    ]


def _example(kind: str) -> list[str]:
    """A piece of a shipped file, or a request."""
    if kind == "request":
        return fence(
            '{"head_size": 128, "dtype": "bf16", "kv_cache_dtype": "fp8", "per_head_scales": true}', "json"
        )
    if kind == "fleet":
        return ["[Many machines](../fleets.md) has an example.", ""]
    name, wanted = QUOTES[kind]
    lines = (MANIFESTS / name).read_text(encoding="utf-8").splitlines()
    if wanted:
        lines = [line for start in wanted for line in _entry(lines, start)]
    return [f"From `manifests/{name}`:", "", *fence("\n".join(lines), "yaml")]


def _entry(lines: list[str], start: str) -> list[str]:
    """The first line that begins with `start`, and what is indented below it if that ends with a colon and is no file's own key."""
    first = next((n for n, line in enumerate(lines) if line.startswith(start)), None)
    assert first is not None, f"no line begins with {start!r}"
    if not start.startswith(" ") and start not in WHOLE:
        return [lines[first]]
    indent = len(start) - len(start.lstrip())
    found = [lines[first]]
    for line in lines[first + 1 :]:
        if len(line) - len(line.lstrip()) <= indent or line.lstrip().startswith("#"):
            break
        found.append(line)
    return found
