"""``cuda_varlen`` on the real ``varlen_attn`` of torch, over a stand-in kernel: its calls mean what they should."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch

from backends import _sdpa_varlen, reference, torch_sdpa
from backends._guard import refusal
from backends._launch import result
from backends.call import make_call
from tests.backends.calls import paged, random, varlen
from tests.backends.contracts import cases, world
from tests.backends.contracts.standin_torch import flash_attention_on_cpu

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from backends._launch import Result
    from backends.call import Call
    from tests.backends.contracts.standin import Log

HALF_ULP = {torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""A relative error that one rounding of the output and one of a scale stay below."""


@pytest.fixture
def log() -> Iterator[Log]:
    with flash_attention_on_cpu() as log:
        yield log


def refuses(call: Call) -> str | None:
    """The wrapper's refusals but for the device."""
    return refusal(call, torch_sdpa.HONOURED["cuda_varlen"]) or _sdpa_varlen.refuses(call)


def run(call: Call) -> Result:
    assert refuses(call) is None
    return torch_sdpa._attend(call, "cuda_varlen")


def test_numbers(log: Log) -> None:
    every = list(cases.honoured_choices(refuses, block_size=256))
    assert {choice["layout"] for choice, _ in every} == {"varlen", "paged", "decode", "paged_varlen"}
    for choice, call in every:
        world.assert_close(call, run(call), HALF_ULP[call.out_dtype], note=str(choice))
    assert len(log) == len(every) > 300


@pytest.mark.parametrize("lengths", [(1, 5), (5, 1), (3, 3), (4, 6), (6, 4)])
@pytest.mark.parametrize("window", [(0, None), (1, 1), (2, 0), (None, 1), (7, 7), (3, 0), (None, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_windows_for_other_lengths(
    lengths: tuple[int, int], window: tuple[int | None, int | None], causal: bool, log: Log
) -> None:
    if causal:
        window = (window[0], None) if window[0] is not None else None  # type: ignore[assignment]
    call = varlen(
        [lengths[0], 2], [lengths[1], 3], dtype=torch.float16, window=window, causal=causal, return_lse=True
    )
    if refuses(call) is None:
        world.assert_close(call, run(call), 2**-10)
    else:
        assert lengths[0] > lengths[1]
        assert not causal


def test_causal_is_aligned_bottom_right(log: Log) -> None:
    call = varlen([3, 9, 4], [9, 3, 4], dtype=torch.float16, causal=True, return_lse=True)
    returned = run(call)
    world.assert_close(call, returned, 2**-10)
    assert isinstance(returned, tuple)
    assert torch.isinf(returned[1]).sum() == 6 * call.num_heads, "six queries see nothing"


def test_one_query_a_sequence_with_an_empty_one(log: Log) -> None:
    call = varlen([1, 0, 1], [2, 2, 2], dtype=torch.float16)
    assert call.num_heads != call.num_kv_heads
    world.assert_close(call, run(call), 2**-10)
    assert log[-1].arguments["max_q"] == 2


@pytest.mark.parametrize("queries", [None, [3, 0, 1]])
def test_unused_slots_are_not_read(queries: list[int] | None, log: Log) -> None:
    call = paged(dtype=torch.bfloat16, block_size=256, lengths_q=queries, causal=True, return_lse=True)
    world.assert_close(call, run(call), 2**-7)
    assert log[-1].arguments["num_splits"] == 1


@pytest.mark.parametrize("layout", ["varlen", "paged", "paged_varlen"])
def test_tensors_go_through_uncopied(layout: str, log: Log) -> None:
    call = cases.build({**cases.plain(), "layout": layout}, block_size=256)
    run(call)
    given = log[-1].arguments
    for name, tensor in (("query", call.q), ("key", call.k), ("value", call.v)):
        assert given[name].data_ptr() == tensor.data_ptr()
    if layout != "varlen":
        assert given["block_table"].data_ptr() == call.block_table.data_ptr()  # type: ignore[union-attr]
        assert given["seqused_k"].data_ptr() == call.seq_lens.data_ptr()  # type: ignore[union-attr]


def test_only_an_input_without_unit_stride_is_copied(log: Log) -> None:
    call = varlen([3, 2], [4, 5], dtype=torch.float16)
    strided = random(9, 2, 32, dtype=torch.float16)[..., ::2]
    call = dataclasses.replace(call, k=strided)
    world.assert_close(call, run(call), 2**-10)
    assert log[-1].arguments["query"].data_ptr() == call.q.data_ptr()


def test_gradients(log: Log) -> None:
    fields: dict[str, Any] = {"causal": True, "dtype": torch.float16, "return_lse": True, "q_scale": 0.5}
    grads = []
    for use_reference in (False, True):
        call = varlen([3, 5, 1], [4, 5, 2], **fields)
        tensors = [x.requires_grad_() for x in (call.q, call.k, call.v)]
        call = make_call(
            *tensors,
            cu_seqlens_q=call.cu_seqlens_q,
            cu_seqlens_k=call.cu_seqlens_k,
            max_seqlen_q=call.max_seqlen_q,
            max_seqlen_k=call.max_seqlen_k,
            **{name: value for name, value in fields.items() if name != "dtype"},
        )
        assert call.training
        returned = reference.attend(call, torch.float64) if use_reference else run(call)
        assert isinstance(returned, tuple)
        out, lse = returned
        assert use_reference or not lse.requires_grad, "torch drops what comes in for it"
        torch.autograd.backward([out], [random(*out.shape, dtype=out.dtype)])
        grads.append([x.grad for x in tensors])
    torch.testing.assert_close(grads[0], grads[1], rtol=2**-7, atol=2**-8, check_dtype=False)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (varlen(size=20, dtype=torch.float16), "multiple of 8"),
        (varlen(size=264, dtype=torch.float16), "at most 256"),
        (paged(block_size=16, dtype=torch.float16), "block_size 16"),
        (varlen([9], [2], dtype=torch.float16, window=(1, None)), "bound it on the right"),
        (varlen([9], [2], dtype=torch.float16, window=(None, 2)), "drop the bound"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused(call: Call, word: str) -> None:
    reason = refuses(call)
    assert reason is not None
    assert word in reason


def test_no_gradients_through_a_paged_cache() -> None:
    call = paged(block_size=256, dtype=torch.float16)
    call.q.requires_grad_()
    assert "inference" in str(refuses(call))


@pytest.mark.parametrize(
    ("version", "paged_too"), [("2.12.1", False), ("2.13.0", True), ("2.14.1+cu130", True)]
)
def test_before_torch_2_13_no_splits_and_no_pages(
    version: str, paged_too: bool, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    assert (refuses(paged(block_size=256, dtype=torch.float16)) is None) == paged_too
    run(varlen(dtype=torch.float16))
    assert log[-1].arguments.get("num_splits") == (1 if paged_too else None)


@pytest.mark.parametrize("heads", [4, 6])
def test_the_shape_tells_the_log_sum_exps_order(
    heads: int, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    """The documentation says [tokens, heads], the operator's fake [heads, tokens]; alike for as many tokens as heads."""
    from torch.nn.attention import varlen as module

    call = varlen([3, 1], [3, 2], heads=heads, dtype=torch.float16, return_lse=True)
    assert (call.q.shape[0] == heads) == (heads == 4)
    expected = run(call)
    assert isinstance(expected, tuple)
    world.assert_close(call, expected, 2**-10)
    real = module.varlen_attn

    def documented(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        out, lse = real(*args, **kwargs)
        return out, lse.t()

    if heads != 4:
        monkeypatch.setattr(module, "varlen_attn", documented)
        returned = run(call)
        assert isinstance(returned, tuple)
        assert torch.equal(returned[1], expected[1])


def test_the_registered_fake_has_heads_first() -> None:
    """Where shapes cannot tell, the wrapper takes the fake's word: this is its word."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    with FakeTensorMode():
        q = torch.empty(7, 2, 16, dtype=torch.float16)
        starts = torch.empty(2, dtype=torch.int32)
        returned = varlen_attn(q, q, q, starts, starts, 7, 7, return_aux=AuxRequest(lse=True))
    assert returned[1].shape == (2, 7)


@pytest.mark.parametrize("layout", ["varlen", "paged", "paged_varlen"])
def test_no_graph_break(layout: str, log: Log) -> None:
    made = cases.build({**cases.plain(), "layout": layout, "band": "causal", "lse": "yes"}, block_size=256)
    named = ("cu_seqlens_q", "cu_seqlens_k", "block_table", "seq_lens")
    fields: dict[str, Any] = {name: getattr(made, name) for name in named if getattr(made, name) is not None}
    if made.packed_q:
        fields["max_seqlen_q"] = made.max_seqlen_q
    if layout == "varlen":
        fields["max_seqlen_k"] = made.max_seqlen_k

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Result:
        return torch_sdpa._attend(make_call(q, k, v, causal=True, return_lse=True, **fields), "cuda_varlen")

    torch._dynamo.reset()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for found, expected in zip(compiled(made.q, made.k, made.v), attend(made.q, made.k, made.v), strict=True):
        assert torch.equal(found, expected)


def test_nothing_to_attend(log: Log) -> None:
    call = varlen([0, 0], [3, 2], dtype=torch.float16, return_lse=True)
    out, lse = run(call)
    assert not log
    assert out.shape == call.out_shape
    assert lse.shape == (call.num_heads, 0)


def test_the_result_is_what_a_call_promises(log: Log) -> None:
    call = paged(block_size=256, dtype=torch.float16, return_lse=True, v_scale=0.5)
    out, lse = run(call)
    assert result(call, out, lse) == (out, lse)
    assert lse.shape == (call.batch, call.num_heads, call.max_seqlen_q)
    world.assert_close(call, (out, lse), 2**-9)
