"""The walk as a whole: what it finds, where it says it stands, and what it survives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.verify import Options, Result, verify
from backends.verify.child import WORKER
from tests.backends.verify.packs import HERE, line_of, pack

QUICK = Options(rounds=1)


def walk(folder: Path, variants: dict[str, str], **options: Any) -> Result:
    return verify(pack(folder, variants), HERE, QUICK._replace(**options))


def outcomes(result: Result) -> list[tuple[str, str]]:
    found = (*result.declared_but_fails, *result.wrong_numbers, *result.works_but_undeclared)
    return sorted((f.candidate.partition("/")[2], f.outcome) for f in found)


GONE = """\
manifest: 1
name: gone
title: Gone
kernel: tests.no_such_kernel
requires: {device: any}
supports: {dtype: any, head_size: any}
"""


def test_all_kinds_of_findings_each_with_its_line(tmp_path: Path) -> None:
    """One walk over kernels that fail in every way, beside one that does not: a crash and a hang cost one call each."""
    (tmp_path / "gone.yaml").write_text(GONE, encoding="utf-8")
    result = walk(
        tmp_path,
        {
            "none": "",
            "error": "",
            "no_softcap": "    supports: {softcap: true}\n",
            "no_sinks": "    supports:\n      sinks: true\n",
            "picky": "    supports:\n      head_size: {max: 192, multiple_of: 64}\n",
            "crash": "    supports:\n      dropout: true\n",
            "hang": "    supports:\n      dtype: [float32, float64]\n",
            "memory": "    supports:\n      head_size: [64, 512]\n",
        },
        limit=8.0,
    )
    found = {f.candidate.partition("/")[2]: f for f in (*result.declared_but_fails, *result.wrong_numbers)}
    assert outcomes(result) == [
        ("", "error"),
        ("crash", "crash"),
        ("error", "error"),
        ("hang", "timeout"),
        ("no_sinks", "wrong"),
        ("no_softcap", "wrong"),
        ("picky", "refused"),
    ]

    def at(text: str, column: int) -> str:
        return f"{tmp_path}/mistaken.yaml:{line_of(tmp_path, text)}:{column}"

    error = found["error"]
    assert error.request["causal"] and error.request["softcap"], "the cause is both"
    assert error.message == "RuntimeError: no kernel for softcap and causal"
    assert sorted((error.at, *error.also)) == [at("causal: true", 3), at("softcap: true", 3)]
    sinks = found["no_sinks"]
    assert (sinks.at, sinks.also) == (at("sinks: true", 7), ())
    assert sinks.message.startswith("output: off by")
    # the smallest call that shows it: the plain one and the cause
    assert sinks.call == {} and {k for k, v in sinks.request.items() if v is True} == {"sinks"}
    assert found["no_softcap"].at == at("supports: {softcap", 16)
    assert found["picky"].at == at("multiple_of: 64", 7)
    assert found["picky"].message == "head_size 192: at most 128"
    assert found["crash"].at == at("dropout: true", 7)
    assert found["crash"].message == "SIGABRT: Fatal error: the kernel wrote where it must not"
    assert (found["hang"].at, found["hang"].message) == (
        at("dtype: [float32, float64]", 7),
        "no answer within 8 s",
    )
    assert found[""].at == f"{tmp_path}/gone.yaml:2:7"
    assert found[""].message == "ModuleNotFoundError: No module named 'tests.no_such_kernel'"
    counts = {c.candidate.partition("/")[2]: c for c in result.counts}
    assert counts["memory"].memory > 0
    assert counts["picky"].unsaid == 2, "masks of their own for each head are refused, and no axis says that"
    assert counts.pop("").note == "the plainest call fails, so nothing else was tried"
    assert all(c.note is None and c.calls > 15 for c in counts.values())
    assert result.checked == sum(c.calls for c in result.counts) > 150
    assert not result.clean
    data = json.loads(json.dumps(result.to_dict()))
    assert list(data) == ["checked", "declared_but_fails", "wrong_numbers", "works_but_undeclared"]
    assert {f["at"] for f in data["wrong_numbers"]} == {f.at for f in result.wrong_numbers}


def test_what_works_though_refused(tmp_path: Path) -> None:
    rules = (
        "    supports: {head_size: [64]}\n"
        "    rules:\n"
        "      - {when: {softcap: true}, require: {causal: true}, reject: softcap is for causal calls}\n"
        "      - {when: {custom_mask: true}, require: {dtype: float64}, reject: masks are for float64}\n"
    )
    result = walk(tmp_path, {"error": rules, "no_sinks": ""}, rejected=True)
    works = [f for f in result.works_but_undeclared if f.candidate == "mistaken/error"]
    by_line = {int(f.at.rsplit(":", 2)[1]): f for f in works}
    softcap, masks = (line_of(tmp_path, text) for text in ("softcap is for", "masks are for"))
    assert {softcap, masks, line_of(tmp_path, "head_size: [64]")} <= set(by_line)
    assert by_line[softcap].message.startswith(
        "works, though refused: softcap is for causal calls (mistaken/error; "
    )
    assert all(f.outcome == "works" for f in works)
    undeclared = {int(f.at.rsplit(":", 2)[1]) for f in works}
    assert line_of(tmp_path, "name: error") in undeclared, (
        "sinks are declared nowhere: the candidate's own line"
    )
    own = [f for f in result.works_but_undeclared if f.candidate == "mistaken/no_sinks"]
    assert not any(f.request.get("sinks") for f in own), "this one drops them: they do not work"
    assert any(f.request.get("dropout") for f in own)


def test_resuming(tmp_path: Path) -> None:
    """What is known is not run again, also after an edit of the manifest; another machine or another file is told."""
    state = tmp_path / "state.jsonl"
    first = walk(tmp_path, {"no_sinks": "    supports: {sinks: true}\n"}, state=state)
    assert outcomes(first) == [("no_sinks", "wrong")]
    text = state.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) == 1 + first.checked
    state.write_text("\n".join(lines[:20]) + "\n" + lines[20][:30], encoding="utf-8")  # stopped while writing
    again = walk(tmp_path, {"no_sinks": "    supports: {sinks: true}\n"}, state=state)
    assert again.to_dict() == first.to_dict()
    assert again.counts[0].seconds > 0.0
    third = walk(tmp_path, {"no_sinks": "    supports: {sinks: true}\n"}, state=state)
    assert third.counts[0].seconds == 0.0, "nothing was run"
    mended = walk(tmp_path, {"no_sinks": ""}, state=state)
    assert mended.clean
    said: list[str] = []
    other = HERE.replace(cpu_arch="aarch64")
    verify(pack(tmp_path, {"none": ""}), other, QUICK._replace(state=state, seconds=1e-6), say=said.append)
    assert said[0] == f"{state} is about another machine: begun anew"
    (tmp_path / "notes").write_text("mine\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no verdicts"):
        walk(tmp_path, {"none": ""}, state=tmp_path / "notes")
    assert (tmp_path / "notes").read_text(encoding="utf-8") == "mine\n"


def test_an_end_is_kept(tmp_path: Path) -> None:
    result = walk(tmp_path, {"none": "", "no_softcap": ""}, seconds=0.2)
    assert result.checked < 60
    assert {c.note for c in result.counts} == {"the time was over"}


def test_candidates_of_other_machines_are_put_to_their_wrappers() -> None:
    from selector.catalog import Catalog
    from selector.environment import Environment

    catalog, options = Catalog.load("core"), QUICK._replace(names=("flashinfer/fa3",))
    result = verify(catalog, Environment.preset("cpu"), options._replace(quick=True, seconds=600.0))
    assert result.checked == 0 and result.clean
    (count,) = result.counts
    assert (count.candidate, count.ran, count.environment) == ("flashinfer/fa3", False, "gh200")
    assert count.calls > 30
    every = verify(catalog, Environment.preset("cpu"), options)
    assert {c.environment for c in every.counts} == {"gh200", "h100"}, "one of each kind of machine"


def test_the_child_takes_nothing_from_the_directory_it_starts_in(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('not this one')\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", WORKER],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_an_interrupt_ends_the_walk_with_what_it_has(tmp_path: Path) -> None:
    calls = 0

    def stop(_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt

    result = verify(pack(tmp_path, {"none": "", "no_sinks": ""}), HERE, QUICK, stop)
    assert result.interrupted
    assert 0 < result.checked < 6
    assert [(c.finished, c.note) for c in result.counts] == [(False, "interrupted")] * 2
    assert result.unfinished == ("mistaken/none", "mistaken/no_sinks")
    assert result.clean
