"""On the shipped packs too, the compiled engine and the plain interpreter agree.

Requests are random, from the numbers and words that the pack's own files mention (and their neighbours), on every preset.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn

from selector.catalog import Catalog
from selector.environment import Environment
from tests.plain import interpreter as plain
from tests.plain.loading import load_environment, read
from tests.plain.strategies import Question
from tests.property.test_engine_matches_plain import compare

MANIFESTS = Path(__file__).parents[2] / "manifests"
PACKS = sorted(path.parent.name for path in MANIFESTS.glob("*/pack.yaml"))
PRESETS = sorted(read(path)["name"] for path in (MANIFESTS / "environments").glob("*.yaml"))


class Loaded(NamedTuple):
    """One pack on both sides, and the numbers that its files mention."""

    catalog: Catalog
    interpreted: plain.Catalog
    numbers: list[int]


def numbers_in(raw: Any) -> Iterator[int]:
    """Every whole number in raw YAML."""
    if isinstance(raw, dict):
        for part in raw.values():
            yield from numbers_in(part)
    elif isinstance(raw, list):
        for part in raw:
            yield from numbers_in(part)
    elif isinstance(raw, int) and not isinstance(raw, bool):
        yield raw


@pytest.fixture(scope="module", params=PACKS)
def pack(request: pytest.FixtureRequest) -> Loaded:
    name = request.param
    interpreted = plain.load_pack(MANIFESTS, name)
    mentioned = {n for manifest in interpreted.manifests for n in numbers_in(manifest)}
    numbers = sorted({n + step for n in mentioned for step in (-1, 0, 0, 1) if n < 65536})
    return Loaded(Catalog.load(name, manifests=MANIFESTS), interpreted, numbers)


@st.composite
def fields(draw: DrawFn, pack: Loaded) -> dict[str, Any]:
    """A request: a few fields, left open or given; flags rarely on, so that something is accepted now and then."""
    vocabulary = pack.interpreted.vocabulary
    mine = [
        axis
        for axis, entry in vocabulary.axes.items()
        if vocabulary.of(axis) == "request" and "derive" not in entry
    ]
    request: dict[str, Any] = {}
    for axis in draw(st.lists(st.sampled_from(mine), max_size=10, unique=True)):
        entry = vocabulary.axes[axis]
        kind = entry["type"]
        if kind in ("flag", "mode"):
            request[axis] = draw(st.sampled_from([True, True, False, None]))
        elif kind == "choice":
            request[axis] = draw(st.sampled_from([*vocabulary.choices(axis), None]))
        elif kind == "integer":
            allowed = [n for n in pack.numbers if entry.get("min", 0) <= n <= entry.get("max", n)]
            request[axis] = draw(st.sampled_from([*allowed, None]))
        elif kind == "pair":
            request[axis] = [draw(st.sampled_from(pack.numbers)), draw(st.sampled_from(pack.numbers))]
    return request


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_pack_is_read_alike(pack: Loaded, data: DataObject) -> None:
    preset = data.draw(st.sampled_from(PRESETS))
    profile = data.draw(st.sampled_from(["full", "bare"]))
    mine = load_environment(MANIFESTS, preset, pack=pack.catalog.packs[0].name, profile=profile)
    environment = Environment.preset(preset, profile, vocabulary=pack.catalog.vocabulary, root=str(MANIFESTS))
    assert environment == Environment(mine, vocabulary=pack.catalog.vocabulary)
    question = Question(data.draw(fields(pack)), mine, None, data.draw(st.booleans()))
    compare(pack.catalog, pack.interpreted, question)
