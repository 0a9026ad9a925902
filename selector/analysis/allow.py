"""Findings that are meant: comments in the YAML that name the code and say why.

# lint: allow order-impossible: the list is vLLM's own        (this line, or the lines of comments above it)
# lint: allow-in-file rule-repeats-limit: two stages of checks, as there
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from selector.analysis.findings import CODES, Finding
from selector.errors import Mark

__all__ = ["Allowed", "sift"]

_COMMENT = re.compile(r"#\s*lint:\s*(allow(?:-in-file)?)\b\s*([a-z0-9, -]*?)\s*(?::\s*(.*?))?\s*$")


class Allowed(NamedTuple):
    """One comment: the codes it allows, the line it stands on, the line it speaks of (0: the whole file), the reason."""

    codes: tuple[str, ...]
    line: int
    target: int
    reason: str


def comments(text: str) -> list[Allowed]:
    """Every such comment of a file."""
    found: list[Allowed] = []
    lines = text.splitlines()
    for k, line in enumerate(lines):
        match = _COMMENT.search(line)
        if match is None:
            continue
        codes = tuple(c.strip() for c in match[2].split(",") if c.strip())
        target = 0
        if match[1] == "allow":
            target = k + 1
            if line.lstrip().startswith("#"):
                while target <= len(lines) and (
                    not lines[target - 1].strip() or lines[target - 1].lstrip().startswith("#")
                ):
                    target += 1
        found.append(Allowed(codes, k + 1, target, match[3] or ""))
    return found


def sift(findings: Iterable[Finding], root: str, files: Iterable[str]) -> tuple[list[Finding], list[Finding]]:
    """(what remains, what comments allow). Comments of ``files`` that allow nothing, or no known code, are findings.

    ``root`` is the manifests directory, from which the names of files in marks are found.
    """
    kept: list[Finding] = []
    allowed: list[Finding] = []
    known: dict[str, list[Allowed]] = {}
    used: set[tuple[str, Allowed]] = set()
    for name in files:
        known[name] = _read(name, root)
    for finding in findings:
        file = finding.at.file
        if file not in known:
            known[file] = _read(file, root)
        match = next(
            (
                a
                for a in known[file]
                if finding.code in a.codes and a.reason and a.target in (0, finding.at.line)
            ),
            None,
        )
        if match is None:
            kept.append(finding)
        else:
            allowed.append(finding)
            used.add((file, match))
    for file, comments_here in known.items():
        for comment in comments_here:
            kept += _mistakes(file, comment, (file, comment) in used)
    return sorted(kept, key=lambda f: (f.at, f.code)), allowed


def _mistakes(file: str, comment: Allowed, used: bool) -> Iterable[Finding]:
    at = Mark(file, comment.line, 1)
    wrong = [c for c in comment.codes if c not in CODES]
    if wrong or not comment.codes:
        known = ", ".join(CODES)
        yield Finding(
            "allow-unknown", at, f"no finding is called {', '.join(wrong) or 'nothing'}", f"one of {known}"
        )
    elif not comment.reason:
        yield Finding("allow-unknown", at, "a reason is missing", "# lint: allow CODE: why it is meant")
    elif not used:
        yield Finding(
            "allow-unused", at, f"nothing to allow here: {', '.join(comment.codes)}", "the comment can go"
        )


def _read(name: str, root: str) -> list[Allowed]:
    for path in (name, os.path.join(os.path.dirname(root), name), os.path.join(root, name.partition("/")[2])):
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return comments(file.read())
    return []
