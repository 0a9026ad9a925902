"""Files of fleets: what they stand for, and every mistake with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selector import Catalog, ManifestError
from selector.fleet import Fleet, load_fleet

CATALOG = Catalog.load()


def load(folder: Path, text: str) -> Fleet:
    path = folder / "fleet.yaml"
    path.write_text(text)
    return load_fleet(path, CATALOG)


def faults(folder: Path, text: str) -> list[tuple[int, str, str | None]]:
    """Those of the fleet's own file."""
    with pytest.raises(ManifestError) as caught:
        load(folder, text)
    return [(f.at.line, f.message, f.hint) for f in caught.value.faults if f.at.file.endswith("fleet.yaml")]


def test_presets_files_profiles_and_facts(tmp_path: Path) -> None:
    (tmp_path / "lab.json").write_text(
        json.dumps(
            {"environment": 1, "name": "machine", "facts": {"device": "cpu", "packages": {"torch": "2.9.0"}}}
        )
    )
    fleet = load(
        tmp_path,
        """\
fleet: 1
title: all of them
machines:
  - {on: h100, count: 64}
  - {on: h100-sxm, count: 2, profile: bare}
  - {on: lab.json, count: 3, with: {triton: "1.0"}}
  - on: ./lab.json
    without: [torch]
  - {on: a100, facts: {cudnn_version: "9.1", sm: "8.6"}, without: [flash-attn]}
  - {on: a100}
  - {on: a100}
""".replace("sm:", "compute_capability:"),
    )
    assert (fleet.title, fleet.total) == ("all of them", 73)
    assert [(m.name, m.count) for m in fleet.machines] == [
        ("h100", 64),
        ("h100 (bare)", 2),
        ("lab (+triton)", 3),
        ("lab (-torch)", 1),
        ("a100 (-flash-attn, cudnn_version, compute_capability)", 1),
        ("a100", 1),
        ("a100 #2", 1),
    ]
    full, bare, lab, less, changed, plain, _ = (m.environment for m in fleet.machines)
    assert "flash-attn" in full.facts["packages"] and "flash-attn" not in bare.facts["packages"]
    assert lab.facts["packages"]["triton"].version == "1.0"
    assert "torch" in lab.facts["packages"] and "torch" not in less.facts["packages"]
    assert (changed.facts["compute_capability"], plain.facts["compute_capability"]) == ("8.6", "8.0")
    assert changed.facts["cudnn_version"] == "9.1"
    assert "flash-attn" not in changed.facts["packages"]


def test_every_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        'environment: 1\nname: bad\nfacts: {device: cuda, compute_capability: "nine"}\n'
    )
    found = faults(
        tmp_path,
        """\
fleet: 1
machines:
  - {on: h1000, count: 64}
  - {on: a100, profile: slim}
  - {on: a100, without: [flash-atn]}
  - {on: nowhere.json}
  - {on: bad.yaml}
  - {on: l4, name: same}
  - {on: t4, name: same}
""",
    )
    told = {line: (message, hint) for line, message, hint in found}
    assert "no preset environment is called 'h1000'" in told[3][0] and "did you mean h100?" in str(told[3][1])
    assert "no software profile is called 'slim'" in told[4][0]
    assert "flash-atn is not in a100's profile" in told[5][0] and "flash-attn" in str(told[5][1])
    assert "cannot read the environment" in told[6][0]
    assert "does not describe a machine" in told[7][0]
    assert "same is there already" in told[9][0]
    with pytest.raises(ManifestError) as caught:
        load_fleet(tmp_path / "fleet.yaml", CATALOG)
    inner = [f for f in caught.value.faults if f.at.file.endswith("bad.yaml")]
    assert [f.at.line for f in inner] == [3] and "compute_capability" in inner[0].message


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{on: h100, count: 0}", "count"),
        ("{on: h100, count: many}", "count"),
        ("{count: 3}", "on"),
        ("{on: h100, cuont: 3}", "did you mean count"),
        ("{on: h100, facts: {compute_capability: 9.0}}", "quote"),
        ("{on: h100, facts: {head_size: 3}}", "head_size"),
        ("{on: h100, with: {flash-attn: 2}}", "flash-attn"),
    ],
)
def test_the_schema_catches_the_rest(tmp_path: Path, entry: str, told: str) -> None:
    found = faults(tmp_path, f"fleet: 1\nmachines:\n  - {entry}\n")
    assert all(line == 3 for line, _, _ in found)
    assert told in " ".join(f"{m} {h}" for _, m, h in found)


def test_packages_that_nothing_asks_for(tmp_path: Path) -> None:
    """Of a preset and of a file."""
    (tmp_path / "lab.json").write_text(
        '{"environment": 1, "name": "machine", "facts": {"device": "cpu", "packages": {}}}'
    )
    found = faults(
        tmp_path,
        "fleet: 1\nmachines:\n  - {on: h100, with: {flash_attn: '2.8'}}\n  - {on: lab.json, with: {nope: '1'}}\n"
        "  - {on: h100, with: {flash-attn: '2.8'}}\n",
    )
    assert found == [
        (3, "nothing here asks for a package called flash_attn", "did you mean flash-attn?"),
        (4, "nothing here asks for a package called nope", None),
    ]


@pytest.mark.parametrize(
    "text", ["", "fleet: 1\n", "fleet: 1\nmachines: []\n", "fleet: 2\nmachines: [{on: h100}]\n"]
)
def test_files_that_are_no_fleet(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text)


def test_profiles_and_packages_of_files(tmp_path: Path) -> None:
    (tmp_path / "lab.json").write_text(
        '{"environment": 1, "name": "machine", "facts": {"device": "cpu", "packages": {}}}'
    )
    found = faults(
        tmp_path,
        "fleet: 1\nmachines:\n  - {on: lab.json, profile: bare}\n  - {on: lab.json, without: [torch]}\n",
    )
    assert [(line, message) for line, message, _ in found] == [
        (3, "a profile is for presets; a file says what is installed"),
        (4, "torch is not installed on lab.json"),
    ]
