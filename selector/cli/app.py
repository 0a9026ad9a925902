"""From arguments to an exit code: finding the subcommand, and turning whatever goes wrong into one screen."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from selector.cli.commands import COMMANDS
from selector.cli.errors import UsageError
from selector.cli.parser import PROGRAM, Parser
from selector.errors import EXIT_NOTHING_FITS, EXIT_USAGE, PinError, SelectorError

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["build", "run"]

#: Process variable that makes an error show its traceback.
DEBUG = "ATTN_SELECTOR_DEBUG"

EXIT_UNEXPECTED = 1
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

#: Lines of one error.
SCREEN = 48

DESCRIPTION = """\
Which attention kernel runs a layer on a machine, and why: answered from YAML manifests,
for machines that are not there too.
"""
EXAMPLES = """\
examples:
  attn-select explain --on h100 head_size=128 dtype=bf16 kv_cache_dtype=fp8 per_head_scales
  attn-select plan config.json --on b200 --tp 8
  attn-select run head_size=64 num_heads=8 dtype=float32 causal

help of one command: attn-select help COMMAND, or attn-select COMMAND --help
exit codes: 0 selected, 3 nothing fits, 2 wrong usage or broken manifests
"""


def run(argv: Sequence[str] | None = None) -> int:
    """The whole command. Never raises, unless `ATTN_SELECTOR_DEBUG` asks for tracebacks."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = os.environ.get(DEBUG, "") not in ("", "0")
    _printable_streams()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # --help and --version of argparse
        return _flushed(stop.code if isinstance(stop.code, int) else 0)
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_PIPE
    except KeyboardInterrupt:
        _say("interrupted")
        return EXIT_INTERRUPTED
    except SelectorError as error:
        if debug:
            raise
        return _known(error)
    except Exception as error:
        if debug:
            raise
        return _unexpected(error)


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["__complete"]:
        from selector.cli.complete import run as complete

        return complete(arguments[1:])
    parsed, extras = _parse(arguments)
    command: Parser = parsed.parser
    for extra in extras:
        if extra.startswith("-") and extra != "-":
            raise command.unknown(extra)
    if parsed.takes_words:
        parsed.words = [*parsed.words, *extras]
    elif extras:
        raise UsageError(
            f"{command.prog}: one argument too many: {extras[0]!r}", f"see {command.prog} --help"
        )
    code: int = parsed.run(parsed)
    return code


def _parse(arguments: list[str]) -> tuple[Namespace, list[str]]:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    chosen = next((a for a in arguments if not a.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS:
        raise UsageError(f"{PROGRAM}: no command is called {chosen!r}", _meant(chosen))
    parser = build(None if chosen is None else (chosen,))
    if chosen is None:
        if not arguments:
            parser.print_help(sys.stderr)
            raise SystemExit(EXIT_USAGE)
        for argument in arguments:
            if argument not in parser._option_string_actions:
                raise parser.unknown(argument)
    # "--" ends the options; argparse would leave it among the words.
    return parser.parse_known_args(arguments)


def _meant(chosen: str) -> str:
    """What was meant by a command that does not exist: another, or an option of one."""
    from selector.cli.parser import commands_with
    from selector.vocabulary import nearest

    having = commands_with(f"--{chosen}")
    if having:
        return f"did you mean {PROGRAM} {having[0]} --{chosen}?"
    near = nearest(chosen, COMMANDS)
    return f"did you mean {PROGRAM} {near}?" if near else f"commands: {', '.join(COMMANDS)}"


def build(commands: Sequence[str] | None = None) -> Parser:
    """The parser with some subcommands, or all."""
    from importlib import import_module

    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for name in COMMANDS if commands is None else commands:
        import_module(f"selector.cli.{name}").register(subparsers)
    return parser


class _Version(argparse.Action):
    """Prints the version; finding it out costs more than most commands, so only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"{PROGRAM} {_version()}")
        parser.exit()


def _version() -> str:
    """The distribution's version; in a checkout that is not installed, what `pyproject.toml` says."""
    from importlib import metadata

    try:
        return metadata.version("attention-selector")
    except metadata.PackageNotFoundError:
        pass
    path = os.path.join(os.path.dirname(__file__), "..", "..", "pyproject.toml")
    try:
        with open(path, encoding="utf-8") as file:
            line = next((x for x in file if x.startswith("version")), "")
    except OSError:
        line = ""
    return line.partition("=")[2].strip().strip('"') or "unknown"


# -- what goes wrong --------------------------------------------------------------------------------------------------


def _known(error: SelectorError) -> int:
    _say(str(error))
    if isinstance(error, PinError) and error.report is None:
        return EXIT_USAGE  # a name that nobody has is a mistake of the caller, not a lack of the machine
    return error.exit_code if error.exit_code in (EXIT_USAGE, EXIT_NOTHING_FITS) else EXIT_USAGE


def _unexpected(error: Exception) -> int:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        _say(f"{where}{error.strerror}")
        return EXIT_USAGE
    text = str(error).strip().splitlines()
    _say(
        f"unexpected {type(error).__name__}{': ' + text[0] if text else ''}\n"
        f"  this is a fault of {PROGRAM}; {DEBUG}=1 shows where it happened"
    )
    return EXIT_UNEXPECTED


def _say(text: str) -> None:
    """An error on standard error, cut to one screen; a closed standard error is nobody's to tell."""
    from selector.errors import printable

    lines = _wrapped([printable(line) for line in text.splitlines()])
    if len(lines) > SCREEN:
        lines = [*lines[:SCREEN], f"... and {len(lines) - SCREEN} lines more"]
    prefix = "" if text.startswith(PROGRAM) else "error: "
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _abandon_stdout()
    with contextlib.suppress(OSError, ValueError):
        print(prefix + "\n".join(lines), file=sys.stderr, flush=True)


def _wrapped(lines: list[str]) -> list[str]:
    """Lines wrapped to the terminal, if standard error is one (`COLUMNS` counts as one); a line above a caret stays."""
    columns = os.environ.get("COLUMNS", "")
    try:
        terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):
        terminal = False
    if not terminal and not columns:
        return lines
    import shutil

    from selector.render.cells import wrap

    width = max(shutil.get_terminal_size((110, 24)).columns, 40)
    found = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        lead = " " * (len(line) - len(line.lstrip()))
        if after.strip() == "^" or line.strip() == "^":
            found.append(line)
            continue
        first, *rest = wrap(line.strip(), width - len(lead) - 4) or [""]
        found += [lead + first, *(f"{lead}    {more}" for more in rest)]
    return found


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_stdout()
    return code


def _abandon_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's own flush at exit finds no closed pipe."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _printable_streams() -> None:
    """Where the terminal's encoding lacks a character, print a replacement instead of failing.

    UTF-8 lacks what stands for a byte of an argument that is no text; written out as an escape it is valid JSON, too.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
