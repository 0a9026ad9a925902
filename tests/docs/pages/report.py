"""`docs/reference/report.md`: the JSON forms of the command, from the report's schema and from real answers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT
from tests.docs.pages.markdown import fence, head
from tests.docs.pages.schemas import Walker
from tests.docs.session import Session

__all__ = ["pages"]

SCHEMA = ROOT / "selector" / "schema" / "report.schema.json"

#: Entries of a mapping and of a list that an example keeps, and characters of its texts.
KEPT, SHORT = 2, 200


def pages() -> dict[str, str]:
    """The page."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    lines = head(
        "JSON forms",
        "selector/schema/report.schema.json and answers of the command",
        "Every command takes `--json`. New keys may come at any time; what is there keeps its meaning within one `format`.",
    )
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder))
        lines += _report(schema, session)
        lines += _requests(session)
        lines += _plan(session)
        lines += _snapshot(session)
    return {"reference/report.md": "\n".join(lines).rstrip() + "\n"}


def _report(schema: dict[str, Any], session: Session) -> Iterator[str]:
    yield from [
        "## Report",
        "",
        "`attn-select explain --json`, `Report.to_dict()` and `Report.to_json()`:",
        "",
    ]
    walker = Walker(schema, {}, {})
    walker.top = "report"
    yield from walker.lines(3, "report")
    command = "attn-select explain --on a100 head_size=128 dtype=bf16 kv_cache_dtype=fp8_e4m3 per_head_scales --json"
    yield from _example(session, command)


def _requests(session: Session) -> Iterator[str]:
    yield from [
        "## Many requests",
        "",
        "`attn-select explain --requests FILE` reads one JSON object a line (`-`: standard input) and writes one a line, in order. The "
        "keys of a line: `request` (axis to value), `environment` (a preset's name, or axis to value; default: `--on`, else this "
        "machine), `backend`, `avoid`, `prefer`, `strict`. A line that cannot be answered becomes `error` and `line`, and the rest go "
        "on; the exit code is then 2.",
        "",
    ]
    asked = [
        {"request": {"head_size": 128, "dtype": "bf16"}, "environment": "h100"},
        {
            "request": {"head_size": 512, "dtype": "bf16"},
            "environment": {"device": "cuda", "compute_capability": "7.5"},
        },
        {"request": {"head_sise": 128}, "environment": "h100"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in asked)
    (session.folder / "layers.jsonl").write_text(text, encoding="utf-8")
    yield from fence("$ cat layers.jsonl\n" + text, "console")
    yield from _example(session, "attn-select explain --requests layers.jsonl --winners", cut=False)
    said = session.run("attn-select explain --requests layers.jsonl")
    first = json.loads(said.splitlines()[0])
    yield from ["Without `--winners` an answer has the reasons too. The first line, shortened:", ""]
    yield from fence(_shown(first), "json")


def _plan(session: Session) -> Iterator[str]:
    yield from ["## Plan", "", "`attn-select plan CONFIG --json`, shortened:", ""]
    yield from _example(session, "attn-select plan tests/data/configs/gemma-3-27b --on h100 --json")


def _snapshot(session: Session) -> Iterator[str]:
    yield from [
        "## Snapshot",
        "",
        "`attn-select explain --save FILE` and `Report.save(FILE)` write what a decision depended on, and the decision: no user names, "
        "paths or serial numbers. `attn-select replay FILE` decides again with today's manifests and shows what changed; it ends with 1 "
        "where something did.",
        "",
    ]
    session.run("attn-select explain --on t4 head_size=64 dtype=fp16 --save decision.json")
    found = json.loads((session.folder / "decision.json").read_text(encoding="utf-8"))
    yield from fence(_shown(found), "json")
    yield from ["`replay --json`:", ""]
    yield from fence(_shown(json.loads(session.run("attn-select replay decision.json --json"))), "json")


def _example(session: Session, command: str, cut: bool = True) -> Iterator[str]:
    """A command and what it says, as JSON cut to its form."""
    said = session.run(command)
    if not cut:
        yield from fence(f"$ {command}\n{said}", "console")
        return
    yield from fence(f"$ {command}", "console")
    yield from fence(_shown(json.loads(said)), "json")


def _shown(value: Any) -> str:
    """JSON with the first entries of long lists and mappings, the hash of the manifests left out (it changes with every edit)."""
    return json.dumps(_cut(value), indent=2, ensure_ascii=False)


def _cut(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        entries = list(value.items())
        if key in ("rejected", "packages") and len(entries) > KEPT:
            entries = [*entries[:KEPT], ("…", f"and {len(entries) - KEPT} more")]
        return {k: "…" if k in ("hash", "fingerprint") else _cut(v, k) for k, v in entries}
    if isinstance(value, list):
        shown = [_cut(item) for item in value[:KEPT]]
        return [*shown, f"… and {len(value) - KEPT} more"] if len(value) > KEPT else shown
    if isinstance(value, str) and len(value) > SHORT:
        return value[:SHORT] + "…"
    return value
