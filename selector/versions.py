"""Versions and their specifiers, as PEP 440 has them.

Plain releases (``9.0``, ``2.13.0+cpu``) against the usual operators are compared here, because nearly every question is of
that kind and `packaging` costs more to import than all of them; the rest (pre-, post- and development releases, epochs,
``===``) is its.
"""

from __future__ import annotations

__all__ = ["contains", "is_specifier", "is_version"]

#: Answers remembered.
KEPT = 8192

_ANSWERS: dict[tuple[str, str], bool] = {}
_OPERATORS = (">=", "<=", "==", "!=", "~=", ">", "<")
#: Longer numbers are `packaging`'s: `int` of a hostile text may be slow.
_DIGITS = 9
#: Characters of a part of a local label; a longer one may be a number that Python does not convert.
_LABEL = 64

Release = tuple[int, ...]
#: (operator, release, whether ``.*`` follows)
Clause = tuple[str, Release, bool]


def _release(text: str) -> Release | None:
    """``9.0`` as (9, 0); None for anything that is not digits and dots."""
    parts = text.split(".")
    for part in parts:
        if not (part.isdigit() and part.isascii() and len(part) <= _DIGITS):
            return None
    return tuple(map(int, parts))


def _plain(version: str) -> Release | None:
    """The release of a version that has nothing else but perhaps a local label, which no plain clause looks at."""
    public, sign, local = version.partition("+")
    if sign and not all(
        part.isalnum() and part.isascii() and len(part) <= _LABEL
        for part in local.replace("-", ".").replace("_", ".").split(".")
    ):
        return None
    return _release(public)


def _clauses(specifier: str) -> list[Clause] | None:
    """The clauses of a specifier, if all are plain."""
    found: list[Clause] = []
    for piece in specifier.split(","):
        text = piece.strip()
        if not text:
            continue
        op = next((o for o in _OPERATORS if text.startswith(o)), None)
        if op is None:
            return None
        operand = text[len(op) :].strip()
        prefix = operand.endswith(".*")
        release = _release(operand[:-2] if prefix else operand)
        if (
            release is None
            or (prefix and op not in ("==", "!="))
            or (op == "~=" and len(release) < 2)
            or operand[:1] == "="
        ):
            return None
        found.append((op, release, prefix))
    return found


def _stripped(release: Release) -> Release:
    """Without trailing zeros: 9.0 is 9."""
    end = len(release)
    while end > 1 and release[end - 1] == 0:
        end -= 1
    return release[:end]


def _starts(release: Release, prefix: Release) -> bool:
    return (*release, *(0,) * (len(prefix) - len(release)))[: len(prefix)] == prefix


def _holds(clause: Clause, release: Release) -> bool:
    op, wanted, prefix = clause
    if prefix:
        return _starts(release, wanted) == (op == "==")
    mine, theirs = _stripped(release), _stripped(wanted)
    if op == ">=":
        return mine >= theirs
    if op == "<=":
        return mine <= theirs
    if op == "==":
        return mine == theirs
    if op == "!=":
        return mine != theirs
    if op == ">":
        return mine > theirs
    if op == "<":
        return mine < theirs
    return mine >= theirs and _starts(release, wanted[:-1])


def contains(specifier: str, version: str) -> bool:
    """Whether a version satisfies a specifier. Pre-releases are admitted (a development build of 2.8 satisfies ``>=2.8.dev0``);
    what is no version satisfies only an empty specifier and, after ``===``, the same text.
    """
    key = (specifier, version)
    known = _ANSWERS.get(key)
    if known is None:
        known = _contains(specifier, version)
        if len(_ANSWERS) >= KEPT:
            _ANSWERS.clear()
        _ANSWERS[key] = known
    return known


def _contains(specifier: str, version: str) -> bool:
    release = _plain(version)
    clauses = None if release is None else _clauses(specifier)
    if release is not None and clauses is not None:
        return all(_holds(clause, release) for clause in clauses)
    from packaging.specifiers import SpecifierSet

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except ValueError:  # no version; or one with a number of more digits than Python converts
        return False


def is_version(text: str) -> bool:
    """Whether a text is a version."""
    if _plain(text) is not None:
        return True
    from packaging.version import Version

    try:
        Version(text)
    except ValueError:
        return False
    return True


def is_specifier(text: str) -> bool:
    """Whether a text is a specifier (an empty one admits every version)."""
    if _clauses(text) is not None:
        return True
    from packaging.specifiers import SpecifierSet

    try:
        SpecifierSet(text)
    except ValueError:
        return False
    return True
