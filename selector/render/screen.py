"""Building one screen of text: paragraphs, labelled fields, and the table of rejected candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.errors import printable
from selector.render.cells import Paint, cells, pad, wrap
from selector.render.rejections import Block, braced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["REASONS", "Screen", "where"]

#: Rows of the table of rejected candidates, and reasons of one block, without `verbose`.
ROWS, REASONS = 22, 3

#: Cells of a label before it gets a line of its own, and of a reason beside its place.
LABEL, ASIDE = 28, 36

#: Cells of the labels of fields.
FIELD = 15


def where(place: str, known: dict[str, str] | None = None) -> str:
    """A place (`FILE:LINE:COLUMN`, or nothing) as it opens from the current directory; files are looked for once in ``known``."""
    file, colon, rest = place.partition(":")
    if not colon:
        return place
    shown = None if known is None else known.get(file)
    if shown is None:
        from selector.locations import opened

        shown = printable(opened(file))
        if known is not None:
            known[file] = shown
    return f"{shown}:{rest}"


class Screen:
    """Lines of text for a terminal of ``width`` cells; ``verbose`` cuts nothing."""

    def __init__(self, paint: Paint, width: int, verbose: bool) -> None:
        self.paint, self.width, self.verbose = paint, max(width, 40), verbose
        self.out: list[str] = []

    def text(self) -> str:
        """Everything so far."""
        return "\n".join(line.rstrip() for line in self.out) + "\n"

    def put(self, text: str = "", indent: int = 0, hang: int | None = None, *styles: str) -> None:
        """A paragraph, wrapped; lines after the first are indented by ``hang``."""
        later = indent if hang is None else hang
        for n, line in enumerate(wrap(text, self.width - max(indent, later))):
            self.out.append(" " * (later if n else indent) + self.paint(line, *styles))

    def title(self, text: str) -> None:
        """The heading of a section."""
        self.out.append("")
        self.put(text, 0, 2, "bold")

    def field(self, name: str, text: str, *styles: str) -> None:
        """A labelled value."""
        label = pad(f"  {name}", FIELD)
        for n, line in enumerate(wrap(text, self.width - FIELD)):
            self.out.append((self.paint(label, "dim") if not n else " " * FIELD) + self.paint(line, *styles))

    def table(self, rows: Sequence[Block]) -> int:
        """Blocks as aligned columns: label, reason, place; a narrow terminal gets the place on its own line.

        Stops at a full screen, and returns how many blocks it printed.
        """
        start = len(self.out)
        known: dict[str, str] = {}
        rows = [
            b._replace(lines=tuple(n._replace(place=where(n.place, known)) for n in b.lines)) for b in rows
        ]
        short = [cells(b.label) for b in rows if cells(b.label) <= LABEL]
        wide = max(short, default=0) + 4
        widest = max((cells(line.place) for b in rows for line in b.lines), default=0)
        aside = self.width - wide - widest - 2 >= ASIDE
        for n, block in enumerate(rows):
            if len(self.out) - start >= ROWS and not self.verbose:
                return n
            label = pad(f"  {block.label}", wide)
            if cells(block.label) > LABEL or wide + 20 > self.width:
                self.put(block.label, 2, 6, "bold")
                label = " " * min(wide, 8)
            shown = block.lines if self.verbose else block.lines[:REASONS]
            for line in shown:
                self.row(label, line.text, line.place, widest if aside else 0, line.wrong)
                if self.verbose and line.source:
                    self.place(printable(line.source), cells(label))
                label = " " * cells(label)
            if len(shown) < len(block.lines):
                rest = len(block.lines) - len(shown)
                self.put(f"and {rest} more reason{'s' if rest > 1 else ''}", cells(label), None, "dim")
        return len(rows)

    def row(self, label: str, text: str, place: str, column: int, wrong: bool) -> None:
        """One reason; ``column`` is the width of the places beside the reasons, 0 if they stand below."""
        indent = cells(label)
        room = self.width - indent - (column + 2 if column else 0)
        styles = ("red",) if wrong else ()
        for n, line in enumerate(wrap(text, max(room, 16))):
            head = self.paint(label, "bold") if not n else " " * indent
            tail = ""
            if column and not n and place:
                tail = " " * (room - cells(line) + 2) + self.paint(place, "dim")
            self.out.append(head + self.paint(line, *styles) + tail)
        if place and not column:
            self.place(place, indent)

    def place(self, place: str, indent: int) -> None:
        """A place or an address: never broken, so that a terminal can open it."""
        room = self.width - cells(place)
        fitting = indent if indent <= room else 4 if room >= 4 else 0
        self.out.append(" " * fitting + self.paint(place, "dim"))

    def not_here(self, others: Mapping[str, Sequence[str]]) -> None:
        """Candidates for other kinds of machines, by kind."""
        for kind, ids in others.items():
            families: dict[str, list[str]] = {}
            for ident in ids:
                families.setdefault(ident.partition("/")[0], []).append(ident)
            named = ", ".join(braced(members) for members in families.values())
            self.put(printable(f"not for {kind}: {named}"), 2, 6, "dim")
