"""Snapshots: the same decision again, and what changed where it is another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from selector import Catalog, Environment, explain
from selector.cli import main
from selector.locations import manifests_root
from selector.snapshot import SnapshotError, load, replay, without_paths
from selector.vocabulary import PackageState


def saved(path: Path, **fields: Any) -> dict[str, Any]:
    report = explain(fields, environment="h100", catalog=Catalog.load())
    report.save(path)
    return load(path)


def test_a_snapshot_decides_the_same_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "decision.json"
    recorded = saved(file, head_size=128, dtype="bf16", kv_cache_dtype="fp8_e4m3", per_head_scales=True)
    again = replay(recorded)
    assert again.differences == ()
    again.report.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()


def test_an_edit_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "decision.json"
    saved(file, head_size=128, dtype="bf16", kv_cache_dtype="fp8_e4m3", per_head_scales=True)
    edited = tmp_path / "manifests"
    shutil.copytree(manifests_root(), edited)
    manifest = edited / "core" / "flash_attn.yaml"
    text = manifest.read_text(encoding="utf-8")
    assert "per_head_scales: true" in text
    manifest.write_text(text.replace("per_head_scales: true", "per_head_scales: false"), encoding="utf-8")
    assert main(["replay", str(file), "--manifests", str(edited)]) == 1
    out = capsys.readouterr().out
    assert "selected: flash_attn/fa3, now nothing" in out
    assert main(["replay", str(file)]) == 0
    assert "the same decision" in capsys.readouterr().out


def test_nothing_private_is_written(tmp_path: Path) -> None:
    broken = PackageState(
        "2.8.3", "broken import", "ImportError: /home/alice/env/lib/x.so: undefined symbol: y"
    )
    environment = Environment.preset("h100").with_packages({"flash-attn": broken})
    report = explain({"head_size": 128, "dtype": "bf16"}, environment=environment, catalog=Catalog.load())
    report.save(tmp_path / "s.json")
    text = (tmp_path / "s.json").read_text(encoding="utf-8")
    assert "alice" not in text.replace("/rejected", "")
    assert "undefined symbol" in text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/a b: no", "<path> b: no"),
        ("cannot open C:\\Users\\x\\y.dll", "cannot open <path>"),
        ("no path here", "no path here"),
    ],
)
def test_paths_are_replaced(text: str, clean: str) -> None:
    assert without_paths(text) == clean


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"snapshot": 2}',
        '{"snapshot": 1}',
        "[" * 100_000,
        '{"snapshot": 1, "request": []}',
    ],
)
def test_what_is_no_snapshot_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    with pytest.raises(SnapshotError):
        load(tmp_path / "x.json")
    assert main(["replay", str(tmp_path / "x.json")]) == 2


@pytest.mark.parametrize("strict", ["x", [], None, 1])
def test_strict_is_true_or_false(strict: object, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    recorded = saved(file, head_size=128, dtype="bf16")
    file.write_text(json.dumps({**recorded, "strict": strict}), encoding="utf-8")
    with pytest.raises(SnapshotError, match="strict"):
        load(file)
    assert main(["replay", str(file)]) == 2


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot read"):
        load(tmp_path / "none.json")


def test_json_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "decision.json"
    saved(file, head_size=64, dtype="fp16")
    assert main(["replay", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["same"] is True
    assert found["recorded"] == found["now"]
