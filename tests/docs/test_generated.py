"""The generated pages are what `make docs` writes."""

from __future__ import annotations

from functools import cache

import pytest

from tests.docs.examples import GENERATED
from tests.docs.pages import DOCS, build
from tests.docs.screenshots import FOLDER, LIMIT, SHOTS


@cache
def built() -> dict[str, str]:
    return build()


@pytest.mark.parametrize("folder", ["reference", "support"])
def test_pages_are_current(folder: str) -> None:
    there = {p.relative_to(DOCS).as_posix() for p in (DOCS / folder).glob("*.md")}
    made = {name: text for name, text in built().items() if name.startswith(folder)}
    assert there == set(made)
    stale = [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert not stale, "`make docs` writes them anew"


def test_generated_pages_say_so() -> None:
    assert all(GENERATED in text for text in built().values())


def test_pictures_are_there_and_small() -> None:
    page = (DOCS / "pages.md").read_text(encoding="utf-8")
    assert {p.name for p in FOLDER.iterdir()} == set(SHOTS)
    for name, shot in SHOTS.items():
        data = (FOLDER / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (
            shot.width,
            shot.height,
        )
        assert len(data) < LIMIT
        assert f"screenshots/{name}" in page
