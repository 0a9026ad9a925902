"""Draws and plans: what is planned is what is made, every pair is covered, both sides of every limit are there."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.call import make_call, request_fields
from backends.verify.calls import make
from backends.verify.draws import DIMENSIONS, FREE, NEEDS, PLAIN, key_of, normal, request_of
from backends.verify.machines import standing
from backends.verify.pairwise import Cover, complete
from backends.verify.plan import Plan
from backends.verify.space import values_of
from selector.catalog import Catalog
from selector.environment import Environment
from tests.backends.verify.packs import HERE, pack

CORE = Catalog.load("core")


def random_draws(count: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    while len(found) < count:
        one = normal(
            {d.name: draw.choice(d.values) if draw.random() < 0.5 else d.values[0] for d in DIMENSIONS}
        )
        if one["head_size"] in (8, 20, 64, 96) and request_of(one) is not None:
            found.append(one)
    return found


def test_dimensions_are_axes_or_free() -> None:
    names = {d.name for d in DIMENSIONS}
    assert names > FREE
    axes = names - FREE - {"group", "ragged"}
    assert all(CORE.vocabulary.find(name) is not None for name in axes)
    assert all(other in names for needs in NEEDS.values() for other in needs)


def test_every_field_of_a_request_that_a_call_shows_is_planned() -> None:
    """A field added to the call's request has to be added to the draws."""
    one = torch.zeros(1, 1, 1, 8)
    shown = set(request_fields(make_call(one, one, one)))
    asked = request_of(normal({**PLAIN, "layout": "paged"}))
    assert asked is not None
    assert set(asked) == shown - {"device"} | {"block_size"}


@pytest.mark.parametrize("draw", random_draws(60), ids=key_of)
def test_what_is_planned_is_what_is_made(draw: dict[str, Any]) -> None:
    made = make(draw, "cpu")
    call = make_call(*made.tensors, **made.fields)
    got = {k: v for k, v in request_fields(call).items() if k != "device"}
    assert got == request_of(draw)
    again = make(draw, "cpu")
    for x, y in zip(made.tensors, again.tensors, strict=True):
        assert x.stride() == y.stride()
        assert torch.equal(x.float().nan_to_num(), y.float().nan_to_num()), "the same draw, the same values"


def test_a_normal_draw_has_nothing_that_does_not_count() -> None:
    draw = normal({**PLAIN, "block_size": 256, "mask_bias": True, "window": "all", "head_size_v": 64})
    assert draw == normal(PLAIN)
    for one in random_draws(200, seed=1):
        assert normal(one) == one
        for name, needs in NEEDS.items():
            if one[name] != PLAIN[name] and name != "kv_length":
                assert all(one[other] in allowed for other, allowed in needs.items()), name


def test_every_pair_that_is_accepted_is_covered() -> None:
    """Against brute force, with a joint rule, a need, and a value that is never accepted."""
    values: dict[str, tuple[Any, ...]] = {
        "dtype": ("float32", "float16", "bfloat16"),
        "head_size": (64, 8, 128),
        "layout": ("dense", "varlen", "paged"),
        "block_size": (16, 256),
        "causal": (False, True),
        "softcap": (False, True),
    }

    def accepts(draw: Any) -> bool:
        return not (draw["softcap"] and draw["dtype"] == "float16") and not (
            draw["layout"] == "paged" and draw["head_size"] == 8
        )

    base = normal(PLAIN)
    cover = Cover(base, values, accepts, seed=3)
    rows = list(cover.rows())
    assert all(accepts(row) and normal(row) == row for row in rows)
    everything = [
        normal({**base, **dict(zip(values, chosen, strict=True))})
        for chosen in itertools.product(*values.values())
    ]
    for a, b in itertools.combinations(values, 2):
        possible = {(d[a], d[b]) for d in everything if accepts(d)}
        assert {(row[a], row[b]) for row in rows} == possible, (a, b)
        apart = {(x, y) for (n, x), (m, y) in cover.apart if (n, m) == (a, b)}
        assert apart == set(itertools.product(values[a], values[b])) - possible
    assert len(rows) < 30


def test_values_that_need_another_bring_it() -> None:
    found = complete({"mask_grad": True}, normal(PLAIN), {}, lambda _: True, random.Random(0))
    assert found is not None
    assert found["custom_mask"] and found["mask_bias"] and found["training"]
    assert (
        complete({"block_size": 48, "layout": "dense"}, PLAIN, {}, lambda _: True, random.Random(0)) is None
    )
    odd = {"dtype": ("float32", "fp8_e4m3"), "kv_cache_dtype": ("auto", "fp8_e4m3")}

    def together(draw: Any) -> bool:
        return bool((draw["dtype"] == "fp8_e4m3") == (draw["kv_cache_dtype"] == "fp8_e4m3"))

    found = complete({"dtype": "fp8_e4m3"}, normal(PLAIN), odd, together, random.Random(0))
    assert found is not None and found["kv_cache_dtype"] == "fp8_e4m3"


def test_both_sides_of_every_limit(tmp_path: Path) -> None:
    limits = (
        "    supports: {head_size: {multiple_of: 24, max: 168}, head_size_v: any, block_size: {min: 32}}\n"
        "    rules:\n"
        "      - {when: {max_head_size: {min: 145}}, require: {causal: true}, reject: large heads are causal}\n"
        "      - {when: {num_heads: {max: 5}}, require: {group_size: [1, 5]}, reject: groups}\n"
    )
    catalog = pack(tmp_path, {"none": limits})
    values = values_of(catalog.candidates[0], catalog.vocabulary)
    assert {24, 72, 25, 168, 169, 176, 145, 144} <= set(values["head_size"])
    assert {256, 264, 40, 20} <= set(values["head_size"]), "the usual ones"
    assert {145, 144} <= set(values["head_size_v"])
    assert {32, 31} <= set(values["block_size"])
    assert 5 in values["group"]
    plan = Plan(catalog, HERE, catalog.candidates[0])
    assert {168, 144, 24, 72} <= set(plan.values["head_size"])
    assert {("head_size", 169), ("head_size", 25), ("block_size", 31), ("sinks", True)} <= set(plan.alone)


def test_standing() -> None:
    here = standing(CORE, Environment.preset("cpu"))
    usable = {ident for ident, against in here.items() if not against}
    assert usable == {"torch_sdpa/cpu_flash", "torch_sdpa/cpu_math", "flex_attention", "reference"}
    assert next(r.axis for r in here["flash_attn/fa3"]) == "device"


@pytest.mark.parametrize("ident", ["torch_sdpa/cpu_flash", "flex_attention", "reference"])
def test_rows_are_accepted_and_refused_calls_are_not(ident: str) -> None:
    environment = Environment.preset("cpu")
    plan = Plan(CORE, environment, CORE.find(ident)[0])
    rows = list(plan.cover().rows())
    assert len({key_of(row) for row in rows}) == len(rows) >= 70
    assert all(plan.accepts(row) for row in rows)
    for name, values in plan.values.items():
        if len(values) > 1:
            assert {row[name] for row in rows} == set(values), name
    refused = list(plan.refused())
    assert ident == "reference" or refused
    for draw, reasons in refused:
        assert reasons and not plan.accepts(draw)


def test_a_candidate_that_accepts_nothing(tmp_path: Path) -> None:
    never = "    rules:\n      - {reject: never}\n"
    catalog = pack(tmp_path, {"none": never})
    assert Plan(catalog, HERE, catalog.candidates[0]).base is None
