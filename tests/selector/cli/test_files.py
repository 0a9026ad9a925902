"""`lint`, `schema`, `new` and `matrix`: the language's files, and the tables made of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from selector.catalog import Catalog, pack_names
from tests.selector.cli.command import ROOT, SMALL, Command, spawn

IN_SMALL = ("--manifests", str(SMALL), "--pack", "small")

EIGHT = """\
manifest: 1
name: swift
homepage: https://example.org/swift
requires: {devise: cuda}
supports:
  dtype: [float16, bfloat61]
  head_size: {multiple_off: 8, max: 256}
  sinks: maybe
  colour: red
rules:
  - when: {block_sise: 16}
    reject: no
variants:
  - name: two
    requires: {compute_capability: 8.0}
  - nam: three
"""


def test_the_shipped_manifests_have_no_fault(command: Command) -> None:
    ran = command("lint")
    assert ran.code == 0, ran.out
    assert "checked: no errors" in ran.out


@pytest.mark.parametrize("pack", pack_names())
def test_every_pack_alone(command: Command, pack: str) -> None:
    assert command("lint", str(ROOT / "manifests" / pack)).code == 0


def test_every_mistake_of_a_file_is_told_with_its_place_and_the_nearest_word(
    command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(EIGHT)
    ran = command("lint", str(path), "--manifests", str(SMALL), "--json")
    assert ran.code == 2
    faults = ran.json["faults"]
    assert ran.json["errors"] == len(faults)
    assert [(f["line"], f["column"]) for f in faults] == [
        (4, 12),
        (6, 20),
        (7, 15),
        (8, 10),
        (9, 3),
        (11, 12),
        (15, 36),
        (16, 5),
    ]
    hints = " ".join(str(f["hint"]) for f in faults)
    for word in ("device", "bfloat16", "multiple_of", "block_size", "name"):
        assert word in hints
    text = command("lint", str(path), "--manifests", str(SMALL)).out
    for fault in faults:
        assert f"{path}:{fault['line']}:{fault['column']}: " in text


def test_a_file_of_a_pack_is_held_against_its_pack(command: Command, manifests: Path) -> None:
    pack = manifests / "core"
    policy = pack / "pack.yaml"
    policy.write_text(policy.read_text().replace("flash_attn/fa3", "flash_attn/fa33", 1))
    ran = command("lint", str(policy), "--manifests", str(manifests))
    assert ran.code == 2
    assert "did you mean flash_attn/fa3?" in ran.out
    other = command("lint", str(pack / "reference.yaml"), "--manifests", str(manifests))
    assert other.code == 0
    whole = command("lint", str(manifests))
    assert whole.code == 2


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("environment.yaml", "environment: 1\nname: x\nfacts: {device: abacus}\n", "abacus"),
        ("pack.yaml", "pack: 1\nname: x\npolicy: [{name: a, order: [nobody]}]\n", "nobody"),
        ("software.yaml", "software: 1\npackages: {a: {version: 2.10}}\nprofiles: {}\n", "quote"),
        ("vocabulary.yaml", "vocabulary: 1\naxes: {a: {type: flagg}}\n", "flag"),
        ("other.yaml", "something: else\n", "no kind of file"),
        ("empty.yaml", "", "empty"),
        ("list.yaml", "- a\n", "mapping"),
        ("broken.yaml", "a: [1, 2\n", "broken.yaml:"),
    ],
)
def test_other_kinds_of_files(command: Command, tmp_path: Path, name: str, text: str, told: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    ran = command("lint", str(path))
    assert ran.code == 2
    assert told in ran.out


def test_lint_of_nothing(command: Command, tmp_path: Path) -> None:
    assert command("lint", str(tmp_path / "absent.yaml")).code == 2
    ran = command("lint", str(tmp_path))
    assert (ran.code, ran.err) == (2, f"error: lint {tmp_path}: no YAML file in it\n")


# -- schema -----------------------------------------------------------------------------------------------------------


def test_every_schema_is_one(command: Command) -> None:
    kinds = command("schema").out.split()
    assert kinds[0] == "axes"
    for kind in kinds[1:]:
        ran = command("schema", kind)
        Draft7Validator.check_schema(ran.json)


def test_axes_lists_every_axis(command: Command) -> None:
    names = list(Catalog.load().vocabulary.by_name)
    text = command("schema", "axes").out
    for name in names:
        assert f"  {name} " in text
    assert [a["name"] for a in command("schema", "axes", "--json").json] == names


def test_one_axis_in_full(command: Command) -> None:
    ran = command("schema", "axes", "kv_dtype")
    assert ran.out.startswith("kv_cache_dtype: choice, of the request\n")
    assert "fp8_e4m3  (also " in ran.out
    assert command("schema", "axes", "kv_dtipe").err.endswith("did you mean kv_cache_dtype?\n")


def test_the_axes_of_a_pack(command: Command) -> None:
    plain = {a["name"] for a in command("schema", "axes", "--json").json}
    more = {a["name"] for a in command("schema", "axes", "--json", "--pack", "transformer_engine").json}
    assert plain < more


def test_schema_usage(command: Command) -> None:
    assert "did you mean manifest?" in command("schema", "manifets").err
    assert command("schema", "manifest", "pack").code == 2


# -- new --------------------------------------------------------------------------------------------------------------


def test_a_new_backend_lints_and_is_chosen(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("new", "my_backend").code == 0
    assert command("lint", "my_backend").code == 0
    asked = ("explain", "--on", "h100", "head_size=128", "dtype=bf16", "--json")
    assert command(*asked, "--pack", "my_backend/").json["selected"] == "my_backend"
    both = command(*asked, "--pack", "my_backend/", "--pack", "core").json
    assert both["selected"] == "my_backend"
    assert "flash_attn/fa3" in [c["id"] for c in both["candidates"]]


def test_a_new_kernel_runs(command: Command, tmp_path: Path) -> None:
    made = spawn("new", "my_backend", "--kernel", cwd=tmp_path)
    assert made.code == 0, made.err
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    asked = ("run", "--pack", "my_backend/", "head_size=32", "num_heads=2", "--seq", "32", "--json")
    ran = spawn(*asked, "causal", env=env, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.json["ran"] == "my_backend"
    assert ran.json["within_bound"] is True
    refused = command(
        "explain", "--pack", str(tmp_path / "my_backend"), "--on", "cpu", "head_size=32", "sinks"
    )
    assert refused.code == 3


def test_what_a_new_kernel_does_not_honour_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib
    import sys

    import torch

    from backends._guard import NotSupported

    assert spawn("new", "my_other", "--kernel", "my_other_kernel", cwd=tmp_path).code == 0
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("my_other_kernel")
    try:
        q = torch.zeros(1, 4, 2, 8)
        call = module.make_call(q, q, q, softcap=5.0)
        with pytest.raises(NotSupported, match="softcap"):
            module.run(call)
    finally:
        del sys.modules["my_other_kernel"]


def test_a_new_backend_joins_a_pack(command: Command, manifests: Path) -> None:
    into = ("--into", str(manifests / "core"), "--manifests", str(manifests))
    ran = command("new", "my_backend", *into)
    assert ran.code == 0
    other = command("new", "my_other", *into, "--json").json
    assert other == {
        "name": "my_other",
        "files": [str(manifests / "core" / "my_other.yaml")],
        "joins": True,
        "kernel": None,
    }
    assert "add my_backend to the policy" in ran.out
    assert command("lint", str(manifests / "core"), "--manifests", str(manifests)).code == 0
    found = command("matrix", "--manifests", str(manifests), "--json").json
    assert "my_backend" in found["candidates"]


def test_new_overwrites_nothing_and_wants_a_name(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command("new", "mine")
    before = (tmp_path / "mine" / "mine.yaml").read_text()
    ran = command("new", "mine", "--kernel")
    assert (ran.code, ran.err) == (2, "error: mine/mine.yaml is there already; nothing was written\n")
    assert (tmp_path / "mine" / "mine.yaml").read_text() == before
    assert not (tmp_path / "mine_kernel.py").exists()
    for name in ("9lives", "a/b", "..", "a b", "x" * 99):
        assert command("new", name).code == 2
    assert command("new").code == 2
    assert command("new", "other", "--kernel", "not-a-module").code == 2


def test_new_declares_whatever_a_vocabulary_demands(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("new", "mine", "--manifests", str(SMALL)).code == 0
    assert command("lint", "mine", "--manifests", str(SMALL)).code == 0


# -- matrix -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", pack_names())
def test_every_axis_and_every_candidate_is_in_the_matrix(command: Command, pack: str) -> None:
    catalog = Catalog.load(pack)
    listed = [c.id for c in catalog.candidates if not c.abstract]
    axes = [a.name for a in catalog.vocabulary.axes if a.derive is None]
    for ran in (command("matrix", "--pack", pack), command("matrix", "--pack", pack, "--md", "--all")):
        assert ran.code == 0
        for name in (*listed, *axes):
            assert name in ran.out.replace("\\_", "_"), name


def test_columns_fit_the_terminal(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = command("matrix")
    assert max(len(line) for line in ran.out.splitlines()) <= 80


def test_markdown_tables_are_well_formed(command: Command) -> None:
    ran = command("matrix", "--md")
    rows = [line for line in ran.out.splitlines() if line.startswith("|")]
    assert rows
    width = 0
    for line in rows:
        count = line.replace("\\|", "").count("|")
        if line.startswith("| candidate"):
            width = count
        assert count == width
    assert "## Order: the first rule that holds" in ran.out


def test_a_cell_says_what_the_manifest_says(command: Command) -> None:
    ran = command("matrix", *IN_SMALL, "head_size", "sinks", "mla", "block_size", "dtype", "packages")
    lines = {line.split()[0]: line for line in ran.out.splitlines() if line.startswith("  s")}
    assert "8n, ≤256" in ran.out
    assert "float16, bfloat16" in ran.out
    assert "swift >=2,<3" in ran.out
    assert "swift/three" in lines
    found = command("matrix", *IN_SMALL, "--json").json["candidates"]
    assert found["swift/two"]["sinks"]["allowed"] == "-"
    assert found["slow"]["mla"]["allowed"] == "both"
    assert found["slow"]["sinks"]["allowed"] == "yes"
    assert found["swift/three"]["head_size"]["at"].endswith("swift.yaml:9:3")


def test_matrix_usage(command: Command) -> None:
    assert "did you mean head_size?" in command("matrix", "head_sise").err


# -- a new axis -------------------------------------------------------------------------------------------------------


def test_a_new_axis_works_everywhere_with_no_python_changed(command: Command, manifests: Path) -> None:
    vocabulary = manifests / "vocabulary.yaml"
    text = vocabulary.read_text()
    assert "attention_chunk" not in text
    vocabulary.write_text(
        text.rstrip("\n")
        + "\n  attention_chunk:\n    type: flag\n    of: request\n    title: attention chunk\n"
        + "    doc: Attention within chunks of fixed size.\n    aliases: [has_attention_chunk]\n"
    )
    fa3 = manifests / "core" / "flash_attn.yaml"
    lines = fa3.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if "name: fa3" in line)
    section = next(n for n in range(at, len(lines)) if lines[n].strip() == "supports:")
    indent = len(lines[section + 1]) - len(lines[section + 1].lstrip())
    lines.insert(section + 1, " " * indent + "attention_chunk: true\n")
    fa3.write_text("".join(lines))
    where = ("--manifests", str(manifests))
    asked = ("explain", *where, "--on", "h100", "head_size=128", "dtype=bf16", "has_attention_chunk")
    found = command(*asked, "--json").json
    assert found["request"]["attention_chunk"] is True
    assert found["selected"] == "flash_attn/fa3"
    assert [r["axis"] for r in found["rejected"]["flex_attention"]] == ["attention_chunk"]
    assert "attention_chunk: does not support attention chunk" in command(*asked, "--verbose").out
    assert "attention_chunk" in command("matrix", *where).out
    assert "attention_chunk" in command("matrix", *where, "--md").out
    assert "attention_chunk" in json.dumps(command("schema", "manifest", *where).json)
    assert "attention_chunk" in command("schema", "axes", *where).out
    assert command("lint", str(manifests)).code == 0
    from selector import Request

    catalog = Catalog.load("core", manifests=manifests)
    assert Request({"attention_chunk": True}, vocabulary=catalog.vocabulary).to_dict() == {
        "attention_chunk": True
    }
