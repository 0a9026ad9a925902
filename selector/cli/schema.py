"""`attn-select schema`: the JSON Schemas of the language's files, and the list of axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.vocabulary import Axis, Vocabulary

__all__ = ["register"]

AXES = "axes"
REPORT = "report"


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "schema",
        run,
        help="the axes, and the JSON Schemas of all files",
        description=(
            "`schema axes` lists every axis with its type, values and aliases (`schema axes NAME` one of them in full);\n"
            "`schema KIND` prints the JSON Schema of one kind of file, built from the vocabulary with its packs."
        ),
        examples=("schema axes", "schema axes kv_cache_dtype", "schema manifest > manifest.schema.json"),
        words="KIND",
        words_help="axes [NAME ...], or a kind of file (default: list the kinds)",
    )
    options.add_catalog(parser)
    options.add_output(parser)


def run(arguments: Namespace) -> int:
    """Print axes, a schema, or the kinds of schemas."""
    from selector.schema_build import build

    words = list(arguments.words)
    vocabulary = vocabulary_of(arguments)
    if words and words[0] == AXES:
        return _axes(vocabulary, words[1:], arguments)
    if len(words) > 1:
        raise UsageError(f"schema prints one kind at a time, not {len(words)}")
    kinds = [*(k for k in build(vocabulary.raw)), REPORT]
    if not words:
        if arguments.json:
            output.write_json([AXES, *kinds])
        else:
            output.write("\n".join([AXES, *kinds]))
        return 0
    kind = words[0]
    if kind not in kinds:
        from selector.vocabulary import nearest

        near = nearest(kind, [AXES, *kinds])
        raise UsageError(
            f"no schema is called {kind!r}",
            f"did you mean {near}?" if near else f"kinds: {', '.join([AXES, *kinds])}",
        )
    output.write_json(report_schema() if kind == REPORT else build(vocabulary.raw)[kind])
    return 0


def vocabulary_of(arguments: Namespace) -> Vocabulary:
    """The vocabulary of --pack and --manifests; without --pack the base one, which needs no valid manifest."""
    if arguments.pack:
        return options.catalog_of(arguments).vocabulary
    from selector.loader import Loader as _Loader
    from selector.locations import manifests_root

    return _Loader(options.root_of(arguments) or manifests_root()).base()


def report_schema() -> Any:
    """The schema of `Report.to_dict`."""
    import json
    import os

    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "schema", "report.schema.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _axes(vocabulary: Vocabulary, names: list[str], arguments: Namespace) -> int:
    chosen: list[Axis] = []
    for name in names:
        axis = vocabulary.find(name)
        if axis is None:
            near = vocabulary.nearest(name)
            raise UsageError(f"no axis is called {name!r}", f"did you mean {near}?" if near else None)
        chosen.append(axis)
    if arguments.json:
        output.write_json([_record(a) for a in chosen or vocabulary.axes])
    elif chosen:
        output.write("\n\n".join(_full(a) for a in chosen))
    else:
        output.write(_table(vocabulary))
    return 0


def _record(axis: Axis) -> dict[str, Any]:
    default: Any = {"same_as": axis.same_as} if axis.same_as is not None else axis.default
    return {
        "name": axis.name,
        "type": axis.type,
        "of": axis.of,
        "title": axis.title,
        "doc": axis.doc,
        "unit": axis.unit,
        "aliases": list(axis.aliases),
        "values": {v: _spellings(axis, v) for v in axis.values},
        "open": axis.open,
        "min": axis.min,
        "max": axis.max,
        "default": list(default) if isinstance(default, tuple) else default,
        "derived": axis.derive is not None,
        "applies_when": axis.applies_when,
        "declare_required": axis.declare_required,
        "undeclared": axis.undeclared,
        "identity": axis.identity,
        "variable": axis.variable,
        "fix": axis.fix,
        "pack": axis.pack,
    }


def _spellings(axis: Axis, value: str) -> list[str]:
    entry = axis.raw["values"]
    return list((entry.get(value) or {}).get("aliases", ())) if isinstance(entry, dict) else []


def _domain(axis: Axis) -> str:
    if axis.type == "choice":
        return ", ".join(axis.values) + ("" if not axis.open else ", ..." if axis.values else "any name")
    if axis.type == "integer":
        bounds = [
            f"from {axis.min}" if axis.min is not None else "",
            f"to {axis.max}" if axis.max is not None else "",
        ]
        return " ".join(b for b in bounds if b)
    return ""


def _table(vocabulary: Vocabulary) -> str:
    from selector.errors import printable
    from selector.render.cells import cells, pad, wrap

    paint = output.paint()
    width = output.width()
    wide = max(cells(a.name) for a in vocabulary.axes) + 2
    lines: list[str] = []
    groups = (
        ("The request", [a for a in vocabulary.axes if a.of == "request" and a.derive is None]),
        ("The environment", [a for a in vocabulary.axes if a.of == "environment" and a.derive is None]),
        (
            "Derived (not given, but conditions read them)",
            [a for a in vocabulary.axes if a.derive is not None],
        ),
    )
    for title, axes in groups:
        if not axes:
            continue
        lines += ["", paint(title, "bold")] if lines else [paint(title, "bold")]
        for axis in axes:
            aliases = f"  also {', '.join(axis.aliases)}" if axis.aliases else ""
            domain = _domain(axis)
            text = printable(f"{domain}{aliases}".strip() or axis.doc)
            head = f"  {pad(axis.name, wide)}{pad(axis.type, 9)} "
            for line in wrap(text, max(width - wide - 12, 20)) or [""]:
                lines.append(f"{head}{paint(line, 'dim')}".rstrip())
                head = " " * len(head)
    return "\n".join(lines)


def _full(axis: Axis) -> str:
    from selector.errors import printable

    paint = output.paint()
    whose = f"derived, of the {axis.of}" if axis.derive is not None else f"of the {axis.of}"
    lines = [f"{paint(axis.name, 'bold')}: {axis.type}, {whose}"]
    if axis.doc:
        lines.append(f"  {printable(axis.doc)}")
    rows: list[tuple[str, str]] = [("title", axis.title)]
    if axis.unit:
        rows.append(("unit", axis.unit))
    if axis.aliases:
        rows.append(("also", ", ".join(axis.aliases)))
    if axis.type != "choice" and _domain(axis):
        rows.append(("range", _domain(axis)))
    if axis.same_as is not None:
        rows.append(("default", f"the same as {axis.same_as}"))
    elif axis.derive is None:
        rows.append(("default", "open" if axis.default is None else str(axis.default).lower()))
    if axis.variable:
        rows.append(("variable", axis.variable))
    rows.append(
        (
            "undeclared",
            axis.undeclared if not axis.declare_required else "not allowed: every candidate says it",
        )
    )
    for number, value in enumerate(axis.values):
        also = _spellings(axis, value)
        rows.append(("values" if not number else "", value + (f"  (also {', '.join(also)})" if also else "")))
    lines += [f"  {name:<11} {printable(text)}" for name, text in rows]
    return "\n".join(lines)
