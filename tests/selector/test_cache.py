"""The cache on disk: what a warm start imports, processes that race for it, and entries that are none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from selector import Catalog, Environment, cache, catalog, explain

ROOT = Path(__file__).resolve().parents[2]

#: Needed for reading YAML, for mistakes, for pages, proofs or kernels; a warm start needs none of it.
HEAVY = (
    "torch", "numpy", "jsonschema", "referencing", "rich", "jinja2", "z3", "transformers", "backends", "dataclasses", "yaml",
    "selector.loader", "selector.manifest", "selector.validate", "selector.program", "selector.report",
    "selector.reasons", "argparse", "importlib.metadata",
)  # fmt: skip

SELECT = """
import selector
from selector import Environment, Request, select
chosen = select(Request(head_size=128, dtype="bf16"), environment="h100")
assert chosen.id == "flash_attn/fa3", chosen
"""
PRESENT = f"import sys; print([m for m in {HEAVY!r} if m in sys.modules])"


def start(source: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env={**os.environ, cache.VARIABLE: str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def test_a_warm_start_imports_nothing_heavy(tmp_path: Path) -> None:
    ended(start(SELECT, tmp_path))
    assert {p.name.split("-")[0] for p in tmp_path.iterdir()} == {"catalog", "file", "vocabulary"}
    assert ended(start(SELECT + PRESENT, tmp_path)) == "[]\n"


def test_processes_that_race_for_an_empty_cache(tmp_path: Path) -> None:
    folder, gate = tmp_path / "cache", tmp_path / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.001)\n"
    processes = [
        start("import selector.selection, selector.loader\n" + wait + SELECT, folder) for _ in range(4)
    ]
    gate.touch()
    for process in processes:
        ended(process)
    names = [path.name for path in folder.iterdir()]
    assert not [name for name in names if name.endswith(".tmp")]
    assert len([name for name in names if name.startswith("catalog-")]) == 1
    for path in folder.iterdir():
        kind, _, key = path.name.removesuffix(".json").partition("-")
        os.environ[cache.VARIABLE], kept = str(folder), os.environ[cache.VARIABLE]
        try:
            assert cache.load(kind, key) is not None
        finally:
            os.environ[cache.VARIABLE] = kept


# -- entries that are none ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own cache with the entries of the core pack."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    fresh()
    answer()
    assert len(list(tmp_path.iterdir())) >= 2
    return tmp_path


def fresh() -> None:
    catalog._VOCABULARIES.clear()
    catalog._SEEN.clear()


def answer() -> str:
    loaded = Catalog.load("core")
    asked = {"head_size": 256, "dtype": "bf16", "kv_cache_dtype": "fp8", "sinks": True}
    machine = Environment.preset("h100", vocabulary=loaded.vocabulary)
    return json.dumps(explain(asked, environment=machine, catalog=loaded).to_dict(), sort_keys=True)


def head(path: Path, body: bytes, *, form: int = cache.FORMAT) -> bytes:
    kind, _, key = path.name.removesuffix(".json").partition("-")
    return f"{cache.NAME} {form} {kind} {key} {sha256(body).hexdigest()}\n".encode() + body


def flipped(path: Path, data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def body(data: bytes) -> bytes:
    return data.partition(b"\n")[2]


@pytest.mark.parametrize(
    "spoil",
    [
        flipped,
        lambda path, data: b"",
        lambda path, data: data[: len(data) // 2],
        lambda path, data: data + b"\n",
        lambda path, data: b"\x80\x04\x95" + data,
        lambda path, data: head(path, body(data), form=cache.FORMAT + 1),
        lambda path, data: head(path.with_name(path.name.replace("-", "-0")), body(data)),
        lambda path, data: head(path, b"\xff" + body(data)),
        lambda path, data: head(path, b""),
        lambda path, data: head(path, b"[]\n[]\n[]\n[]"),
        lambda path, data: head(path, b"null\n\nnull\nnull"),
        lambda path, data: head(path, b'["a", "b"]\n{}\n{}\n{}'),
        lambda path, data: head(path, b"[" * 100_000),
        lambda path, data: head(path, body(data).replace(b"[", b"{", 1)),
    ],
    ids=["flipped", "empty", "half", "longer", "a pickle", "another form", "another key", "no text", "no line", "lists",
         "nulls", "mappings", "deep", "broken JSON"],
)  # fmt: skip
def test_what_is_damaged_or_foreign_is_made_anew(folder: Path, spoil: Callable[[Path, bytes], bytes]) -> None:
    wanted = answer()
    entries = {path: path.read_bytes() for path in folder.iterdir()}
    for path, data in entries.items():
        path.write_bytes(spoil(path, data))
    fresh()
    assert answer() == wanted
    catalogs = [path for path in entries if path.name.startswith("catalog-")]
    assert all(path.read_bytes() == entries[path] for path in catalogs)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files here")
def test_what_others_may_write_to_is_not_read(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o666)
        kind, _, key = path.name.removesuffix(".json").partition("-")
        assert cache.load(kind, key) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipes_in_place_of_entries_are_not_waited_for(folder: Path) -> None:
    entries = list(folder.iterdir())
    for path in entries:
        path.unlink()
        os.mkfifo(path)
    process = start("from tests.selector.test_cache import answer; answer()", folder)
    try:
        ended(process)
    finally:
        process.kill()
        process.communicate()
    assert all(path.is_file() for path in entries if path.name.startswith("catalog-"))


@pytest.mark.parametrize("name", ["cache.py", "schema/manifest.schema.json"])
def test_other_code_or_another_schema_makes_other_entries(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "selector"
    shutil.copytree(ROOT / "selector", code, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "_HERE", str(code))
    found = []
    for _ in range(2):
        monkeypatch.setattr(cache, "_STAMP", [])
        found.append(cache.stamp())
    assert found[0] == found[1]
    with (code / name).open("a", encoding="utf-8") as file:
        file.write("\n")
    monkeypatch.setattr(cache, "_STAMP", [])
    assert cache.stamp() != found[0]


def test_places_that_cannot_hold_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = answer()
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    looped = tmp_path / "loop"
    looped.symlink_to(looped)
    for place in (blocked, looped, Path("/proc/self"), tmp_path / "\udc99"):
        monkeypatch.setenv(cache.VARIABLE, str(place))
        fresh()
        assert answer() == wanted


def test_an_edit_makes_another_entry(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("edited")
    (root / "p").mkdir()
    (root / "vocabulary.yaml").write_bytes((ROOT / "manifests" / "vocabulary.yaml").read_bytes())
    (root / "p" / "pack.yaml").write_text("pack: 1\nname: p\n")
    manifest = root / "p" / "m.yaml"
    text = "manifest: 1\nname: m\nrequires: {device: any}\nsupports: {dtype: any, head_size: {max: 64}}\n"
    for limit, selected in ((64, None), (128, "m"), (64, None)):
        manifest.write_text(text.replace("64", str(limit)))
        os.utime(manifest, (1, 1))  # nor does it go by times
        loaded = Catalog.load("p", manifests=root)
        report = explain({"head_size": 100, "dtype": "bf16"}, environment="h100", catalog=loaded)
        assert report.selected == selected
