"""Every example of the pages about integrations, run as it stands there, each page in a process of its own."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "integrations"

#: A page and the least number of examples that it has.
EXAMPLES = {"logging": 20, "transformers": 25}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ATTN_SELECTOR_")}
    environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations.test_pages", name],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def main(name: str) -> int:
    """Run a page's examples; 1 if one fails, or if there are fewer than there should be."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.M | re.S)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, f"{name}.md", 0)
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    print(f"{outcome.attempted} examples, {outcome.failed} failed")
    return int(outcome.failed > 0 or outcome.attempted < EXAMPLES[name])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
