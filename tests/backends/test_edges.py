"""The edges of the definition, on every wrapper that runs here: nothing to see, one thing to see, too large, not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from backends import flex_attention, reference, torch_sdpa
from backends.bounds import bounds_of, unit_roundoff
from backends.call import make_call
from tests.backends.calls import assert_matches, dense, paged, random, run, varlen

if TYPE_CHECKING:
    from types import ModuleType

    from backends.call import Call

WRAPPERS: list[tuple[ModuleType, str | None]] = [
    (reference, None),
    (torch_sdpa, "cpu_flash"),
    (torch_sdpa, "cpu_math"),
    (flex_attention, "eager"),
]
everywhere = pytest.mark.parametrize(
    ("module", "variant"), WRAPPERS, ids=[f"{m.__name__[9:]}/{v}" for m, v in WRAPPERS]
)


def check(module: ModuleType, variant: str | None, call: Call) -> None:
    """Like the reference, or refused for a field that the wrapper's table says it lacks."""
    reason = module.refuses(call, variant)
    if reason is None:
        assert_matches(module, call, variant)
    else:
        assert "is not honoured" in reason


def with_lse(module: ModuleType, variant: str | None) -> dict[str, Any]:
    return {"return_lse": "return_lse" in module.HONOURED[variant]}


@everywhere
def test_rows_that_see_nothing(module: ModuleType, variant: str | None) -> None:
    lse = with_lse(module, variant)
    dead = torch.ones(7, 7, dtype=torch.bool)
    dead[2] = False
    for mask in (dead, torch.where(dead, 0.0, -torch.inf)):
        call = dense(mask=mask, **lse)
        assert_matches(module, call, variant)
        assert (run(module, call, variant)[0][:, 2] == 0).all()
    call = dense(sq=7, sk=3, causal=True, **lse)
    assert_matches(module, call, variant)
    assert (run(module, call, variant)[0][:, :4] == 0).all()
    check(module, variant, dense(sq=7, sk=3, causal=True, sinks=torch.tensor([0.0, 1.0, -1.0, 3.0]), **lse))
    check(module, variant, dense(window=(0, None), sq=9, sk=4, **lse))
    check(module, variant, varlen((6, 4), (3, 4), causal=True, **lse))
    check(module, variant, paged((1, 5), sq=4, causal=True, **lse))


@everywhere
@pytest.mark.parametrize(
    "shape",
    [
        {"sq": 0},
        {"sk": 0},
        {"sq": 0, "sk": 0},
        {"batch": 0},
        {"sk": 0, "causal": True, "sq": 3},
        {"sk": 0, "size_v": 8},
    ],
    ids=str,
)
def test_nothing_there(module: ModuleType, variant: str | None, shape: dict[str, Any]) -> None:
    check(module, variant, dense(**shape, **with_lse(module, variant)))


@everywhere
def test_empty_sequences(module: ModuleType, variant: str | None) -> None:
    lse = with_lse(module, variant)
    for lengths_q, lengths_k in [
        ((0, 3, 0, 2), (4, 3, 0, 0)),
        ((0, 0), (3, 2)),
        ((3, 2), (0, 0)),
        ((0,), (0,)),
        ((0, 0, 5), (0, 2, 6)),
    ]:
        check(module, variant, varlen(lengths_q, lengths_k, causal=True, **lse))
    check(module, variant, paged((0, 5, 0), sq=2, causal=True, **lse))
    check(module, variant, paged((0, 0), sq=1, **lse))
    check(module, variant, paged((3, 0, 5), lengths_q=(2, 1, 0), causal=True, **lse))


@everywhere
def test_one_of_each(module: ModuleType, variant: str | None) -> None:
    lse = with_lse(module, variant)
    call = dense(batch=1, sq=1, sk=1, heads=1, kv_heads=1, size=1, causal=True, **lse)
    assert_matches(module, call, variant)
    torch.testing.assert_close(run(module, call, variant)[0], call.v)
    for sq, sk in ((1, 1), (1, 300), (5, 1)):
        assert_matches(module, dense(sq=sq, sk=sk, causal=True, **lse), variant)
    check(module, variant, varlen((1, 1, 1), (1, 5, 2), causal=True, **lse))
    check(module, variant, paged((1, 2, 9), sq=1, block_size=1, causal=True, **lse))


def seen_keys(module: ModuleType, variant: str | None, sq: int, sk: int, **fields: Any) -> list[list[int]]:
    """Which keys each query sees: all scores are 0, and the value of key ``j`` is the unit vector ``j``."""
    values = torch.eye(sk).view(1, sk, 1, sk)
    call = make_call(torch.zeros(1, sq, 1, sk), torch.zeros(1, sk, 1, sk), values, **fields)
    out, _ = run(module, call, variant)
    rows: list[list[int]] = [row.nonzero().flatten().tolist() for row in out[0, :, 0]]
    for weights, keys in zip(out[0, :, 0], rows, strict=True):
        assert not keys or torch.allclose(weights[keys], torch.tensor(1.0 / len(keys)))
    return rows


@everywhere
def test_bottom_right_alignment(module: ModuleType, variant: str | None) -> None:
    assert seen_keys(module, variant, 2, 4, causal=True) == [[0, 1, 2], [0, 1, 2, 3]]
    assert seen_keys(module, variant, 4, 2, causal=True) == [[], [], [0], [0, 1]]
    assert seen_keys(module, variant, 3, 3, causal=True) == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize(("module", "variant"), [(reference, None), (flex_attention, "eager")])
def test_both_ends_of_a_window_belong_to_it(module: ModuleType, variant: str | None) -> None:
    def seen(
        sq: int, sk: int, window: tuple[int | None, int | None], causal: bool = False
    ) -> list[list[int]]:
        return seen_keys(module, variant, sq, sk, window=window, causal=causal)

    assert seen(4, 4, (1, None), causal=True) == [[0], [0, 1], [1, 2], [2, 3]]
    assert seen(4, 4, (1, 1)) == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]
    assert seen(4, 4, (0, None), causal=True) == [[0], [1], [2], [3]]
    assert seen(2, 5, (1, None), causal=True) == [[2, 3], [3, 4]]
    assert seen(2, 5, (1, 1)) == [[2, 3, 4], [3, 4]]
    assert seen(4, 2, (1, 0)) == [[], [], [0], [0, 1]]
    assert seen(3, 3, (None, 1)) == [[0, 1], [0, 1, 2], [0, 1, 2]]
    for huge in (10**9, 2**31 - 1, 2**31, 2**40):
        assert seen(3, 3, (huge, huge)) == [[0, 1, 2]] * 3
        assert seen(2, 3, (huge, 0)) == [[0, 1], [0, 1, 2]]


def test_a_window_given_as_a_mask_is_the_same_window() -> None:
    """Between wrappers: FlexAttention's band against the mask that SDPA takes."""
    i, j = torch.arange(200)[:, None] + 100, torch.arange(300)[None]
    mask = (j >= i - 17) & (j <= i + 3)
    banded, _ = run(flex_attention, dense(sq=200, sk=300, window=(17, 3)), "eager")
    masked, _ = run(torch_sdpa, dense(sq=200, sk=300, mask=mask), "cpu_flash")
    assert (banded - masked).abs().max().item() <= 2 * bounds_of(dense(sq=200, sk=300)).out


@everywhere
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_scores_beyond_the_range_of_half(module: ModuleType, variant: str | None, dtype: torch.dtype) -> None:
    """Products of 3e5 (float16 ends at 65504): no infinity on the way, and nothing lost but roundings."""
    call = dense(sk=40, size=64, dtype=dtype, magnitude=70.0, scale=1.0, **with_lse(module, variant))
    products = call.q.double().transpose(1, 2) @ call.k.double().permute(0, 2, 3, 1)
    assert products.max() > 65504
    out, _ = run(module, call, variant)
    expected, _ = reference.attend(call)
    assert torch.isfinite(out).all()
    assert (out.double() - expected).abs().max() <= 2 * unit_roundoff(dtype) * call.v.abs().max()


@everywhere
def test_values_at_the_end_of_the_range(module: ModuleType, variant: str | None) -> None:
    largest = torch.finfo(torch.float16).max
    call = dense(sk=40, dtype=torch.float16)
    call.v.copy_(torch.where(random(*call.v.shape) > 0, largest, largest / 2))
    out, _ = run(module, call, variant)
    assert torch.isfinite(out).all()
    assert out.max() <= largest


@pytest.mark.parametrize("filler", [torch.nan, torch.inf, 6e4])
@pytest.mark.parametrize(("module", "variant"), [(reference, None), (flex_attention, "eager")])
def test_unused_slots_of_a_cache(module: ModuleType, variant: str | None, filler: float) -> None:
    """What stands in them does not reach a result, nor do entries of the table beyond a sequence's length."""
    for fields in ({}, {"causal": True}, {"lengths_q": (2, 0, 3)}, {"softcap": 2.0, "window": (3, 1)}):
        call = paged(filler=filler, return_lse=True, **fields)
        assert call.block_table is not None
        assert call.block_table.max() > call.k.shape[0]
        assert_matches(module, call, variant)


@everywhere
def test_inputs_as_they_lie(module: ModuleType, variant: str | None) -> None:
    """Parts of one projection, transposed, every other element, expanded over heads and over the batch."""
    lse = with_lse(module, variant)
    fused = random(2, 9, 8, 16)
    views = [
        (fused[:, :, :4], fused[:, :, 4:6], fused[:, :, 6:]),
        tuple(random(2, 4, 9, 16, seed=s).transpose(1, 2) for s in (1, 2, 3)),
        tuple(random(2, 9, 4, 32, seed=s)[..., ::2] for s in (1, 2, 3)),
        tuple(random(2, 9, 16, 4, seed=s).transpose(2, 3) for s in (1, 2, 3)),
        (random(2, 9, 4, 16), *(random(1, 9, 1, 16, seed=s).expand(2, 9, 4, 16) for s in (2, 3))),
        (random(2, 9, 4, 16), *(random(2, 9, 2, 1, seed=s).expand(2, 9, 2, 16) for s in (2, 3))),
        tuple(random(2, 4, 9, 16, seed=s).permute(0, 2, 1, 3).flip(1) for s in (1, 2, 3)),
    ]
    for q, k, v in views:
        call = make_call(q, k, v, causal=True, **lse)
        before = [x.clone() for x in (q, k, v)]
        assert_matches(module, call, variant)
        assert all(torch.equal(x, y) for x, y in zip((q, k, v), before, strict=True)), (
            "inputs are not written to"
        )


@everywhere
@pytest.mark.parametrize("size", [1, 3, 7, 33, 80, 576])
def test_head_sizes(module: ModuleType, variant: str | None, size: int) -> None:
    lse = with_lse(module, variant)
    check(module, variant, dense(sq=3, sk=5, heads=6, kv_heads=2, size=size, causal=True, **lse))
    check(module, variant, dense(sq=3, sk=5, size=size, size_v=size // 2 + 1, dtype=torch.bfloat16, **lse))
