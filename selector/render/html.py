"""Reports and support tables as one self-contained HTML page: no network, no scripts but its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.errors import SelectorError

if TYPE_CHECKING:
    from jinja2 import Environment as Templates

    from selector.catalog import Catalog
    from selector.report import Report

__all__ = ["answer_html", "live_html", "matrix_html", "notebook_html", "report_html"]

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
_TEMPLATES: Templates | None = None


class Group(NamedTuple):
    """Rejections under one axis."""

    axis: str
    ids: tuple[str, ...]
    reasons: tuple[tuple[str, Mapping[str, Any]], ...]


class Bar(NamedTuple):
    """One candidate's measured times as text, and the width of its bar in percent of the slowest."""

    candidate: str
    median: str
    low: str
    high: str
    runs: int
    width: float


class Chart(NamedTuple):
    """What was measured for a request on its machine; ``level`` is that of its heading."""

    shapes: str
    name: str
    rows: tuple[Bar, ...]
    level: int


class File(NamedTuple):
    """A manifest's text, by line."""

    name: str
    lines: tuple[tuple[int, str], ...]


def _templates() -> Templates:
    global _TEMPLATES
    if _TEMPLATES is None:
        try:
            from jinja2 import Environment, FileSystemLoader, StrictUndefined
        except ImportError:
            raise SelectorError("HTML pages need jinja2: pip install 'attention-selector[html]'") from None
        made = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.globals.update(anchor=anchor, counted=counted, show=show)
        _TEMPLATES = made
    return _TEMPLATES


def anchor(at: str) -> str:
    """The id of a manifest's line: `file:line:column` without the column."""
    return "at-" + "".join(c if c.isalnum() else "-" for c in at.rpartition(":")[0])


def show(value: Any) -> str:
    """A value as it is written in a request."""
    if value is None:
        return "open"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(show(v) for v in value)
    return str(value)


def counted(number: int, noun: str) -> str:
    """`1 candidate`, `2 candidates`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in the unit that fits, with three digits."""
    unit, size = next(((u, n) for u, n in (("s", 1.0), ("ms", 1e-3)) if seconds >= n), ("µs", 1e-6))
    return f"{seconds / size:.3g} {unit}"


def chart_of(report: Report, level: int) -> Chart | None:
    """The measurements of `attn-select tune` for this request, if it was measured on this machine."""
    from selector import measured

    found = measured.in_use()
    if found is None or found.fingerprint != report.environment.fingerprint:
        return None
    entry = found.entry(report.request.to_dict())
    if entry is None or not entry.timings:
        return None
    slowest = max(t.median for t in entry.timings) or 1.0
    rows = tuple(
        Bar(
            t.candidate,
            duration(t.median),
            duration(t.low),
            duration(t.high),
            t.runs,
            round(100 * t.median / slowest, 1),
        )
        for t in sorted(entry.timings, key=lambda t: t.median)
    )
    return Chart(entry.shapes, found.name, rows, level)


def _style() -> str:
    with open(os.path.join(_FOLDER, "style.css"), encoding="utf-8") as file:
        return file.read()


def _page(template: str, **context: Any) -> str:
    from markupsafe import Markup

    return (
        _templates().get_template(template).render(style=Markup(_style()), **{"connect": "'none'", **context})
    )


def groups_of(rejected: Mapping[str, list[dict[str, Any]]]) -> list[Group]:
    """Rejections by axis, the axis that refuses most first."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for ident, reasons in rejected.items():
        for reason in reasons:
            found.setdefault(reason["axis"], []).append((ident, reason))
    groups = [Group(axis, tuple(dict.fromkeys(i for i, _ in rs)), tuple(rs)) for axis, rs in found.items()]
    return sorted(groups, key=lambda g: (-len(g.ids), g.axis))


def _files(catalog: Catalog, places: Iterable[str]) -> list[File]:
    """The manifests that the reasons point into."""
    from selector.locations import display_name

    wanted = {p.rsplit(":", 2)[0] for p in places}
    found = []
    for folder, _, names in os.walk(catalog.root):
        for name in sorted(names):
            path = os.path.join(folder, name)
            shown = display_name(path, catalog.root)
            if shown in wanted:
                with open(path, encoding="utf-8", errors="replace") as file:
                    lines = file.read(1 << 20).splitlines()
                found.append(File(shown, tuple(enumerate(lines, start=1))))
    return sorted(found)


def report_html(report: Report) -> str:
    """A report as a page."""
    data = report.to_dict()
    places = [r["at"] for rs in data["rejected"].values() for r in rs if r["at"]]
    places += [w["at"] for c in data["candidates"] for w in c["warnings"]]
    title = f"{data['selected'] or 'No backend fits'} on {data['environment']['name']}"
    return _page(
        "report.html.j2",
        title=title,
        report=data,
        groups=groups_of(data["rejected"]),
        files=_files(report.catalog, places),
        measured=chart_of(report, 2),
    )


def answer_html(report: Report) -> str:
    """Only the answer, without the manifests that its places are in."""
    module = _templates().get_template("answer.html.j2").make_module()
    data = report.to_dict()
    groups = groups_of(data["rejected"])
    return str(module.answer(data, groups, chart_of(report, 3), 2))  # type: ignore[attr-defined]


def notebook_html(report: Report) -> str:
    """The answer for a notebook, whose own page its style does not touch (a browser without `@scope` shows it unstyled)."""
    style = re.sub(r"(?m)^( *)(?::root|body)(?= \{)", r"\1:scope", _style())
    return f'<div class="attention-selector"><style>@scope {{ {style} }}</style>{answer_html(report)}</div>'


def kind(cell: Mapping[str, Any]) -> str:
    """The colour of a cell of the support table."""
    allowed = cell["allowed"]
    if allowed == "-":
        return "no"
    if allowed in ("yes", "any", "both", "only") and not cell["rules"]:
        return "yes"
    return "some"


def matrix_html(catalog: Catalog) -> str:
    """The support table as a page that filters."""
    from selector.render.matrix import matrix_data

    data = matrix_data(catalog, everything=False, only=[])
    rows = list(data["candidates"].values())
    differ = [a for a in data["axes"] if len({(r[a]["allowed"], bool(r[a]["rules"])) for r in rows}) > 1]
    titles = {
        a: f"{catalog.vocabulary.by_name[a].title}: {catalog.vocabulary.by_name[a].doc}" for a in data["axes"]
    }
    return _page(
        "matrix.html.j2",
        title=f"Support: {catalog.name}",
        data=data,
        differ=differ,
        titles=titles,
        kind=kind,
        files=[],
    )


def live_html(catalog: Catalog, presets: Mapping[str, str], packs: Iterable[str], pack: str, on: str) -> str:
    """The page that asks as one types."""
    axes = [a for a in catalog.vocabulary.axes if a.of == "request" and a.derive is None]
    fields = {
        "Shapes": [a for a in axes if a.type not in ("flag", "mode", "choice")],
        "Formats and kinds": [a for a in axes if a.type == "choice"],
        "Features": [a for a in axes if a.type in ("flag", "mode")],
    }
    return _page(
        "live.html.j2",
        title="attention-selector",
        connect="'self'",
        fields=fields,
        backends=catalog.names(),
        presets=presets,
        packs=list(packs),
        pack=pack,
        on=on,
    )
