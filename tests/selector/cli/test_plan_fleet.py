"""`plan --fleet`: what each kind of machine gets, one backend for all of them, and where they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.selector.cli.command import ROOT, Command

CONFIGS = ROOT / "tests" / "data" / "configs"
FLEET = """\
fleet: 1
title: production
machines:
  - {on: h100, count: 64}
  - {on: a100, count: 16, without: [flash-attn]}
  - {on: b200, count: 4, profile: bare, name: new}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def plan(command: Command, model: str, fleet: Path, *more: str) -> Any:
    return command("plan", str(CONFIGS / model), "--fleet", str(fleet), *more)


def test_each_machine_gets_what_it_gets_alone(command: Command, fleet: Path) -> None:
    found = plan(command, "gpt-oss-20b", fleet, "--json").json
    alone = {
        "h100": ("--on", "h100"),
        "a100 (-flash-attn)": ("--on", "a100", "--without", "flash-attn"),
        "new": ("--on", "b200", "--profile", "bare"),
    }
    assert [m["name"] for m in found["machines"]] == list(alone)
    for machine in found["machines"]:
        single = command("plan", str(CONFIGS / "gpt-oss-20b"), *alone[machine["name"]], "--json").json
        assert machine["layers"] == single["layers"]
        assert machine["uniform"] == single["uniform"]
        for layer, row in zip(machine["layers"], found["layers"], strict=True):
            assert row["selected"][machine["name"]] == layer["selected"]
            assert row["count"] == layer["count"]


def test_the_uniform_backend_is_accepted_everywhere_and_its_price_is_told(
    command: Command, fleet: Path
) -> None:
    ran = plan(command, "qwen3-8b", fleet, "--json")
    assert ran.code == 0
    found = ran.json
    best = found["uniform"]["selected"]
    assert best is not None
    for machine in found["machines"]:
        for layer in machine["layers"]:
            got = set(found["uniform"]["candidates"][machine["name"]])
            assert got & set(layer["candidates"])
            assert all(candidate.partition("/")[0] == best for candidate in got)
    paying = {c["machines"] for c in found["uniform"]["costs"]}
    other = {
        m["name"]
        for m in found["machines"]
        for layer in m["layers"]
        if layer["selected"].partition("/")[0] != best
    }
    assert paying == other
    text = plan(command, "qwen3-8b", fleet).out
    assert f"{best} serves every layer on every machine" in text
    assert "it costs 64 × h100: full attention gets" in text


def test_machines_count(command: Command, tmp_path: Path) -> None:
    """The same kinds of machines in other numbers have another best backend for all."""
    pack = tmp_path / "pair"
    pack.mkdir()
    (pack / "pack.yaml").write_text(
        'pack: 1\nname: pair\npolicy:\n  - {name: new, when: {compute_capability: ">=9.0"}, order: [one, two]}\n'
        "  - {name: old, order: [two, one]}\n"
    )
    for name in ("one", "two"):
        (pack / f"{name}.yaml").write_text(
            f"manifest: 1\nname: {name}\nrequires: {{device: cuda}}\n"
            "supports: {dtype: any, head_size: any, causal: true}\n"
        )
    path = tmp_path / "two.yaml"
    for many, few, best in (("h100", "a100", "one"), ("a100", "h100", "two")):
        path.write_text(f"fleet: 1\nmachines:\n  - {{on: {many}, count: 3}}\n  - {{on: {few}, count: 2}}\n")
        found = plan(command, "qwen3-8b", path, "--json", "--pack", str(pack)).json["uniform"]
        assert found["selected"] == best
        (cost,) = found["costs"]
        assert (cost["machines"], cost["number"], cost["gets"]) == (few, 2, best)


def test_where_the_fleet_diverges(command: Command, fleet: Path) -> None:
    found = plan(command, "qwen3-8b", fleet, "--json").json
    (entry,) = found["diverging"]
    assert entry["layer"] == "full attention"
    assert sum(a["count"] for a in entry["answers"]) == 84
    row = found["layers"][0]["runs"]
    for answer in entry["answers"]:
        assert all(row[m] == answer["runs"] for m in answer["machines"])
    text = plan(command, "qwen3-8b", fleet).out
    assert "flash_attn/fa3 on 64: h100" in text
    assert "other last digits" in text


def test_a_fleet_that_agrees(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "alike.yaml"
    path.write_text("fleet: 1\nmachines:\n  - {on: h100, count: 2}\n  - {on: h200}\n")
    ran = plan(command, "qwen3-8b", path)
    assert ran.code == 0
    assert "nowhere: every layer runs on the same candidate" in ran.out
    assert "on all 3 machines" in ran.out


def test_where_something_is_missing(command: Command, fleet: Path) -> None:
    ran = plan(command, "llama-3.1-8b-fp8-per-head", fleet)
    assert ran.code == 3
    assert "20 of 84 machines lack a backend for some layer" in ran.out
    assert "none; flash_attn serves all but full attention on a100 (-flash-attn), new" in ran.out
    assert "no backend on 20: a100 (-flash-attn), new" in ran.out
    assert "refused on per_head_scales" in ran.out
    assert "other last digits" not in ran.out  # one kernel alone
    found = plan(command, "llama-3.1-8b-fp8-per-head", fleet, "--json").json
    assert found["uniform"] == {
        "selected": None,
        "candidates": {},
        "costs": [],
        "nearest": "flash_attn",
        "lacking": [
            {"machines": "a100 (-flash-attn)", "layer": "full attention"},
            {"machines": "new", "layer": "full attention"},
        ],
    }


def test_phases_have_rows_of_their_own(command: Command, fleet: Path) -> None:
    found = plan(command, "deepseek-v3", fleet, "--pack", "sglang", "--json").json
    assert [row["name"] for row in found["layers"]] == ["MLA, prefill", "MLA, decode"]
    text = plan(command, "deepseek-v3", fleet, "--pack", "sglang", "--backend", "cutedsl_mla").out
    assert "cutedsl_mla, as trtllm_mla" in text


def test_block_sizes_of_all_machines(command: Command, fleet: Path) -> None:
    asked = ("--pack", "vllm")
    found = plan(command, "qwen3-8b", fleet, "--json", *asked).json
    every = [set(m["block_sizes"]) for m in found["machines"] if m["block_sizes"] is not None]
    assert len(every) > 1
    assert set(found["block_sizes"]) == set.intersection(*every)
    assert (
        "tokens are accepted by what is chosen on every machine"
        in plan(command, "qwen3-8b", fleet, *asked).out
    )


def test_a_narrow_terminal_gets_a_block_a_layer(
    command: Command, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    ran = plan(command, "gpt-oss-20b", fleet, "--pack", "vllm")
    lines = ran.out.splitlines()
    assert max(len(line) for line in lines) <= 60
    assert "  12 × sliding attention" in lines


def test_verbose_has_the_plan_of_each_machine(command: Command, fleet: Path) -> None:
    ran = plan(command, "qwen3-8b", fleet, "--verbose")
    assert "══ 16 × a100 (-flash-attn)" in ran.out
    assert ran.out.count("Layers (* from the model's configuration)") == 3


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--on", "h100"), "--on says what the machine is, and so does --fleet"),
        (("--without", "torch"), "--without says"),
        (("--env", "amx=true"), "--env says"),
        (("--dtype", "bf61"), "bf61"),
    ],
)
def test_wrong_usage(command: Command, fleet: Path, more: tuple[str, ...], told: str) -> None:
    ran = plan(command, "qwen3-8b", fleet, *more)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


def test_a_broken_file_is_shown_with_its_lines(command: Command, fleet: Path) -> None:
    fleet.write_text("fleet: 1\nmachines:\n  - {on: h1000}\n  - {on: h100, cuont: 2}\n")
    ran = plan(command, "qwen3-8b", fleet)
    assert ran.code == 2
    assert f"{fleet}:4:" in ran.err and "did you mean count?" in ran.err
    fleet.write_text("fleet: 1\nmachines:\n  - {on: h1000}\n")
    ran = plan(command, "qwen3-8b", fleet)
    assert f"{fleet}:3:" in ran.err and "did you mean h100?" in ran.err
    linted = command("lint", str(fleet))
    assert linted.code != 0
    assert "h1000" in linted.out + linted.err


def test_where_nothing_runs_nothing_is_the_same_everywhere(command: Command, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("fleet: 1\nmachines: [{on: h100}, {on: a100}]\n", encoding="utf-8")
    ran = command("plan", str(ROOT / "tests/data/configs/deepseek-v3"), "--fleet", str(fleet))
    assert ran.code == 3
    assert "nowhere: nothing runs on any machine" in ran.out
    shown = command(
        "plan", str(ROOT / "tests/data/configs/deepseek-v3"), "--fleet", str(fleet), "--verbose"
    ).out
    assert "--pack vllm: " in shown
    assert "drop mla" not in shown
