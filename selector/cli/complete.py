"""What may follow on a command line; called by the shells' completion scripts as `attn-select __complete`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from selector.cli.commands import COMMANDS
from selector.errors import SelectorError

if TYPE_CHECKING:
    from selector.cli.parser import Parser
    from selector.vocabulary import Vocabulary

__all__ = ["NAME", "complete", "run"]

#: The hidden command.
NAME = "__complete"

#: Options whose value names a candidate, and those that take no value from any list here.
CANDIDATES = ("--backend", "--avoid", "--prefer", "--why-not")


def run(arguments: list[str]) -> int:
    """Print one completion a line. Completing must never disturb the shell, so mistakes complete to nothing."""
    from selector.cli import output

    bash = "--bash" in arguments[: arguments.index("--")] if "--" in arguments else False
    words = arguments[arguments.index("--") + 1 :] if "--" in arguments else arguments
    if bash:
        words = _split(words[0] if words else "")
    try:
        found = complete(words)
    except SelectorError:
        found = []
    if bash and words and "=" in words[-1]:
        # bash breaks words at "=" and replaces only what follows the last one
        found = [f.rpartition("=")[2] if not f.endswith("=") else f for f in found]
    if found:
        output.write("\n".join(found))
    return 0


def _split(line: str) -> list[str]:
    """The words of a command line up to the cursor, without the program; the last one may be empty or unfinished."""
    import shlex

    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:  # an open quote
        words = line.split()
    if not line or line[-1].isspace():
        words.append("")
    return words[1:]


def complete(words: list[str]) -> list[str]:
    """What the last word may become, given the words before it (the program's name left out)."""
    current = words[-1] if words else ""
    before = words[:-1]
    chosen = next((w for w in before if not w.startswith("-")), None)
    if chosen is None:
        return _starting((*COMMANDS, "--help", "--version"), current)
    if chosen not in COMMANDS:
        return []
    from selector.cli.app import build

    parser = build((chosen,))
    command = _subparser(parser, chosen)
    name, sign, _ = current.partition("=")
    if sign and name.startswith("--"):
        return [f"{name}={v}" for v in _starting(_values(name, chosen, before), current[len(name) + 1 :])]
    option = next((a for a in command.options() if before[-1] in a.option_strings), None)
    if option is not None and option.nargs != 0:
        return _starting(_values(before[-1], chosen, before), current)
    if current.startswith("-"):
        return _starting(
            (o for a in command.options() for o in a.option_strings if o.startswith("--")), current
        )
    return _starting(_words(chosen, before, current), current)


def _subparser(parser: Parser, name: str) -> Parser:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found: Parser = action.choices[name]
            return found
    raise AssertionError("the parser has subcommands")


def _starting(words: Iterable[str], current: str) -> list[str]:
    return [w for w in dict.fromkeys(words) if w.startswith(current)]


def _given(before: list[str], option: str) -> list[str]:
    """The values that an option has been given so far."""
    return [b for a, b in pairwise(before) if a == option]


def _root(before: list[str]) -> str:
    from selector.locations import manifests_root

    given = _given(before, "--manifests")
    return given[-1] if given else manifests_root()


def _values(option: str, command: str, before: list[str]) -> list[str]:
    """What an option may be given; nothing means: complete files."""
    root = _root(before)
    if option == "--on":
        from selector.environment import preset_names

        return list(preset_names(root))
    if option == "--pack":
        from selector.catalog import pack_names

        return pack_names(root)
    if option == "--profile":
        from selector.environment import PROFILES

        return list(PROFILES)
    if option in CANDIDATES:
        from selector.catalog import Catalog

        return Catalog.load(*_given(before, "--pack"), manifests=root).names()
    if option == "--env":
        return [f"{a.name}=" for a in _vocabulary(before).axes if a.of == "environment" and a.derive is None]
    if option in ("--dtype", "--kv-cache-dtype"):
        axis = _vocabulary(before).find(option[2:].replace("-", "_"))
        return list(axis.values) if axis is not None else []
    return []


def _vocabulary(before: list[str]) -> Vocabulary:
    from selector.catalog import Catalog
    from selector.loader import Loader as _Loader

    packs = _given(before, "--pack")
    root = _root(before)
    return Catalog.load(*packs, manifests=root).vocabulary if packs else _Loader(root).base()


def _words(command: str, before: list[str], current: str) -> list[str]:
    """Axes and their values, or what else a command's words are."""
    if command == "schema":
        if "axes" in before:
            return list(_vocabulary(before).by_name)
        from selector.schema_build import WRITTEN

        return ["axes", *WRITTEN, "invariants", "report"]
    if command == "completion":
        from selector.cli.completion import SCRIPTS

        return list(SCRIPTS)
    if command == "matrix":
        return list(_vocabulary(before).by_name)
    if command not in ("explain", "run", "plan") or (
        command == "plan" and "=" not in current and not current
    ):
        return []
    vocabulary = _vocabulary(before)
    name, sign, _ = current.partition("=")
    if sign:
        axis = vocabulary.find(name)
        if axis is None:
            return []
        values = ["true", "false"] if axis.type in ("flag", "mode") else list(axis.spellings())
        return [f"{name}={v}" for v in values]
    taken = {w.partition("=")[0] for w in before}
    asked = [a for a in vocabulary.axes if a.of == "request" and a.derive is None and a.name not in taken]
    return [a.name if a.type in ("flag", "mode") else f"{a.name}=" for a in asked]
