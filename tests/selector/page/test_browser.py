"""The pages in headless Chromium, without a network: they filter, open what a link names, follow a question, and pass axe.

Skipped where there is no Chromium; axe and its driver are looked for in NODE_PATH (`npm install axe-core playwright-core`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from selector import Catalog, explain
from selector.render.html import matrix_html, notebook_html, report_html
from selector.serve import make_server

pytest.importorskip("jinja2")

CHROMIUM = next(
    (path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), ""
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
AXE = Path(__file__).with_name("axe.mjs")
ASKED = {"head_size": 128, "dtype": "bf16", "kv_cache_dtype": "fp8_e4m3", "per_head_scales": True}

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium")


def page_after(url: str, folder: Path) -> str:
    """The page's elements once its scripts have run."""
    command = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=4000",
        "--dump-dom",
        url,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture
def live() -> Iterator[str]:
    server = make_server(0, on="h100")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_the_matrix_counts_what_it_shows(tmp_path: Path) -> None:
    file = tmp_path / "matrix.html"
    text = matrix_html(Catalog.load("core"))
    file.write_text(
        text.replace('id="having" type="search"', 'id="having" type="search" value="sinks, dtype=float32"')
    )
    shown = page_after(file.as_uri(), tmp_path)
    assert re.search(r'id="said"[^>]*>2 candidates, \d+ axes<', shown)
    rows = re.findall(r'<tr data-id="([^"]+)"([^>]*)>', shown)
    assert [name for name, more in rows if "hidden" not in more] == ["flex_attention", "reference"]


def test_a_link_opens_the_manifest_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    text = report_html(explain(ASKED, environment="a100", catalog=Catalog.load("core")))
    file.write_text(text, encoding="utf-8")
    link = re.search(r'href="#(at-[\w-]+)">manifests/core/flash_attn.yaml', text)
    assert link is not None
    shown = page_after(f"{file.as_uri()}#{link[1]}", tmp_path)
    opened = re.findall(r'<details class="file"([^>]*)><summary class="mono">([^<]+)', shown)
    assert [name for more, name in opened if "open" in more] == ["manifests/core/flash_attn.yaml"]


def test_the_live_page_asks_what_its_address_says(tmp_path: Path, live: str) -> None:
    question = json.dumps(
        {"request": {"head_size": "128", "dtype": "bfloat16", "sinks": "true"}, "on": "h100"}
    )
    shown = page_after(f"{live}#{question}", tmp_path)
    assert "flashinfer/fa3</code> is selected</h2>" in shown
    assert re.search(r'id="said"[^>]*>flashinfer/fa3 is selected<', shown)
    assert "sinks=true costs you flash_attn/fa3" in shown


def test_a_notebook_shows_the_answer_with_a_style_of_its_own(tmp_path: Path) -> None:
    """Notebooks put what a cell returns into their page with `innerHTML`."""
    shown = json.dumps(notebook_html(explain(ASKED, environment="h100", catalog=Catalog.load("core"))))
    script = (
        f"const cell = document.getElementById('cell'); cell.innerHTML = {shown.replace('</', '<' + chr(92) + '/')};"
        "const look = name => { const s = getComputedStyle(document.querySelector(name)); return [s.borderRadius, s.maxWidth]; };"
        "document.title = JSON.stringify([cell.innerText.trim().split('\\n')[0], look('#cell .verdict'), look('#other'), look('body')]);"
    )
    file = tmp_path / "notebook.html"
    file.write_text(
        f'<title></title><body><div class="verdict" id="other"></div><div id="cell"></div><script>{script}</script>',
        encoding="utf-8",
    )
    title = re.search(r"<title>(.*?)</title>", page_after(file.as_uri(), tmp_path))
    assert title is not None
    assert json.loads(title[1]) == [
        "flash_attn/fa3 is selected",
        ["8px", "none"],
        ["0px", "none"],
        ["0px", "none"],
    ]


@pytest.mark.skipif(
    not (
        shutil.which("node")
        and any(Path(p, "axe-core").is_dir() for p in os.environ.get("NODE_PATH", "").split(os.pathsep) if p)
    ),
    reason="no axe-core in NODE_PATH",
)
def test_axe_finds_nothing(tmp_path: Path, live: str) -> None:
    catalog = Catalog.load("core")
    texts = {
        "refused": report_html(explain(ASKED, environment="a100", catalog=catalog)),
        "selected": report_html(explain(ASKED, environment="h100", catalog=catalog)),
        "matrix": matrix_html(catalog),
    }
    urls = [live]
    for name, text in texts.items():
        file = tmp_path / f"{name}.html"
        file.write_text(text, encoding="utf-8")
        urls.append(file.as_uri())
    done = subprocess.run(
        ["node", str(AXE), CHROMIUM, *urls], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == []
