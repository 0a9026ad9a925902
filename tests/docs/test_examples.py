"""Every example of the pages runs and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples import check, matches, pages
from tests.docs.pages import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_examples(page: Path) -> None:
    check(page)


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
