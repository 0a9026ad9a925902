"""`attn-select env`: what is known of a machine, and saving that to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.vocabulary import Axis

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "env",
        run,
        help="what is known of this machine, or of a preset",
        description=(
            "The facts of a machine that a choice depends on, and its packages. Nothing is imported to find them out.\n"
            "A saved file is what --on takes, so that a server can be explained on a laptop."
        ),
        examples=(
            "env",
            "env --save server.yaml",
            "env --on h100 --without flash-attn-3 --json",
            "env --list",
        ),
    )
    options.add_environment(parser)
    options.add_catalog(parser)
    options.add_output(parser)
    group = parser.add_argument_group("other actions")
    group.add_argument("--save", metavar="FILE", help="write it as a file for --on (- for standard output)")
    group.add_argument("--list", action="store_true", help="the presets")


def run(arguments: Namespace) -> int:
    """Show, save or list environments."""
    if arguments.list:
        if arguments.save is not None:
            raise UsageError("--list and --save do not go together")
        return _list(arguments)
    catalog = options.catalog_of(arguments)
    machine = options.environment_of(arguments, catalog)
    facts = known_facts(machine, catalog)
    if arguments.save is not None:
        return _save(arguments.save, machine, facts)
    if arguments.json:
        output.write_json(
            {
                "name": machine.name,
                "title": machine.title,
                "origin": machine.origin,
                "fingerprint": machine.fingerprint,
                "facts": facts,
                "unknown": [a.name for a in unknown_axes(machine, catalog)],
            }
        )
    else:
        _show(machine, catalog, facts)
    return 0


def known_facts(machine: Environment, catalog: Catalog) -> dict[str, Any]:
    """The facts as plain data, those that come from the process's variables included."""
    from selector.vocabulary import UNKNOWN, Packages

    facts = machine.to_dict()
    for index, value in machine.values(catalog.vocabulary).items():
        axis = catalog.vocabulary.axes[index]
        if axis.variable is None or axis.name in facts or value is UNKNOWN or isinstance(value, Packages):
            continue
        if value != axis.default:
            facts[axis.name] = list(value) if isinstance(value, tuple) else value
    return facts


def unknown_axes(machine: Environment, catalog: Catalog) -> list[Axis]:
    """The facts that nobody could establish, without those that have no meaning on such a machine."""
    from selector.conditions import holds, parse
    from selector.vocabulary import UNKNOWN

    vocabulary = catalog.vocabulary
    values = machine.values(vocabulary)
    found = []
    for index, value in values.items():
        axis = vocabulary.axes[index]
        if value is not UNKNOWN:
            continue
        if axis.applies_when is None or holds(parse(axis.applies_when, vocabulary, lambda *_: None), values):
            found.append(axis)
    return found


def _show(machine: Environment, catalog: Catalog, facts: dict[str, Any]) -> None:
    from selector.constraints import word
    from selector.errors import printable
    from selector.render.cells import cells, pad

    paint = output.paint()
    lines = [paint(printable(machine.title), "bold"), paint(f"  {printable(machine.origin)}", "dim"), ""]
    packages = facts.get("packages") or {}
    shown = {k: word(tuple(v) if isinstance(v, list) else v) for k, v in facts.items() if k != "packages"}
    unknown = [a.name for a in unknown_axes(machine, catalog) if a.type != "packages"]
    wide = max((cells(n) for n in [*shown, *unknown, *packages]), default=0) + 2
    lines += [f"  {pad(name, wide)}{printable(value)}" for name, value in shown.items()]
    lines += [f"  {pad(name, wide)}{paint('unknown', 'yellow')}" for name in unknown]
    if packages:
        lines += ["", paint("Packages", "bold")]
    for name, entry in packages.items():
        state = entry["state"]
        text = entry["version"] or ""
        if state != "usable":
            detail = f" ({printable(entry['detail'])})" if entry.get("detail") else ""
            text = f"{text} {paint(state, 'dim' if state == 'missing' else 'yellow')}{detail}".strip()
        lines.append(f"  {pad(name, wide)}{text}")
    output.write("\n".join(lines))


def _list(arguments: Namespace) -> int:
    from selector.environment import _files, _load, _root
    from selector.errors import printable
    from selector.render.cells import cells, pad

    root = options.root_of(arguments)
    found = []
    for path in _files(f"{_root(root)}/environments"):
        data: Any = _load(path).data
        if isinstance(data, dict):
            found.append(
                {
                    "name": str(data.get("name")),
                    "title": str(data.get("title", data.get("name"))),
                    "aliases": [str(a) for a in data.get("aliases") or ()],
                }
            )
    if arguments.json:
        output.write_json(found)
        return 0
    wide = max((cells(str(e["name"])) for e in found), default=0) + 2
    paint = output.paint()
    for entry in found:
        also = f"  (also {', '.join(entry['aliases'])})" if entry["aliases"] else ""
        output.write(printable(f"{pad(str(entry['name']), wide)}{entry['title']}") + paint(also, "dim"))
    return 0


def _save(name: str, machine: Environment, facts: dict[str, Any]) -> int:
    import os

    stem = os.path.splitext(os.path.basename(name))[0] if name != "-" else "machine"
    text = environment_yaml(stem or "machine", machine.title, machine.origin, facts)
    if name == "-":
        output.write(text)
        return 0
    try:
        with open(name, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"--save {name}: {error.strerror}") from None
    output.told(name)
    return 0


def environment_yaml(name: str, title: str, origin: str, facts: dict[str, Any]) -> str:
    """A file in the presets' format. Texts are written as JSON strings, which YAML reads alike."""
    import json

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    lines = [
        f"# {' '.join(origin.split())}",
        "environment: 1",
        f"name: {text(name)}",
        f"title: {text(title)}",
        "facts:",
    ]
    for axis, value in facts.items():
        if axis != "packages":
            lines.append(f"  {axis}: {text(value)}")
            continue
        lines.append("  packages:" if value else "  packages: {}")
        for package, entry in value.items():
            inner = ", ".join(f"{k}: {text(v)}" for k, v in entry.items() if v is not None)
            lines.append(f"    {text(package)}: {{{inner}}}")
    return "\n".join(lines) + "\n"
