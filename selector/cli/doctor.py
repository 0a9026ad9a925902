"""`attn-select doctor`: the state of every package that the packs name, and what runs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command
from selector.errors import EXIT_NOTHING_FITS

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.catalog import Catalog
    from selector.cli.doctor_check import Finding
    from selector.environment import Environment
    from selector.reasons import Reason

__all__ = ["register"]

#: Seconds that one import may take.
TIMEOUT = 60


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "doctor",
        run,
        help="the state of every package, and what can run here",
        description=(
            "The state of every package that the packs name, from its metadata; with --deep each one that is installed is\n"
            "imported in a child process with a time limit. Then the candidates that this machine rules out, and why.\n"
            "Exit code 3 if none is left."
        ),
        examples=("doctor", "doctor --deep", "doctor --pack vllm --json"),
    )
    parser.add_argument(
        "--deep", action="store_true", help="import every installed package in a child process"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT,
        metavar="S",
        help=f"seconds for one import (default: {TIMEOUT})",
    )
    options.add_catalog(parser)
    options.add_output(parser, verbose="every candidate's reasons")


def run(arguments: Namespace) -> int:
    """Look at the packages and at what they leave."""
    from selector.cli.doctor_check import examine
    from selector.probe import probe

    if not arguments.timeout > 0:
        raise UsageError(f"--timeout {arguments.timeout:g}: more than 0 seconds")
    catalog = options.catalog_of(arguments)
    findings, machine = examine(catalog, probe(catalog.root), deep=arguments.deep, timeout=arguments.timeout)
    barred = candidates_barred(catalog, machine)
    if arguments.json:
        output.write_json(
            {
                "environment": {
                    "title": machine.title,
                    "fingerprint": machine.fingerprint,
                    "facts": machine.to_dict(),
                },
                "deep": arguments.deep,
                "packages": [f.to_dict() for f in findings],
                "candidates": [
                    {"id": ident, "usable": not reasons, "reasons": [r.to_dict() for r in reasons]}
                    for ident, reasons in barred.items()
                ],
            }
        )
    else:
        _show(findings, machine, barred, arguments)
    return 0 if any(not reasons for reasons in barred.values()) else EXIT_NOTHING_FITS


def candidates_barred(catalog: Catalog, machine: Environment) -> dict[str, list[Reason]]:
    """What the machine alone has against each candidate: the reasons that are about the environment only."""
    from selector.selection import decide

    report = decide(catalog.request({}), catalog, machine)
    axes = catalog.vocabulary.by_name
    found: dict[str, list[Reason]] = {}
    for candidate in catalog.candidates:
        if not candidate.abstract:
            found[candidate.id] = [
                r
                for r in report.reasons(candidate.id)
                if r.axes and all(axes[a].of == "environment" for a in r.axes if a in axes)
            ]
    return found


def _show(
    findings: list[Finding], machine: Environment, barred: dict[str, list[Reason]], arguments: Namespace
) -> None:
    from selector.constraints import word
    from selector.errors import printable
    from selector.render.cells import cells, pad
    from selector.render.rejections import Block, Line, braced, brief
    from selector.render.screen import Screen

    screen = Screen(output.paint(), output.width(), True)
    screen.put(printable(machine.title), 0, 2, "bold")
    facts = [f"{k}={word(v)}" for k, v in machine.to_dict().items() if k != "packages"]
    screen.put(printable(" ".join(facts)), 2, 2, "dim")
    tried = [f.name for f in findings if f.module and f.version is not None]
    how = f"imported: {', '.join(tried) or 'none is installed'}" if arguments.deep else ""
    screen.title(f"Packages ({how or 'by their metadata; --deep imports them'})")
    wide = max((cells(f.name) for f in findings), default=0) + 2
    for finding in findings:
        style = {"usable": "green", "missing": "dim"}.get(finding.state, "red")
        version = pad(finding.version or "-", 14)
        detail = f": {finding.detail}" if finding.detail else ""
        label = f"  {pad(printable(finding.name), wide)}{printable(version)} "
        screen.out.append(label + screen.paint(printable(f"{finding.state}{detail}"), style))
        for ids, wanted in finding.unmet:
            screen.put(printable(f"{braced(ids)} needs {finding.name} {wanted}"), 6, 8, "yellow")
        if finding.state != "usable" and finding.wanted and finding.install:
            screen.put(printable(finding.install), 6, 8, "dim")
    usable = [ident for ident, reasons in barred.items() if not reasons]
    screen.title(f"Candidates that can run here ({len(usable)})")
    screen.put(", ".join(usable) or "none", 2, 2, "green" if usable else "red")
    rows: dict[tuple[str, ...], list[str]] = {}
    for ident, reasons in barred.items():
        if reasons:
            shown = reasons if arguments.verbose else reasons[:1]
            rows.setdefault((ident.partition("/")[0], *(brief(r, ident) for r in shown)), []).append(ident)
    if rows:
        screen.title(f"Ruled out by this machine ({sum(len(ids) for ids in rows.values())})")
        screen.table(
            [
                Block(braced(ids), tuple(ids), tuple(Line(text, "", None, False) for text in texts))
                for (_, *texts), ids in rows.items()
            ]
        )
    output.write(screen.text())
