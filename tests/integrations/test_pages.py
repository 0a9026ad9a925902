"""Every example of the pages about integrations, run as it stands there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from selector import preferences
from tests.integrations import models  # noqa: F401  # the library is kept offline

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "integrations"


@pytest.mark.parametrize("name", ["logging", "transformers"])
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("BACKEND", "AVOID", "PREFER", "CONFIG", "MANIFESTS", "EXPLAIN"):
        monkeypatch.delenv(f"ATTN_SELECTOR_{variable}", raising=False)
    preferences.forget()
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) >= 3
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, f"{name}.md", 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    outcome = runner.run(examples, out=report.append)
    assert outcome.failed == 0, "".join(report)
    assert outcome.attempted > 10
