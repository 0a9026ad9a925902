"""`env` and `doctor`: what is known of a machine, kept in files, and the state of its packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from selector.cli import doctor_check
from selector.vocabulary import STATES
from tests.selector.cli.command import SMALL, Command

IN_SMALL = ("--manifests", str(SMALL), "--pack", "small")


def test_env_of_this_machine(command: Command) -> None:
    found = command("env", "--json").json
    assert found["facts"]["device"] in ("cpu", "cuda", "rocm", "xpu", "mps")
    assert found["facts"]["packages"]["torch"]["state"] == "usable"
    text = command("env").out
    assert "Packages" in text
    assert "torch" in text


def test_env_of_a_preset_with_changes(command: Command) -> None:
    found = command(
        "env", "--on", "h100", "--without", "flash-attn-3", "--env", "cuda_version=12.4", "--json"
    ).json
    assert found["facts"]["cuda_version"] == "12.4"
    assert found["facts"]["packages"].get("flash-attn-3", {"state": "missing"})["state"] == "missing"


def test_env_names_what_nobody_knows_but_not_what_has_no_meaning(command: Command) -> None:
    found = command("env", "--on", "t4", "--json").json
    assert "rocm_version" not in found["unknown"]
    host = command("env", "--on", "cpu", "--json").json
    assert "compute_capability" not in host["unknown"]


@pytest.mark.parametrize("preset", ["h100", "mi300x", "cpu"])
def test_a_saved_machine_is_the_same_machine(command: Command, tmp_path: Path, preset: str) -> None:
    path = tmp_path / "saved.yaml"
    assert command("env", "--on", preset, "--save", str(path)).code == 0
    before = command("env", "--on", preset, "--json").json
    after = command("env", "--on", str(path), "--json").json
    assert after["facts"] == before["facts"]
    assert after["fingerprint"] == before["fingerprint"]
    assert command("lint", str(path)).code == 0


def test_saving_to_standard_output_and_to_nowhere(command: Command) -> None:
    assert command("env", "--on", "h100", "--save", "-").out.startswith("# preset h100")
    ran = command("env", "--on", "h100", "--save", "/nowhere/x.yaml")
    assert (ran.code, ran.err) == (2, "error: --save /nowhere/x.yaml: No such file or directory\n")


def test_odd_words_survive_a_file(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "odd: name.yaml"
    command("env", "--on", "h100", "--env", 'device_name=a "quoted"\\ name: # 日本', "--save", str(path))
    found = command("env", "--on", str(path), "--json").json
    assert found["facts"]["device_name"] == 'a "quoted"\\ name: # 日本'


def test_a_process_variable_is_a_fact_of_this_machine_only(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SMALL_USE_FAST", "false")
    path = tmp_path / "here.yaml"
    command("env", *IN_SMALL, "--save", str(path))
    assert "use_fast: false" in path.read_text()
    monkeypatch.delenv("SMALL_USE_FAST")
    assert command("env", *IN_SMALL, "--on", str(path), "--json").json["facts"]["use_fast"] is False
    monkeypatch.setenv("SMALL_USE_FAST", "false")
    assert "use_fast" not in command("env", *IN_SMALL, "--on", "new", "--json").json["facts"]


def test_list_has_every_preset(command: Command) -> None:
    found = command("env", "--list", "--json").json
    names = [e["name"] for e in found]
    for name in (
        "cpu",
        "t4",
        "a100",
        "l4",
        "l40s",
        "rtx4090",
        "h100",
        "h200",
        "b200",
        "b300",
        "rtx5090",
        "gb10",
    ):
        assert name in names
    text = command("env", "--list").out
    assert len(text.splitlines()) == len(names)
    assert command("env", "--list", "--save", "x").code == 2


def test_doctor_names_packages_and_what_is_left(command: Command) -> None:
    ran = command("doctor", "--json")
    found = ran.json
    torch = next(p for p in found["packages"] if p["name"] == "torch")
    assert torch["state"] == "usable"
    assert any("reference" in w["candidates"] for w in torch["wanted"])
    usable = [c["id"] for c in found["candidates"] if c["usable"]]
    assert "reference" in usable
    assert ran.code == 0
    text = command("doctor").out
    assert "Candidates that can run here" in text
    for state in (p["state"] for p in found["packages"]):
        assert state in STATES


def test_doctor_says_3_where_nothing_can_run(command: Command, manifests: Path) -> None:
    for path in (manifests / "core").glob("*.yaml"):
        text = path.read_text()
        path.write_text(text.replace('torch: ">=2', 'torch: ">=99'))
    ran = command("doctor", "--manifests", str(manifests))
    assert ran.code == 3
    assert "torch >=99" in ran.out
    assert "version out of range" in ran.out


MODULES = {
    "fine": ("value = 1\nprint('chatter')", "usable", None),
    "chatty_failure": (
        "print('x' * 9)\nraise ImportError('first line\\nsecond')",
        "broken import",
        "ImportError: first line",
    ),
    "absent_part": ("import no_such_module_here", "broken import", "No module named 'no_such_module_here'"),
    "other_build": (
        "raise ImportError('libx.so: undefined symbol: _ZN2at4_ops')",
        "wrong build",
        "ImportError: libx.so: undefined symbol: _ZN2at4_ops",
    ),
    "other_cuda": (
        "raise OSError('libcudart.so.12: cannot open shared object file')",
        "wrong build",
        "libcudart.so.12",
    ),
    "no_gpu": ("raise RuntimeError('No CUDA GPUs are available')", "not for this device", "No CUDA GPUs"),
    "leaves": ("import sys; sys.exit(5)", "broken import", "SystemExit: 5"),
    "hard_exit": ("import os; os._exit(7)", "broken import", "ended with exit code 7"),
    "crash": (
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "broken import",
        "killed by signal 11",
    ),
    "endless": ("import time; time.sleep(60)", "broken import", "no end after 1 s"),
    "asks": ("input()", "broken import", "EOFError"),
    "closes_output": ("import sys, os; os.close(1)", "broken import", None),
}


@pytest.mark.parametrize("name", MODULES)
def test_deep_looks_at_an_import_in_a_child(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, state, detail = MODULES[name]
    (tmp_path / f"probe_{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor_check.try_import(f"probe_{name}", 1 if name == "endless" else 30)
    assert found[0] == state
    assert f"probe_{name}" not in sys.modules
    if detail is not None:
        assert detail in str(found[1])
        assert "\n" not in str(found[1])


def test_doctor_deep_changes_what_can_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package that does not import: its metadata says usable, the import does not."""
    import shutil

    root = tmp_path / "manifests"
    shutil.copytree(SMALL, root)
    (root / "software.yaml").write_text(
        "software: 1\npackages:\n  PyYAML: {version: '6.0', import: probe_broken}\nprofiles: {full: {packages: all}}\n"
    )
    spare = root / "small" / "spare.yaml"
    spare.write_text(
        spare.read_text().replace(
            "requires: {device: any}", "requires: {device: any, packages: {PyYAML: any}}"
        )
    )
    (tmp_path / "probe_broken.py").write_text("raise ImportError('built for another machine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = ("doctor", "--manifests", str(root), "--pack", "small", "--json")
    shallow, deep = command(*asked).json, command(*asked, "--deep").json

    def usable(found: dict[str, list[dict[str, object]]]) -> bool:
        return bool(next(c["usable"] for c in found["candidates"] if c["id"] == "spare"))

    assert usable(shallow) and not usable(deep)
    package = next(p for p in deep["packages"] if p["name"] == "PyYAML")
    assert (package["state"], package["detail"]) == ("wrong build", "ImportError: built for another machine")


def test_doctor_timeout_is_positive(command: Command) -> None:
    assert command("doctor", "--timeout", "0").code == 2
    assert command("doctor", "--timeout", "nan").code == 2


def test_saved_files_are_json_scalars(command: Command) -> None:
    text = command("env", "--on", "h100", "--save", "-").out
    line = next(x for x in text.splitlines() if x.startswith("  compute_capability"))
    assert json.loads(line.partition(": ")[2]) == "9.0"
