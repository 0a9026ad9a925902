"""A few seconds of every target, and everything that was ever found."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS, check

FOUND = Path(__file__).resolve().parents[1] / "data" / "fuzz"

#: Inputs of each target: about a second of each.
INPUTS = {"manifest": 25, "pack": 15, "file": 25, "command": 40, "vocabulary": 60, "yaml": 120}

#: Seconds of processor time for one input in the suite; other processes share the caches. By hand it is `LIMIT`.
PATIENCE = 5.0


@cache
def _mutator(name: str) -> Mutator:
    return TARGETS[name].mutator()


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_is_more_than_a_mistake(name: str) -> None:
    """Hypothesis draws what the mutator would draw by chance, so that it can make a finding smaller."""

    @settings(
        max_examples=INPUTS.get(name, 200),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def all_inputs(random: Random) -> None:
        check(TARGETS[name], _mutator(name).draw(random), PATIENCE)

    all_inputs()


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_good_inputs(name: str) -> None:
    seeds = TARGETS[name].seeds()
    assert seeds
    for seed in seeds[:: 1 + len(seeds) // 10]:
        check(TARGETS[name], seed, PATIENCE)


@pytest.mark.parametrize("name", TARGETS)
@given(st.binary(max_size=64))
@settings(max_examples=50, deadline=None, database=None)
def test_any_bytes(name: str, data: bytes) -> None:
    check(TARGETS[name], data)


@pytest.mark.parametrize(
    "path", sorted(p for p in FOUND.glob("*/*") if p.is_file()), ids=lambda p: f"{p.parent.name}-{p.name}"
)
def test_what_was_found_stays_mended(path: Path) -> None:
    check(TARGETS[path.parent.name], path.read_bytes())
