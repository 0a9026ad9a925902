"""Every link of the pages leads somewhere: files are there, and so are the headings behind `#`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^( *)```.*?^\1```[ ]*$", re.M | re.S)
LINK = re.compile(
    r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)|src=\"([^\"]+)\""
)


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures, outside code."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    for found in LINK.finditer(text):
        yield found[1] or found[2]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names of a page's headings, as the site and code hosts make them."""
    found: list[str] = []
    for title in re.findall(r"^#{1,6} (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M):
        words = re.sub(
            r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title.replace("\\", ""))
        ).strip()
        name = re.sub(r"[-\s]+", "-", words.lower())
        found.append(name if name not in found else f"{name}_{found.count(name)}")
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            if not link.startswith("https://"):
                broken.append(link)
            continue
        name, _, anchor = link.partition("#")
        target = page if not name else (page.parent / name).resolve()
        if not target.exists() or (anchor and (target.suffix != ".md" or anchor not in anchors(target))):
            broken.append(link)
    assert not broken


def test_pages_of_the_site_link_to_nothing_outside_it() -> None:
    for page in PAGES[1:]:
        outside = [
            link
            for link in links(page)
            if not re.match(r"[a-z]+:|#", link)
            and not (page.parent / link.partition("#")[0]).resolve().is_relative_to(DOCS)
        ]
        assert not outside, page


def test_there_are_links_to_look_at() -> None:
    assert sum(1 for page in PAGES for _ in links(page)) > 300
