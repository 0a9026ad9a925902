"""The live page: the report, asked again as a field changes. Local only (127.0.0.1), backed by the real engine.

Manifests are read again when a file has changed; a broken edit leaves the last good catalog in use and shows its faults.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from selector.catalog import Catalog, pack_names
from selector.environment import Environment, preset_names
from selector.errors import ManifestError, SelectorError, printable
from selector.locations import manifests_root
from selector.sources import files_of, pack_folder

__all__ = ["Packs", "make_server"]

#: Bytes of a question that are read.
LIMIT = 64 << 10
#: Digits of its length, which is no number to make of more.
DIGITS = 20


class Packs:
    """The packs of a manifests directory, and those given by their own, read again when a file changes."""

    def __init__(self, root: str | None = None) -> None:
        self.root = manifests_root() if root is None else root
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[str, Catalog]] = {}
        self._folders: frozenset[str] = frozenset()
        self.faults: dict[str, str] = {}

    def version(self) -> str:
        """Changes when a manifest of the directory, or of a pack that was asked for, is saved."""
        paths = [
            os.path.join(folder, name)
            for folder, _, names in os.walk(self.root)
            for name in names
            if name.endswith((".yaml", ".yml"))
        ]
        stamps = []
        for path in (*paths, *files_of(self._folders, self.root)):
            try:
                status = os.stat(path)
            except OSError:
                continue
            stamps.append((path, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino))
        return f"{hash(tuple(sorted(stamps))) & (1 << 64) - 1:x}"

    def _watch(self, pack: str) -> None:
        """Look at a pack's own directory too, where it is not under the root."""
        folder = pack_folder(pack, self.root)
        if folder is not None and not folder.startswith(os.path.join(self.root, "")):
            with self._lock:
                self._folders |= {folder}

    def catalog(self, pack: str) -> Catalog:
        """The pack as it is now, or as it last was good (`faults` says what is wrong with the edit)."""
        if pack not in self._kept:
            self._watch(pack)
        version = self.version()
        with self._lock:
            known = self._kept.get(pack)
            if known is not None and known[0] == version:
                return known[1]
            try:
                catalog = Catalog.load(pack, manifests=self.root)
            except ManifestError as error:
                if known is None:
                    raise
                self.faults[pack] = str(error)
                self._kept[pack] = (version, known[1])
                return known[1]
            self.faults.pop(pack, None)
            self._kept[pack] = (version, catalog)
            return catalog


def answer(packs: Packs, question: Mapping[str, Any]) -> str:
    """The answer to one question as a piece of the page. Mistakes become a piece of the page too."""
    from html import escape

    from selector.preferences import from_call
    from selector.render.html import answer_html
    from selector.selection import decide

    pack = str(question.get("pack") or "core")
    try:
        catalog = packs.catalog(pack)
        request = catalog.request(dict(question.get("request") or {}))
        on = str(question.get("on") or "")
        machine = (
            Environment.preset(on, root=packs.root, vocabulary=catalog.vocabulary)
            if on
            else Environment.probe()
        )
        backend = question.get("backend")
        preferences = tuple(from_call(str(backend) if backend else None, None, None, "flag"))
        piece = answer_html(
            decide(request, catalog, machine, preferences, strict=bool(question.get("strict")))
        )
    except (SelectorError, TypeError, ValueError) as error:
        return f'<div class="verdict bad" role="alert"><pre>{escape(printable_lines(str(error)))}</pre></div>'
    fault = packs.faults.get(pack)
    if fault is not None:
        head = "The manifests do not load; this is the last good state."
        piece = f'<div class="verdict bad" role="alert"><p>{head}</p><pre>{escape(printable_lines(fault))}</pre></div>{piece}'
    return piece


def printable_lines(text: str) -> str:
    """Text of several lines without control characters."""
    return "\n".join(printable(line) for line in text.splitlines())


def make_server(
    port: int = 0, root: str | None = None, pack: str = "core", on: str = ""
) -> ThreadingHTTPServer:
    """A server on 127.0.0.1; `serve_forever` runs it."""
    packs = Packs(root)
    packs.catalog(pack)

    class Handler(BaseHTTPRequestHandler):
        server_version = "attn-select"
        sys_version = ""

        def do_GET(self) -> None:
            if not self._local():
                return
            try:
                url = urlsplit(self.path)
            except ValueError:
                self._send("no such address", "text/plain", 400)
                return
            if url.path == "/version":
                self._send(packs.version(), "text/plain")
            elif url.path == "/":
                self._page(parse_qs(url.query).get("pack", [pack])[0])
            else:
                self._send("not found", "text/plain", 404)

        def do_POST(self) -> None:
            if not self._local():
                return
            length = self.headers.get("Content-Length", "")
            if self.path != "/answer":
                self._send("not found", "text/plain", 404)
                return
            if not length.isascii() or not length.isdigit() or len(length) > DIGITS or int(length) > LIMIT:
                self._send(f"Content-Length is a number up to {LIMIT}", "text/plain", 400)
                return
            try:
                question = json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError):
                question = None
            if not isinstance(question, dict) or not isinstance(question.get("request", {}), dict):
                self._send("a question is a JSON object", "text/plain", 400)
                return
            self._send(answer(packs, question), "text/html")

        def _page(self, name: str) -> None:
            from selector.render.html import live_html

            try:
                catalog = packs.catalog(name)
                presets = {"": "this machine", **preset_names(packs.root)}
                self._send(live_html(catalog, presets, pack_names(packs.root), name, on), "text/html")
            except SelectorError as error:
                self._send(printable_lines(str(error)), "text/plain", 404)

        def _local(self) -> bool:
            """Only this machine's own pages may ask: another site's page would carry another host or origin."""
            host = (self.headers.get("Host") or "").rpartition(":")[0] or (self.headers.get("Host") or "")
            origin = self.headers.get("Origin")
            try:
                asking = None if origin is None else urlsplit(origin).hostname
            except ValueError:
                self._send("Origin is no address", "text/plain", 400)
                return False
            good = host in ("127.0.0.1", "localhost") and (
                origin is None or asking in ("127.0.0.1", "localhost")
            )
            if not good:
                self._send("only for this machine", "text/plain", 403)
            return good

        def _send(self, text: str, kind: str, status: int = 200) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            try:
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet: the page shows what there is to see."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server
