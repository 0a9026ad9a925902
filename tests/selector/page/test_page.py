"""The pages: self-contained, escaped, linked to the manifests' lines; and the server behind the live one."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from selector import Catalog, explain
from selector.cli import main
from selector.locations import manifests_root
from selector.serve import make_server

pytest.importorskip("jinja2")

ASKED = {"head_size": 128, "dtype": "bf16", "kv_cache_dtype": "fp8_e4m3", "per_head_scales": True}
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Reader(HTMLParser):
    """Collects ids and links, and fails on tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        for name in ("href", "src"):
            if found.get(name):
                self.links.append(str(found[name]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_report_is_one_file_whose_links_lead_somewhere() -> None:
    text = explain(ASKED, environment="a100", catalog=Catalog.load()).to_html()
    page = Reader(text)
    inner = [link[1:] for link in page.links if link.startswith("#")]
    assert len(inner) > 20
    assert set(inner) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith(("#", "https://")) for link in page.links)
    assert "default-src 'none'" in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)


def test_text_from_manifests_is_escaped(tmp_path: Path) -> None:
    root = tmp_path / "manifests"
    shutil.copytree(manifests_root(), root)
    evil = "manifest: 1\nname: evil\ntitle: '<script>alert(1)</script>'\nrequires: {device: any}\n"
    evil += "supports: {head_size: 1, dtype: any}\nsource: 'javascript:alert(1)'\n"
    (root / "core" / "evil.yaml").write_text(evil, encoding="utf-8")
    text = explain(ASKED, environment="a100", catalog=Catalog.load(manifests=root)).to_html()
    assert "<script>alert" not in text
    assert 'href="javascript' not in text


def test_the_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "matrix.html"
    assert main(["matrix", "--html", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    Reader(text)
    assert "flash_attn/fa3" in text
    assert "per_head_scales" in text
    assert (
        main(["explain", "--on", "h100", "head_size=64", "dtype=bf16", "--html", str(tmp_path / "r.html")])
        == 0
    )
    Reader((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert main(["explain", "--on", "h100", "head_size=64", "dtype=bf16", "--html", str(tmp_path)]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_notebook_shows_the_answer() -> None:
    shown = explain(ASKED, environment="h100", catalog=Catalog.load())._repr_html_()
    assert "flash_attn/fa3" in shown
    assert "<html" not in shown


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    root = tmp_path / "manifests"
    shutil.copytree(manifests_root(), root)
    made = make_server(0, str(root))
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}", root
    made.shutdown()
    made.server_close()
    thread.join(5)


def ask(url: str, question: Any, **headers: str) -> tuple[int, str]:
    data = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_live_page_answers_and_follows_edits(server: tuple[str, Path]) -> None:
    url, root = server
    status, page = ask(f"{url}/", None)
    assert status == 200
    Reader(page)
    assert 'name="per_head_scales"' in page
    question = {"request": {**ASKED}, "on": "h100", "pack": "core"}
    assert "flash_attn/fa3</code> is selected" in ask(f"{url}/answer", question)[1]
    before = ask(f"{url}/version", None)[1]
    manifest = root / "core" / "flash_attn.yaml"
    good = manifest.read_text(encoding="utf-8")
    manifest.write_text(good.replace("multiple_of", "multipel_of"), encoding="utf-8")
    assert ask(f"{url}/version", None)[1] != before
    broken = ask(f"{url}/answer", question)[1]
    assert "did you mean multiple_of" in broken
    assert "flash_attn/fa3</code> is selected" in broken
    manifest.write_text(good, encoding="utf-8")
    assert "did you mean" not in ask(f"{url}/answer", question)[1]
    wrong = {"request": {"hed_size": "1"}, "on": "h100"}
    assert "did you mean head_size" in ask(f"{url}/answer", wrong)[1]


def test_a_pack_outside_the_directory_is_followed_too(server: tuple[str, Path], tmp_path: Path) -> None:
    """Also an edit that changes neither size nor time of modification."""
    url, root = server
    pack = tmp_path / "own"
    shutil.copytree(root / "core", pack)
    question = {"request": {**ASKED}, "on": "h100", "pack": f"{pack}/"}
    assert "flash_attn/fa3</code> is selected" in ask(f"{url}/answer", question)[1]
    before = ask(f"{url}/version", None)[1]
    file = pack / "pack.yaml"
    status = file.stat()
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("flash_attn/fa3", "flash_attn/fa2"), encoding="utf-8")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_size == status.st_size
    assert ask(f"{url}/version", None)[1] != before
    assert "flash_attn/fa3</code> is selected" not in ask(f"{url}/answer", question)[1]


@pytest.mark.parametrize(
    ("line", "headers"),
    [
        ("GET / HTTP/1.0", {"Origin": "http://[bad"}),
        ("GET http://[bad HTTP/1.0", {}),
        ("POST /answer HTTP/1.0", {"Content-Length": "\u00b2"}),
        ("POST /answer HTTP/1.0", {"Content-Length": "9" * 5000}),
        ("POST /answer HTTP/1.0", {"Content-Length": "-1"}),
        ("POST /answer HTTP/1.0", {"Content-Length": "100000"}),
        ("POST /answer HTTP/1.0", {}),
    ],
    ids=["origin", "address", "digit", "digits", "negative", "large", "none"],
)
def test_what_is_no_question_is_answered_400(
    line: str, headers: dict[str, str], server: tuple[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    port = int(server[0].rpartition(":")[2])
    lines = [line, "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        with connection.makefile("rb") as said:
            answer = said.readline()
    assert answer.split()[1:2] == [b"400"]
    assert "Traceback" not in capfd.readouterr().err


def test_only_this_machine_may_ask(server: tuple[str, Path]) -> None:
    url, _ = server
    assert ask(f"{url}/", None, Host="evil.example")[0] == 403
    assert ask(f"{url}/answer", {}, Origin="https://evil.example")[0] == 403
    assert ask(f"{url}/answer", [])[0] == 400
    assert ask(f"{url}/etc/passwd", None)[0] == 404
