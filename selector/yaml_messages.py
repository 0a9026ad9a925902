"""What the YAML parser complains about, in words that say what to change.

Both parsers (libyaml's and the one in Python) are understood; what neither table knows is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import overload

import yaml

#: Characters of the longest message.
LONGEST = 200
#: Levels of nested mappings and sequences.
MAX_DEPTH = 64

#: (line, column) from 0, message, hint.
Explained = tuple[int, int, str, "str | None"]


def syntax_message(error: yaml.YAMLError, line_of: Callable[[int], str]) -> Explained:
    """The place and the meaning of a syntax error; `line_of` gives the text of a line (from 1)."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return 0, 0, f"not readable as YAML: {error}", None
    problem = error.problem or "not readable as YAML"
    context = error.context or ""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    start = error.context_mark
    opened = (start.line, start.column) if start is not None else (line, column)
    rest = line_of(line + 1)[column:]

    if "block scalar" in context:
        text = line_of(opened[0] + 1)[opened[1] :]
        return *opened, f"{text.split()[0]} unquoted starts a block of text", _quote(text)
    if "tab character" in problem or (rest.startswith("\t") and "cannot start any token" in problem):
        return line, column, "a tab cannot be used here", "indent with spaces"
    if "cannot start any token" in problem:
        return line, column, f"unquoted text cannot start with {rest[:1]}", _quote(rest)
    if "scanning an alias" in context or "scanning an anchor" in context:
        return *opened, "aliases and anchors are refused", _quote(line_of(opened[0] + 1)[opened[1] :])
    if "maximum nesting depth" in problem:
        return line, column, f"nested deeper than {MAX_DEPTH} levels", None
    if "document start" in problem:
        return line, column, "this does not belong to anything above it", "check the indentation"
    if "mapping values are not allowed" in problem:
        return (
            line,
            column,
            "a colon inside unquoted text, or a wrong indentation",
            ("quote the text, or line the key up with its neighbours"),
        )
    if "scanning a simple key" in context:
        return *opened, "expected `key: value`", "write a colon and a space after the key"
    if "quoted scalar" in context and ("end of stream" in problem or "document separator" in problem):
        return *opened, "the quote that opens here is never closed", "close it"
    if "node content" in problem:
        return (
            line,
            column,
            "expected a value here",
            "text that starts with a bracket or a comma must be quoted",
        )
    if "flow mapping" in context or "flow sequence" in context:
        bracket = "]" if "sequence" in context else "}"
        where = f"the {'[' if bracket == ']' else '{'} of line {opened[0] + 1}"
        return line, column, f"expected a comma or {bracket} for {where}", None
    if "block mapping" in context or "block collection" in context or "block sequence" in context:
        return (
            line,
            column,
            f"this does not line up with what starts on line {opened[0] + 1}",
            ("check the indentation and the quotes"),
        )
    return line, column, f"{problem} ({context})" if context else problem, None


def unsafe_message(anchor: str | None, tag: str | None, alias: bool) -> Iterator[tuple[str, str | None]]:
    """What is said about an alias, an anchor or a tag (an alias has no tag)."""
    if alias:
        yield (
            f"aliases (*{anchor}) are refused",
            "write the value out; text that starts with * must be quoted",
        )
        return
    if anchor is not None:
        yield f"anchors (&{anchor}) are refused", "text that starts with & must be quoted"
    if tag is None:
        return
    if tag.startswith("!="):
        yield f"{tag} unquoted is a YAML tag", f'quote it: "{tag}"'
    else:
        short = tag.replace("tag:yaml.org,2002:", "!!")
        yield f"tags ({short}) are refused", "text that starts with ! must be quoted"


def _quote(text: str) -> str:
    """Advice to quote the value that starts `text`: up to a comment, the next key, or the end of a flow collection."""
    value = re.split(r"\s#|,\s*[\w.-]+:(?:\s|$)", text, maxsplit=1)[0].strip().rstrip("}], ")
    if not value:
        return "quote it"
    return f"quote it: '{value}'" if '"' in value else f'quote it: "{value}"'


@overload
def shortened(text: str) -> str: ...
@overload
def shortened(text: None) -> None: ...
def shortened(text: str | None) -> str | None:
    """`text` without its middle where it quotes something endless."""
    return text if text is None or len(text) <= LONGEST else f"{text[: LONGEST - 60]} ... {text[-50:]}"
