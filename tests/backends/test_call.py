"""The call description: what is refused and in which words, the one spelling of each value, the request read off it."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

from backends._guard import FIELDS, refusal, used_fields
from backends.call import Call, CallError, make_call, request_fields
from tests.backends.calls import dense, paged, starts, varlen

INT = torch.int32
FULL = {"q": (2, 3, 4, 8), "k": (2, 5, 2, 8), "v": (2, 5, 2, 8)}

# (what is changed, field, part of what was got, part of what was expected)
CONTRADICTIONS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"q": torch.zeros(3, 4, 8)}, "q", "shape [3, 4, 8]", "[batch, seq, heads, head_size]"),
    ({"k": torch.zeros(5, 2, 8)}, "k", "shape [5, 2, 8]", "[batch, seq, kv_heads, head_size]"),
    ({"v": torch.zeros(2, 6, 2, 8)}, "v", "shape [2, 6, 2, 8]", "[2, 5, 2] + [head_size_v]"),
    ({"k": torch.zeros(2, 5, 2, 16)}, "k", "head size 16", "q's head size 8"),
    ({"q": torch.zeros(2, 3, 4, 0), "k": torch.zeros(2, 5, 2, 0)}, "q", "head size 0", "at least 1"),
    (
        {"k": torch.zeros(2, 5, 3, 8), "v": torch.zeros(2, 5, 3, 8)},
        "k",
        "3 KV heads",
        "a divisor of q's 4 heads",
    ),
    ({"k": torch.zeros(3, 5, 2, 8), "v": torch.zeros(3, 5, 2, 8)}, "k", "batch 3", "q's batch 2"),
    ({"q": torch.zeros(2, 3, 4, 8, dtype=INT)}, "q", "torch.int32", "bfloat16"),
    ({"k": torch.zeros(2, 5, 2, 8).half()}, "k", "torch.float16", "q's dtype torch.float32"),
    ({"v": torch.zeros(2, 5, 2, 8).half()}, "v", "torch.float16", "k's dtype torch.float32"),
    ({"k": torch.zeros(2, 5, 2, 8, device="meta")}, "k", "device meta", "q's device cpu"),
    ({"max_seqlen_q": 4}, "max_seqlen_q", "4", "q's length 3"),
    ({"max_seqlen_k": 4}, "max_seqlen_k", "4", "k's length 5"),
    ({"seq_lens": torch.zeros(2, dtype=INT)}, "seq_lens", "a tensor", "nothing without block_table"),
    ({"window": (1, 2, 3)}, "window", "(1, 2, 3)", "(left, right)"),
    ({"window": (-1, 0)}, "window", "(-1, 0)", "None for no bound"),
    ({"softcap": -1.0}, "softcap", "-1.0", "a positive number"),
    ({"softcap": float("nan")}, "softcap", "nan", "a positive number"),
    ({"scale": float("inf")}, "scale", "inf", "a finite number"),
    ({"dropout_p": 1.0}, "dropout_p", "1.0", "0 <= p < 1"),
    ({"alibi_slopes": torch.zeros(4).half()}, "alibi_slopes", "torch.float16", "torch.float32"),
    ({"alibi_slopes": torch.zeros(2)}, "alibi_slopes", "shape [2]", "[4] or [2, 4]"),
    ({"sinks": torch.zeros(2)}, "sinks", "shape [2]", "[4]: one logit a query head"),
    ({"sinks": torch.zeros(4, dtype=INT)}, "sinks", "torch.int32", "floating-point"),
    ({"mask": torch.zeros(3, 6)}, "mask", "shape [3, 6]", "broadcastable to [2, 4, 3, 5]"),
    ({"mask": torch.zeros(3, 5, dtype=INT)}, "mask", "torch.int32", "torch.bool, or a floating-point bias"),
    ({"mask": torch.zeros(1, 1, 1, 3, 5)}, "mask", "shape [1, 1, 1, 3, 5]", "broadcastable"),
    ({"k_scale": torch.ones(4)}, "k_scale", "shape [4]", "one element, or [2]"),
    ({"q_scale": torch.ones(2)}, "q_scale", "shape [2]", "one element, or [4]"),
    ({"v_scale": torch.ones(2).half()}, "v_scale", "torch.float16", "torch.float32"),
    ({"v_scale": float("nan")}, "v_scale", "nan", "a finite number"),
    ({"k_scale": torch.ones(2, device="meta")}, "k_scale", "device meta", "q's device cpu"),
    ({"q": torch.zeros(2, 3, 4, 8).to_sparse()}, "q", "layout torch.sparse_coo", "torch.strided"),
    ({"v": torch.zeros(2, 5, 2, 8).to_mkldnn()}, "v", "layout torch._mkldnn", "torch.strided"),
]

# (field, value, part of what was got, part of what was expected): no value of these types can be meant
TYPES: list[tuple[str, Any, str, str]] = [
    *(
        (field, value, f"a value of type {kind}", "a tensor")
        for field in ("q", "mask", "alibi_slopes", "sinks")
        for value, kind in (([1.0, 2.0], "list"), (numpy.ones(4), "ndarray"))
    ),
    ("sinks", "all", "a value of type str", "a tensor"),
    ("window", 5, "5 of type int", "(left, right)"),
    ("window", "ab", "'ab' of type str", "(left, right)"),
    ("window", ("a", 0), "'a' of type str", "integers (left, right)"),
    ("window", (1.5, 0), "1.5 of type float", "integers (left, right)"),
    ("window", (0, True), "True of type bool", "integers (left, right)"),
    ("softcap", "30", "'30' of type str", "a positive number"),
    ("softcap", True, "True of type bool", "a positive number"),
    ("softcap", torch.tensor(30.0), "a value of type Tensor", "a positive number"),
    ("scale", "x", "'x' of type str", "a finite number"),
    ("scale", 1j, "1j of type complex", "a finite number"),
    ("scale", numpy.ones(2), "a value of type ndarray", "a finite number"),
    ("dropout_p", None, "None", "0 <= p < 1"),
    ("dropout_p", False, "False of type bool", "0 <= p < 1"),
    ("q_scale", [1.0], "a value of type list", "a finite number, or a tensor"),
    ("k_scale", "1", "'1' of type str", "a finite number, or a tensor"),
    ("v_scale", numpy.ones(2), "a value of type ndarray", "a finite number, or a tensor"),
    ("max_seqlen_q", "3", "'3' of type str", "q's length 3"),
    ("max_seqlen_k", 5.0, "5.0 of type float", "k's length 5"),
    ("max_seqlen_q", torch.tensor(3), "a value of type Tensor", "q's length 3"),
    *(
        (field, value, said, "True or False")
        for field in ("causal", "return_lse", "deterministic")
        for value, said in (
            (None, "None"),
            ([], "a value of type list"),
            (1, "1 of type int"),
            ("no", "'no' of type str"),
        )
    ),
]


@pytest.mark.parametrize(
    ("change", "field", "got", "expected"), CONTRADICTIONS, ids=[c[1] + " " + c[2] for c in CONTRADICTIONS]
)
def test_contradictions(change: dict[str, Any], field: str, got: str, expected: str) -> None:
    fields: dict[str, Any] = {name: torch.zeros(shape) for name, shape in FULL.items()}
    with pytest.raises(CallError) as caught:
        make_call(**(fields | change))
    error = caught.value
    assert error.field == field
    assert got in str(error.got)
    assert expected in error.expected
    assert str(error) == f"{field}: got {error.got}, expected {error.expected}"


@pytest.mark.parametrize(("field", "value", "got", "expected"), TYPES, ids=[f"{t[0]} {t[2]}" for t in TYPES])
def test_wrong_types(field: str, value: Any, got: str, expected: str) -> None:
    fields: dict[str, Any] = {name: torch.zeros(shape) for name, shape in FULL.items()}
    with pytest.raises(CallError) as caught:
        make_call(**(fields | {field: value}))
    error = caught.value
    assert error.field == field
    assert got == str(error.got)
    assert expected in error.expected


def test_numpys_own_scalars_are_taken() -> None:
    call = dense(
        causal=numpy.bool_(False),
        return_lse=numpy.True_,
        window=[numpy.int64(3), numpy.int32(2)],
        softcap=numpy.float32(30.0),
        scale=numpy.float64(0.5),
        q_scale=numpy.float16(2.0),
        dropout_p=numpy.float32(0.25),
        max_seqlen_q=numpy.int64(7),
    )
    assert call.causal is False
    assert call.return_lse is True
    assert call.window == (3, 2)
    assert [type(bound) for bound in call.window] == [int, int]
    assert (call.softcap, call.scale, call.q_scale, call.dropout_p) == (30.0, 0.5, 2.0, 0.25)
    assert type(call.softcap) is type(call.q_scale) is type(call.dropout_p) is float


@pytest.mark.parametrize("value", [[0, 3, 8], numpy.array([0, 3, 8], dtype="int32")], ids=["list", "array"])
def test_what_describes_sequences_is_a_tensor(value: Any) -> None:
    kind = f"a value of type {type(value).__name__}"
    q, good = torch.zeros(8, 2, 8), starts((3, 5))
    for field in ("cu_seqlens_q", "cu_seqlens_k"):
        both = {"cu_seqlens_q": good, "cu_seqlens_k": good, field: value}
        with pytest.raises(CallError, match=f"{field}: got {kind}, expected a tensor"):
            make_call(q, q, q, max_seqlen_q=5, max_seqlen_k=5, **both)
    for field in ("max_seqlen_q", "max_seqlen_k"):
        longest: dict[str, Any] = {"max_seqlen_q": 5, "max_seqlen_k": 5, field: "5"}
        with pytest.raises(CallError, match=f"{field}: got '5' of type str, expected an integer"):
            make_call(q, q, q, cu_seqlens_q=good, cu_seqlens_k=good, **longest)
    table, lengths = torch.zeros(2, 2, dtype=INT), torch.ones(2, dtype=INT)
    for field in ("block_table", "seq_lens"):
        given: dict[str, Any] = {"block_table": table, "seq_lens": lengths, field: value}
        with pytest.raises(CallError, match=f"{field}: got {kind}, expected a tensor"):
            make_call(torch.zeros(2, 1, 2, 8), *[torch.zeros(6, 4, 2, 8)] * 2, **given)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cu_seqlens_q": starts((3, 5)).long()}, "cu_seqlens_q"),
        ({"cu_seqlens_q": torch.zeros(0, dtype=INT)}, "cu_seqlens_q"),
        ({"cu_seqlens_k": starts((3, 4, 2))}, "cu_seqlens_k"),
        ({"cu_seqlens_k": None}, "cu_seqlens_k"),
        ({"cu_seqlens_q": None}, "cu_seqlens_q"),
        ({"max_seqlen_q": None}, "max_seqlen_q"),
        ({"max_seqlen_k": -1}, "max_seqlen_k"),
    ],
)
def test_packed_contradictions(change: dict[str, Any], field: str) -> None:
    fields: dict[str, Any] = {
        "q": torch.zeros(8, 4, 8),
        "k": torch.zeros(9, 2, 8),
        "v": torch.zeros(9, 2, 8),
        "cu_seqlens_q": starts((3, 5)),
        "cu_seqlens_k": starts((4, 5)),
        "max_seqlen_q": 5,
        "max_seqlen_k": 5,
    }
    make_call(**fields)
    with pytest.raises(CallError) as caught:
        make_call(**(fields | change))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seq_lens": None}, "seq_lens"),
        ({"seq_lens": torch.zeros(3, dtype=INT)}, "seq_lens"),
        ({"block_table": torch.zeros(3, 2, dtype=INT)}, "block_table"),
        ({"block_table": torch.zeros(2, dtype=INT)}, "block_table"),
        ({"cu_seqlens_k": starts((4, 5))}, "cu_seqlens_k"),
        ({"max_seqlen_k": 9}, "max_seqlen_k"),
        ({"k": torch.zeros(6, 0, 2, 8), "v": torch.zeros(6, 0, 2, 8)}, "k"),
    ],
)
def test_paged_contradictions(change: dict[str, Any], field: str) -> None:
    fields: dict[str, Any] = {
        "q": torch.zeros(2, 1, 4, 8),
        "k": torch.zeros(6, 4, 2, 8),
        "v": torch.zeros(6, 4, 2, 8),
        "block_table": torch.zeros(2, 2, dtype=INT),
        "seq_lens": torch.tensor([3, 8], dtype=INT),
    }
    assert make_call(**fields).max_seqlen_k == 8
    with pytest.raises(CallError) as caught:
        make_call(**(fields | change))
    assert caught.value.field == field


def test_one_spelling() -> None:
    assert dense(softcap=0.0).softcap is None
    assert dense(k_scale=1.0).k_scale is None
    assert dense(window=(None, None)).window is None
    call = dense(window=(3, 0))
    assert (call.causal, call.window) == (True, (3, None))
    call = dense(causal=True, window=(3, 9))
    assert (call.causal, call.window) == (True, (3, None))
    assert dense(causal=True, window=(None, 4)).window is None
    assert dense(window=(None, 4)).window == (None, 4)


def test_derived_values() -> None:
    call = paged(lengths_k=(9, 4), block_size=4, kv_heads=2, size=16, size_v=8)
    assert (call.batch, call.num_heads, call.num_kv_heads) == (2, 4, 2)
    assert (call.head_size, call.head_size_v, call.block_size) == (16, 8, 4)
    assert call.max_seqlen_k == 12
    assert call.softmax_scale == 0.25
    assert call.out_shape == (2, 2, 4, 8)
    assert varlen().batch == 4
    assert dense(dtype=torch.float8_e4m3fn).out_dtype == torch.bfloat16


def test_request_of_a_plain_call() -> None:
    assert request_fields(dense(sk=9, kv_heads=2, size_v=8, dtype=torch.float16)) == {
        "device": "cpu",
        "head_size": 16,
        "head_size_v": 8,
        "num_heads": 4,
        "num_kv_heads": 2,
        "dtype": "float16",
        "kv_cache_dtype": "auto",
        "layout": "dense",
        "causal": False,
        "query_length": "shorter",
        "kv_length": "many",
        "sliding_window": False,
        "window_right": False,
        "softcap": False,
        "alibi": False,
        "sinks": False,
        "custom_mask": False,
        "mask_bias": False,
        "mask_grad": False,
        "lse": False,
        "dropout": False,
        "training": False,
        "deterministic": False,
        "per_head_scales": False,
    }


def test_request_of_a_call_that_uses_everything() -> None:
    call = paged(
        lengths_q=(2, 2, 1),
        kv_dtype=torch.float8_e4m3fn,
        window=(3, 2),
        softcap=20.0,
        alibi_slopes=torch.ones(4),
        sinks=torch.ones(4, requires_grad=True),
        mask=torch.zeros(2, 12, requires_grad=True),
        return_lse=True,
        dropout_p=0.1,
        deterministic=True,
        k_scale=torch.ones(2),
    )
    needed = request_fields(call)
    assert needed["layout"] == "paged"
    assert needed["block_size"] == 4
    assert needed["kv_cache_dtype"] == "fp8_e4m3"
    flags = (
        "sliding_window window_right softcap alibi sinks custom_mask mask_bias mask_grad lse dropout training"
    )
    assert {name: needed[name] for name in flags.split()} == dict.fromkeys(flags.split(), True)
    assert needed["deterministic"] is True
    assert needed["per_head_scales"] is True


def test_an_fp8_cache_is_named_also_beside_an_fp8_query() -> None:
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    assert request_fields(dense(dtype=e4m3))["kv_cache_dtype"] == "fp8_e4m3"
    assert request_fields(dense(dtype=e4m3, kv_dtype=e5m2))["kv_cache_dtype"] == "fp8_e5m2"
    assert request_fields(dense(dtype=e4m3))["dtype"] == "fp8_e4m3"


@pytest.mark.parametrize(
    ("sq", "sk", "expected"),
    [
        (0, 3, ("empty", "many")),
        (1, 1, ("one", "one")),
        (1, 9, ("one", "many")),
        (3, 0, ("longer", "empty")),
        (4, 4, ("same", "many")),
        (4, 5, ("shorter", "many")),
        (5, 4, ("longer", "many")),
    ],
)
def test_length_classes(sq: int, sk: int, expected: tuple[str, str]) -> None:
    needed = request_fields(dense(sq=sq, sk=sk))
    assert (needed["query_length"], needed["kv_length"]) == expected


def test_training_needs_grad_mode() -> None:
    call = dense()
    call.q.requires_grad_()
    assert request_fields(call)["training"] is True
    with torch.no_grad():
        assert request_fields(call)["training"] is False


def test_one_scale_for_one_head_is_per_tensor() -> None:
    assert not dense(heads=1, kv_heads=1, k_scale=torch.ones(1)).per_head_scales
    assert dense(k_scale=torch.ones(4)).per_head_scales


def test_nothing_waits_for_a_device() -> None:
    """Tensors without storage: reading any value would fail."""
    call = paged(lengths_q=(2, 2, 1), alibi_slopes=torch.ones(4), k_scale=torch.ones(2))
    meta: dict[str, Any] = {
        name: value.to("meta") if isinstance(value := getattr(call, name), torch.Tensor) else value
        for name in Call.__slots__
        if name not in ("layout", "max_seqlen_k")
    }
    copy = make_call(**meta)
    assert request_fields(copy) == request_fields(call) | {"device": "meta"}
    assert used_fields(copy) == used_fields(call)


def test_every_field_lands_where_it_belongs() -> None:
    given: dict[str, Any] = {
        "q": torch.zeros(5, 4, 8),
        "k": torch.zeros(6, 3, 2, 8),
        "v": torch.zeros(6, 3, 2, 16),
        "cu_seqlens_q": starts((3, 2)),
        "max_seqlen_q": 3,
        "max_seqlen_k": 5,
        "block_table": torch.zeros(2, 2, dtype=INT),
        "seq_lens": torch.tensor([5, 4], dtype=INT),
        "causal": True,
        "window": (7, None),
        "softcap": 20.0,
        "alibi_slopes": torch.zeros(4),
        "sinks": torch.ones(4),
        "mask": torch.ones(3, 5, dtype=torch.bool),
        "scale": 0.3,
        "return_lse": True,
        "q_scale": 2.0,
        "k_scale": torch.ones(2),
        "v_scale": torch.tensor(3.0),
        "dropout_p": 0.25,
        "deterministic": True,
    }
    call = make_call(**given)
    assert set(given) | {"layout", "cu_seqlens_k"} == set(Call.__slots__)
    window = given.pop("window")
    assert call.window == window
    assert [name for name, value in given.items() if getattr(call, name) is not value] == []


def test_repr_is_short() -> None:
    assert repr(dense(dtype=torch.float16, causal=True, window=(3, None), k_scale=torch.ones(4))) == (
        "Call(q=float16[2, 7, 4, 16], k=float16[2, 7, 4, 16], v=float16[2, 7, 4, 16], layout=dense, "
        "max_seqlen_q=7, max_seqlen_k=7, causal=True, window=(3, None), k_scale=float32[4])"
    )


def test_frozen_and_compared_by_identity() -> None:
    call = dense()
    with pytest.raises(AttributeError):
        call.causal = True  # type: ignore[misc]
    assert call != dense()
    assert call in {call}


def test_traceable_without_a_graph_break() -> None:
    def function(q: torch.Tensor, k: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        call = make_call(q, k, k, causal=True, window=(4, None), softcap=3.0, k_scale=scale)
        needed = request_fields(call)
        reason = refusal(call, frozenset(FIELDS) - {"softcap"})
        assert reason is not None
        return q * len(reason) if needed["sliding_window"] and needed["dtype"] == "float32" else q

    call = dense(k_scale=torch.ones(4))
    assert isinstance(call.k_scale, torch.Tensor)
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    assert torch.equal(
        compiled(call.q, call.k, call.k_scale), call.q * len("softcap is not honoured (softcap)")
    )
