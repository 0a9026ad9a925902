"""The pictures of `docs/pages.md`, taken in headless Chromium: `python -m tests.docs.screenshots` writes them anew.

Pixels depend on the fonts of the machine, so that no test compares them; one checks that they are there and small.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from selector import Catalog, explain
from selector.render.html import matrix_html, report_html
from selector.serve import make_server
from tests.docs.pages import DOCS

__all__ = ["FOLDER", "LIMIT", "SHOTS"]

FOLDER = DOCS / "screenshots"

#: Bytes of one picture.
LIMIT = 150_000

ASKED = {"head_size": 128, "dtype": "bf16", "kv_cache_dtype": "fp8_e4m3", "per_head_scales": True}
LIVE = {"request": {"head_size": "128", "dtype": "bfloat16", "sinks": "true"}, "on": "h100"}


class Shot(NamedTuple):
    """One picture: which page, how wide and high, and whether dark."""

    page: str
    width: int
    height: int
    dark: bool


SHOTS = {
    "report-light.png": Shot("report", 1000, 720, False),
    "report-dark.png": Shot("report", 1000, 720, True),
    "report-phone.png": Shot("report", 390, 760, False),
    "matrix-light.png": Shot("matrix", 1100, 640, False),
    "matrix-phone.png": Shot("matrix", 390, 760, True),
    "live-dark.png": Shot("live", 1200, 760, True),
    "live-phone.png": Shot("live", 390, 760, False),
}


def main() -> int:
    """Write every picture."""
    chromium = next(
        (path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None
    )
    if chromium is None:
        print("no Chromium", file=sys.stderr)
        return 1
    catalog = Catalog.load("core")
    server = make_server(0, on="h100")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        texts = {
            "report": report_html(explain(ASKED, environment="a100", catalog=catalog)),
            "matrix": matrix_html(catalog),
        }
        for name, text in texts.items():
            Path(folder, f"{name}.html").write_text(text, encoding="utf-8")
        for name, shot in SHOTS.items():
            url = Path(folder, f"{shot.page}.html").as_uri()
            if shot.page == "live":
                url = f"http://127.0.0.1:{server.server_address[1]}/#{quote(json.dumps(LIVE))}"
            _take(chromium, url, shot, FOLDER / name, folder)
            print(f"{name}: {(FOLDER / name).stat().st_size} bytes")
    server.shutdown()
    return 0


def _take(chromium: str, url: str, shot: Shot, target: Path, folder: str) -> None:
    """One picture."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--hide-scrollbars",
    ]
    flags += [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--virtual-time-budget=4000",
    ]
    flags += [
        f"--blink-settings=preferredColorScheme={0 if shot.dark else 1}",
        f"--user-data-dir={folder}/profile-{target.stem}",
    ]
    command = [chromium, *flags, f"--window-size={shot.width},{shot.height}", f"--screenshot={target}", url]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    sys.exit(main())
