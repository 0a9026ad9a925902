"""The site builds without a warning, where its generator is installed, and has every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.docs.site import on_files, on_page_markdown


class File:
    """What the generator tells of a page."""

    def __init__(self, name: str) -> None:
        self.src_uri = name


def test_a_star_stands_for_the_pages_that_match() -> None:
    files = [File(name) for name in ("b/two.md", "b/one.md", "b/three.png", "a.md")]
    config = {"nav": ["a.md", {"B": ["b/*.md"]}, {"C": ["c*.md"]}, "d*.md"]}
    assert on_files(files, config) is files
    assert config["nav"] == ["a.md", {"B": ["b/one.md", "b/two.md"]}]


def test_only_the_language_of_a_fence_is_left() -> None:
    text = "```console no-run\n$ a b\n```\n\n```yaml save=x.yaml\na: 1\n```\n\n    ```python\n"
    assert on_page_markdown(text, None, None, None) == text.replace(" no-run", "").replace(" save=x.yaml", "")


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in DOCS.rglob("*.md"):
        built = tmp_path / page.relative_to(DOCS).with_suffix(".html")
        assert built.is_file()
    text = (tmp_path / "tutorial.html").read_text(encoding="utf-8")
    assert "save=" not in re.sub(r"<[^>]+>", "", text)
    assert not re.findall(r'(?:src|href)="http://', text)
