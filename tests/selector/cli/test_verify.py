"""`attn-select verify`: the shipped manifests are true on this CPU, and an edit that is not is caught with its line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from selector.cli import main
from selector.locations import manifests_root
from tests.selector.cli.interrupt import interrupted

#: A quick walk that a busy machine does not cut short.
ONE_ROUND = ("--quick", "--time", "600")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the manifests, to be edited."""
    return Path(shutil.copytree(manifests_root(), tmp_path / "edited"))


def edit(folder: Path, name: str, old: str, new: str) -> str:
    """Replace a line by one or two others; the place of the last of them (`file:line:column`)."""
    path = folder / "core" / name
    lines = path.read_text(encoding="utf-8").splitlines()
    at = lines.index(old)
    lines[at : at + 1] = new.split("\n")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    last = at + new.count("\n")
    return f"{path}:{last + 1}:{len(lines[last]) - len(lines[last].lstrip()) + 1}"


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["verify", *arguments, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_the_core_pack_is_true_here(capsys: pytest.CaptureFixture[str]) -> None:
    """One round over everything that does not compile; the complete walk is for the hand."""
    code, result, err = found(
        capsys, "--backend", "torch_sdpa/cpu_flash,torch_sdpa/cpu_math,reference", *ONE_ROUND
    )
    assert list(result) == ["checked", "declared_but_fails", "wrong_numbers", "works_but_undeclared"]
    assert (result["declared_but_fails"], result["wrong_numbers"]) == ([], [])
    assert result["checked"] > 250
    assert code == 0, err


def test_a_kernel_that_compiles(capsys: pytest.CaptureFixture[str]) -> None:
    """FlexAttention takes seconds a call here, so it gets one; and the walk ends when it was told to."""
    code, result, err = found(capsys, "--backend", "flex_attention", "--time", "2")
    assert (code, result["checked"]) in ((0, 1), (0, 0)), err
    assert (result["declared_but_fails"], result["wrong_numbers"]) == ([], [])


def test_wrong_manifests_are_caught_with_their_line(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sinks on SDPA, which are run here; a head size of 512 on FlashAttention 2, whose wrapper is asked."""
    sinks = edit(copy, "torch_sdpa.yaml", "  causal: true", "  causal: true\n  sinks: true")
    heads = edit(copy, "flash_attn.yaml", "      head_size: {max: 256}", "      head_size: {max: 512}")
    edit(copy, "flash_attn.yaml", "      head_size_v: {max: 256}", "      head_size_v: {max: 512}")
    names = ("--backend", "torch_sdpa/cpu_flash,torch_sdpa/cpu_math", "--backend", "flash_attn/fa2")
    code, result, _ = found(capsys, "--manifests", str(copy), *ONE_ROUND, *names)
    assert code == 1
    assert result["wrong_numbers"] == []
    by_candidate: dict[str, list[dict[str, Any]]] = {}
    for finding in result["declared_but_fails"]:
        by_candidate.setdefault(finding["candidate"], []).append(finding)
    assert set(by_candidate) == {"torch_sdpa/cpu_flash", "torch_sdpa/cpu_math", "flash_attn/fa2"}
    for name in ("torch_sdpa/cpu_flash", "torch_sdpa/cpu_math"):
        (finding,) = by_candidate[name]
        assert finding["at"] == sinks
        assert finding["request"]["sinks"] is True
        assert finding["message"] == "sinks is not honoured (attention sinks)"
        assert finding["ran"] is True
    for finding in by_candidate["flash_attn/fa2"]:
        assert finding["at"] == heads
        assert finding["request"]["head_size"] > 256
        assert finding["ran"] is False


def test_the_table(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = edit(copy, "torch_sdpa.yaml", "      lse: true", "      lse: true\n      softcap: true")
    state = copy / "state.jsonl"
    arguments = [
        "verify",
        "--manifests",
        str(copy),
        "--backend",
        "torch_sdpa/cpu_flash",
        "--state",
        str(state),
    ]
    assert main([*arguments, *ONE_ROUND]) == 1
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].endswith("compared: 1 not as declared")
    assert lines[2].split() == ["candidate", "calls", "fails", "wrong", "undeclared", "seconds"]
    assert lines[3].split()[0] == "torch_sdpa/cpu_flash" and lines[3].split()[2:5] == ["1", "-", "-"]
    assert "Declared, but fails (1)" in text
    assert place in text.replace("\n", "")
    assert "torch_sdpa/cpu_flash: refused: softcap is not honoured (softcap)" in text
    edit(copy, "torch_sdpa.yaml", "      softcap: true", "      softcap: false")
    assert main([*arguments, *ONE_ROUND]) == 0, "mended; what was run already is not run again"
    assert "all as declared" in capsys.readouterr().out


def test_nothing_to_run_here(capsys: pytest.CaptureFixture[str]) -> None:
    code, result, _ = found(capsys, "--backend", "torch_sdpa/cuda_math", *ONE_ROUND)
    assert code == 3
    assert result == {"checked": 0, "declared_but_fails": [], "wrong_numbers": [], "works_but_undeclared": []}


def test_the_headline_where_nothing_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Only wrappers are asked: what they say is no verdict about calls that ran."""
    assert main(["verify", "--backend", "torch_sdpa/cuda_math", *ONE_ROUND]) == 3
    out, err = capsys.readouterr()
    text = " ".join(out.partition("\n\n")[0].split())
    assert re.fullmatch(
        r"nothing could be run here: .* runs none of the candidates asked for \(1\);"
        r" \d+ calls put to their wrappers: all as declared",
        text,
    )
    assert "candidates that run here: 0; others, whose wrappers are asked: 1" in err.splitlines()[0]


def test_the_headline_where_the_time_was_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A walk that did not end is not called as declared, and says how to go on."""
    asked = ["verify", "--backend", "reference,torch_sdpa/cpu_math", "--time"]
    assert main([*asked, "0.001"]) == 0
    out, err = capsys.readouterr()
    headline = " ".join(out.partition("\n\n")[0].split())
    assert headline.startswith("no call was run on ")
    assert headline.endswith("the walk is incomplete: 0 of 2 candidates that run here walked to the end")
    assert "the walk is incomplete: --state FILE keeps the verdicts" in err
    state = str(tmp_path / "walk.jsonl")
    assert main([*asked, "5", "--state", state]) == 0
    out, err = capsys.readouterr()
    headline = " ".join(out.partition("\n\n")[0].split())
    assert "compared: as declared so far, but the walk is incomplete: " in headline
    assert f"the walk is incomplete: the same command goes on from the verdicts in {state}" in err
    assert len(err.splitlines()) >= 3, "progress, from the beginning"


def test_an_interrupt_shows_what_was_found(tmp_path: Path) -> None:
    state = tmp_path / "walk.jsonl"
    ran = interrupted("of the pairs", "verify", "--backend", "reference", "--state", str(state))
    assert ran.code == 130, ran.err
    assert "interrupted: 0 of 1 candidates that run here walked to the end" in " ".join(ran.out.split())
    assert "  reference " in ran.out
    assert f"interrupted: the same command goes on from the verdicts in {state}" in ran.err
    assert json.loads(state.read_text(encoding="utf-8").splitlines()[0])["verify"] == 1
    ran = interrupted("of the pairs", "verify", "--backend", "reference", "--json")
    assert (ran.code, ran.json["declared_but_fails"]) == (130, [])
    assert "interrupted: --state FILE keeps the verdicts" in ran.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
@pytest.mark.parametrize("device", ["cuda", "rocm"])
def test_a_device_that_is_not_there(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No call is made, so no manifest is blamed."""
    title = {"cuda": "CUDA", "rocm": "ROCm"}[device]
    assert main(["verify", "--device", device, "--quick"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.match(rf"error: --device {device}: torch (here has no|finds no) {title}", err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--backend", "torch_spda"],
            "--backend torch_spda: no backend of pack core is called so\n  did you mean torch_sdpa?",
        ),
        (["--limit", "0"], "--limit 0: more than 0"),
        (["--time", "-1"], "--time -1: more than 0"),
        (["--manifests", "nowhere"], "--manifests nowhere: no such directory"),
        (["--device", "abacus"], "'abacus' is no value of device: cuda, rocm, xpu, mps, cpu"),
    ],
)
def test_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_state_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine\n", encoding="utf-8")
    assert main(["verify", "--state", str(tmp_path / "notes.txt")]) == 2
    assert "holds no verdicts: it is left as it is" in capsys.readouterr().err
