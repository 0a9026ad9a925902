"""Parsing of arguments: argparse with nearest words, words that may stand anywhere, and no exit of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from selector.cli.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["PROGRAM", "Parser", "Subparsers", "add_command"]

PROGRAM = "attn-select"

#: Options that say which machine is meant, and commands that do something on the machine they run on.
MACHINE = ("--on", "--profile", "--with", "--without", "--env")
HERE = ("run", "verify", "tune", "doctor")

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]
else:
    Subparsers = Any


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageError and whose options are never abbreviated."""

    def __init__(self, *args: Any, **more: Any) -> None:
        more.setdefault("allow_abbrev", False)
        more.setdefault("formatter_class", _Help)
        super().__init__(*args, **more)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", f"see {self.prog} --help")

    def unknown(self, option: str) -> UsageError:
        """The error for an option that this parser does not have."""
        from selector.vocabulary import nearest

        name = option.partition("=")[0]
        near = nearest(name, self._option_string_actions)
        hint = f"did you mean {near}?" if near else f"see {self.prog} --help"
        having = commands_with(name)
        if not having:
            return UsageError(f"{self.prog}: no option {name}", hint)
        here = name in MACHINE and self.prog.removeprefix(f"{PROGRAM} ") in HERE
        why = ": it works on this machine alone" if here else ""
        if len(having) > 1:
            having = [", ".join(having[:-1]) + f" and {having[-1]}"]
        verb = "have" if " and " in having[0] else "has"
        return UsageError(
            f"{self.prog}: no option {name}{why}", f"{having[0]} {verb} it; see {self.prog} --help"
        )

    def options(self) -> list[argparse.Action]:
        """The actions with an option string, each once."""
        return list(dict.fromkeys(self._option_string_actions.values()))


def commands_with(option: str) -> list[str]:
    """The commands that have an option. Reads the module of every command: for errors only."""
    from selector.cli.app import build
    from selector.cli.commands import COMMANDS

    whole = build()
    actions = (a for a in whole._actions if isinstance(a, argparse._SubParsersAction))
    parsers: dict[str, Parser] = next(actions).choices
    return [name for name in COMMANDS if option in parsers[name]._option_string_actions]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help whose words are shown as the command takes them, and whose long lines are wrapped on a narrow terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        usage: str | None = getattr(action, "usage", None)
        return super()._format_args(action, default_metavar) if usage is None else usage

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from selector.render.cells import cells, wrap

        blocks: list[list[str]] = []
        for line in text.splitlines():  # an example is a block of its own; the lines of a paragraph are one
            apart = line[:1].isspace() or not line
            if apart or not blocks or blocks[-1][0][:1] in (" ", ""):
                blocks.append([line])
            else:
                blocks[-1].append(line)
        lines = []
        for block in blocks:
            if all(cells(line) <= width for line in block):
                lines += block
                continue
            lead = " " * (len(block[0]) - len(block[0].lstrip()))
            hang = f"{lead}    " if lead else ""
            first, *rest = wrap(" ".join(line.strip() for line in block), max(width - len(hang), 16))
            lines += [lead + first, *(hang + more for more in rest)]
        return "\n".join(indent + line for line in lines)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += 2  # it measures the commands without their indentation


def add_command(
    subparsers: Subparsers,
    name: str,
    run: Callable[[Namespace], int],
    *,
    help: str,
    description: str,
    examples: Sequence[str] = (),
    words: str | None = None,
    words_help: str | None = None,
    words_usage: str | None = None,
) -> Parser:
    """Add a subcommand.

    ``run`` takes the parsed arguments and returns the exit code; ``help`` is its line in the list of commands; ``examples``
    are command lines without the program's name. ``words`` is the metavar of arguments that may stand before, between and
    after options; they arrive as ``arguments.words``, ``words_help`` says what they are, and ``words_usage`` how the usage
    shows them (default: any number, none as well).
    """
    epilog = "examples:\n" + "\n".join(f"  {PROGRAM} {e}" for e in examples) if examples else None
    parser: Parser = subparsers.add_parser(name, help=help, description=description, epilog=epilog)
    if words is not None:
        action = parser.add_argument("words", nargs="*", metavar=words, default=[], help=words_help)
        if words_usage is not None:
            action.usage = words_usage  # type: ignore[attr-defined]
    parser.set_defaults(run=run, parser=parser, takes_words=words is not None)
    return parser
