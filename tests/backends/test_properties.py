"""Properties of calls drawn at random: wrappers agree with the reference, and attention's own laws hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends import reference, torch_sdpa
from backends.bounds import bounds_of
from backends.call import make_call
from tests.backends.calls import assert_matches, dense, paged, random, run, starts, varlen

if TYPE_CHECKING:
    from types import ModuleType

    from backends.call import Call

QUICK = settings(deadline=None, max_examples=80, derandomize=True)
LENGTH = st.integers(0, 12)
WRAPPERS: list[tuple[ModuleType, str | None]] = [(torch_sdpa, "cpu_flash"), (torch_sdpa, "cpu_math")]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Any layout, any features, small sizes (and now and then a long one)."""
    kv_heads, group = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 3]))
    heads = kv_heads * group
    fields: dict[str, Any] = {
        "heads": heads,
        "kv_heads": kv_heads,
        "size": draw(st.sampled_from([1, 4, 8, 24])),
        "size_v": draw(st.sampled_from([None, None, None, 5])),
        "dtype": draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64])),
        "causal": draw(st.booleans()),
        "return_lse": draw(st.booleans()),
        "scale": draw(st.sampled_from([None, 0.0, 1.0, -0.3])),
        "v_scale": draw(st.sampled_from([None, 0.5])),
    }
    layout = draw(st.sampled_from(["dense", "dense", "varlen", "paged"]))
    rare = draw(st.sampled_from(["", "", "", "window", "softcap", "alibi", "sinks", "mask"]))
    if rare == "window":
        fields["window"] = draw(st.tuples(st.none() | LENGTH, st.none() | LENGTH))
    if rare == "softcap":
        fields["softcap"] = draw(st.sampled_from([0.5, 30.0]))
    if rare == "alibi":
        fields["alibi_slopes"] = random(heads).abs()
    if rare == "sinks":
        fields["sinks"] = random(heads)
    if layout == "dense":
        batch, sq, sk = draw(st.integers(0, 3)), draw(LENGTH), draw(st.one_of(LENGTH, st.just(150)))
        if rare == "mask":
            fields["mask"] = random(draw(st.sampled_from([1, batch])), 1, sq, sk) > draw(
                st.sampled_from([-0.5, 0.5])
            )
        return dense(batch=batch, sq=sq, sk=sk, **fields)
    lengths = draw(st.lists(st.tuples(LENGTH, LENGTH), min_size=1, max_size=4))
    lengths_q, lengths_k = [q for q, _ in lengths], [k for _, k in lengths]
    if layout == "varlen":
        return varlen(lengths_q, lengths_k, **fields)
    return paged(lengths_k, lengths_q=lengths_q, block_size=draw(st.integers(1, 5)), **fields)


@QUICK
@given(calls())
def test_wrappers_agree_with_the_reference(call: Call) -> None:
    for module, variant in WRAPPERS:
        reason = module.refuses(call, variant)
        if reason is None:
            assert_matches(module, call, variant)
        else:
            assert "is not honoured" in reason


@QUICK
@given(calls())
def test_the_reference_in_single_precision_is_within_the_bounds(call: Call) -> None:
    if call.q.dtype == torch.float64:
        return
    exact, exact_lse = reference.attend(call)
    out, lse = reference.attend(call, torch.float32)
    bounds = bounds_of(call)
    if out.numel():
        assert (out - exact).abs().max().item() <= bounds.out
        finite = exact_lse > -torch.inf
        assert torch.equal(finite, lse > -torch.inf)
        assert not finite.any() or (lse - exact_lse)[finite].abs().max().item() <= bounds.lse


@QUICK
@given(st.integers(1, 3), LENGTH, LENGTH, st.booleans(), st.none() | st.tuples(LENGTH, LENGTH))
def test_packed_and_paged_are_dense_in_other_clothes(
    batch: int, sq: int, sk: int, causal: bool, window: tuple[int, int] | None
) -> None:
    call = dense(batch=batch, sq=sq, sk=sk, causal=causal, window=window)
    out, lse = reference.attend(call)
    packed = make_call(
        *(x.flatten(0, 1) for x in (call.q, call.k, call.v)),
        cu_seqlens_q=starts([sq] * batch),
        cu_seqlens_k=starts([sk] * batch),
        max_seqlen_q=sq,
        max_seqlen_k=sk,
        causal=causal,
        window=window,
    )
    got, got_lse = reference.attend(packed)
    assert torch.equal(got.view_as(out), out)
    assert torch.equal(got_lse.view(4, batch, sq).transpose(0, 1), lse)
    if sk:
        blocks = torch.arange(batch, dtype=torch.int32)[:, None]
        cache = make_call(
            call.q,
            call.k,
            call.v,
            block_table=blocks,
            seq_lens=torch.full((batch,), sk, dtype=torch.int32),
            causal=causal,
            window=window,
        )
        assert torch.equal(reference.attend(cache)[0], out)


@QUICK
@given(st.integers(1, 9), st.integers(2, 12), st.data())
def test_parts_of_the_keys_merge_by_their_log_sum_exp(sq: int, sk: int, data: st.DataObject) -> None:
    """What the log-sum-exp is for: two kernels over parts of the keys give the whole."""
    cut = data.draw(st.integers(1, sk - 1))
    call = dense(sq=sq, sk=sk, kv_heads=2)
    parts = [
        run(torch_sdpa, make_call(call.q, call.k[:, s], call.v[:, s], return_lse=True), "cpu_flash")
        for s in (slice(0, cut), slice(cut, None))
    ]
    (left, left_lse), (right, right_lse) = parts
    assert left_lse is not None and right_lse is not None
    share = torch.sigmoid(left_lse - right_lse).transpose(1, 2)[..., None]
    expected, expected_lse = reference.attend(call)
    bounds = bounds_of(call)
    assert (left * share + right * (1 - share) - expected).abs().max().item() <= 3 * bounds.out
    assert (torch.logaddexp(left_lse, right_lse) - expected_lse).abs().max().item() <= 2 * bounds.lse


@QUICK
@given(calls(), st.floats(-5.0, 5.0))
def test_a_value_added_to_every_value_is_added_to_the_result(call: Call, added: float) -> None:
    """The weights of a row sum to 1 where it sees a key and there is no sink."""
    if call.sinks is not None or call.k.dtype != torch.float64 or call.v_scale is not None:
        return
    fields = {slot: getattr(call, slot) for slot in call.__slots__ if slot != "layout"}
    out, lse = reference.attend(call)
    shifted, _ = reference.attend(make_call(**(fields | {"v": call.v + added})))
    sees = (lse > -torch.inf).movedim(-2, -1)[..., None].double()
    torch.testing.assert_close(shifted, out + added * sees, rtol=1e-9, atol=1e-9)
