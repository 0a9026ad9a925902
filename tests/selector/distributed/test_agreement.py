"""All ranks of a group take one candidate; real gloo processes on one machine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import pytest

from selector.agreement import Answer, DisagreementError, RankError, choose

pytest.importorskip("torch")


def ranks(presets: list[str], mode: str = "dense") -> list[dict[str, Any]]:
    """Start one process a preset and collect what they say; ranks that died say nothing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "tests.selector.distributed.worker"]
    started = [
        subprocess.Popen(
            [*command, str(i), str(len(presets)), str(port), preset, mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, preset in enumerate(presets)
    ]
    said = []
    for process in started:
        out, err = process.communicate(timeout=100)
        if out.strip():
            said.append(json.loads(out.splitlines()[-1]))
        else:
            assert process.returncode == 9, err
    return said


def test_equal_ranks_agree_at_once() -> None:
    said = ranks(["h100", "h100"])
    assert [s["selected"] for s in said] == ["flash_attn/fa3"] * 2


def test_one_a100_among_h100s_takes_all_to_what_the_a100_can_do() -> None:
    said = ranks(["h100", "a100", "h100", "h100"])
    assert len({s["selected"] for s in said}) == 1
    assert said[0]["selected"] != "flash_attn/fa3"
    assert all(s["valid"] for s in said)


def test_no_common_candidate_is_the_same_error_everywhere_and_names_the_veto() -> None:
    said = ranks(["h100", "a100"], "heads")
    assert {s["error"] for s in said} == {"DisagreementError"}
    assert len({s["message"] for s in said}) == 1
    assert "rank 1" in said[0]["message"]
    assert "8.0" in said[0]["message"]
    assert "flash_attn/fa3" in said[0]["message"]


def test_a_rank_with_a_wrong_request_still_meets_the_others() -> None:
    said = ranks(["h100", "h100"], "mistake")
    assert {s["error"] for s in said} == {"RankError"}
    assert all("rank 1" in s["message"] and "hed_size" in s["message"] for s in said)


@pytest.mark.parametrize(
    ("mode", "presets", "said_of"),
    [
        ("configuration", ["h100", "h100"], "/no/such/file.yaml"),
        ("preset", ["h100", "nosuch"], "nosuch"),
        ("backend", ["h100", "h100"], "not 3"),
    ],
)
def test_a_rank_whose_machine_or_wishes_cannot_be_read_still_meets_the_others(
    mode: str, presets: list[str], said_of: str
) -> None:
    said = ranks(presets, mode)
    assert {s["error"] for s in said} == {"RankError"}
    assert len({s["message"] for s in said}) == 1
    assert "rank 1 failed" in said[0]["message"] and said_of in said[0]["message"]
    assert all(s["seconds"] < 2.5 for s in said), "waited for the limit"


@pytest.mark.parametrize("mode", ["die", "late"])
def test_a_rank_that_is_gone_is_an_error_within_the_limit(mode: str) -> None:
    said = ranks(["h100", "h100", "a100"], mode)
    early = [s for s in said if s["rank"] != 2]
    assert len(early) == 2
    assert {s["error"] for s in early} == {"RankError"}
    assert all(s["seconds"] < 8 for s in early)


def test_the_choice_is_the_best_worst_place() -> None:
    answers = [
        Answer(0, "h100", ("a", "b", "c"), {}, None),
        Answer(1, "a100", ("c", "b"), {"a": ["a: no"]}, None),
    ]
    assert choose(answers) == "b"
    assert choose(answers[::-1]) == "b"


def test_errors_travel() -> None:
    answer = Answer(1, "a100", (), {"a": ["a: no"]}, None)
    assert Answer.load(answer.dump()) == answer
    with pytest.raises(DisagreementError, match="rank 1"):
        choose([Answer(0, "h100", ("a",), {}, None), answer])
    with pytest.raises(RankError, match="rank 0"):
        choose([Answer(0, "h100", (), {}, "broken"), answer])
