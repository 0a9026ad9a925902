"""The edges of the definition on every kernel of this machine, each call in a child process: a crash costs one test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from backends.verify.child import Child
from backends.verify.draws import PLAIN, normal, request_of
from backends.verify.plan import Plan
from tests.gpu import needs_device
from tests.gpu.candidates import CATALOG, machine, tensor_device, usable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selector.manifest import Candidate

pytestmark = needs_device

EDGES: dict[str, dict[str, Any]] = {
    "rows that see nothing": {"causal": True, "query_length": "longer"},
    "rows that see nothing, with their log-sum-exp": {"causal": True, "query_length": "longer", "lse": True},
    "rows that see nothing, with sinks": {"causal": True, "query_length": "longer", "sinks": True},
    "no query": {"query_length": "empty"},
    "no key": {"kv_length": "empty", "query_length": "one"},
    "empty sequences": {"layout": "varlen", "ragged": "gaps", "causal": True},
    "empty sequences of a cache": {"layout": "paged", "block_size": 256, "packed": True, "ragged": "gaps"},
    "one query, one key": {"kv_length": "one", "query_length": "one"},
    "one query, many keys": {"query_length": "one", "length": "long", "causal": True},
    "a window of one key": {"sliding_window": True, "window": "none", "causal": True},
    "a window of some keys": {"sliding_window": True, "causal": True, "length": "long"},
    "a window beyond every key": {"sliding_window": True, "window": "all", "causal": True},
    "a window on both sides": {"sliding_window": True, "window_right": True, "length": "long"},
    "fewer queries than keys, causal": {"causal": True, "query_length": "shorter", "length": "long"},
    "NaN in unused slots": {"layout": "paged", "block_size": 256, "causal": True, "query_length": "shorter"},
    "heads transposed": {"memory": "transposed", "length": "long"},
    "last stride of two": {"memory": "strided"},
    "one key head for all": {"memory": "expanded", "group": 2},
    "odd head size": {"head_size": 40},
    "value heads of another size": {"head_size": 64, "head_size_v": 128},
    "grouped heads, gradients": {"training": True, "group": 3, "causal": True},
    "gradients, the same bits twice": {"training": True, "deterministic": True},
    "dropout": {"dropout": True, "length": "long"},
    "fp8 cache, a scale a head": {
        "kv_cache_dtype": "fp8_e4m3",
        "per_head_scales": True,
        "layout": "paged",
        "block_size": 256,
    },
    "everything fp8": {"dtype": "fp8_e4m3", "kv_cache_dtype": "fp8_e4m3", "scales": "tensor"},
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child(limit=120.0) as found:
        yield found


def form(candidate: Candidate, edge: str) -> dict[str, Any]:
    """The plainest call of a candidate, in bfloat16 and float16 by turns, or in its own format if it takes neither."""
    plan = PLANS.setdefault(candidate.id, Plan(CATALOG, machine(), candidate))
    assert plan.base is not None
    turn = ("bfloat16", "float16")[list(EDGES).index(edge) % 2]
    halves = [normal({**plan.base, "dtype": dtype}) for dtype in (turn, "float16", "bfloat16")]
    return next((half for half in halves if plan.accepts(half)), dict(plan.base))


PLANS: dict[str, Plan] = {}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("candidate", usable(), ids=lambda c: c.id)
def test_edge(candidate: Candidate, edge: str, child: Child) -> None:
    """Within the derived bounds of the float64 reference, where the manifest declares it."""
    draw = normal({**PLAIN, **form(candidate, edge), **EDGES[edge]})
    if request_of(draw) is None or not PLANS[candidate.id].accepts(draw):
        pytest.skip("the manifest does not declare it")
    task = {"kernel": candidate.kernel, "variant": candidate.variant, "draw": draw, "ran": True}
    answer = child.ask({**task, "device": tensor_device()})
    assert answer.outcome in ("ok", "memory"), (answer, draw)
