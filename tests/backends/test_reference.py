"""The reference against attention written with loops over single numbers, from the text of `backends.call`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from backends import reference
from backends.call import CallError, make_call
from tests.backends.calls import dense, paged, random, starts, varlen

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from backends.call import Call


def by_loops(call: Call) -> tuple[Tensor, Tensor]:
    """A dense call, one score at a time, in Python's own floats."""
    batch, sq, heads, size = call.q.shape
    sk, size_v = call.k.shape[1], call.head_size_v
    group = heads // call.num_kv_heads
    out = torch.zeros(batch, sq, heads, size_v, dtype=torch.float64)
    lse = torch.full((batch, heads, sq), -math.inf, dtype=torch.float64)
    q, k, v = (x.double().tolist() for x in (call.q, call.k, call.v))
    mask = None
    if call.mask is not None:
        mask = torch.broadcast_to(call.mask, (batch, heads, sq, sk)).tolist()
    left, right = call.window if call.window is not None else (None, None)
    for b in range(batch):
        for h in range(heads):
            g = h // group
            for i in range(sq):
                place = i + sk - sq
                scores: dict[int, float] = {}
                for j in range(sk):
                    if call.causal and j > place:
                        continue
                    if left is not None and j < place - left:
                        continue
                    if right is not None and j > place + right:
                        continue
                    s = sum(q[b][i][h][d] * k[b][j][g][d] for d in range(size))
                    s *= _at(call.q_scale, h) * _at(call.k_scale, g) * call.softmax_scale
                    if call.softcap is not None:
                        s = call.softcap * math.tanh(s / call.softcap)
                    if call.alibi_slopes is not None:
                        slopes = call.alibi_slopes
                        slope = slopes[h] if slopes.dim() == 1 else slopes[b, h]
                        s -= slope.item() * abs(place - j)
                    if mask is not None:
                        entry = mask[b][h][i][j]
                        if entry is False:
                            continue
                        s += 0.0 if entry is True else entry
                    scores[j] = s
                total = sum(math.exp(s) for s in scores.values())
                if call.sinks is not None:
                    total += math.exp(call.sinks[h].item())
                if total:
                    lse[b, h, i] = math.log(total)
                for d in range(size_v):
                    weighted = sum(math.exp(s) * v[b][j][g][d] for j, s in scores.items())
                    out[b, i, h, d] = _at(call.v_scale, g) * weighted / total if total else 0.0
    return out, lse


def _at(scale: Any, head: int) -> float:
    if isinstance(scale, torch.Tensor):
        return float(scale[head] if scale.numel() > 1 else scale)
    return 1.0 if scale is None else float(scale)


CASES: dict[str, Callable[[], Call]] = {
    "plain": lambda: dense(sq=3, sk=4, size=3),
    "causal, fewer queries": lambda: dense(sq=2, sk=5, size=3, causal=True),
    "causal, more queries": lambda: dense(sq=5, sk=2, size=3, causal=True),
    "window": lambda: dense(sq=4, sk=6, size=3, window=(2, 1)),
    "window, left only": lambda: dense(sq=6, sk=4, size=3, window=(1, None)),
    "window, right only": lambda: dense(sq=6, sk=4, size=3, window=(None, 1)),
    "softcap": lambda: dense(sq=3, sk=4, size=3, softcap=0.5),
    "alibi": lambda: dense(sq=3, sk=5, size=3, alibi_slopes=torch.tensor([0.5, 1.0, 2.0, 0.1])),
    "alibi a sequence": lambda: dense(sq=3, sk=5, size=3, alibi_slopes=torch.rand(2, 4)),
    "sinks": lambda: dense(sq=3, sk=2, size=3, causal=True, sinks=torch.tensor([0.3, -2.0, 4.0, 0.0])),
    "mask": lambda: dense(sq=3, sk=4, size=3, mask=random(2, 1, 3, 4) > 0.5),
    "bias": lambda: dense(sq=3, sk=4, size=3, mask=random(4, 1, 4)),
    "scales": lambda: dense(
        sq=3, sk=4, size=3, kv_heads=2, q_scale=torch.rand(4), k_scale=0.3, v_scale=torch.rand(2)
    ),
    "all": lambda: dense(
        sq=4,
        sk=5,
        size=3,
        size_v=2,
        kv_heads=2,
        causal=True,
        window=(2, None),
        softcap=1.5,
        alibi_slopes=torch.rand(2, 4),
        sinks=torch.randn(4),
        mask=random(1, 4, 4, 5),
        scale=0.9,
        k_scale=torch.rand(2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_against_loops(name: str) -> None:
    call = CASES[name]()
    out, lse = reference.attend(call)
    expected, expected_lse = by_loops(call)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-12, atol=1e-12)


def test_by_hand() -> None:
    """Two keys with scores 0 and log 3: weights 1/4 and 3/4."""
    q = torch.tensor([1.0]).view(1, 1, 1, 1)
    k = torch.tensor([0.0, math.log(3.0)]).view(1, 2, 1, 1)
    v = torch.tensor([8.0, 4.0]).view(1, 2, 1, 1)
    out, lse = reference.attend(make_call(q, k, v))
    assert out.item() == pytest.approx(5.0)
    assert lse.item() == pytest.approx(math.log(4.0))
    out, lse = reference.attend(make_call(q, k, v, sinks=torch.tensor([math.log(4.0)])))
    assert out.item() == pytest.approx(2.5)
    assert lse.item() == pytest.approx(math.log(8.0))


def test_packed_sequences_are_each_other_calls() -> None:
    lengths_q, lengths_k = (3, 0, 5, 1), (4, 2, 5, 9)
    call = varlen(lengths_q, lengths_k, causal=True, window=(2, None), return_lse=True)
    out, lse = reference.attend(call)
    at_q = at_k = 0
    for sq, sk in zip(lengths_q, lengths_k, strict=True):
        alone = make_call(
            call.q[None, at_q : at_q + sq],
            call.k[None, at_k : at_k + sk],
            call.v[None, at_k : at_k + sk],
            causal=True,
            window=(2, None),
        )
        expected, expected_lse = reference.attend(alone)
        assert torch.equal(out[at_q : at_q + sq], expected[0])
        assert torch.equal(lse[:, at_q : at_q + sq], expected_lse[0])
        at_q, at_k = at_q + sq, at_k + sk


@pytest.mark.parametrize("lengths_q", [None, (2, 0, 3)])
def test_paged_is_what_the_table_says(lengths_q: tuple[int, ...] | None) -> None:
    """The same keys in a row give the same result, and the cache's unused slots (NaN) do not matter."""
    call = paged(lengths_k=(9, 4, 1), lengths_q=lengths_q, block_size=4, causal=True, size_v=8)
    assert call.block_table is not None
    out, _ = reference.attend(call)
    rows = [call.k[call.block_table[b, : -(-n // 4)]].flatten(0, 1)[:n] for b, n in enumerate((9, 4, 1))]
    values = [call.v[call.block_table[b, : -(-n // 4)]].flatten(0, 1)[:n] for b, n in enumerate((9, 4, 1))]
    packed = make_call(
        call.q if lengths_q else call.q.flatten(0, 1),
        torch.cat(rows),
        torch.cat(values),
        cu_seqlens_q=starts(lengths_q or (2, 2, 2)),
        cu_seqlens_k=starts((9, 4, 1)),
        max_seqlen_q=3,
        max_seqlen_k=9,
        causal=True,
    )
    expected, _ = reference.attend(packed)
    assert torch.isfinite(expected).all()
    assert torch.equal(out.reshape(expected.shape), expected)


def test_precision() -> None:
    call = dense(sq=5, sk=300, size=64, dtype=torch.float16)
    exact, _ = reference.attend(call)
    single, _ = reference.attend(call, torch.float32)
    naive, _ = reference.attend(call, torch.float16)
    assert (exact.dtype, single.dtype, naive.dtype) == (torch.float64, torch.float32, torch.float16)
    error, error_naive = (single - exact).abs().max().item(), (naive - exact).abs().max().item()
    assert 0 < error < error_naive / 50
    rounded = reference.run(call)
    assert isinstance(rounded, torch.Tensor)
    assert torch.equal(rounded, exact.half())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_fp8_is_read_as_stored(dtype: torch.dtype) -> None:
    call = dense(dtype=dtype, kv_heads=2, k_scale=torch.tensor([0.5, 3.0]), v_scale=2.0)
    wide = make_call(
        call.q.double(), call.k.double() * torch.tensor([0.5, 3.0])[:, None], call.v.double() * 2.0
    )
    out = reference.run(call)
    assert isinstance(out, torch.Tensor) and out.dtype == torch.bfloat16
    torch.testing.assert_close(reference.attend(call)[0], reference.attend(wide)[0])


def test_gradients_of_dead_rows_are_zero() -> None:
    call = dense(sq=6, sk=3, causal=True, dtype=torch.float64, sinks=None)
    for tensor in (call.q, call.k, call.v):
        tensor.requires_grad_()
    out, lse = reference.attend(call)
    torch.autograd.backward([out.sum() + lse[lse > -torch.inf].sum()])
    assert call.q.grad is not None and call.k.grad is not None
    assert (call.q.grad[:, :3] == 0).all()
    assert (call.q.grad[:, 4:] != 0).any()
    assert torch.isfinite(call.k.grad).all()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cu_seqlens_q": torch.tensor([0, 3, 2], dtype=torch.int32)}, "cu_seqlens_q"),
        ({"cu_seqlens_q": torch.tensor([1, 3, 8], dtype=torch.int32)}, "cu_seqlens_q"),
        ({"cu_seqlens_k": torch.tensor([0, 3, 8], dtype=torch.int32)}, "cu_seqlens_k"),
        ({"max_seqlen_k": 4}, "cu_seqlens_k"),
    ],
)
def test_lengths_that_do_not_fit(change: dict[str, Any], field: str) -> None:
    fields: dict[str, Any] = {
        "q": torch.zeros(8, 4, 8),
        "k": torch.zeros(9, 2, 8),
        "v": torch.zeros(9, 2, 8),
        "cu_seqlens_q": starts((3, 5)),
        "cu_seqlens_k": starts((4, 5)),
        "max_seqlen_q": 5,
        "max_seqlen_k": 5,
    }
    reference.run(make_call(**fields))
    with pytest.raises(CallError) as caught:
        reference.run(make_call(**(fields | change)))
    assert caught.value.field == field


def test_a_sequence_longer_than_its_table() -> None:
    call = paged(lengths_k=(9, 4, 1))
    assert call.seq_lens is not None
    call.seq_lens[1] = 99
    with pytest.raises(CallError, match="seq_lens: got 99 of sequence 1, expected 0 to 12"):
        reference.run(call)
