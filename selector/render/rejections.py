"""Rejected candidates as rows of text: what a family shares once, then each member's own reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from selector.errors import printable

if TYPE_CHECKING:
    from selector.reasons import Reason
    from selector.report import Report

__all__ = [
    "Block",
    "Line",
    "blocks",
    "braced",
    "brief",
    "by_axis",
    "counted",
    "elsewhere_bound",
    "in_policy_order",
]


#: What a reason of a rule without a condition has as `wanted`.
NOTHING_ASKED = "this request"

#: What a reason of a rule has as `offered` when nothing could keep the rule from speaking.
NOTHING_HELPS = "nothing"


#: Cells of what a rule needs, to be shown without `full`.
NEEDS = 60


class Line(NamedTuple):
    """One reason as it is printed: the text without the candidate's name, the place, the source link."""

    text: str
    place: str
    source: str | None
    wrong: bool


class Block(NamedTuple):
    """Rows under one label: a candidate, several with the same reasons, or a whole family (`backend/*`)."""

    label: str
    ids: tuple[str, ...]
    lines: tuple[Line, ...]


def brief(reason: Reason, ident: str, *, full: bool = False) -> str:
    """A reason's message without the name of the candidate it stands under; ``full`` adds what a rule needs."""
    if reason.kind in ("rule", "known_wrong"):
        known = "known to be wrong: " if reason.kind == "known_wrong" else ""
        plain = len(reason.offered) <= NEEDS and not reason.offered.startswith("not (")
        needs = f"needs: {reason.offered}" if (full or plain) and reason.offered != NOTHING_HELPS else ""
        asked = "" if reason.wanted == NOTHING_ASKED else f"asked: {reason.wanted}"
        said = "; ".join(part for part in (asked, needs) if part)
        return printable(f"{known}{reason.because or reason.message}{f' ({said})' if said else ''}")
    if reason.kind == "preference":
        return printable(reason.because or reason.message)
    return printable(reason.message.replace(f"{ident} ", "", 1))


def braced(ids: Sequence[str]) -> str:
    """Several candidates of one backend in one word: `torch_sdpa/{cpu_flash,cpu_math}`."""
    if len(ids) == 1:
        return ids[0]
    backend = ids[0].partition("/")[0]
    return f"{backend}/{{{','.join(i.partition('/')[2] for i in ids)}}}"


def _line(text: str, reason: Reason, more: int = 0) -> Line:
    place = "" if reason.at is None else printable(str(reason.at))
    if more:
        place += f" (+{more})"
    return Line(text, place, reason.source, reason.kind == "known_wrong")


def blocks(report: Report, ids: Iterable[str], *, full: bool = False) -> list[Block]:
    """The blocks of some rejected candidates, families together, in the order of the first member of each."""
    families: dict[str, list[str]] = {}
    for ident in ids:
        families.setdefault(ident.partition("/")[0], []).append(ident)
    return [block for members in families.values() for block in _family(report, members, full)]


def _said(reason: Reason, ident: str, full: bool) -> tuple[str, str]:
    """What makes two candidates' reasons one: the text; with ``full`` also the place, so that no source is lost."""
    return brief(reason, ident, full=full), str(reason.at) if full else ""


def _family(report: Report, members: list[str], full: bool) -> list[Block]:
    """A backend's blocks: reasons that all of them have, or that one rule of the manifest gives several, stand once."""
    texts = {i: {_said(r, i, full): r for r in report.rejected[i]} for i in members}
    if len(members) == 1:  # most families
        ident = members[0]
        lines = tuple([_line(text, reason) for (text, _), reason in texts[ident].items()])
        return [Block(ident, (ident,), lines)] if lines else []
    backend = members[0].partition("/")[0]
    everyone = [c.id for c in report.catalog.candidates if c.backend == backend and not c.abstract]
    together: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    own: dict[str, list[tuple[str, str]]] = {i: [] for i in members}
    for text in dict.fromkeys(t for found in texts.values() for t in found):
        having = [i for i in members if text in texts[i]]
        first = texts[having[0]][text]
        one_rule = first.family and all(texts[i][text].at == first.at for i in having)
        if len(having) > 1 and (having == members or one_rule):
            together.setdefault(tuple(having), []).append(text)
        else:
            for ident in having:
                own[ident].append(text)
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for ident, left in own.items():
        if left:
            alike.setdefault(tuple(left), []).append(ident)
    groups = [(list(ids), shared) for ids, shared in together.items()]
    groups += [(ids, list(left)) for left, ids in alike.items()]
    found = []
    for ids, said in groups:
        label = f"{backend}/*" if len(ids) > 1 and ids == everyone else braced(ids)
        shown = []
        for text in said:
            places = {texts[i][text].at for i in ids}
            shown.append(_line(text[0], texts[ids[0]][text], len(places) - 1))
        found.append(Block(label, tuple(ids), tuple(shown)))
    return found


def in_policy_order(report: Report) -> list[str]:
    """Rejected candidates in the order that the policy rule in force would have given them."""
    order = dict.fromkeys(report.catalog.candidates[i].id for i in report.order)
    return [*(i for i in order if i in report.rejected), *(i for i in report.rejected if i not in order)]


def elsewhere_bound(report: Report, ids: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Candidates apart: those for this kind of machine, and the others by what they would need of it.

    The kind of machine is what every candidate must declare of the environment.
    """
    kinds = {a.name for a in report.catalog.vocabulary.axes if a.declare_required and a.of == "environment"}
    here: list[str] = []
    others: dict[str, list[str]] = {}
    for ident in ids:
        barred = [r for r in report.rejected[ident] if r.axis in kinds and r.kind == "declared"]
        if barred:
            others.setdefault(f"{barred[0].axis} {barred[0].wanted}", []).append(ident)
        else:
            here.append(ident)
    return here, others


def by_axis(report: Report, ids: Iterable[str]) -> dict[str, int]:
    """How many of some rejected candidates each axis refuses, the most frequent first."""
    counts: dict[str, int] = {}
    for ident in ids:
        for axis in dict.fromkeys(r.axis for r in report.rejected[ident]):
            counts[axis] = counts.get(axis, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def counted(counts: dict[str, int], limit: int = 6) -> str:
    """`9 per_head_scales, 6 compute_capability, 2 more axes`."""
    items = [f"{n} {axis}" for axis, n in counts.items()]
    if len(items) > limit + 1:
        items = [*items[:limit], f"{len(items) - limit} more axes"]
    return ", ".join(items)
