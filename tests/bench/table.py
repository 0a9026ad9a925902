"""The table: figures as text for a terminal, as Markdown for the page, and beside those of an older run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.bench.harness import ROOT, Figure

__all__ = ["PAGE", "beside", "markdown", "text", "written"]

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- measured: `make bench` -->", "<!-- end -->"


def number(value: float, unit: str) -> str:
    """A number in its unit."""
    if math.isnan(value):
        return "–"
    if unit == "x":
        return f"{value:,.0f}×" if value >= 100 else f"{value:.1f}×" if value >= 10 else f"{value:.3f}×"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def target(figure: Figure) -> str:
    """What a figure is to be."""
    if figure.limit is None:
        return "shown"
    limit = f"{figure.limit:g}" if figure.limit < 1_000 else f"{figure.limit:,.0f}"
    return f"{'at least' if figure.at_least else 'at most'} {limit}{'×' if figure.unit == 'x' else ' ' + figure.unit}"


def verdict(figure: Figure) -> str:
    """Whether it is that."""
    return {True: "met", False: "NOT MET", None: ""}[figure.met]


def quartiles(figure: Figure) -> str:
    """The quartiles, where there are some."""
    if figure.low is None or figure.high is None:
        return ""
    low, high = (number(v, figure.unit).removesuffix(figure.unit).strip() for v in (figure.low, figure.high))
    return f"{low} – {high}"


def text(figures: Sequence[Figure]) -> str:
    """The table for a terminal; what each figure is stands on a line of its own."""
    cells = [
        (f.key, number(f.value, f.unit), quartiles(f), target(f), verdict(f), f.what, f.note) for f in figures
    ]
    head = ("row", "measured", "quartiles", "target", "")
    widths = [max(len(row[k]) for row in (head, *cells)) for k in range(5)]

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()

    found = [line(head)]
    for row in cells:
        found += [line(row), f"    {row[5]}" + (f" ({row[6]})" if row[6] else "")]
    return "\n".join(found)


def markdown(figures: Sequence[Figure], machine: Mapping[str, str]) -> str:
    """The machine and the table as Markdown."""
    about = "; ".join(f"{name} {value}" for name, value in machine.items())
    lines = [
        f"Measured on: {about}.",
        "",
        "| row | what | measured | quartiles | target | |",
        "|---|---|--:|---|--:|---|",
    ]
    for f in figures:
        what = f.what + (f" ({f.note})" if f.note else "")
        lines.append(
            f"| `{f.key}` | {what} | {number(f.value, f.unit)} | {quartiles(f)} | {target(f)} | {verdict(f)} |"
        )
    return "\n".join(lines)


def written(page: str, table: str) -> str:
    """The page with another table in it. Raises ValueError for a page without a place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def beside(figures: Sequence[Figure], old: Mapping[str, Figure]) -> str:
    """Each figure beside an older run's, with the change; worse by more than a tenth is marked."""
    cells = [("row", "old", "new", "change", "")]
    for figure in figures:
        before = old.get(figure.key)
        now = number(figure.value, figure.unit)
        if before is None or not before.value or math.isnan(before.value) or math.isnan(figure.value):
            cells.append((figure.key, "–", now, "", ""))
            continue
        change = figure.value / before.value - 1
        worse = -change if figure.at_least else change
        cells.append(
            (
                figure.key,
                number(before.value, before.unit),
                now,
                f"{change:+.0%}",
                "worse" if worse > 0.1 else "",
            )
        )
    widths = [max(len(row[k]) for row in cells) for k in range(5)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells)
