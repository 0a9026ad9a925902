"""`tune`: what no tensors show is refused and never dropped, and a run ends with what follows from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import Tensor

from selector import measured
from selector.cli.tune_text import Tuned, conclusion, table
from selector.measured import Entry, Timing
from selector.request import Request
from tests.selector.cli.command import ROOT, Command
from tests.selector.cli.interrupt import interrupted

CONFIGS = ROOT / "tests" / "data" / "configs"
QUICK = ("--lengths", "4", "--runs", "3")
#: The cheapest request that two candidates accept here.
SMALL = ("head_size=8", "num_heads=1", "dtype=float32", "softcap", "causal")


@pytest.fixture(autouse=True)
def no_measurements(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(measured.VARIABLE, "")
    measured.forget()
    yield
    measured.forget()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mla",), "tune makes no tensors for mla"),
        (("sparse",), "tune makes no tensors for sparse"),
        (("mla", "sparse", "head_size=64"), "tune makes no tensors for mla, sparse"),
        (("kv_cache_dtype=nvfp4",), "kv_cache_dtype nvfp4: torch has no such format"),
        (("num_heads=3", "num_kv_heads=2"), "cannot make tensors"),
        (("query_length=shorter",), "no tensors are made for query_length=shorter (the tensors: same)"),
    ],
)
def test_what_no_tensors_show_is_refused(
    command: Command, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    ran = command("tune", *words, *QUICK, "--file", str(tmp_path / "m.yaml"))
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("config", "options", "told"),
    [
        ("deepseek-v3", (), ["MLA (prefill and decode) is skipped: tune makes no tensors for mla"]),
        (
            "gemma-3-27b",
            ("--phase", "decode"),
            [
                "sliding attention (decode) is skipped: tune makes no tensors for mm_prefix",
                "full attention (decode) is skipped: tune makes no tensors for mm_prefix",
                "vision (decode) is skipped: attn_type=encoder_only decodes nothing",
            ],
        ),
    ],
)
def test_a_model_of_which_nothing_can_be_measured(
    command: Command, tmp_path: Path, config: str, options: tuple[str, ...], told: list[str]
) -> None:
    ran = command("tune", "--config", str(CONFIGS / config), *options, *QUICK, "--file", str(tmp_path / "m"))
    assert ran.code == 3
    lines = ran.err.splitlines()
    assert len(lines) == len(told)
    assert all(line.startswith(start) for line, start in zip(lines, told))
    assert ran.out == "nothing was measured, and nothing is written\n"
    assert not list(tmp_path.iterdir())


def test_the_other_layers_are_measured(command: Command, tmp_path: Path) -> None:
    """The encoder of a model whose decoder has a feature that tensors do not show; where it stands stays in the request."""
    file = tmp_path / "m.yaml"
    asked = ("tune", "--config", str(CONFIGS / "gemma-3-27b"), *QUICK, "--file", str(file))
    ran = command(*asked)
    assert ran.code == 0
    assert ran.err.count("is skipped") == 3
    (entry,) = measured.load(str(file)).entries
    assert entry.request["attn_type"] == "encoder_only"
    assert entry.request["head_size"] == 72
    again = command(*asked)
    assert again.code == 0
    assert again.out == f"nothing new was measured; {file} has 1 request\n"


def test_a_phase_that_a_field_rules_out(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    ran = command("tune", *SMALL, "query_length=one", *QUICK, "--file", str(file))
    assert ran.code == 0
    assert "the request (prefill) is skipped: no tensors are made for query_length=one" in ran.err
    assert [e.request["query_length"] for e in measured.load(str(file)).entries] == ["one"]


def test_nothing_to_compare_writes_nothing(command: Command, tmp_path: Path) -> None:
    """Sinks on the CPU: the reference alone."""
    ran = command("tune", "head_size=8", "sinks", "lse", "alibi", *QUICK, "--file", str(tmp_path / "m.yaml"))
    assert ran.code == 3
    assert "fits, nothing to compare" in ran.err
    assert ran.out == "nothing was measured, and nothing is written\n"
    assert not list(tmp_path.iterdir())


def test_candidates_that_cannot_be_timed(command: Command, tmp_path: Path) -> None:
    ran = command("tune", *SMALL, *QUICK, "--limit", "1e-9", "--file", str(tmp_path / "m.yaml"))
    assert ran.code == 3
    assert "is left out: one run takes" in ran.err
    assert not list(tmp_path.iterdir())


def test_it_ends_with_what_follows(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.yaml"
    ran = command("tune", *SMALL, *QUICK, "--file", str(file))
    assert ran.code == 0
    assert "2 candidates, 1 shape ..." in ran.err
    end = ran.out[ran.out.index("From now on") :].splitlines()
    assert end[1].startswith("  prefill: ") and end[2].startswith("  decode: ")
    assert all("is chosen" in line and "policy" in line for line in end[1:3])
    assert end[3:] == [f"written to {file}", f"  it counts where {measured.VARIABLE}={file} is set"]
    # what is said is what is decided
    monkeypatch.setenv(measured.VARIABLE, str(file))
    measured.forget()
    for entry, line in zip(measured.load(str(file)).entries, end[1:3]):
        words = [f"{k}={v}" for k, v in entry.request.items()]
        chosen = command("explain", *words, "--json").json["selected"]
        assert line.split()[1] == chosen


def timing(candidate: str, median: float, spread: float) -> Timing:
    return Timing(candidate, median, median * (1 - spread), median * (1 + spread), 21)


@pytest.mark.parametrize(
    ("timings", "said"),
    [
        (
            (timing("slow", 2.0, 0.01), timing("fast", 1.0, 0.01)),
            "fast is chosen: 2.00x as fast as slow, which the policy chose",
        ),
        (
            (timing("slow", 1.2, 0.2), timing("fast", 1.0, 0.2)),
            "slow is chosen, as by the policy: fast is 1.20x as fast here, but that lies within the spread",
        ),
        (
            (timing("fast", 1.0, 0.01), timing("slow", 2.0, 0.01)),
            "fast is chosen, as by the policy: it is the fastest",
        ),
        (
            (timing("slow", 2.0, 0.01), timing("a", 1.2, 0.2), timing("b", 1.0, 0.2)),
            "a is chosen: 1.67x as fast as slow, which the policy chose; b ties with it, and comes later in the policy",
        ),
    ],
)
def test_conclusions(timings: tuple[Timing, ...], said: str) -> None:
    entry = Entry({"head_size": 64}, "batch 1", timings)
    ranked = tuple(t.candidate for t in timings)
    chosen = Tuned("request", entry, ranked).chosen(Request({"head_size": 64}))
    assert conclusion(timings, chosen, ranked[0]) == said
    lines = table(entry).splitlines()
    times = [float(line.split()[-1].rstrip("x")) for line in lines[3:] if "tie" not in line]
    assert times == sorted(times) and lines[3].endswith("1.00x"), "fastest first, and nothing below 1"
    assert sum(line.endswith("within the spread: a tie") for line in lines) == (
        "spread" in said or "ties" in said
    )


@pytest.mark.skipif(os.name == "nt", reason="the signal of a POSIX terminal")
def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    """In the second request: the first is in the file and on the screen."""
    file = tmp_path / "m.yaml"
    ran = interrupted(
        "each is warmed up",
        "tune", *SMALL, "--lengths", "4", "--runs", "400", "--file", str(file),
        times=2,
    )  # fmt: skip
    assert ran.code == 130, ran.err
    assert ran.out.startswith("prefill: ")
    assert f"{file} has what was measured to the end; the same command goes on from there" in ran.err
    (entry,) = measured.load(str(file)).entries
    assert entry.request["query_length"] == "same"


def test_an_interrupt_between_two_runs() -> None:
    """The shape that all candidates have run counts; the one in which somebody stopped the clock while warming up does not."""
    from backends import reference
    from backends.call import make_call
    from backends.trial import Shapes
    from backends.tuning import WARM_UP, Stopped, time_candidates, trials_of

    left = 0

    def steady(*tensors: Tensor, **fields: object) -> object:
        return reference.run(make_call(*tensors, **fields))  # type: ignore[arg-type]

    def stopped(*tensors: Tensor, **fields: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return steady(*tensors, **fields)

    trials = trials_of({"head_size": 8, "num_heads": 1}, "cpu", [Shapes(1, 4, 4, 0), Shapes(1, 8, 8, 0)])
    runners = {"steady": steady, "stopped": stopped}
    runs = 4
    found: list[list[tuple[str, int]]] = []
    for allowed in (WARM_UP - 1, WARM_UP + 2, WARM_UP + runs + 1, 2 * WARM_UP + runs + 1):
        left = allowed
        with pytest.raises(Stopped) as stop:
            time_candidates(trials, runners, runs, 60.0)
        found.append([(t.candidate, t.runs) for t in stop.value.times if t.error is None])
    # nothing; two runs of the first shape; all of the first; the first and a run of the second
    assert found == [
        [],
        [("steady", 3), ("stopped", 2)],
        [("steady", 4), ("stopped", 4)],
        [("steady", 2), ("stopped", 1)],
    ]
