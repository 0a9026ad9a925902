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
        return UsageError(
            f"{self.prog}: no option {name}", f"did you mean {near}?" if near else f"see {self.prog} --help"
        )

    def options(self) -> list[argparse.Action]:
        """The actions with an option string, each once."""
        return list(dict.fromkeys(self._option_string_actions.values()))


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

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
) -> Parser:
    """Add a subcommand.

    ``run`` takes the parsed arguments and returns the exit code; ``help`` is its line in the list of commands; ``examples``
    are command lines without the program's name. ``words`` is the metavar of arguments that may stand before, between and
    after options; they arrive as ``arguments.words``, and ``words_help``
    says what they are.
    """
    epilog = "examples:\n" + "\n".join(f"  {PROGRAM} {e}" for e in examples) if examples else None
    parser: Parser = subparsers.add_parser(name, help=help, description=description, epilog=epilog)
    if words is not None:
        parser.add_argument("words", nargs="*", metavar=words, default=[], help=words_help)
    parser.set_defaults(run=run, parser=parser, takes_words=words is not None)
    return parser
