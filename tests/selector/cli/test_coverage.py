"""`attn-select coverage`: where nothing fits, on one machine, several, a fleet or any."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.catalog import Catalog
from selector.environment import Environment
from selector.request import Request
from selector.selection import decide
from tests.analysis.catalogs import small
from tests.selector.cli.command import Command

PACK = "policy: [{name: all, order: [a, b]}]\n"
A = "title: A\nrequires: {device: gpu}\nsupports: {size: {multiple_of: 8}, dtype: [f16, bf16], sinks: true}\n"
B = "title: B\nrequires: {device: any}\nsupports: {size: {max: 128}, dtype: [f16, bf16, f8]}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    small(tmp_path, PACK, a=A, b=B)
    for name, device in (("gpu", "gpu"), ("cpu", "cpu")):
        text = f"environment: 1\nname: {name}\ntitle: {name}\nfacts: {{device: {device}, packages: {{}}}}\n"
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    fleet = "fleet: 1\nmachines: [{on: gpu.yaml, count: 4}, {on: cpu.yaml, name: small one}]\n"
    (tmp_path / "fleet.yaml").write_text(fleet, encoding="utf-8")
    return tmp_path


def asked(command: Command, root: Path, *words: str) -> tuple[int, str]:
    ran = command("coverage", "--manifests", str(root), "--pack", "small", *words)
    return ran.code, ran.out


def test_the_holes_of_one_machine(command: Command, root: Path) -> None:
    code, out = asked(command, root, "--on", str(root / "gpu.yaml"), "dtype=f16")
    assert code == 0
    assert out.splitlines() == [
        "small on gpu",
        "Nothing is selected for",
        "  - size no multiple of 8, at least 129",
        "  - mla",
        "  - size no multiple of 8, sinks",
        "For every other such request something is selected: proved.",
        "Accepted on gpu for some such requests: a, b",
    ]


def test_what_is_given_narrows_it(command: Command, root: Path) -> None:
    where = str(root / "gpu.yaml")
    _, out = asked(command, root, "--on", where, "dtype=f16", "size=64", "mla=false")
    assert "Something is selected for every such request: proved." in out
    assert "Accepted on gpu for every such request: a" in out
    _, out = asked(command, root, "--on", where, "dtype=f4")
    assert "  - always" in out


def test_a_fleet_is_all_its_machines_together(command: Command, root: Path) -> None:
    code, out = asked(command, root, "--fleet", str(root / "fleet.yaml"), "dtype=f16", "size=64", "mla=false")
    assert code == 0
    assert out.splitlines() == [
        "small on gpu, small one",
        "Nothing is selected for",
        "  - sinks   (small one)",
        "For every other such request something is selected: proved.",
        "Accepted on all of them for some such requests: b",
        "Never accepted on all of them together: a (not on small one)",
    ]
    both = ("--on", str(root / "gpu.yaml"), "--on", str(root / "cpu.yaml"))
    assert asked(command, root, *both, "dtype=f16", "size=64", "mla=false")[1] == out.replace(
        "small one", "cpu"
    )


def test_on_any_machine_each_hole_has_an_example_that_holds(command: Command, root: Path) -> None:
    words = ("coverage", "--manifests", str(root), "--pack", "small", "dtype=f16", "--json")
    found = command(*words).json
    assert found["complete"] is True
    assert found["fields"] == {"dtype": "f16"}
    catalog = Catalog.load("small", manifests=root)
    for hole in found["holes"]:
        request = Request(hole["witness"]["request"], vocabulary=catalog.vocabulary)
        machine = hole["witness"]["environment"]
        environment = Environment(machine.get("facts", machine), vocabulary=catalog.vocabulary)
        assert request.to_dict()["dtype"] == "f16"
        assert decide(request, catalog, environment, ()).selected is None
    _, out = asked(command, root, "dtype=f16")
    assert "small on any machine of which every fact is known" in out
    assert "    e.g. " in out


def test_wrong_usage(command: Command, root: Path) -> None:
    assert command("coverage", "--profile", "bare").code == 2
    assert command("coverage", "--limit", "0").code == 2
    assert command("coverage", "--on", "h1000").code == 2
    assert command("coverage", "--fleet", str(root / "none.yaml")).code == 2
    few = asked(command, root, "--on", str(root / "gpu.yaml"), "--limit", "1")
    assert few[0] == 0
    assert "... and more (--limit)" in few[1]
