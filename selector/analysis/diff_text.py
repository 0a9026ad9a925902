"""A comparison as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selector.analysis.changed import Change, Diff, Region

__all__ = ["diff_markdown", "diff_text"]

#: Headings, what is general first: what a candidate accepts by itself, then what follows of it.
_HEADINGS = {
    "accepted": "What candidates accept",
    "winner": "Another winner",
    "reach": "Reached by an order, or no longer",
    "order": "Another order behind the winner",
    "reasons": "Other reasons only",
    "warnings": "Other warnings only",
    "adjustments": "Other adjustments only",
}
#: Each kind in the summary: one, and several.
_COUNTED = {
    "accepted": ("candidate accepts something else", "candidates accept something else"),
    "winner": ("other winner", "other winners"),
    "reach": ("candidate is reached otherwise", "candidates are reached otherwise"),
    "order": ("other order", "other orders"),
    "reasons": ("other reason", "other reasons"),
    "warnings": ("other warning", "other warnings"),
    "adjustments": ("other adjustment", "other adjustments"),
}
#: Regions of one change that are shown unless all are asked for, and of one of the winner.
SHOWN, SHOWN_WINNER = 6, 2
#: Candidates that the summary names.
NAMED = 4


class _Group:
    """Changes that read alike: the same change of several candidates under the same conditions."""

    def __init__(self, first: Change) -> None:
        self.first = first
        self.subjects = [first.subject]

    @property
    def title(self) -> str:
        first = self.first
        if first.kind == "winner":
            return f"{first.old} -> {first.new}"
        if first.kind == "order":
            return f"{first.new} (was: {first.old})"
        who = ", ".join(self.subjects)
        if first.old in ("not said", "none"):
            return f"{who}: now “{first.new}”"
        if first.new in ("not said", "none"):
            return f"{who}: no longer “{first.old}”"
        return f"{who}: {first.old} -> {first.new}"


def _groups(changes: Iterable[Change]) -> list[_Group]:
    found: dict[object, _Group] = {}
    kinds = list(_HEADINGS)
    for change in sorted(changes, key=lambda c: kinds.index(c.kind)):
        key: object = change.subject
        if change.kind not in ("winner", "order"):
            key = (change.kind, change.old, change.new, tuple(r.condition for r in change.regions))
        else:
            key = (change.kind, change.subject, change.old, change.new)
        if key in found:
            found[key].subjects.append(change.subject)
        else:
            found[key] = _Group(change)
    return list(found.values())


def _summary(diff: Diff) -> str:
    """All changes in a line, by kind."""
    if not diff.changes:
        return "0 changes"
    told = []
    for kind, (one, several) in _COUNTED.items():
        mine = [c for c in diff.changes if c.kind == kind]
        names = list(dict.fromkeys(c.subject for c in mine))
        count = len(names) if kind in ("accepted", "reach") else len(mine)
        if mine:
            shown = f" ({', '.join(names)})" if kind == "accepted" and len(names) <= NAMED else ""
            told.append(f"{count} {one if count == 1 else several}{shown}")
    return ", ".join(told)


def _closing(diff: Diff) -> str:
    where = "every machine" if diff.on is None else diff.on
    under = " under strict selection" if diff.strict else ""
    if not diff.complete:
        return "Not complete: some changes have more conditions than are shown (--limit)."
    what = "Nothing else changed" if diff.changes else "Nothing changed"
    return f"{what}: proved for every request on {where}{under}."


def diff_text(diff: Diff, *, everything: bool = False) -> str:
    """For a terminal: what candidates accept first, then what follows of it. ``everything``: every condition, exactly."""
    lines = [f"{diff.name}: {_summary(diff)}"]
    lines += [f"  {note}" for note in diff.notes]
    kind, left_out = "", False
    for group in _groups(diff.changes):
        first = group.first
        if first.kind != kind:
            kind = first.kind
            lines.append(f"{_HEADINGS[kind]}:")
        if kind == "winner" and not everything:
            shown, less = _winner(group)
            lines += shown
            left_out = left_out or less
        else:
            lines += _listed(group, everything)
    if left_out:
        lines.append("--verbose has every condition of another winner, exactly.")
    return "\n".join([*lines, _closing(diff)])


def _listed(group: _Group, everything: bool) -> Iterator[str]:
    """A change with its conditions; a single one on its own line."""
    first = group.first
    if first.kind in ("accepted", "reach", "order") and len(first.regions) == 1 and first.complete:
        (region,) = first.regions
        yield f"  {group.title}, {region.condition}"
        yield f"    e.g. {region.witness.text}"
        return
    yield f"  {group.title}"
    if first.kind == "winner":
        yield f"    where {first.context}, and"
    shown = first.regions if everything else first.regions[:SHOWN]
    for region in shown:
        yield f"    - {region.condition}"
        yield f"      e.g. {region.witness.text}"
    if len(shown) < len(first.regions):
        yield f"    ... and {len(first.regions) - len(shown)} conditions more (--verbose)"
    elif not first.complete:
        yield "    ... and more (--limit)"


def _winner(group: _Group) -> tuple[list[str], bool]:
    """Another winner in short, and whether something is left out: which other candidates accept."""
    regions = group.first.regions
    told: dict[str, Region] = {}
    for region in sorted(regions, key=lambda r: (r.others, len(r.own))):
        parts = set(region.own.split(" and "))
        if not any(own == "always" or set(own.split(" and ")) <= parts for own in told):
            told[region.own] = region
    lines = []
    for own, region in list(told.items())[:SHOWN_WINNER]:
        more = " where no better one accepts" if region.others else ""
        lines += [f"  {group.title}, {own}{more}", f"    e.g. {region.witness.text}"]
    if len(told) > SHOWN_WINNER:
        lines.append(f"    ... and {len(told) - SHOWN_WINNER} conditions more")
    exact = len(told) == len(regions) <= SHOWN_WINNER and all(r.own == r.condition for r in regions)
    return lines, not exact or not group.first.complete


def diff_markdown(diff: Diff) -> str:
    """For a review comment."""
    lines = [f"### `{diff.name}`", "", _summary(diff)]
    lines += ["", *(f"- {note}" for note in diff.notes)] if diff.notes else []
    kind = ""
    for group in _groups(diff.changes):
        first = group.first
        if first.kind != kind:
            kind = first.kind
            lines += [
                "",
                f"**{_HEADINGS[kind]}**",
                "",
                "| change | where | for example |",
                "| --- | --- | --- |",
            ]
        title = _cell(group.title.replace(" -> ", " → "))
        if kind == "winner":
            title += f" (where {_cell(first.context)})"
        for k, region in enumerate(first.regions):
            condition = _cell(region.condition)
            lines.append(f"| {title if k == 0 else ''} | {condition} | `{_cell(region.witness.text)}` |")
    return "\n".join([*lines, "", _closing(diff), ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
