"""An fp8 cache with a scale for each head really runs, and its error is that of the format, not of the worst head."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from backends import reference
from backends.call import make_call, request_fields
from backends.quantize import dequantize, quantize_kv
from tests.backends.calls import random

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
MAGNITUDES = torch.tensor([1e-4, 3e-3, 1.0, 40.0])


def heavy_tailed(tokens: int, seed: int) -> torch.Tensor:
    """``[tokens, 4, 64]``: Student's t with three degrees of freedom, four heads of very different magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(tokens, 4, 64, generator=generator)
    chi = torch.randn(3, tokens, 4, 64, generator=generator).square().sum(0)
    return normal / (chi / 3).sqrt() * MAGNITUDES[:, None]


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_round_trip_stays_within_half_a_step(dtype: torch.dtype) -> None:
    x = heavy_tailed(50, 1)
    stored, scale = quantize_kv(x, dtype=dtype)
    assert stored.dtype == dtype and stored.shape == x.shape
    assert scale.dtype == torch.float32 and scale.shape == (4,)
    limit = torch.finfo(dtype)
    # relative in the normal range, absolute below it
    bound = torch.maximum(x.abs() * limit.eps / 2, scale[:, None] * limit.smallest_normal * limit.eps / 2)
    assert ((dequantize(stored, scale) - x).abs() <= bound * 1.001).all()
    assert stored.float().abs().amax(dim=(0, 2)).tolist() == [limit.max] * 4


def test_granularities() -> None:
    x = heavy_tailed(20, 2)
    _, one = quantize_kv(x, "tensor")
    _, four = quantize_kv(x, "head")
    assert one.shape == ()
    assert one == four.max()
    with pytest.raises(ValueError, match="granularity: got 'token'"):
        quantize_kv(x, "token")  # type: ignore[arg-type]


def test_a_cache_of_blocks_has_heads_before_last() -> None:
    _, scale = quantize_kv(heavy_tailed(24, 3).view(6, 4, 4, 64))
    assert scale.shape == (4,)


def test_zeros_and_what_is_not_finite() -> None:
    stored, scale = quantize_kv(torch.zeros(3, 2, 8))
    assert scale.tolist() == [1.0, 1.0]
    assert (stored.float() == 0).all()
    assert quantize_kv(torch.zeros(0, 2, 8))[1].shape == (2,)
    with pytest.raises(ValueError, match="finite"):
        quantize_kv(torch.tensor([[[1.0, float("nan")]]]))
    tiny, scale = quantize_kv(torch.full((1, 1, 1), 1e-44))
    assert scale.item() > 0 and torch.isfinite(tiny.float()).all()


def _error(granularity: Literal["head", "tensor"]) -> list[float]:
    """Attention over a paged cache stored in fp8: the largest error of each head, relative to its largest output."""
    lengths, block = [70, 33], 16
    k, v = heavy_tailed(7 * block, 4), heavy_tailed(7 * block, 5)
    q = random(2, 1, 8, 64, dtype=torch.bfloat16) / MAGNITUDES.repeat_interleave(2)[:, None].bfloat16()
    table = torch.tensor([[4, 0, 6, 2, 1], [3, 5, 0, 0, 0]], dtype=torch.int32)
    where: dict[str, Any] = {"block_table": table, "seq_lens": torch.tensor(lengths, dtype=torch.int32)}

    def cache(x: torch.Tensor) -> torch.Tensor:
        return x.view(7, block, 4, 64)

    exact, _ = reference.attend(
        make_call(q.double(), cache(k).double(), cache(v).double(), causal=True, **where)
    )
    (k8, k_scale), (v8, v_scale) = quantize_kv(k, granularity), quantize_kv(v, granularity)
    assert k8.dtype == E4M3 and cache(k8).element_size() == 1
    call = make_call(q, cache(k8), cache(v8), causal=True, k_scale=k_scale, v_scale=v_scale, **where)
    needed = request_fields(call)
    assert needed["kv_cache_dtype"] == "fp8_e4m3"
    assert needed["per_head_scales"] is (granularity == "head")
    out = reference.run(call)
    assert isinstance(out, torch.Tensor) and out.dtype == torch.bfloat16
    per_head = (out.double() - exact).abs().amax(dim=(0, 1, 3)) / exact.abs().amax(dim=(0, 1, 3))
    return per_head.view(4, 2).amax(1).tolist()


def test_a_scale_a_head_keeps_every_head_accurate() -> None:
    """e4m3 has three bits of mantissa: 6 % a value. One scale for all loses the heads of small magnitude entirely."""
    head, tensor = _error("head"), _error("tensor")
    assert max(head) < 0.15, head
    # the smallest head is 4e5 times below the largest: everything it holds rounds to zero
    assert tensor[0] > 0.9, tensor
    assert max(tensor) > 8 * max(head)
    # the head that sets the common scale is as good as with its own
    assert tensor[3] == pytest.approx(head[3], rel=0.2)
