"""`attn-select replay`: decide a saved decision again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["register"]

#: What the command ends with when the decision is another now.
EXIT_CHANGED = 1


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "replay",
        run,
        help="decide a saved decision again, and show what changed",
        description=(
            "Takes a snapshot (`explain --save FILE`, or a report's save()), decides the same request on the same machine with\n"
            "today's manifests, and shows every difference. Ends with 0 if there is none, with 1 if there is."
        ),
        examples=("replay decision.json", "replay decision.json --manifests ../edited --json"),
    )
    parser.add_argument("file", metavar="FILE", help="a snapshot")
    options.add_catalog(parser)
    options.add_output(parser, verbose="the whole report of today's decision")


def run(arguments: Namespace) -> int:
    """Replay one snapshot."""
    from selector.catalog import Catalog
    from selector.snapshot import load, replay

    recorded = load(arguments.file)
    packs = arguments.pack or [str(p) for p in recorded["catalog"].get("packs") or ()]
    catalog = Catalog.load(*packs, manifests=options.root_of(arguments))
    found = replay(recorded, catalog)
    if arguments.json:
        output.write_json(found.to_dict())
    else:
        same = "the same decision" if not found.differences else "another decision"
        edited = (
            "" if recorded["catalog"].get("hash") == catalog.hash else " (the manifests have changed since)"
        )
        output.write(f"{same}: {found.report.selected or 'nothing fits'}{edited}")
        for line in found.differences:
            output.write(f"  {line}")
        if arguments.verbose:
            output.write("\n" + output.report_text(found.report, verbose=True))
    return EXIT_CHANGED if found.differences else 0
