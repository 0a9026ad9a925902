"""`attn-select diff`: what an edit of manifests changes, and the proof that nothing else does."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.analysis.diff import Diff
    from selector.analysis.revisions import Place
    from selector.catalog import Catalog
    from selector.environment import Environment

__all__ = ["register"]

#: Exit code of --exit-code where something changed.
CHANGED = 1


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "diff",
        run,
        help="what an edit of manifests changes",
        description=(
            "Every request and machine for which two states of manifests choose differently, as general conditions with\n"
            "an example each: what candidates accept, another winner, another order, other reasons, warnings or adjustments.\n"
            "OLD and NEW are manifests directories, packs' directories or names, or git revisions (REV or REV:path); REV beside\n"
            "a directory means what was in it then. NEW is by default the manifests in use."
        ),
        examples=(
            "diff HEAD",
            "diff HEAD --pack core --on h100",
            "diff v1.0 HEAD --pack vllm --markdown",
            "diff manifests/vllm edited/vllm --json",
            "diff HEAD:manifests/core manifests/core --exit-code",
        ),
        words="OLD NEW",
        words_usage="OLD [NEW]",
    )
    options.add_catalog(parser)
    parser.add_argument("--strict", action="store_true", help="what changes for strict selection")
    parser.add_argument("--on", metavar="PRESET|FILE", help="what changes on this machine (default: on any)")
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="JSON on standard output")
    group.add_argument("--markdown", action="store_true", help="Markdown, for a review comment")
    group.add_argument("-v", "--verbose", action="store_true", help="every condition")
    group.add_argument(
        "--limit", type=int, default=40, metavar="N", help="conditions of one change (default: 40)"
    )
    group.add_argument("--exit-code", action="store_true", help=f"exit code {CHANGED} if anything changed")


def run(arguments: Namespace) -> int:
    """Compare every pack that both sides have."""
    from selector.analysis.encoder import z3_module
    from selector.analysis.revisions import resolve
    from selector.locations import manifests_root

    z3_module()
    words: list[str] = arguments.words
    if not 1 <= len(words) <= 2:
        raise UsageError("diff takes OLD and NEW", "see attn-select diff --help")
    if arguments.limit < 1:
        raise UsageError(f"--limit takes a number of at least 1, not {arguments.limit}")
    root = options.root_of(arguments) or manifests_root()
    with ExitStack() as keep:
        words = words if len(words) > 1 else [*words, root]
        old = resolve(words[0], root, keep, words[1])
        new = resolve(words[1], root, keep, words[0])
        notes, found = _compared(old, new, arguments)
    if arguments.json:
        output.write_json(
            {"old": old.label, "new": new.label, "notes": notes, "packs": [d.to_dict() for d in found]}
        )
    else:
        _write(notes, found, arguments)
    changed = bool(notes) or any(d.changes or d.notes for d in found)
    return CHANGED if arguments.exit_code and changed else 0


def _compared(old: Place, new: Place, arguments: Namespace) -> tuple[list[str], list[Diff]]:
    from selector.catalog import Catalog

    wanted = arguments.pack or list(dict.fromkeys([*old.packs, *new.packs]))
    if arguments.pack is None and (len(old.packs) == 1 or len(new.packs) == 1):
        wanted = list(old.packs if len(old.packs) == 1 else new.packs)
        if len(old.packs) == len(
            new.packs
        ):  # two packs that are named: they are compared whatever they are called
            pairs = [(next(iter(old.packs.values())), next(iter(new.packs.values())))]
            return [], [
                _compare(Catalog.load(a, manifests=old.root), Catalog.load(b, manifests=new.root), arguments)
                for a, b in pairs
            ]
    notes: list[str] = []
    found: list[Diff] = []
    for name in wanted:
        if name not in old.packs or name not in new.packs:
            sides = [p.label for p in (old, new) if name not in p.packs]
            notes.append(f"pack {name} is not in {' nor in '.join(sides)}")
            continue
        before = Catalog.load(old.packs[name], manifests=old.root)
        after = Catalog.load(new.packs[name], manifests=new.root)
        if before.hash != after.hash:
            found.append(_compare(before, after, arguments))
    return notes, found


def _machine(name: str, catalog: Catalog) -> Environment:
    from selector.environment import Environment

    if options._is_file(name):
        return Environment.load(name, vocabulary=catalog.vocabulary)
    return Environment.preset(name, vocabulary=catalog.vocabulary, root=catalog.root)


def _compare(before: Catalog, after: Catalog, arguments: Namespace) -> Diff:
    from selector.analysis.diff import compare

    on = None if arguments.on is None else _machine(arguments.on, after)
    try:
        return compare(before, after, limit=arguments.limit, strict=arguments.strict, on=on)
    except ValueError as error:
        raise UsageError(f"--on {arguments.on}: {error}") from None


def _write(notes: list[str], found: list[Diff], arguments: Namespace) -> None:
    from selector.analysis.diff_text import diff_markdown, diff_text

    for note in notes:
        output.write(note)
    for diff in found:
        if arguments.markdown:
            output.write(diff_markdown(diff))
        else:
            output.write(diff_text(diff, everything=arguments.verbose))
    if not found:
        output.write("No pack's files differ.")
