"""`attn-select coverage`: where nothing fits, and what works on all machines of a fleet."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.analysis.coverage import Coverage, Worth
    from selector.catalog import Catalog
    from selector.environment import Environment

__all__ = ["register"]

#: Columns of a long list.
WIDTH = 110


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "coverage",
        run,
        help="where nothing fits",
        description=(
            "Every request for which nothing is selected, as general conditions, for requests with the given fields (any\n"
            "without). --on names machines: one, or several that are looked at together, --fleet all that its file lists. Without\n"
            "either: the hardware of every preset machine, with whatever packages installed; --anywhere also takes machines\n"
            "that nobody builds."
        ),
        examples=(
            "coverage --on h100 dtype=bf16",
            "coverage --pack vllm --on a100 --on h100 --on b200 dtype=bf16 head_size=128",
            "coverage --fleet fleet.yaml head_size=128 dtype=bf16",
            "coverage --pack core sinks --json",
            "coverage --pack core dtype=fp16 sinks --anywhere",
        ),
        words="AXIS=VALUE",
    )
    options.add_catalog(parser)
    group = parser.add_argument_group("the machines")
    group.add_argument(
        "--on",
        action="append",
        default=[],
        metavar="PRESET|FILE",
        help="a machine by name or file; repeatable",
    )
    group.add_argument(
        "--fleet", metavar="FILE", help="the machines that a fleet's file lists (see plan --fleet)"
    )
    group.add_argument(
        "--anywhere",
        action="store_true",
        help="without machines: any combination of facts, whether a machine has it or not",
    )
    group.add_argument(
        "--profile", metavar="NAME", help="what presets have installed: full (default) or bare"
    )
    options.add_output(parser)
    parser.add_argument("--limit", type=int, default=60, metavar="N", help="conditions at most (default: 60)")


def run(arguments: Namespace) -> int:
    """Find the holes."""
    from selector.analysis.coverage import coverage
    from selector.analysis.encoder import z3_module

    z3_module()
    if arguments.limit < 1:
        raise UsageError(f"--limit takes a number of at least 1, not {arguments.limit}")
    catalog = options.catalog_of(arguments)
    fields = options.fields_of(arguments.words, catalog.vocabulary)
    if arguments.profile is not None and not arguments.on:
        raise UsageError("--profile is for presets (--on NAME)")
    machines = [_machine(name, arguments.profile, catalog) for name in arguments.on]
    if arguments.fleet is not None:
        machines += _fleet(arguments.fleet, catalog)
    if arguments.anywhere and machines:
        raise UsageError("--anywhere is for no machine in particular: it goes with neither --on nor --fleet")
    found = coverage(catalog, machines, fields, limit=arguments.limit, presets=not arguments.anywhere)
    if arguments.json:
        output.write_json({"pack": catalog.name, "fields": fields, **found.to_dict()})
    else:
        output.write(coverage_text(found, catalog.name))
    return 0


def _machine(name: str, profile: str | None, catalog: Catalog) -> Environment:
    from selector.environment import Environment

    if options._is_file(name):
        return Environment.load(name, vocabulary=catalog.vocabulary)
    return Environment.preset(name, profile or "full", vocabulary=catalog.vocabulary, root=catalog.root)


def _fleet(path: str, catalog: Catalog) -> list[Environment]:
    """The machines of a fleet's file, under the names that it gives them."""
    from selector.environment import Environment
    from selector.fleet import load_fleet

    return [
        Environment(m.environment.facts, name=m.name, vocabulary=catalog.vocabulary)
        for m in load_fleet(path, catalog).machines
    ]


def coverage_text(found: Coverage, pack: str) -> str:
    """For a terminal."""
    anywhere = "any machine of which every fact is known"
    if found.presets:
        anywhere = "the hardware of every preset machine, with any packages"
    where = ", ".join(found.machines) or anywhere
    from selector.constraints import _listed

    lines = [f"{pack} on {where}"]
    if not found.holes:
        lines.append("Something is selected for every such request: proved.")
    else:
        lines.append("Nothing is selected for")
        told = _features(found) if found.machines else {}
        for machines, names in told.items():
            text = f"any of {_listed(names)}{_only(machines, found)}"
            lines += textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")
        for hole in found.holes:
            if hole.condition in told.get(hole.machines, ()):
                continue
            lines.append(f"  - {hole.condition}{_only(hole.machines, found)}")
            if not found.machines:
                lines.append(f"    e.g. {hole.witness.text}")
        closing = "For every other such request something is selected: proved."
        lines.append(closing if found.complete else "... and more (--limit)")
    if found.worth:
        lines += _worth(found)
    return "\n".join(lines)


def _only(machines: tuple[str, ...], found: Coverage) -> str:
    return f"   ({', '.join(machines)})" if len(found.machines) > len(machines) > 0 else ""


def _features(found: Coverage) -> dict[tuple[str, ...], list[str]]:
    """By machines the features that are missing whatever else is asked, where they are many."""
    names: dict[tuple[str, ...], list[str]] = {}
    for hole in found.holes:
        if [name for name, _ in hole.parts] == [hole.condition]:
            names.setdefault(hole.machines, []).append(hole.condition)
    return {machines: found for machines, found in names.items() if len(found) > 2}


def _worth(found: Coverage) -> list[str]:
    several = len(found.machines) > 1
    where = "on all of them" if several else f"on {found.machines[0]}"
    lines = []
    for kind, said in (("always", "for every such request"), ("sometimes", "for some such requests")):
        names = [w.candidate for w in found.worth if w.accepted == kind]
        if names:
            lines.append(f"Accepted {where} {said}: {', '.join(names)}")
    never = [w for w in found.worth if w.accepted == "never"]
    if never:
        shown = ", ".join(_never(w, found.machines) for w in never)
        lines.append(f"Never accepted {where}{' together' if several else ''}: {shown}")
    return lines


def _never(worth: Worth, machines: tuple[str, ...]) -> str:
    if not worth.never_on or len(worth.never_on) == len(machines):
        return worth.candidate
    return f"{worth.candidate} (not on {', '.join(worth.never_on)})"
