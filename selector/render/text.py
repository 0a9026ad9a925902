"""Reports as text: one screen for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector import measured
from selector.advice import losses, near_misses, suggestions
from selector.constraints import word
from selector.errors import printable
from selector.phases import PHASE, phases_of
from selector.render.cells import Paint, cells, pad, wrap
from selector.render.data import open_fields
from selector.render.machine import asked_packages, facts_text
from selector.render.rejections import blocks, by_axis, counted, elsewhere_bound, in_policy_order
from selector.render.screen import Screen, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selector.advice import Suggestion
    from selector.preferences import Preference
    from selector.report import Ranked, Report

__all__ = ["report_text", "why_not_text"]

#: What one screen holds without `verbose`.
ACCEPTED, NEAREST, HELP, ELSEWHERE = 6, 4, 4, 5

#: Cells of a candidate's name in the list of accepted ones.
NAME = 28

MORE = "--verbose shows all"

#: Origin of a value that the caller gave.
YOU = "you"


def report_text(
    report: Report, color: bool = False, width: int = 110, verbose: bool = False, *, command: bool = False
) -> str:
    """One screen: what was chosen and why, what else fits, what was rejected and why, what could be changed.

    ``width`` is in terminal cells; ``verbose`` cuts nothing and adds notes and the source of every fact; ``command`` says
    what to write on the command line where it would be an argument in a program.
    """
    screen = _Report(report, Paint(color), width, verbose, command)
    screen.headline()
    screen.context()
    if report.selected is not None:
        screen.accepted()
        screen.rejected()
        screen.lost()
    else:
        screen.nearest()
        screen.changes()
    return screen.text()


def why_not_text(
    report: Report, ids: Sequence[str], color: bool = False, width: int = 110, nothing: bool = True
) -> str:
    """What stands against some candidates: every reason with its source, and what would help, each tried.

    For the command alone. ``nothing``: say so where nothing was found that helps, unless the caller knows of something.
    """
    screen = _Report(report, Paint(color), width, True, True)
    screen.standing(ids)
    screen.context()
    refused = [i for i in ids if i in report.rejected]
    if refused:
        screen.title("What stands against it" if len(refused) == 1 else "What stands against them")
        screen.table(blocks(report, refused, full=True))
        screen.help([s for i in refused for s in suggestions(report, i)], nothing=nothing)
    return screen.text()


class _Report(Screen):
    def __init__(self, report: Report, paint: Paint, width: int, verbose: bool, command: bool = True) -> None:
        super().__init__(paint, width, verbose)
        self.report, self.command = report, command

    def chosen(self, ident: str) -> str:
        """How an explicit choice is written."""
        return f"--backend {ident}" if self.command else f"backend={ident}"

    def suggested(self, suggestion: Suggestion) -> str:
        """A suggestion's text, an explicit choice in it as it is written here."""
        text = suggestion.text
        for change in suggestion.changes if self.command else ():
            if change.kind == "choose":
                text = text.replace(f"(backend={change.value})", f"({self.chosen(str(change.value))})")
        return printable(text)

    # -- what was asked, where, and the answer ------------------------------------------------------------------------

    def headline(self) -> None:
        report = self.report
        if report.selected is not None:
            chosen = report.ranked[0]
            name = f": {printable(chosen.title)}" if chosen.title != chosen.id else ""
            self.put(f"{chosen.id} is selected{name}", 0, 2, "bold", "green")
            self.runs()
            return
        pin = self.pin()
        insisted = self.insisted()
        axes = by_axis(report, insisted or report.rejected)
        counts = ", ".join(axes) if len(insisted) == 1 else counted(axes)
        if pin is not None:
            text = (
                f"{', '.join(pin.names)} cannot be used, and {pin.where} asks for it: {counts or 'not there'}"
            )
        elif not report.rejected and not report.excluded:
            text = f"No backend fits: pack {report.catalog.name} has no candidates"
        else:
            total = len(report.rejected) + len(report.excluded)
            plural = "" if total == 1 else "s"
            text = f"No backend fits: {total} candidate{plural}{'; ' if counts else ''}{counts}"
        self.put(printable(text), 0, 2, "bold", "red")

    def runs(self) -> None:
        """What the selection's last call did, where that was not simply to run the winner."""
        report = self.report
        for ident, why in report.failed.items():
            self.field("could not run", printable(f"{ident}: {why}"), "red")
        if report.ran is not None and (report.failed or report.ran != report.selected):
            self.field("ran", report.ran, "yellow")

    def standing(self, ids: Sequence[str]) -> None:
        """Where some candidates stand, one line each."""
        report = self.report
        places = {r.id: r for r in report.ranked}
        for ident in ids:
            if ident == report.selected:
                self.put(printable(f"{ident} is selected: {places[ident].because}"), 0, 2, "bold", "green")
            elif ident in places:
                first = report.ranked[0]
                text = (
                    f"{ident} fits, in place {places[ident].rank} of {len(places)}: {places[ident].because}"
                )
                self.put(printable(f"{text}; {first.id} is first: {first.because}"), 0, 2, "bold")
            elif ident in report.excluded:
                self.put(f"{ident} fits, but only by an explicit choice ({self.chosen(ident)})", 0, 2, "bold")
            else:
                axes = ", ".join(by_axis(report, [ident]))
                self.put(f"{ident} is rejected: {axes}", 0, 2, "bold", "red")
        if report.selected is not None and report.selected not in ids:
            self.field("selected", report.selected)

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
        self.request()
        missing = open_fields(report)
        if missing:
            self.field("left open", f"{', '.join(missing)}: nobody is judged on it", "yellow")
        title = (
            machine.title if machine.title.startswith(machine.name) else f"{machine.name}: {machine.title}"
        )
        self.field("environment", printable(f"{title} ({machine.origin})"))
        if self.verbose or not machine.origin.startswith("preset"):
            self.field(
                "", facts_text(machine.facts, asked_packages(report.catalog) if self.verbose else ()), "dim"
            )
        rule = f", policy “{report.policy_rule}”" if report.policy_rule else ""
        self.field("pack", printable(f"{report.catalog.name}{rule}{', strict' if report.strict else ''}"))
        phases = phases_of(report.catalog)
        if phases and report.request.get(PHASE) is None:
            self.field("phases", f"answered apart: {' or '.join(f'{PHASE}={p}' for p in phases)}", "yellow")
        for preference in report.preferences:
            self.field(preference.kind, printable(self.preference(preference)))
        if not any(p.source == "measurement" for p in report.preferences):
            unused = measured.unused(report.request, machine)
            if unused is not None:
                self.field("measured", printable(unused), "dim")

    def request(self) -> None:
        report = self.report
        origins = {n: o for n, o in report.origins.items() if o != YOU}
        fields = []
        for axis, value in report.request.items():
            text = axis.name if value is True else f"{axis.name}={word(value)}"
            fields.append(text + ("*" if axis.name in origins else ""))
        self.field("request", printable(" ".join(fields)) or "(all defaults)")
        marked = [a.name for a, _ in report.request.items() if a.name in origins]
        if marked and self.verbose:
            for name in marked:
                self.field("", printable(f"* {name}: {origins[name]}"), "dim")
        elif marked:
            self.field("", "* from the model's configuration, not from you", "dim")

    def preference(self, preference: Preference) -> str:
        """A preference, and for a wish that nobody could meet the first reason."""
        text = f"{', '.join(preference.names)} ({preference.where})"
        if preference.kind == "avoid" or self.report.selected is None:
            return text
        known = [c.id for name in preference.names for c in self.report.catalog.find(name)]
        refused = [i for i in known if i in self.report.rejected]
        if known and len(refused) == len(known):
            return f"{text}: not possible here, {self.report.rejected[refused[0]][0].message}"
        if known and all(i in self.report.excluded for i in known if i not in refused):
            return f"{text}: only an explicit choice reaches it here"
        return text

    # -- something fits -----------------------------------------------------------------------------------------------

    def accepted(self) -> None:
        ranked = self.report.ranked
        usual = {f"policy “{self.report.policy_rule}”"}
        if len({r.because for r in ranked}) == 1 and self.pin() is not None:
            usual.add(ranked[0].because)
        self.title(f"Accepted ({len(ranked)})")
        shown = ranked if self.verbose else ranked[:ACCEPTED]
        wide = min(max(cells(r.id) for r in shown), NAME)
        for entry in shown:
            why = "" if entry.because in usual and not self.verbose else f"  [{entry.because}]"
            label = self.paint(pad(entry.id, wide), *(("green",) if entry.rank == 1 else ()))
            text, *more = wrap(printable(f"{entry.title}{why}"), max(self.width - wide - 8, 10))
            self.out.append(f"  {entry.rank:>2}  {label}  {text}")
            self.out += [" " * (wide + 8) + line for line in more]
            self.remarks(entry)
        if len(shown) < len(ranked):
            rest = ", ".join(r.id for r in ranked[len(shown) :])
            self.put(f"and {len(ranked) - len(shown)} more: {rest}", 6, 8, "dim")
        self.excluded()

    def remarks(self, entry: Ranked) -> None:
        """What a candidate changes, what is to be known of it, and how its user asks for it."""
        if entry.adjusted is not None:
            changes = [
                f"{a} becomes {word(c)}" if b is None else f"{a} {word(b)} becomes {word(c)}"
                for a, b, c in entry.adjusted.changes
            ]
            if entry.adjusted.use is not None:
                changes.append(f"runs as {entry.adjusted.use}")
            note = f" ({entry.adjusted.note})" if entry.adjusted.note else ""
            self.put(printable(f"adjusts the request: {', '.join(changes)}{note}"), 6, 8, "yellow")
        for warning in entry.warnings:
            self.put(printable(f"warning: {warning.message} ({where(str(warning.at))})"), 6, 8, "yellow")
            for extra in (warning.note, warning.source) if self.verbose else ():
                if extra:
                    self.put(printable(extra), 8, 8, "dim")
        if entry.option and (entry.rank == 1 or self.verbose):
            self.put(printable(f"ask for it with {entry.option}"), 6, 8, "dim")
        if entry.note and self.verbose:
            self.put(printable(entry.note), 6, 8, "dim")

    def excluded(self) -> None:
        found = self.report.excluded
        if found:
            fit = "fits, but only" if len(found) == 1 else "fit, but only"
            self.put(f"{', '.join(found)} {fit} by an explicit choice", 6, 8, "dim")

    def rejected(self) -> None:
        report = self.report
        ordered = in_policy_order(report)
        removed = [] if self.verbose else [i for i in ordered if self.only_unwanted(i)]
        rest = [i for i in ordered if i not in removed]
        if removed:
            self.title(f"Would fit ({len(removed)})")
            why = dict.fromkeys(r.because or "" for i in removed for r in report.rejected[i])
            self.put(printable(f"{', '.join(removed)}; {'; '.join(why)}"), 2, 6)
        if not rest:
            return
        self.title(f"Rejected ({len(rest)})")
        here, others = (rest, {}) if self.verbose else elsewhere_bound(report, rest)
        found = blocks(report, here, full=self.verbose)
        printed = self.table(found)
        told = {i for b in found[:printed] for i in b.ids}
        self.further(list(dict.fromkeys(i for b in found[printed:] for i in b.ids if i not in told)))
        self.not_here(others)

    def only_unwanted(self, ident: str) -> bool:
        """Whether nothing but a preference stands against a candidate."""
        return all(r.kind == "preference" for r in self.report.rejected[ident])

    def further(self, ids: Sequence[str]) -> None:
        """Candidates for which there was no room: named if they are few, counted by axis."""
        if ids:
            counts = by_axis(self.report, ids)
            few = len(ids) <= 3
            named = f"and {', '.join(ids)}" if few else f"and {len(ids)} more"
            self.put(f"{named}: {', '.join(counts) if few else counted(counts)} ({MORE})", 2, 6, "dim")

    def lost(self) -> None:
        found = losses(self.report)
        if found:
            self.title("What fields of the request cost")
            for loss in found:
                self.put(printable(loss.text), 2, 6)

    # -- nothing fits -------------------------------------------------------------------------------------------------

    def nearest(self) -> None:
        report, insisted = self.report, self.insisted()
        ordered = [*insisted, *(i for i in self.by_nearness() if i not in insisted)]
        if not ordered:
            return
        if self.verbose:
            self.title(f"Rejected ({len(ordered)}), the nearest first")
            self.table(blocks(report, ordered, full=True))
            return
        shown = ordered[: len(insisted) or NEAREST]
        self.title("What it refuses" if insisted else "Nearest")
        found = blocks(report, shown)
        printed = self.table(found)
        told = {i for b in found[:printed] for i in b.ids}
        rest = [i for i in ordered if i not in told]
        here, others = elsewhere_bound(report, [i for i in rest if not self.only_unwanted(i)])
        self.further(here)
        self.not_here(others)

    def by_nearness(self) -> list[str]:
        """Near misses; where the request itself names a property of the candidate, those that have it first."""
        identities = {a.name for a, _ in self.report.request.items() if a.identity}
        rejected = self.report.rejected
        return sorted(near_misses(self.report), key=lambda i: any(r.axis in identities for r in rejected[i]))

    def changes(self) -> None:
        report, insisted = self.report, self.insisted()
        found = (
            [s for i in insisted for s in suggestions(report, i)] if insisted else list(suggestions(report))
        )
        listed = {report.catalog.candidates[i].id for i in report.outcome.listed}
        unwanted = [i for i in report.rejected if i in listed and self.only_unwanted(i)]
        shown = self.help(found, unwanted=unwanted)
        axes = report.catalog.vocabulary.by_name
        of = {axes[c.axis].of for s in found for c in s.changes if c.axis in axes}
        if self.verbose or ("request" not in of and not unwanted and not shown):
            self.elsewhere()

    def help(
        self, found: Sequence[Suggestion], *, unwanted: Sequence[str] = (), nothing: bool = False
    ) -> int:
        """Suggestions, and candidates that a preference or a policy keeps out; how many lines that were."""
        lines = [self.suggested(s) for s in found[: None if self.verbose else HELP]]
        wishes = dict.fromkeys(p.where for p in self.report.preferences if p.kind in ("pin", "avoid"))
        if unwanted:
            shown = ", ".join(unwanted[:ACCEPTED])
            more = f" and {len(unwanted) - ACCEPTED} more" if len(unwanted) > ACCEPTED else ""
            fit = "fits" if len(unwanted) == 1 else "fit"
            lines.append(printable(f"without {' and '.join(wishes)}: {shown}{more} {fit}"))
        if self.report.selected is None:
            lines += [f"choose {i} explicitly ({self.chosen(i)}): it fits" for i in self.report.excluded]
        if lines:
            self.title("What would help (each tried)")
            for line in lines:
                self.put(line, 2, 6, "cyan")
        elif nothing:
            self.title("Nothing helps that changes at most three fields of the request or packages")
        return len(lines)

    def elsewhere(self) -> None:
        from selector.render.elsewhere import accepting

        found = accepting(self.report)
        if found:
            shown = found if self.verbose else found[:ELSEWHERE]
            named = ", ".join(f"{name} ({winner})" for name, winner in shown)
            more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
            self.title("Where the same request fits")
            self.put(printable(f"{named}{more}"), 2, 6)
