"""The short cut for plain calls gives what the whole way gives, bit for bit, and leaves everything else to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from backends import attention, dispatch, torch_sdpa
from backends._sdpa_mask import plan
from backends._shortcut import flash_on_cpu
from backends.call import CallError, make_call
from backends.torch_sdpa import _forced
from selector import Request, quarantine, reload, select
from selector.errors import RequestError


class WholeWay:
    """The wrapper itself, with a count of the calls that come to it."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **fields: Any) -> Any:
        self.calls += 1
        return torch_sdpa.run(make_call(q, k, v, **fields), variant="cpu_flash")


def tensors(
    queries: int = 5,
    keys: int = 5,
    heads: int = 4,
    kv_heads: int = 4,
    size: int = 64,
    dtype: torch.dtype = torch.float32,
    batch: int = 2,
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(queries * 1000 + keys)
    shapes = ((batch, queries, heads, size), (batch, keys, kv_heads, size), (batch, keys, kv_heads, size))
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return q, k, v


@pytest.mark.parametrize("size", [8, 24, 64, 72, 80, 96, 100, 128, 192, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_same_bits(size: int, dtype: torch.dtype, causal: bool) -> None:
    whole = WholeWay()
    run = flash_on_cpu(whole, lambda: True)
    for queries, keys in ((5, 5), (1, 1), (1, 7)):
        q, k, v = tensors(queries, keys, kv_heads=2, size=size, dtype=dtype)
        first, second = run(q, k, v, causal=causal), run(q, k, v, causal=causal)
        assert torch.equal(first, second)
        assert torch.equal(second, WholeWay()(q, k, v, causal=causal))
    assert whole.calls == 3


def test_a_growing_cache_stays_on_the_short_cut() -> None:
    whole = WholeWay()
    run = flash_on_cpu(whole, lambda: True)
    for keys in range(2, 20):
        q, k, v = tensors(1, keys)
        assert torch.equal(run(q, k, v, causal=True), WholeWay()(q, k, v, causal=True))
    assert whole.calls == 1


@pytest.mark.parametrize(
    "other",
    [
        {"heads": 8},
        {"kv_heads": 2},
        {"size": 32},
        {"dtype": torch.float64},
        {"queries": 3},
        {"queries": 1},
        {"queries": 7},
        {"batch": 0},
    ],
    ids=str,
)
def test_calls_of_another_kind_go_the_whole_way(other: dict[str, Any]) -> None:
    whole = WholeWay()
    run = flash_on_cpu(whole, lambda: True)
    run(*tensors(), causal=True)
    run(*tensors(), causal=True)
    assert whole.calls == 1
    q, k, v = tensors(**other)
    assert torch.equal(run(q, k, v, causal=True), WholeWay()(q, k, v, causal=True))
    assert whole.calls == 2


def test_other_fields_go_the_whole_way() -> None:
    whole = WholeWay()
    run = flash_on_cpu(whole, lambda: True)
    q, k, v = tensors()
    cases: list[dict[str, Any]] = [{}, {"causal": True}, {"scale": 0.5}, {"return_lse": True}]
    for expected, fields in enumerate(cases, start=1):
        found = run(q, k, v, **fields)
        wanted = WholeWay()(q, k, v, **fields)
        assert (
            all(map(torch.equal, found, wanted)) if isinstance(found, tuple) else torch.equal(found, wanted)
        )
        assert whole.calls == expected


def test_strides_go_the_whole_way() -> None:
    """The operator reads wrong elements where the last stride is not 1."""
    whole = WholeWay()
    run = flash_on_cpu(whole, lambda: True)
    q, k, v = tensors()
    expected = run(q, k, v)
    twisted = k.transpose(1, 3).contiguous().transpose(1, 3)
    assert twisted.stride(-1) != 1
    assert torch.equal(run(q, twisted, v), expected)
    assert whole.calls == 2


def test_mistakes_are_named_as_ever() -> None:
    run = flash_on_cpu(WholeWay(), lambda: True)
    q, k, v = tensors()
    run(q, k, v)
    with pytest.raises(CallError, match="dtype"):
        run(q, k.double(), v)
    with pytest.raises(CallError, match="shape"):
        run(q, k, v[:, :3])
    with pytest.raises(CallError, match="shape"):
        run(q[0], k, v)
    with pytest.raises(CallError, match="device"):
        run(q, k.to("meta"), v.to("meta"))


def test_nothing_is_learnt_where_something_failed_before() -> None:
    whole = WholeWay()
    run = flash_on_cpu(whole, lambda: False)
    for _ in range(3):
        run(*tensors())
    assert whole.calls == 3


def test_gradients() -> None:
    q, k, v = (t.requires_grad_() for t in tensors())
    for _ in range(3):
        grads = torch.autograd.grad(attention(q, k, v, causal=True).sum(), (q, k, v))  # type: ignore[union-attr]
        expected = torch.autograd.grad(WholeWay()(q, k, v, causal=True).sum(), (q, k, v))
        assert all(map(torch.equal, grads, expected))
    with torch.no_grad():
        assert not attention(q, k, v, causal=True).requires_grad  # type: ignore[union-attr]


def test_a_selection_that_was_not_made_for_training_refuses_it() -> None:
    q, k, v = tensors()
    selection = select(
        Request(
            head_size=64, num_heads=4, num_kv_heads=4, dtype="float32", query_length="same", kv_length="many"
        ),
        backend="torch_sdpa/cpu_flash",
    )
    run = selection.run
    expected = run(q, k, v)
    assert torch.equal(run(q, k, v), expected)
    with pytest.raises(RequestError, match="training"):
        run(q.requires_grad_(), k, v)
    assert selection.report().ran == "torch_sdpa/cpu_flash"


def test_attention_uses_it_and_forgets_it() -> None:
    q, k, v = tensors(heads=6, kv_heads=6)
    expected = attention(q, k, v)
    key = next(key for key in dispatch._PLAIN if key[0] == 6)
    assert torch.equal(attention(q, k, v), expected)  # type: ignore[arg-type]
    winner = next(
        c
        for c in select(head_size=64, dtype="float32", num_heads=6).catalog.candidates
        if c.id == "torch_sdpa/cpu_flash"
    )
    quarantine.put(winner, "for this test")
    try:
        assert key not in dispatch._PLAIN
        found = attention(q, k, v)
        assert isinstance(found, Tensor)
        assert torch.allclose(found, expected, atol=1e-5)  # type: ignore[arg-type]
    finally:
        quarantine.clear_quarantine()
    attention(q, k, v)
    assert key in dispatch._PLAIN
    reload()
    assert not dispatch._PLAIN


@pytest.mark.parametrize("backend", ["cuda_flash", "cuda_math"])
def test_forcing_what_is_chosen_anyway_changes_nothing(backend: str) -> None:
    """The operators have the same names on every device, so this holds on a CPU too."""
    q, k, v = (t.transpose(1, 2) for t in tensors())
    call = make_call(*tensors(), causal=True)
    how = plan(q, 5, True, None)
    found = _forced(backend, call, q, k, v, how, 0.125)
    expected = WholeWay()(*tensors(), causal=True, scale=0.125).transpose(1, 2)
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch_sdpa._chosen_anyway(backend, call, q, k, v, how, 0.125) == (backend == "cuda_flash")


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, None, "q: got None, expected a tensor"),
        (1, None, "k: got None, expected a tensor"),
        (2, "v", "v: got a value of type str, expected a tensor"),
        (1, [[1.0]], "k: got a value of type list, expected a tensor"),
    ],
)
def test_what_is_no_tensor_is_named(warm: bool, place: int, value: Any, said: str) -> None:
    q = torch.zeros(1, 4, 2, 8)
    run = select(head_size=8, num_heads=2, dtype="float32").run
    if warm:
        run(q, q, q)
        attention(q, q, q)
    given = [q, q, q]
    given[place] = value
    for call in (run, attention):
        with pytest.raises(CallError) as caught:
            call(*given)
        assert str(caught.value) == said


def test_too_few_arguments_name_what_was_called() -> None:
    run = select(head_size=8, num_heads=2, dtype="float32").run
    with pytest.raises(TypeError, match=r"^Selection\.run\(\) missing 1 required positional argument: 'v'"):
        run(torch.zeros(1, 4, 2, 8), torch.zeros(1, 4, 2, 8))


@pytest.mark.parametrize("again", [False, True])
def test_a_list_where_a_name_or_a_flag_belongs(again: bool) -> None:
    q = torch.randn(1, 4, 2, 8)
    for _ in range(2 * again):
        attention(q, q, q)
    given: list[dict[str, Any]] = [{}, {"softcap": 2.0}]
    wrong: list[Any] = [[], None, 1]
    for fields in given:
        for backend, kind in ((["reference"], "list"), (3, "int")):
            with pytest.raises(TypeError, match=f"attention: backend is the name of .*, not a {kind}"):
                attention(q, q, q, backend=backend, **fields)  # type: ignore[arg-type]
        for causal in wrong:
            with pytest.raises(CallError, match=r"causal: got .*, expected True or False"):
                attention(q, q, q, causal=causal, **fields)
