"""`attn-select lint`: every mistake of manifests, packs, vocabularies and environments, with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.parser import Subparsers, add_command
from selector.errors import EXIT_USAGE

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "lint",
        run,
        help="every mistake of manifests and packs",
        description=(
            "Every mistake of files, packs' directories or a manifests directory (default: the one in use), with its\n"
            "place, the line and the nearest valid word. Exit code 2 if there is an error; warnings alone give 0."
        ),
        examples=("lint", "lint manifests/core", "lint my_backend.yaml --json"),
        words="PATH",
        words_help="a file, a pack's directory or a manifests directory",
    )
    group = parser.add_argument_group("what it is held against")
    group.add_argument("--manifests", metavar="DIR", help="the manifests directory with the vocabulary")
    options.add_output(parser)


def run(arguments: Namespace) -> int:
    """Print the faults of all files that the paths stand for."""
    from selector.cli.lint_files import check
    from selector.errors import render_faults
    from selector.locations import manifests_root

    checked = check(arguments.words, options.root_of(arguments) or manifests_root())
    faults = checked.sorted()
    errors = sum(1 for f in faults if f.severity == "error")
    if arguments.json:
        output.write_json(
            {
                "checked": checked.looked,
                "errors": errors,
                "warnings": len(faults) - errors,
                "faults": [
                    {
                        "file": f.at.file,
                        "line": f.at.line,
                        "column": f.at.column,
                        "severity": f.severity,
                        "path": f.path,
                        "message": f.message,
                        "hint": f.hint,
                    }
                    for f in faults
                ],
            }
        )
    else:
        if faults:
            output.write(render_faults(faults, limit=len(faults)))
        output.write(
            f"{len(checked.looked)} checked: {_many(errors, 'error')}"
            + (f", {_many(len(faults) - errors, 'warning')}" if len(faults) > errors else "")
        )
    return EXIT_USAGE if errors else 0


def _many(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
