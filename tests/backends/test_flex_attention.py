"""The FlexAttention wrapper: bands and their blocks, gathered caches, kernels compiled once a shape and kept."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends import flex_attention, reference
from backends._flex_rows import BLOCK, Rows, blocks, cache_rows, dense_rows, gathered, packed_rows
from backends._guard import NotSupported
from backends.bounds import bounds_of
from backends.call import make_call
from tests.backends.calls import assert_matches, dense, paged, random, run, varlen

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.call import Call

SLOPES = torch.tensor([0.5, 0.25, 1.0, 2.0])

EAGER: dict[str, Callable[[], Call]] = {
    "nothing": lambda: dense(sq=3, sk=9, kv_heads=2, size_v=8, return_lse=True),
    "long": lambda: dense(sq=300, sk=520, window=(200, 7), dtype=torch.float16, return_lse=True),
    "everything": lambda: dense(
        sq=5,
        sk=9,
        kv_heads=2,
        causal=True,
        window=(3, None),
        softcap=3.0,
        alibi_slopes=random(2, 4),
        sinks=random(4),
        mask=random(2, 1, 5, 9) > -0.5,
        q_scale=2.0,
        k_scale=torch.tensor(0.5),
        v_scale=3.0,
        return_lse=True,
    ),
    "float64": lambda: dense(dtype=torch.float64, alibi_slopes=SLOPES, sinks=random(4), return_lse=True),
    "packed": lambda: varlen(
        (130, 1, 0, 200),
        (140, 5, 3, 100),
        causal=True,
        window=(50, None),
        alibi_slopes=random(4, 4),
        return_lse=True,
    ),
    "paged": lambda: paged((150, 7, 0), sq=3, window=(100, 1), softcap=4.0, sinks=random(4), return_lse=True),
    "paged, packed queries": lambda: paged(
        (150, 7, 4), lengths_q=(140, 3, 6), causal=True, alibi_slopes=random(3, 4), return_lse=True
    ),
}


@pytest.mark.parametrize("name", EAGER)
def test_against_the_reference(name: str) -> None:
    assert_matches(flex_attention, EAGER[name](), "eager")


@pytest.fixture
def compiled(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """How many kernels were compiled since the test began."""
    caplog.set_level(logging.INFO, flex_attention.__name__)
    return lambda: sum(
        record.name == flex_attention.__name__
        and record.message.startswith("compiled a FlexAttention kernel in ")
        for record in caplog.records
    )


def test_compiled_once_a_shape(compiled: Callable[[], int]) -> None:
    """Causal, packed, half precision, grouped heads: other lengths and another window need no other kernel."""

    def call(lengths: tuple[int, ...], window: Any) -> Call:
        return varlen(lengths, (60, 90), dtype=torch.bfloat16, causal=True, window=window)

    flex_attention._COMPILED.clear()
    assert_matches(flex_attention, call((20, 30), None), None)
    assert compiled() == 1
    assert_matches(flex_attention, call((20, 30), None), "compiled")
    assert_matches(flex_attention, call((49, 1), None), "compiled")
    assert_matches(flex_attention, call((20, 30), (7, None)), "compiled")
    assert compiled() == 1
    assert len(flex_attention._COMPILED) == 1


def test_compiled_with_changed_scores() -> None:
    call = dense(
        sq=5,
        sk=150,
        kv_heads=2,
        causal=True,
        window=(100, None),
        softcap=3.0,
        alibi_slopes=SLOPES,
        mask=random(2, 1, 5, 150) > -0.5,
    )
    assert_matches(flex_attention, call, "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", EAGER)
def test_everything_compiled(name: str, dtype: torch.dtype) -> None:
    """Each case of the eager table as far as the compiled CPU kernel goes."""
    call = EAGER[name]()
    fields = {slot: getattr(call, slot) for slot in call.__slots__ if slot != "layout"}
    fields |= {"return_lse": False, "sinks": None}
    fields |= {slot: fields[slot].to(dtype) for slot in ("q", "k", "v")}
    assert_matches(flex_attention, make_call(**fields), "compiled")


def test_what_the_compiled_cpu_kernel_lacks() -> None:
    wanted = {
        "return_lse: the compiled CPU kernel gives no log-sum-exp": dense(return_lse=True),
        "sinks: the compiled CPU kernel gives no log-sum-exp to apply them with": dense(sinks=random(4)),
        "dtype torch.float64: the compiled kernels take float16, bfloat16 and float32": dense(
            dtype=torch.float64
        ),
    }
    for reason, call in wanted.items():
        assert flex_attention.refuses(call, "compiled") == flex_attention.refuses(call, None) == reason
        assert flex_attention.refuses(call, "eager") is None
        with pytest.raises(NotSupported, match=reason):
            run(flex_attention, call, None)
    call = dense()
    call.q.requires_grad_()
    assert "training" in str(flex_attention.refuses(call, "compiled"))
    assert "training is not honoured" in str(flex_attention.refuses(call, "eager"))


def test_a_mask_is_for_dense_calls() -> None:
    reason = flex_attention.refuses(varlen(mask=random(5, 9) > 0), "eager")
    assert reason == "varlen layout with a mask: a mask is for the dense layout"


def _inside(call: Call, backend: str) -> None:
    """The call as a part of a graph: no break, no kernel of its own, the same result."""
    fields = {slot: getattr(call, slot) for slot in call.__slots__ if slot not in ("q", "k", "v", "layout")}

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return flex_attention.run(make_call(q, k, v, **fields))

    flex_attention._COMPILED.clear()
    torch._dynamo.reset()
    out = torch.compile(function, fullgraph=True, backend=backend)(call.q, call.k, call.v)
    expected, _ = reference.attend(call)
    assert (out.double() - expected).abs().max().item() <= bounds_of(call).out
    assert not flex_attention._COMPILED


INSIDE: dict[str, Callable[[], Call]] = {
    "band": lambda: dense(sq=5, sk=9, kv_heads=2, causal=True, window=(3, None)),
    "scores": lambda: dense(sq=5, sk=9, alibi_slopes=SLOPES, softcap=3.0, mask=random(5, 9) > -0.5),
    "packed": lambda: varlen(causal=True),
    "paged": lambda: paged(causal=True),
    "paged, packed queries": lambda: paged(causal=True, lengths_q=(2, 1, 1)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside_another_graph(name: str) -> None:
    _inside(INSIDE[name](), "eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", INSIDE)
def test_inside_another_compiled_graph(name: str) -> None:
    _inside(INSIDE[name](), "inductor")


def test_rows() -> None:
    rows = dense_rows(dense(sq=3, sk=5, window=(1, 1)))
    assert (rows.first.tolist(), rows.last.tolist()) == ([1, 2, 3], [3, 4, 4])
    assert rows.position.tolist() == [2, 3, 4]
    rows = packed_rows(varlen((2, 0, 1), (3, 4, 2), causal=True))
    assert rows.sequence is not None
    assert rows.sequence.tolist() == [0, 0, 2]
    assert (rows.first.tolist(), rows.last.tolist()) == ([0, 0, 7], [1, 2, 8])
    rows = cache_rows(paged((9, 4, 1), sq=2, causal=True))
    assert rows.last.tolist() == [[7, 8], [2, 3], [-1, 0]]


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.data())
def test_blocks_are_those_that_the_rows_need(data: st.DataObject) -> None:
    """Against a brute force over the whole plane, on rows without any order."""
    batch, count, keys = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 300), st.integers(1, 400)))
    seed = data.draw(st.integers(0, 2**31))
    spread = data.draw(st.sampled_from([1, 40, 400]))
    generator = torch.Generator().manual_seed(seed)
    middle = torch.linspace(0, keys, count).int().expand(batch, count)
    first = middle - torch.randint(0, spread, (batch, count), generator=generator, dtype=torch.int32)
    last = middle + torch.randint(-2, spread, (batch, count), generator=generator, dtype=torch.int32)
    first, last = first.clamp(min=0), last.clamp(max=keys - 1)
    parts = blocks(Rows(first, last, first, None), keys)
    key = torch.arange(keys)
    plane = (key >= first[..., None]) & (key <= last[..., None])
    for b in range(batch):
        for r in range(-(-count // BLOCK)):
            rows = plane[b, r * BLOCK : (r + 1) * BLOCK]
            tiles = [rows[:, c : c + BLOCK] for c in range(0, keys, BLOCK)]
            whole = {c for c, tile in enumerate(tiles) if bool(tile.all())}
            some = {c for c, tile in enumerate(tiles) if bool(tile.any())}
            got_whole = set(parts.full_indices[b, 0, r, : parts.full_counts[b, 0, r]].tolist())
            got_part = set(parts.indices[b, 0, r, : parts.counts[b, 0, r]].tolist())
            assert got_whole == whole
            # a block between two that are needed may be visited in vain, never left out
            assert some - whole <= got_part
            assert not got_part & whole


def test_gathering_a_cache() -> None:
    call = paged((9, 4, 0), sq=1, block_size=4, filler=torch.nan)
    k, v = gathered(call)
    assert k.shape == v.shape == (3, 12, 2, 16)
    assert torch.isfinite(k).all() and torch.isfinite(v).all()
    assert (k[2] == 0).all() and (k[1, 4:] == 0).all() and (k[0, 9:] == 0).all()
    assert call.block_table is not None
    assert torch.equal(k[0, 8], call.k[call.block_table[0, 2], 0])
    shorter = paged((9, 4, 1), sq=1, block_size=4, max_seqlen_k=10)
    assert gathered(shorter)[0].shape[1] == 10
