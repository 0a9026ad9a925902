"""`docs/reference/cli.md`: every subcommand and option, from the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from selector.cli.app import build
from selector.cli.commands import COMMANDS
from selector.cli.parser import PROGRAM, Parser
from tests.docs.pages.markdown import code, escape, fence, head, table

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """The page."""
    lines = head(
        "Command reference",
        "the parsers of selector/cli",
        "`attn-select COMMAND --help` says the same. Exit codes of every command: 0 selected (or done), 3 nothing fits, 2 wrong usage or broken "
        "manifests, 1 what the command says; 130 after Ctrl-C (which is how `serve` is ended: 0). Results go to standard output, what went wrong to standard error. "
        "`NO_COLOR` turns colour off, `COLUMNS` sets the width, `ATTN_SELECTOR_DEBUG=1` shows a traceback.",
    )
    parser = build()
    choices: dict[str, Parser] = {}
    about: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            choices.update(action.choices)
            about = {entry.dest: entry.help or "" for entry in action._choices_actions}
    lines += table(
        ("command", "answers"), [(f"[`{name}`](#{name})", escape(about[name])) for name in COMMANDS]
    )
    for name in COMMANDS:
        lines += _command(name, choices[name])
    return {"reference/cli.md": "\n".join(lines).rstrip() + "\n"}


def _command(name: str, parser: Parser) -> Iterator[str]:
    yield from [f"## {name}", ""]
    yield from fence(_usage(parser), "text")
    yield from [escape(parser.description or ""), ""]
    for group in parser._action_groups:
        rows = [
            (_names(action), escape(_help(action)))
            for action in group._group_actions
            if action.help is not argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)
        ]
        if rows:
            title = {"positional arguments": "words", "options": "options"}.get(
                group.title or "", group.title or ""
            )
            yield from table((escape(title), "meaning"), rows)
    if parser.epilog:
        examples = [line.strip() for line in parser.epilog.splitlines()[1:]]
        yield from fence("\n".join(f"$ {line}" for line in examples), "console")


def _usage(parser: Parser) -> str:
    """`attn-select explain [options] [AXIS=VALUE ...]`; the same on every Python, unlike argparse's own."""
    words = [f"{PROGRAM} {parser.prog.partition(' ')[2]}"]
    if any(
        action.option_strings and not isinstance(action, argparse._HelpAction) for action in parser._actions
    ):
        words.append("[options]")
    for action in parser._actions:
        if not action.option_strings:
            shown = _metavar(action)
            words.append(
                f"[{shown} ...]" if action.nargs == "*" else f"{shown} ..." if action.nargs == "+" else shown
            )
    return " ".join(words)


def _metavar(action: argparse.Action) -> str:
    if action.metavar is not None:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    if action.choices is not None:
        return "{" + ",".join(str(choice) for choice in action.choices) + "}"
    return action.dest.upper()


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        return code(_metavar(action))
    value = ""
    if action.nargs != 0:
        value = f" [{_metavar(action)}]" if action.nargs == "?" else f" {_metavar(action)}"
    return ", ".join(code(option + value) for option in reversed(action.option_strings))


def _help(action: argparse.Action) -> str:
    """The help text with what argparse fills in."""
    values: dict[str, Any] = {**vars(action), "prog": PROGRAM}
    return (action.help or "") % values
