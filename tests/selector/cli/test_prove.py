"""`attn-select prove`: exit codes, and what is printed of a sentence that does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.catalogs import small
from tests.selector.cli.command import ROOT, Command

POLICY = "policy: [{name: all, order: [a, b]}]\n"
A = "title: A\nrequires: {device: gpu}\nsupports: {size: {max: 256}, dtype: [f16, bf16]}\n"
B = "title: B\nrequires: {device: [cpu, gpu]}\nsupports: {dtype: any}\n"
TRUE = "  - {name: small dtypes, when: {dtype: f8}, never: {selected: a}}\n"
FALSE = "  - {name: large heads, when: {size: {min: 100}}, never: {selected: a}}\n"
EMPTY = "  - {name: nothing, when: {size: 3, all: [{size: 4}]}, never: {selected: a}}\n"


@pytest.fixture
def asked(command: Command, tmp_path: Path) -> tuple[Command, Path]:
    small(tmp_path, POLICY, a=A, b=B)
    return command, tmp_path


def sentences(root: Path, *texts: str) -> str:
    path = root / "invariants.yaml"
    path.write_text("invariants:\n" + "".join(texts), encoding="utf-8")
    return str(path)


def test_what_holds_is_counted(asked: tuple[Command, Path]) -> None:
    command, root = asked
    path = sentences(root, TRUE)
    ran = command("prove", "--manifests", str(root))  # the directory's own file
    assert (ran.code, ran.out.strip()) == (0, "small: 1 proved")
    assert "small dtypes: proved" in command("prove", path, "--manifests", str(root), "-v").out


def test_what_does_not_hold_has_the_smallest_exception(asked: tuple[Command, Path]) -> None:
    command, root = asked
    path = sentences(root, TRUE, FALSE)
    ran = command("prove", path, "--manifests", str(root))
    assert ran.code == 2
    assert f"{path}:3:12: small: large heads: FALSE" in ran.out
    assert "selected:  a" in ran.out
    assert "a.yaml:5:12: a takes size at most 256" in ran.out
    assert "small: 1 proved, 1 not" in ran.out
    found = command("prove", path, "--manifests", str(root), "--json").json
    assert (found["proved"], found["failed"]) == (1, 1)
    wrong = found["verdicts"][1]
    assert wrong["status"] == "false"
    counter = wrong["counterexample"]
    assert list(counter["request"]) == ["size"]
    assert 100 <= counter["request"]["size"] <= 256
    assert (counter["selected"], counter["accepted"]) == ("a", ["a", "b"])


def test_a_sentence_about_nothing_is_not_proved(asked: tuple[Command, Path]) -> None:
    command, root = asked
    ran = command("prove", sentences(root, EMPTY), "--manifests", str(root))
    assert ran.code == 2
    assert "says nothing: its condition never holds" in ran.out


def test_wrong_usage(asked: tuple[Command, Path]) -> None:
    command, root = asked
    missing = command("prove", str(root / "none.yaml"))
    assert missing.code == 2
    assert "none.yaml: no such file" in missing.err
    broken = command(
        "prove",
        sentences(root, TRUE.replace("selected: a", "selected: aa")),
        "--manifests",
        str(root),
    )
    assert broken.code == 2
    assert "has no candidate or backend 'aa'" in broken.err


def test_every_shipped_pack_is_proved_before_the_suite_runs(command: Command) -> None:
    ran = command("prove", "--json")
    assert ran.code == 0
    assert ran.json["failed"] == 0
    assert {v["pack"] for v in ran.json["verdicts"]} == {"core", "sglang", "transformer_engine", "vllm"}
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nlint:", 1)[1].split("\n\n", 1)[0]
    assert "attn-select prove\n" in lint + "\n"
