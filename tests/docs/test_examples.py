"""Every example of the pages runs and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples import ELSEWHERE, blocks, check, matches, pages, renewed, walk
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


def slow_pages() -> list[Path]:
    return [
        p for p in pages() if any("slow" in block.words for block in blocks(p.read_text(encoding="utf-8")))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", slow_pages(), ids=lambda page: page.stem)
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


PAGE = """
```json save=env.json
{"environment": 1, "name": "mine", "facts": {"device": "cpu"}}
```

1. a list

   ```console
   $ attn-select schema axes \\
       lse
   lse: mode, of the request
   ...
     undeclared  not had
   $ echo $?
   1
   ```

```python
answer = 40 + 2
answer  # 42
answer  # the answer
```
"""


def test_wrong_outputs_are_found_and_renewed() -> None:
    wrong = [step.wrong for step in walk(PAGE, "page.md")]
    assert [bool(w) for w in wrong] == [True, True, False]
    assert "page.md:8: $ attn-select schema axes lse" in str(wrong[0])
    text, by_hand = renewed(PAGE, "page.md")
    assert by_hand == []
    assert text == PAGE.replace("lse: mode,", "lse: flag,").replace("   1\n   ```", "   0\n   ```")
    assert renewed(text, "page.md") == (text, [])


def test_wrong_values_and_files_that_are_not_there_are_found() -> None:
    python = "```python\nvalue = 3\nvalue + 1  # 5\n```\n"
    assert [step.wrong for step in walk(python, "page.md")] == [
        "page.md:1: value + 1 is 4, and the page says 5"
    ]
    missing = "```console\n$ attn-select explain --on nowhere.json\n```\n"
    assert ["ends with 2" in str(step.wrong) for step in walk(missing, "page.md")] == [True]
    unknown = "```console\n$ rm -rf /\n```\n"
    with pytest.raises(ValueError, match="no command that a page's test runs"):
        list(walk(unknown, "page.md"))


def test_edits_of_a_page_change_its_own_manifests_only() -> None:
    page = """
```yaml insert=manifests/core/flash_attn.yaml after=doc:
note: edited
```

```console
$ attn-select explain --on h100 head_size=64 dtype=bf16 --backend flash_attn/fa9
```
"""
    before = (ROOT / "manifests" / "core" / "flash_attn.yaml").read_bytes()
    printed = next(iter(walk(page, "page.md"))).printed
    assert "did you mean" in "\n".join(printed)
    assert (ROOT / "manifests" / "core" / "flash_attn.yaml").read_bytes() == before
