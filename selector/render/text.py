"""Reports as text: one screen for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.advice import losses, near_misses, suggestions
from selector.constraints import word
from selector.errors import printable
from selector.render.cells import Paint, cells, cut, pad, wrap
from selector.render.data import open_fields
from selector.render.rejections import (
    Block,
    blocks,
    braced,
    by_axis,
    counted,
    elsewhere_bound,
    in_policy_order,
)
from selector.vocabulary import UNKNOWN, Packages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selector.preferences import Preference
    from selector.report import Ranked, Report

__all__ = ["report_text"]

#: What one screen holds without `verbose`.
ACCEPTED, ROWS, REASONS, NEAREST, ELSEWHERE = 6, 22, 3, 4, 5

#: Cells of a label before it gets a line of its own.
LABEL = 28

MORE = "--verbose shows all"


def report_text(report: Report, color: bool = False, width: int = 110, verbose: bool = False) -> str:
    """One screen: what was chosen and why, what else fits, what was rejected and why, what could be changed.

    ``width`` is in terminal cells; ``verbose`` cuts nothing and adds notes and the source of every fact.
    """
    return "\n".join(_Text(report, Paint(color), max(width, 40), verbose).lines()) + "\n"


class _Text:
    def __init__(self, report: Report, paint: Paint, width: int, verbose: bool) -> None:
        self.report, self.paint, self.width, self.verbose = report, paint, width, verbose
        self.out: list[str] = []

    def lines(self) -> list[str]:
        self.headline()
        self.context()
        if self.report.selected is not None:
            self.accepted()
            self.rejected()
            self.lost()
        else:
            self.excluded()
            self.nearest()
            self.changes()
        return [line.rstrip() for line in self.out]

    # -- parts --------------------------------------------------------------------------------------------------------

    def put(self, text: str = "", indent: int = 0, hang: int | None = None, *styles: str) -> None:
        """A paragraph, wrapped; lines after the first are indented by ``hang``."""
        later = indent if hang is None else hang
        for n, line in enumerate(wrap(text, self.width - max(indent, later))):
            self.out.append(" " * (later if n else indent) + self.paint(line, *styles))

    def title(self, text: str) -> None:
        self.out.append("")
        self.put(text, 0, 2, "bold")

    def field(self, name: str, text: str, *styles: str) -> None:
        label = pad(f"  {name}", 15)
        for n, line in enumerate(wrap(text, self.width - 15)):
            self.out.append((self.paint(label, "dim") if not n else " " * 15) + self.paint(line, *styles))

    def headline(self) -> None:
        report = self.report
        if report.selected is not None:
            chosen = report.ranked[0]
            name = f": {printable(chosen.title)}" if chosen.title != chosen.id else ""
            self.put(f"{chosen.id} is selected{name}", 0, 2, "bold", "green")
            return
        pin = self.pin()
        total = len(report.rejected) + len(report.excluded)
        ids = self.insisted() or list(report.rejected)
        counts = counted(by_axis(report, ids))
        if pin is not None:
            text = (
                f"{', '.join(pin.names)} cannot be used, and {pin.where} asks for it: {counts or 'not there'}"
            )
        elif not report.rejected and not report.excluded:
            text = f"No backend fits: pack {report.catalog.name} has no candidates"
        else:
            text = f"No backend fits: {total} candidates{'; ' if counts else ''}{counts}"
        self.put(text, 0, 2, "bold", "red")

    def pin(self) -> Preference | None:
        return next((p for p in self.report.preferences if p.kind == "pin" and p.binding), None)

    def insisted(self) -> list[str]:
        """The rejected candidates that a pin names."""
        pin = self.pin()
        if pin is None:
            return []
        named = dict.fromkeys(c.id for name in pin.names for c in self.report.catalog.find(name))
        return [i for i in named if i in self.report.rejected]

    def context(self) -> None:
        report, machine = self.report, self.report.environment
        fields = []
        for axis, value in report.request.items():
            mark = "" if report.origins.get(axis.name) in (None, "you") else "*"
            fields.append(printable(axis.name if value is True else f"{axis.name}={word(value)}") + mark)
        self.field("request", " ".join(fields) or "(all defaults)")
        marked = {
            a.name: report.origins[a.name] for a, _ in report.request.items() if a.name in report.origins
        }
        marked = {name: origin for name, origin in marked.items() if origin != "you"}
        if marked and self.verbose:
            self.field("  * from", "; ".join(f"{n}: {printable(o)}" for n, o in marked.items()), "dim")
        elif marked:
            self.field("", "* not from you, but from the model's configuration", "dim")
        missing = open_fields(report)
        if missing:
            self.field("left open", f"{', '.join(missing)}: nobody is judged on it", "yellow")
        title = "" if machine.title == machine.name else f": {printable(machine.title)}"
        self.field("environment", f"{printable(machine.name)}{title} ({printable(machine.origin)})")
        if self.verbose or not machine.origin.startswith("preset"):
            self.field("", _facts(machine.facts, packages=self.verbose), "dim")
        rule = f", policy “{printable(report.policy_rule)}”" if report.policy_rule else ""
        strict = ", strict" if report.strict else ""
        self.field("pack", f"{report.catalog.name}{rule}{strict}")
        for preference in report.preferences:
            self.field(preference.kind, self.preference(preference))

    def preference(self, preference: Preference) -> str:
        text = f"{', '.join(preference.names)} ({printable(preference.where)})"
        if preference.kind == "avoid" or self.report.selected is None:
            return text
        known = [c.id for name in preference.names for c in self.report.catalog.find(name)]
        refused = [i for i in known if i in self.report.rejected]
        if known and len(refused) == len(known):
            first = self.report.rejected[refused[0]][0].message
            return f"{text}: not possible here, {printable(first)}"
        return text

    def accepted(self) -> None:
        ranked = self.report.ranked
        usual = ranked[0].because if len(ranked) == 1 else None
        policy = f"policy “{self.report.policy_rule}”"
        self.title(f"Accepted ({len(ranked)})")
        shown = ranked if self.verbose else ranked[:ACCEPTED]
        wide = min(max(cells(r.id) for r in shown), LABEL)
        for entry in shown:
            why = "" if entry.because in (policy, usual) and not self.verbose else f"  [{entry.because}]"
            style = ("green",) if entry.rank == 1 else ()
            label = self.paint(pad(entry.id, wide), *style)
            text = cut(printable(f"{entry.title}{why}"), max(self.width - wide - 8, 10))
            self.out.append(f"  {entry.rank:>2}  {label}  {text}")
            self.remarks(entry)
        if len(shown) < len(ranked):
            rest = ", ".join(r.id for r in ranked[len(shown) :])
            self.put(cut(f"and {len(ranked) - len(shown)} more: {rest}", self.width - 6), 6, 6, "dim")
        self.excluded()

    def remarks(self, entry: Ranked) -> None:
        if entry.adjusted is not None:
            changes = [f"{a} {word(b)} becomes {word(c)}" for a, b, c in entry.adjusted.changes]
            if entry.adjusted.use is not None:
                changes.append(f"runs as {entry.adjusted.use}")
            note = f" ({entry.adjusted.note})" if entry.adjusted.note else ""
            self.put(printable(f"adjusts the request: {', '.join(changes)}{note}"), 6, 8, "yellow")
        for warning in entry.warnings:
            text = f"warning: {warning.message} ({warning.at})"
            self.put(printable(text), 6, 8, "yellow")
            if self.verbose:
                for extra in (warning.note, warning.source):
                    if extra:
                        self.put(printable(extra), 8, 8, "dim")
        if entry.option and (entry.rank == 1 or self.verbose):
            self.put(printable(f"ask for it with {entry.option}"), 6, 8, "dim")
        if entry.note and self.verbose:
            self.put(printable(entry.note), 6, 8, "dim")

    def excluded(self) -> None:
        found = self.report.excluded
        if found:
            reach = "fits, but only" if len(found) == 1 else "fit, but only"
            self.put(f"{', '.join(found)} {reach} by an explicit choice", 6, 8, "dim")

    def rejected(self) -> None:
        report = self.report
        if not report.rejected:
            return
        ordered = in_policy_order(report)
        removed = [i for i in ordered if all(r.kind == "preference" for r in report.rejected[i])]
        rest = [i for i in ordered if i not in removed]
        if removed and not self.verbose:
            self.title(f"Accepted, but not asked for ({len(removed)})")
            why = dict.fromkeys(r.because or "" for i in removed for r in report.rejected[i])
            self.put(printable(f"{', '.join(removed)}: {'; '.join(why)}"), 2, 6)
        elif removed:
            rest = ordered
        if not rest:
            return
        self.title(f"Rejected ({len(rest)})")
        here, others = (rest, {}) if self.verbose else elsewhere_bound(report, rest)
        found = blocks(report, here, full=self.verbose)
        printed = self.table(found)
        told = {i for b in found[:printed] for i in b.ids}
        left = dict.fromkeys(i for b in found[printed:] for i in b.ids if i not in told)
        if left:
            self.put(f"and {len(left)} more: {counted(by_axis(report, left))} ({MORE})", 2, 6, "dim")
        self.not_here(others)

    def not_here(self, others: dict[str, list[str]]) -> None:
        for kind, ids in others.items():
            families: dict[str, list[str]] = {}
            for ident in ids:
                families.setdefault(ident.partition("/")[0], []).append(ident)
            named = ", ".join(braced(members) for members in families.values())
            self.put(printable(f"not for {kind}: {named}"), 2, 6, "dim")

    def table(self, rows: Sequence[Block]) -> int:
        """Blocks as aligned columns: label, reason, place; a narrow terminal gets the place on its own line.

        Stops at a full screen, and returns how many blocks it printed.
        """
        start = len(self.out)
        short = [cells(b.label) for b in rows if cells(b.label) <= LABEL]
        wide = max(short, default=0) + 4
        widest = max((cells(line.place) for b in rows for line in b.lines), default=0)
        room = self.width - wide
        aside = room - widest - 2 >= 36
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
                    self.put(printable(line.source), cells(label), cells(label) + 2, "dim")
                label = " " * cells(label)
            if len(shown) < len(block.lines):
                rest = len(block.lines) - len(shown)
                self.put(f"and {rest} more reason{'s' if rest > 1 else ''}", cells(label), None, "dim")
        return len(rows)

    def row(self, label: str, text: str, place: str, column: int, wrong: bool) -> None:
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
            self.put(place, indent + 2, None, "dim")

    def lost(self) -> None:
        found = losses(self.report)
        if found:
            self.title("What fields of the request cost")
            for loss in found:
                self.put(printable(loss.text), 2, 6)

    # -- nothing fits -------------------------------------------------------------------------------------------------

    def nearest(self) -> None:
        report = self.report
        insisted = self.insisted()
        ordered = insisted or near_misses(report)
        if not ordered:
            return
        if self.verbose:
            self.title(f"Rejected ({len(report.rejected)}), the nearest first")
            self.table(
                blocks(report, [*insisted, *(i for i in near_misses(report) if i not in insisted)], full=True)
            )
            return
        shown = ordered[: len(insisted) or NEAREST]
        self.title("What it refuses" if insisted else "Nearest")
        self.table(blocks(report, shown))
        rest = [i for i in report.rejected if i not in shown]
        fit = [i for i in rest if all(r.kind == "preference" for r in report.rejected[i])]
        if fit:
            self.put(f"without {self.report.preferences[0].where}: {', '.join(fit)} fit", 2, 6, "dim")
            rest = [i for i in rest if i not in fit]
        here, others = elsewhere_bound(report, rest)
        if here:
            named = counted(by_axis(report, here))
            self.put(f"and {len(here)} more: {named} ({MORE})", 2, 6, "dim")
        self.not_here(others)

    def changes(self) -> None:
        report = self.report
        insisted = self.insisted()
        found = (
            [s for i in insisted for s in suggestions(report, i)] if insisted else list(suggestions(report))
        )
        seen = {c.axis for s in found for c in s.changes}
        if found:
            self.title("What would help (each tried)")
            for suggestion in found[: 8 if self.verbose else 4]:
                self.put(printable(suggestion.text), 2, 6, "cyan")
        of = report.catalog.vocabulary.by_name
        if self.verbose or not any(of[a].of == "request" for a in seen if a in of):
            self.elsewhere()

    def elsewhere(self) -> None:
        from selector.render.elsewhere import accepting

        found = accepting(self.report)
        if found:
            shown = found if self.verbose else found[:ELSEWHERE]
            named = ", ".join(f"{name} ({winner})" for name, winner in shown)
            more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
            self.title("Where the same request fits")
            self.put(printable(f"{named}{more}"), 2, 6)


def _facts(facts: dict[str, Any], *, packages: bool) -> str:
    shown = []
    for name, value in facts.items():
        if isinstance(value, Packages):
            if packages:
                shown += [f"{n}={p.version or p.state}" for n, p in value.items()]
        elif value is not UNKNOWN:
            shown.append(f"{name}={word(value)}")
    return printable(" ".join(shown))
