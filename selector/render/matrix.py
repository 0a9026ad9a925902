"""The support table of a catalog, from its manifests: candidates by axes, as text, Markdown and data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.conditions import describe
from selector.constraints import undeclared
from selector.errors import printable
from selector.render.cells import Paint, cells, cut, pad, wrap

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.constraints import Test
    from selector.manifest import Candidate, Rule
    from selector.vocabulary import Axis

__all__ = ["matrix_data", "matrix_markdown", "matrix_text"]

#: Cells of a column at most, in a terminal.
COLUMN = 36

YES, NO, ANY, ONLY = "yes", "-", "any", "only"
MARK = "*"


class Group(NamedTuple):
    """Axes that belong together: columns, and those on which all candidates say the same."""

    title: str
    columns: tuple[Axis, ...]
    same: tuple[tuple[Axis, str], ...]


def _candidates(catalog: Catalog, everything: bool) -> list[Candidate]:
    return [c for c in catalog.candidates if everything or not c.abstract]


def _axes(catalog: Catalog) -> list[Axis]:
    """Every axis that candidates can declare; derived ones only where one does."""
    declared = {name for c in catalog.candidates for name in c.declared}
    return [a for a in catalog.vocabulary.axes if a.derive is None or a.name in declared]


def cell(candidate: Candidate, axis: Axis) -> str:
    """What a candidate says of an axis, in a word or a few; marked where a rule limits it further."""
    declared = candidate.declared.get(axis.name)
    constraint = undeclared(axis) if declared is None else declared.constraint
    marked = any(axis in rule.axes for rule in candidate.rules if rule.kind != "warn")
    said = _plain(axis, constraint)
    return said + MARK if marked and said != NO else said


def _plain(axis: Axis, constraint: Any) -> str:
    if axis.of == "request" and axis.type == "flag":
        return YES if constraint.is_any else NO
    if axis.type in ("flag", "mode"):
        if constraint.is_any:
            return ANY if axis.of == "environment" else "both"
        return ONLY if constraint.holds(True) else NO
    if constraint.is_any:
        return ANY + (", required" if constraint.required else "")
    if not constraint.clauses:
        return NO
    return " or ".join(_clause(clause) for clause in constraint.clauses)


def _clause(clause: Sequence[Test]) -> str:
    """The tests of one clause, as short as a table wants them: `8n, ≤256`."""
    words: dict[str, Callable[[Any], str]] = {
        "multiple_of": lambda v: f"{v}n",
        "min": lambda v: f"≥{v}",
        "max": lambda v: f"≤{v}",
        "in": lambda v: ", ".join(v.order),
        "not_in": lambda v: f"not {', '.join(v.order)}",
        "version": str,
        "package": lambda v: f"{v[0]} absent" if v[1] is None else f"{v[0]} {' | '.join(v[1])}".rstrip(),
    }
    return ", ".join(words[op](operand) for op in words for test, operand in clause if test == op)


def groups(catalog: Catalog, everything: bool, only: Sequence[str]) -> list[Group]:
    """The axes in groups: what the machine must be, shapes, formats and words, features."""
    rows = _candidates(catalog, everything)
    axes = [a for a in _axes(catalog) if not only or a.name in only]
    kinds = (
        ("The machine", [a for a in axes if a.of == "environment"]),
        ("Shapes", [a for a in axes if a.of == "request" and a.type in ("integer", "pair", "version")]),
        ("Formats and kinds", [a for a in axes if a.of == "request" and a.type == "choice"]),
        ("Features", [a for a in axes if a.of == "request" and a.type in ("flag", "mode")]),
    )
    found = []
    for title, members in kinds:
        columns, same = [], []
        for axis in members:
            said = {cell(c, axis) for c in rows}
            if len(said) == 1 and not everything and axis.name not in only:
                same.append((axis, said.pop()))
            else:
                columns.append(axis)
        if columns or same:
            found.append(Group(title, tuple(columns), tuple(same)))
    return found


def _same_line(group: Group) -> str:
    """`all: causal yes; none: pcp, dcp; any: num_heads`."""
    by_word: dict[str, list[str]] = {}
    for axis, said in group.same:
        by_word.setdefault(said, []).append(axis.name)
    names = {NO: "none", YES: "all", ANY: "no limit"}
    return "; ".join(f"{names.get(said, said)}: {', '.join(axes)}" for said, axes in by_word.items())


def matrix_text(
    catalog: Catalog,
    *,
    everything: bool = False,
    only: Sequence[str] = (),
    color: bool = False,
    width: int = 110,
) -> str:
    """The table for a terminal; groups are split into as many tables as the width asks for."""
    paint = Paint(color)
    rows = _candidates(catalog, everything)
    lines = [paint(f"Pack {catalog.name}: {len(rows)} candidates", "bold")]
    lead = max((cells(c.id) for c in rows), default=0) + 2
    room = max(width, 40) - lead - 2
    limit = room if only else min(COLUMN, room)
    for group in groups(catalog, everything, only):
        lines += ["", paint(group.title, "bold")]
        for columns in _fitting(group.columns, rows, room, limit):
            sizes = [min(_widest(a, rows), limit) for a in columns]
            head = "".join(pad(cut(a.name, s), s + 2) for a, s in zip(columns, sizes, strict=True))
            lines.append((" " * (lead + 2) + paint(head, "dim")).rstrip())
            for candidate in rows:
                said = [wrap(printable(cell(candidate, a)), s) for a, s in zip(columns, sizes, strict=True)]
                for n in range(max(map(len, said))):
                    parts = (pad(t[n] if n < len(t) else "", s + 2) for t, s in zip(said, sizes, strict=True))
                    lines.append(f"  {pad('' if n else candidate.id, lead)}{''.join(parts)}".rstrip())
            lines.append("")
        if lines[-1] == "":
            lines.pop()
        if group.same:
            lines += [
                f"  {paint(line, 'dim')}" for line in wrap(printable(_same_line(group)), max(width, 40) - 4)
            ]
    if any(MARK in cell(c, a) for g in groups(catalog, everything, only) for a in g.columns for c in rows):
        lines += ["", paint(f"{MARK} a rule limits it further (explain shows it, --md lists it)", "dim")]
    return "\n".join(lines) + "\n"


def _widest(axis: Axis, rows: Sequence[Candidate]) -> int:
    return max([cells(axis.name), *(cells(cell(c, axis)) for c in rows)])


def _fitting(columns: Sequence[Axis], rows: Sequence[Candidate], room: int, limit: int) -> list[list[Axis]]:
    """Columns of at most ``limit`` cells in as many tables as needed, each at most ``room`` cells wide."""
    tables: list[list[Axis]] = []
    used = 0
    for axis in columns:
        size = min(_widest(axis, rows), limit) + 2
        if not tables or used + size > room:
            tables.append([])
            used = 0
        tables[-1].append(axis)
        used += size
    return tables


def matrix_markdown(catalog: Catalog, *, everything: bool = False, only: Sequence[str] = ()) -> str:
    """The table as Markdown, then the rules of each candidate and the policy."""
    rows = _candidates(catalog, everything)
    lines = []
    for pack in catalog.packs:
        version = f" ({_escape(pack.version)})" if pack.version else ""
        lines += [f"# {_escape(pack.title)}{version}", ""]
        if pack.doc:
            lines += [_escape(pack.doc), ""]
    for group in groups(catalog, everything, only):
        lines += [f"## {group.title}", ""]
        if group.columns:
            lines.append("| candidate | " + " | ".join(f"`{a.name}`" for a in group.columns) + " |")
            lines.append("| --- |" + " --- |" * len(group.columns))
            for candidate in rows:
                said = " | ".join(_escape(cell(candidate, a)) for a in group.columns)
                lines.append(f"| `{candidate.id}` | {said} |")
            lines.append("")
        if group.same:
            lines += [f"The same for every candidate: {_escape(_same_line(group))}.", ""]
    if not only:
        lines += _rules(rows)
        lines += _policy(catalog)
    return "\n".join(lines).rstrip() + "\n"


def _escape(text: str) -> str:
    safe = printable(" ".join(text.split()))
    for char in "\\|<>*_":
        safe = safe.replace(char, f"\\{char}")
    return safe


def _rules(rows: Sequence[Candidate]) -> list[str]:
    """Each rule once, with the candidates that it limits."""
    having: dict[str, tuple[Rule, list[str]]] = {}
    for candidate in rows:
        for rule in candidate.rules:
            having.setdefault(str(rule.at), (rule, []))[1].append(candidate.id)
    if not having:
        return []
    lines = ["## Rules (marked *)".replace("*", "\\*"), ""]
    for rule, ids in having.values():
        kind = {"warn": "warning: ", "known_wrong": "known to be wrong: "}.get(rule.kind, "")
        parts = [
            f"{word} {describe(condition)}"
            for word, condition in (
                ("when", rule.when),
                ("unless", rule.unless),
                ("needs", rule.require),
                ("until", rule.until),
            )
            if condition is not None
        ]
        source = f" ([source]({rule.source}))" if rule.source and rule.source.startswith("https://") else ""
        told = f" — {_escape('; '.join(parts))}" if parts else ""
        lines.append(f"- {', '.join(f'`{i}`' for i in ids)}: {kind}{_escape(rule.text)}{told}{source}")
    return [*lines, ""]


def _policy(catalog: Catalog) -> list[str]:
    lines: list[str] = []
    for pack in catalog.packs:
        for rule in pack.policy:
            when = f" — when {_escape(describe(rule.when))}" if rule.when is not None else ""
            order = ", ".join(
                f"`{e.name}`"
                + (f" (when {_escape(describe(e.when))})" if e.when is not None else "")
                + (f" (unless {_escape(describe(e.unless))})" if e.unless is not None else "")
                for e in rule.order
            )
            last = "" if rule.unlisted == "excluded" else ", then the others"
            lines.append(f"1. **{_escape(rule.name)}**{when}: {order}{last}")
    return ["## Order: the first rule that holds", "", *lines, ""] if lines else []


def matrix_data(catalog: Catalog, *, everything: bool = False, only: Sequence[str] = ()) -> dict[str, Any]:
    """The table as JSON-able data: candidate to axis to what it says, and where."""
    axes = [a for a in _axes(catalog) if not only or a.name in only]
    found: dict[str, Any] = {}
    for candidate in _candidates(catalog, everything):
        entry = {}
        for axis in axes:
            declared = candidate.declared.get(axis.name)
            constraint = undeclared(axis) if declared is None else declared.constraint
            entry[axis.name] = {
                "allowed": _plain(axis, constraint),
                "declared": declared is not None,
                "at": None if declared is None else str(declared.at),
                "source": None if declared is None else declared.source,
                "rules": [r.text for r in candidate.rules if r.kind != "warn" and axis in r.axes],
            }
        found[candidate.id] = entry
    return {"packs": [p.name for p in catalog.packs], "axes": [a.name for a in axes], "candidates": found}
