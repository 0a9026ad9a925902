"""`attn-select lint`: every mistake of manifests, packs, vocabularies and environments, with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.cli import options, output
from selector.cli.parser import Subparsers, add_command
from selector.errors import EXIT_USAGE

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.cli.lint_proofs import Proofs
    from selector.errors import Fault

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
            "place, the line and the nearest valid word; then, by proof, candidates, rules and orders that can never\n"
            "matter. `# lint: allow CODE: reason` above a line, or `allow-in-file`, marks what is meant.\n"
            "Exit code 2 if there is an error or a warning that is not allowed (--quick: an error)."
        ),
        examples=(
            "lint",
            "lint manifests/core",
            "lint my_backend.yaml --json",
            "lint --format sarif > lint.sarif",
        ),
        words="PATH",
        words_help="a file, a pack's directory or a manifests directory",
    )
    group = parser.add_argument_group("what it is held against")
    group.add_argument(
        "--manifests",
        metavar="DIR",
        help="the manifests directory with the vocabulary (default: the one around PATH, or the one in use)",
    )
    group.add_argument("--quick", action="store_true", help="only mistakes of the files, nothing by proof")
    options.add_output(parser, verbose="notes as well, and what comments allow")
    parser.add_argument("--format", choices=["text", "json", "sarif"], help="how the findings are written")


def run(arguments: Namespace) -> int:
    """Print the faults and findings of all files that the paths stand for."""
    from selector.cli.lint_files import check
    from selector.cli.lint_proofs import Proofs, proofs

    checked = check(arguments.words, options.root_of(arguments))
    faults = checked.sorted()
    broken = any(f.severity == "error" for f in faults)
    found = Proofs() if arguments.quick or broken else proofs(checked.catalogs)
    form = arguments.format or ("json" if arguments.json else "text")
    if form == "sarif":
        from selector.analysis.sarif import sarif
        from selector.cli.app import _version

        output.write_json(sarif(faults, found.shown, _version()))
    elif form == "json":
        output.write_json(_json(checked.looked, faults, found))
    else:
        _text(checked.looked, faults, found, arguments.verbose)
    serious = any(f.severity != "info" for f in found.shown)
    return EXIT_USAGE if broken or serious else 0


def _json(looked: list[str], faults: list[Fault], found: Proofs) -> dict[str, Any]:
    errors = sum(1 for f in faults if f.severity == "error")
    return {
        "checked": looked,
        "errors": errors + sum(1 for f in found.shown if f.severity == "error"),
        "warnings": len(faults) - errors + sum(1 for f in found.shown if f.severity == "warning"),
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
        "proved": found.done,
        "findings": [f.to_dict() for f in found.shown],
        "allowed": [f.to_dict() for f in found.allowed],
    }


def _text(looked: list[str], faults: list[Fault], found: Proofs, verbose: bool) -> None:
    from selector.errors import render_faults

    shown = list(faults)
    shown += [f.fault() for f in found.shown if verbose or f.severity != "info"]
    if verbose:
        shown += [f.fault()._replace(severity="allowed") for f in found.allowed]
    if shown:
        output.write(render_faults(shown, limit=len(shown)))
    severities = [f.severity for f in faults] + [f.severity for f in found.shown]
    counts = {s: severities.count(s) for s in ("error", "warning", "info")}
    said = [_many(counts["error"], "error")]
    said += [_many(counts["warning"], "warning")] if counts["warning"] else []
    said += (
        [_many(counts["info"], "note") + ("" if verbose else " (--verbose shows them)")]
        if counts["info"]
        else []
    )
    said += [f"{len(found.allowed)} allowed"] if found.allowed else []
    output.write(f"{len(looked)} checked: {', '.join(said)}")
    if found.missing is not None:
        output.write(f"nothing by proof: {found.missing}")


def _many(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
