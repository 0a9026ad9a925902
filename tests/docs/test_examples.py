"""Every example of the pages runs and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples import ELSEWHERE, blocks, check, matches, pages
from tests.docs.pages import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_examples(page: Path) -> None:
    check(page)


@pytest.mark.parametrize("page", ELSEWHERE)
def test_the_other_pages_have_tests(page: str) -> None:
    text = (ROOT / ELSEWHERE[page]).read_text(encoding="utf-8")
    assert f'"{Path(page).stem}"' in text or f'"{Path(page).name}"' in text


def test_every_block_says_what_it_is() -> None:
    """A block of a language that nobody runs would be an example that nobody checks."""
    known = {"", "console", "python", "yaml", "json", "text"}
    assert {block.language for page in pages() for block in blocks(page.read_text(encoding="utf-8"))} <= known


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in pages() if " slow" in p.read_text(encoding="utf-8")], ids=lambda p: p.stem
)
def test_slow_examples(page: Path) -> None:
    check(page, slow=True)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["...", "b"], ["a", "b", "c"], False),
        (["a", "...", "c"], ["a", "c"], True),
        (["took ... ms"], ["took 3.1 ms"], True),
        (["took ... ms"], ["took 3.1 s"], False),
        (["a"], ["a", "b"], False),
        ([], ["a"], True),
        (["a  ", ""], ["a"], True),
    ],
)
def test_what_a_page_may_leave_out(shown: list[str], printed: list[str], same: bool) -> None:
    assert matches(shown, printed) is same
