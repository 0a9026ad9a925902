"""A comparison as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selector.analysis.diff import Change, Diff

__all__ = ["diff_markdown", "diff_text"]

_HEADINGS = {
    "winner": "Another winner",
    "accepted": "Other candidates",
    "reach": "Reached by an order, or no longer",
    "order": "Another order behind the winner",
    "reasons": "Other reasons only",
    "warnings": "Other warnings only",
    "adjustments": "Other adjustments only",
}
#: Regions of one change that are shown unless all are asked for.
SHOWN = 6


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
    for change in changes:
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


def _closing(diff: Diff) -> str:
    under = " under strict selection" if diff.strict else ""
    if not diff.complete:
        return "Not complete: some changes have more conditions than are shown (--limit)."
    if not diff.changes:
        return f"Nothing changed: proved for every request on every machine{under}."
    return f"Nothing else changed: proved for every request on every machine{under}."


def diff_text(diff: Diff, *, everything: bool = False) -> str:
    """For a terminal."""
    lines = [f"{diff.name}: {len(diff.changes)} change{'' if len(diff.changes) == 1 else 's'}"]
    lines += [f"  {note}" for note in diff.notes]
    kind = ""
    for group in _groups(diff.changes):
        first = group.first
        if first.kind != kind:
            kind = first.kind
            lines.append(f"{_HEADINGS[kind]}:")
        lines.append(f"  {group.title}")
        if kind == "winner":
            lines.append(f"    where {first.context}, and")
        shown = first.regions if everything else first.regions[:SHOWN]
        for region in shown:
            lines.append(f"    - {region.condition}")
            lines.append(f"      e.g. {region.witness.text}")
        if len(shown) < len(first.regions):
            lines.append(f"    ... and {len(first.regions) - len(shown)} conditions more (--verbose)")
        elif not first.complete:
            lines.append("    ... and more (--limit)")
    return "\n".join([*lines, _closing(diff)])


def diff_markdown(diff: Diff) -> str:
    """For a review comment."""
    lines = [f"### `{diff.name}`", ""]
    lines += [f"- {note}" for note in diff.notes]
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
