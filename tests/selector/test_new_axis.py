"""A new axis is one entry of the vocabulary, a new backend one file of YAML: no Python changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from selector import Catalog, Environment, ManifestError, Request, RequestError, explain, select
from selector.cli import main
from selector.locations import manifests_root
from selector.schema_build import build

AXIS = """
  attention_chunk:
    type: flag
    of: request
    title: chunked attention
    doc: Attention stays inside chunks of a fixed length.
    aliases: [chunked]
"""

BACKEND = """\
manifest: 1
name: my_kernel
title: My kernel
source: https://example.org/my_kernel
requires: {device: [cuda]}
supports:
  dtype: [float16, bfloat16]
  head_size: {multiple_of: 8, max: 128}
  attention_chunk: true
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the manifests with one axis more, which flash_attn/fa3 declares."""
    copy = tmp_path / "manifests"
    shutil.copytree(manifests_root(), copy)
    vocabulary = copy / "vocabulary.yaml"
    vocabulary.write_text(vocabulary.read_text(encoding="utf-8") + AXIS, encoding="utf-8")
    manifest = copy / "core" / "flash_attn.yaml"
    text = manifest.read_text(encoding="utf-8")
    mark = "\n      per_head_scales: true\n"
    assert text.count(mark) == 1
    manifest.write_text(
        text.replace(mark, mark + "      attention_chunk: true\n"),
        encoding="utf-8",
    )
    return copy


def test_request_and_explain(root: Path) -> None:
    catalog = Catalog.load("core", manifests=root)
    request = Request(head_size=128, dtype="bf16", chunked=True, vocabulary=catalog.vocabulary)
    assert request.to_dict()["attention_chunk"] is True
    report = explain(request, environment="h100", catalog=catalog)
    assert report.selected == "flash_attn/fa3"
    assert [r.axis for r in report.reasons("flash_attn/fa2")] == ["attention_chunk"]
    assert "chunked attention" in report.reasons("flash_attn/fa2")[0].message
    assert "attention_chunk" in report.to_text()
    with pytest.raises(RequestError, match="did you mean attention_chunk"):
        catalog.request(attention_chunks=True)


def test_command_and_matrix(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--manifests", str(root)]
    assert (
        main(["explain", "--on", "h100", *place, "head_size=128", "dtype=bf16", "attention_chunk", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["selected"] == "flash_attn/fa3"
    assert "attention_chunk" in {r["axis"] for r in found["rejected"]["flashinfer/fa2"]}
    assert main(["matrix", *place, "--md"]) == 0
    assert "attention_chunk" in capsys.readouterr().out
    assert main(["lint", *place]) in (0, 1)
    capsys.readouterr()
    assert main(["schema", "manifest", *place]) == 0
    assert "attention_chunk" in capsys.readouterr().out


def test_schema_completes_it(root: Path) -> None:
    catalog = Catalog.load("core", manifests=root)
    schema = json.dumps(build(catalog.vocabulary.raw)["manifest"])
    assert "attention_chunk" in schema


def test_the_variable_names_another_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTN_SELECTOR_MANIFESTS", str(root))
    assert Request(attention_chunk=True).to_dict() == {"attention_chunk": True}
    monkeypatch.delenv("ATTN_SELECTOR_MANIFESTS")
    with pytest.raises(RequestError):
        Request(attention_chunk=True)


def test_a_new_backend_is_one_file(root: Path) -> None:
    (root / "core" / "my_kernel.yaml").write_text(BACKEND, encoding="utf-8")
    catalog = Catalog.load("core", manifests=root)
    found = select(
        {"head_size": 64, "dtype": "bf16", "attention_chunk": True},
        environment=Environment.preset("a100"),
        catalog=catalog,
        backend="my_kernel",
    )
    assert found.id == "my_kernel"


def test_a_broken_edit_keeps_the_last_good_catalog(root: Path) -> None:
    import selector.selection as selection

    good = selection.reload(manifests=str(root))
    manifest = root / "core" / "flash_attn.yaml"
    manifest.write_text(
        manifest.read_text(encoding="utf-8").replace("multiple_of", "multipel_of"), encoding="utf-8"
    )
    try:
        with pytest.raises(ManifestError, match="multiple_of"):
            selection.reload(manifests=str(root))
        assert selection.default_state().catalog is good
        assert select(head_size=64, dtype="bf16").id
    finally:
        selection.reload()
