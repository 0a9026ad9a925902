"""The error bounds grow with what they are derived from, and tell a rounding from a mistake."""

from __future__ import annotations

import pytest
import torch

from backends import torch_sdpa
from backends.bounds import bounds_of, error_bounds, unit_roundoff
from tests.backends.calls import assert_matches, dense

HALF, SINGLE, DOUBLE = torch.float16, torch.float32, torch.float64


def test_unit_roundoff() -> None:
    assert unit_roundoff(HALF) == 2.0**-11
    assert unit_roundoff(torch.bfloat16) == 2.0**-8
    assert unit_roundoff(SINGLE) == 2.0**-24
    assert unit_roundoff(torch.float8_e4m3fn) == 2.0**-4


def test_order_of_the_formats() -> None:
    bounds = [
        error_bounds(d, 64, 100, score=5.0, value=1.0).out for d in (DOUBLE, SINGLE, HALF, torch.bfloat16)
    ]
    assert bounds == sorted(bounds)
    assert bounds[0] < 1e-12 and 1e-6 < bounds[1] < 1e-3 and bounds[2] < 2e-3 and bounds[3] < 1e-2


@pytest.mark.parametrize("grown", ["size", "length", "score", "value", "added", "roundings"])
def test_monotone(grown: str) -> None:
    def bound(factor: int) -> float:
        return error_bounds(
            HALF,
            64 * (factor if grown == "size" else 1),
            100 * (factor if grown == "length" else 1),
            score=3.0 * (factor if grown == "score" else 1),
            value=2.0 * (factor if grown == "value" else 1),
            added=1.0 * (factor if grown == "added" else 1),
            roundings=2 * (factor if grown == "roundings" else 1),
        ).out

    assert bound(1) < bound(4) < bound(16)


def test_never_more_than_twice_the_largest_value() -> None:
    assert error_bounds(HALF, 64, 100, score=1e30, value=3.0).out == pytest.approx(6.0, rel=1e-3)


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, SINGLE])
def test_a_mistake_is_far_outside(dtype: torch.dtype) -> None:
    """One key too many in a window of 16 exceeds the bound by far, in every format."""
    call = dense(sq=1, sk=17, size=64, dtype=dtype)
    wrong = dense(sq=1, sk=17, size=64, dtype=dtype, mask=torch.arange(17) > 0)
    assert_matches(torch_sdpa, call, "cpu_flash")
    out, other = torch_sdpa.run(call, variant="cpu_flash"), torch_sdpa.run(wrong, variant="cpu_flash")
    assert isinstance(out, torch.Tensor) and isinstance(other, torch.Tensor)
    assert (out - other).abs().max().item() > 5 * bounds_of(call).out


def test_padding_that_is_not_finite_is_left_out() -> None:
    call = dense(k_scale=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    before = bounds_of(call)
    call.k[0, 0, 0, 0] = torch.nan
    after = bounds_of(call)
    assert after.out == pytest.approx(before.out, rel=0.5)
