"""`attn-select coverage`: where nothing fits, on one machine, several, a fleet or any."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.catalog import Catalog
from selector.environment import Environment, preset_names
from selector.locations import manifests_root
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
        "  - mla",
        "  - size no multiple of 8 and at least 129",
        "  - size (no multiple of 8 and at most 128) and sinks",
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
    _, out = asked(command, root, "dtype=f16", "--anywhere")
    assert "small on any machine of which every fact is known" in out
    assert "    e.g. " in out
    without = asked(command, root, "dtype=f16")[1]  # there are no presets in this directory: it is the same
    conditions, same = ([x for x in text.splitlines() if "e.g." not in x] for text in (out, without))
    assert conditions == same


def test_without_machines_every_example_is_on_a_machine_that_exists(command: Command) -> None:
    """Only packages differ from a preset; with any combination of facts there are examples on no real machine."""
    asked = ("coverage", "--pack", "core", "--limit", "40", "head_size=128", "--json")
    real, anywhere = command(*asked).json, command(*asked, "--anywhere").json
    assert (real["presets"], anywhere["presets"]) == (True, False)
    presets = {n: Environment.preset(n) for n in preset_names(manifests_root())}
    known = [{k: v for k, v in p.to_dict().items() if k != "packages"} for p in presets.values()]
    odd = dict.fromkeys(("real", "anywhere"), 0)
    for name, found in (("real", real), ("anywhere", anywhere)):
        for hole in found["holes"]:
            machine = hole["witness"]["environment"]
            if isinstance(machine, str):
                assert machine in presets
                continue
            facts = {k: v for k, v in machine.items() if k != "packages"}
            odd[name] += facts not in known
    assert odd["real"] == 0 < odd["anywhere"]
    assert command("coverage", "--anywhere", "--on", "a100").code == 2


LIMITED = """
manifest: 1
name: mine
requires: {device: cuda}
supports: {dtype: [float16, bfloat16], head_size: {multiple_of: 8, max: 128}}
rules: [{when: {head_size: {min: 97}, dtype: float16}, reject: not with float16}]
"""


def test_a_condition_says_no_more_than_the_others_leave(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.yaml").write_text(LIMITED, encoding="utf-8")
    (folder / "pack.yaml").write_text("pack: 1\nname: mine\n", encoding="utf-8")
    words = ("coverage", "--pack", f"{folder}/", "--on", "a100")
    out = command(*words).out
    assert "  - head_size 97 to 128 and dtype float16\n" in out
    assert "  - head_size no multiple of 8 or at least 129\n" in out
    (hole,) = [h for h in command(*words, "--json").json["holes"] if len(h["parts"]) == 2]
    request = hole["witness"]["request"]
    assert (request["dtype"], request["head_size"] % 8, 97 <= request["head_size"] <= 128) == (
        "float16",
        0,
        True,
    )


def test_wrong_usage(command: Command, root: Path) -> None:
    assert command("coverage", "--profile", "bare").code == 2
    assert command("coverage", "--limit", "0").code == 2
    assert command("coverage", "--on", "h1000").code == 2
    assert command("coverage", "--fleet", str(root / "none.yaml")).code == 2
    few = asked(command, root, "--on", str(root / "gpu.yaml"), "--limit", "1")
    assert few[0] == 0
    assert "... and more (--limit)" in few[1]
