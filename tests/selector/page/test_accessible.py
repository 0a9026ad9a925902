"""What can be said of the pages' accessibility without a browser: structure, names, and the contrast of every pair of colours."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from selector import Catalog, explain
from selector.render.html import live_html, matrix_html, report_html

pytest.importorskip("jinja2")

STYLE = Path(__file__).resolve().parents[3] / "selector" / "render" / "templates" / "style.css"
VOID = {"meta", "link", "br", "hr", "img", "input"}

#: Text and what it stands on, wherever the style puts the one on the other.
TEXT = [
    ("ink", "ground"),
    ("ink", "raised"),
    ("ink", "good-ground"),
    ("ink", "bad-ground"),
    ("soft", "ground"),
    ("soft", "raised"),
    ("link", "ground"),
    ("link", "warn-ground"),
    ("good", "good-ground"),
    ("bad", "bad-ground"),
    ("warn", "warn-ground"),
]
#: Edges of controls, which need less.
EDGES = [("soft", "ground"), ("link", "ground"), ("link", "raised")]


class Node:
    """One element: its tag, attributes, text inside, and the elements around it."""

    def __init__(self, tag: str, attributes: dict[str, str | None], parents: tuple[Node, ...]) -> None:
        self.tag, self.attributes, self.parents = tag, attributes, parents
        self.text = ""

    def inside(self, tag: str) -> bool:
        return any(parent.tag == tag for parent in self.parents)


class Page(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.open: list[Node] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs), tuple(self.open))
        self.nodes.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for node in self.open:
            node.text += data

    def all(self, *tags: str) -> list[Node]:
        return [node for node in self.nodes if node.tag in tags]


@cache
def pages() -> dict[str, str]:
    core = Catalog.load("core")
    asked = {"head_size": 128, "dtype": "bf16", "kv_cache_dtype": "fp8_e4m3", "per_head_scales": True}
    adjusted = {"head_size": 576, "dtype": "bf16", "mla": True, "block_size": 32}
    return {
        "refused": report_html(explain(asked, environment="a100", catalog=core)),
        "selected": report_html(explain(asked, environment="h100", catalog=core)),
        "adjusted": report_html(
            explain(adjusted, environment="b200", catalog=Catalog.load("sglang"), backend="flashmla")
        ),
        "matrix": matrix_html(Catalog.load("vllm")),
        "live": live_html(core, {"": "this machine", "h100": "H100"}, ["core", "vllm"], "core", "h100"),
    }


@pytest.fixture(params=["refused", "selected", "adjusted", "matrix", "live"])
def page(request: pytest.FixtureRequest) -> Page:
    return Page(pages()[request.param])


def test_the_page_says_its_language_and_title(page: Page) -> None:
    assert page.nodes[0].attributes.get("lang") == "en"
    assert page.all("title")[0].text.strip()
    assert any(node.attributes.get("name") == "viewport" for node in page.all("meta"))


def test_headings_begin_with_one_and_skip_no_level(page: Page) -> None:
    levels = [int(node.tag[1]) for node in page.all("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(node.text.strip() for node in page.all("h1", "h2", "h3"))


def test_everything_stands_in_a_landmark(page: Page) -> None:
    assert len(page.all("main")) == 1
    for node in page.all("input", "select", "button", "h1", "h2", "table", "details"):
        landmarks = [p for p in node.parents if p.tag in ("main", "header")]
        landmarks += [p for p in node.parents if p.tag == "form" and p.attributes.get("aria-label")]
        assert landmarks, node.tag


def test_every_control_has_a_name(page: Page) -> None:
    for node in page.all("input", "select"):
        assert node.inside("label")
        label = next(parent for parent in node.parents if parent.tag == "label")
        assert label.text.strip()
    assert all(node.text.strip() for node in page.all("button", "summary", "a", "legend"))


def test_tables_have_a_caption_and_headers_with_a_scope(page: Page) -> None:
    for table in page.all("table"):
        inside = [node for node in page.nodes if table in node.parents]
        assert any(node.tag == "caption" and node.text.strip() for node in inside)
        assert any(node.tag == "th" for node in inside)
        assert all(node.attributes.get("scope") in ("row", "col") for node in inside if node.tag == "th")


def test_what_scrolls_can_be_reached_by_keyboard(page: Page) -> None:
    for node in page.nodes:
        classes = (node.attributes.get("class") or "").split()
        if "tall" in classes or "source" in classes:
            assert node.attributes.get("tabindex") == "0"
            assert node.attributes.get("aria-label")
        assert node.attributes.get("tabindex") in (None, "0")


def test_ids_are_there_once_and_links_lead_to_them(page: Page) -> None:
    ids = [node.attributes["id"] for node in page.nodes if node.attributes.get("id")]
    assert len(ids) == len(set(ids))
    inner = [str(node.attributes.get("href")) for node in page.all("a")]
    assert all(link[1:] in ids for link in inner if link.startswith("#"))


def themes() -> dict[str, dict[str, str]]:
    """The colours of the light and of the dark page by name."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.S)
    read = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in (light, dark)]
    return dict(zip(("light", "dark"), read, strict=True))


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (EDGES, 3.0)], ids=["text", "edges"])
def test_colours_can_be_told_apart(theme: str, pairs: list[tuple[str, str]], least: float) -> None:
    colours = themes()[theme]
    low = {pair: contrast(*(colours[name] for name in pair)) for pair in pairs}
    assert all(value >= least for value in low.values()), low


def test_every_colour_of_the_style_is_in_a_pair() -> None:
    used = set(re.findall(r"var\(--([\w-]+)\)", STYLE.read_text(encoding="utf-8")))
    assert used == {name for pair in TEXT for name in pair} | {"line"}  # `line` only separates
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
