"""`attn-select prove`: sentences that must hold of every request on every machine, proved or refuted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command
from selector.errors import EXIT_USAGE

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.analysis.invariants import Verdict
    from selector.catalog import Catalog

__all__ = ["register"]

FILE = "invariants.yaml"


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "prove",
        run,
        help="sentences that must hold of every request",
        description=(
            "Proves sentences such as `when: {per_head_scales: true}, never: {selected: flash_attn/fa2}` for every\n"
            "request on every machine, or shows the smallest exception, which the engine has confirmed.\n"
            f"Without FILE: {FILE} of the manifests directory. Exit code 2 if a sentence does not hold."
        ),
        examples=("prove", "prove --pack vllm", "prove my_invariants.yaml --pack core --json"),
        words="FILE",
    )
    options.add_catalog(parser)
    options.add_output(parser, verbose="list what is proved, too")


def run(arguments: Namespace) -> int:
    """Prove every sentence of the files for every pack that it speaks of."""
    from selector.analysis import invariants
    from selector.analysis.encoder import z3_module
    from selector.locations import manifests_root

    z3_module()
    root = options.root_of(arguments) or manifests_root()
    files = list(arguments.words) or [os.path.join(root, FILE)]
    for path in files:
        if not os.path.isfile(path):
            raise UsageError(f"prove {path}: no such file")
    catalogs = _catalogs(arguments.pack, root)
    verdicts: list[Verdict] = []
    documents = [invariants.load(path, catalogs) for path in files]
    for catalog in catalogs:
        asked = [i for document in documents for i in invariants.decode(document, catalog)]
        if asked:
            verdicts += invariants.prove(catalog, asked)
    failed = [v for v in verdicts if v.status != "proved"]
    if arguments.json:
        output.write_json(
            {
                "proved": len(verdicts) - len(failed),
                "failed": len(failed),
                "verdicts": [v.to_dict() for v in verdicts],
            }
        )
    else:
        _write(verdicts, failed, arguments.verbose)
    return EXIT_USAGE if failed else 0


def _catalogs(names: list[str] | None, root: str) -> list[Catalog]:
    from selector.catalog import Catalog, pack_names

    return [Catalog.load(name, manifests=root) for name in names or pack_names(root)]


def _write(verdicts: list[Verdict], failed: list[Verdict], verbose: bool) -> None:
    for verdict in verdicts if verbose else failed:
        output.write(verdict_text(verdict))
    packs = list(dict.fromkeys(v.pack for v in verdicts))
    said = f"{len(verdicts) - len(failed)} proved" + (f", {len(failed)} not" if failed else "")
    output.write(f"{', '.join(packs) or 'no pack'}: {said}")


def verdict_text(verdict: Verdict) -> str:
    """One verdict: a line, and for a false sentence the exception and where to look."""
    from selector.render.screen import where

    said = {
        "proved": "proved",
        "false": "FALSE",
        "vacuous": "says nothing: its condition never holds",
        "undecided": "not decided: its arithmetic took too long",
    }[verdict.status]
    lines = [f"{where(str(verdict.invariant.at))}: {verdict.pack}: {verdict.invariant.name}: {said}"]
    if verdict.witness is not None and verdict.report is not None:
        lines.append(f"    exception: {verdict.witness.text}")
        lines.append(f"    selected:  {verdict.report.selected or 'nothing'}")
        command = verdict.witness.command(verdict.pack)
        if command is not None:
            lines.append(f"    explain:   {command}")
        lines += [f"    look at:   {place}" for place in verdict.look]
    return "\n".join(lines)
