"""The FlashAttention wrapper against every recorded version: its calls bind, and mean what they should."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import torch

from backends import flash_attn, flashinfer, reference
from backends._guard import NotSupported
from backends.call import CallError, make_call
from tests.backends.contracts import cases, world
from tests.backends.contracts.signatures import Contract, contracts
from tests.backends.contracts.standin_flash import HALF_SINKS

if TYPE_CHECKING:
    from backends.call import Call

VARIANTS = ("fa2", "fa3", "fa4")
EVERY_VERSION = [
    pytest.param(variant, contract, id=str(contract))
    for variant in VARIANTS
    for contract in contracts(world.PACKAGES[variant])
]
ENDS = [
    pytest.param(variant, contract, id=str(contract))
    for variant in VARIANTS
    for contract in world.ends(world.PACKAGES[variant])
]
HALF_ULP = {torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""A relative error that one rounding of the output and one of a scale stay below."""


def _newest(variant: str) -> Contract:
    return contracts(world.PACKAGES[variant])[-1]


@pytest.mark.parametrize(("variant", "contract"), EVERY_VERSION)
def test_every_call_binds_and_reads_no_value(
    variant: str, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the tensors have no storage: whatever would wait for a device to read a number fails here
    log = world.use_flash(monkeypatch, variant, contract, dry=True)
    made = 0
    for choice, call in world.flash_cases(variant, "meta"):
        if not _gives(contract, choice):
            with pytest.raises(NotSupported, match="return_attn_probs"):
                flash_attn.run(call, variant=variant)
            continue
        returned = flash_attn.run(call, variant=variant)
        out = returned[0] if isinstance(returned, tuple) else returned
        assert out.shape == call.out_shape
        made += 1
    assert len(log) == made > 300


def _gives(contract: Contract, choice: cases.Choice) -> bool:
    """Whether this version can give what the choice asks for."""
    if contract.package != "flash-attn-3" or choice["lse"] == "no":
        return True
    if "return_attn_probs" in contract.callables["flash_attn_func"].parameters:
        return True
    return choice["layout"] != "varlen" and choice["training"] == "no"


@pytest.mark.parametrize(("variant", "contract"), ENDS)
def test_numbers(variant: str, contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.use_flash(monkeypatch, variant, contract)
    chosen = [
        (choice, call)
        for choice, call in cases.sampled(iter(world.flash_cases(variant, "cpu")), 160)
        if choice["dropout"] == "no" and _gives(contract, choice)
    ]
    if variant == "fa4" and contract.version < HALF_SINKS:
        chosen = [pair for pair in chosen if pair[1].sinks is None or pair[1].sinks.dtype == torch.bfloat16]
    assert len(chosen) > 50
    for choice, call in chosen:
        returned = flash_attn.run(call, variant=variant)
        given = call
        if choice["format"] == "fp8_kv" or (choice["format"] == "fp8" and choice["scales"] == "heads"):
            given = _with_the_query_it_was_given(call, log[-1].arguments)
        # the kernel's output of fp8 is bfloat16, whatever it is turned into
        relative = HALF_ULP[torch.bfloat16 if given is not call else call.out_dtype]
        world.assert_close(call, returned, relative, given, note=str(choice))


def _with_the_query_it_was_given(call: Call, arguments: dict[str, Any]) -> Call:
    """The call with the values of the query as handed over, after a look at how far they are from its own."""
    factor = arguments["q_descale"].repeat_interleave(call.num_heads // call.num_kv_heads, 1)
    factor = factor[0] if call.packed_q else factor[:, None]
    given = arguments["q"].double() * factor[..., None].double()
    scale = call.q_scale if call.q_scale is not None else 1.0
    exact = call.q.detach().double() * (
        scale.reshape(-1, 1).double() if isinstance(scale, torch.Tensor) else scale
    )
    step = factor.max().item() * 2**-9  # e4m3's smallest number
    assert torch.all((given - exact).abs() <= exact.abs() * 2**-4 + step)
    return dataclasses.replace(call, q=given.to(torch.float64), q_scale=None)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", ["dense", "varlen", "paged_varlen"])
def test_tensors_go_through_uncopied(variant: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.use_flash(monkeypatch, variant, _newest(variant))
    call = cases.build({**cases.plain(), "layout": layout}, block_size=256 if variant == "fa2" else 4)
    flash_attn.run(call, variant=variant)
    arguments = log[-1].arguments
    assert arguments["q"] is call.q
    assert arguments.get("k_cache", arguments["k"]) is call.k
    assert arguments.get("v_cache", arguments["v"]) is call.v
    table = arguments.get("block_table", arguments.get("page_table"))
    assert table is call.block_table


def test_head_scales_are_expanded_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.use_flash(monkeypatch, "fa3", _newest("fa3"))
    call = cases.build({**cases.plain(), "format": "fp8", "scales": "heads"})
    flash_attn.run(call, variant="fa3")
    for name, scale in (("k_descale", call.k_scale), ("v_descale", call.v_scale)):
        assert isinstance(scale, torch.Tensor)
        given = log[-1].arguments[name]
        assert given.shape == (call.batch, call.num_kv_heads)
        assert given.data_ptr() == scale.data_ptr()
        assert given.stride()[0] == 0


def test_equal_query_scales_in_a_group_change_no_bit_of_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.use_flash(monkeypatch, "fa3", _newest("fa3"))
    call = cases.build({**cases.plain(), "format": "fp8", "groups": "2"})
    call = dataclasses.replace(call, q_scale=torch.tensor([0.3, 0.3, 1.7, 1.7]))
    world.assert_close(call, flash_attn.run(call, variant="fa3"), 2**-7)
    given = log[-1].arguments
    assert torch.equal(given["q"].view(torch.uint8), call.q.view(torch.uint8))
    assert torch.equal(given["q_descale"], torch.tensor([[0.3, 1.7]] * 2))


def test_unequal_query_scales_in_a_group_are_rounded_into_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    world.use_flash(monkeypatch, "fa3", _newest("fa3"))
    call = cases.build({**cases.plain(), "format": "fp8", "groups": "2"})
    call = dataclasses.replace(call, q_scale=torch.tensor([0.2, 0.3, 1.7, 1.0]))
    world.assert_close(call, flash_attn.run(call, variant="fa3"), 0.06)


def test_a_zero_query_survives_quantisation(monkeypatch: pytest.MonkeyPatch) -> None:
    world.use_flash(monkeypatch, "fa3", _newest("fa3"))
    call = cases.build({**cases.plain(), "format": "fp8_kv", "layout": "paged"})
    call = dataclasses.replace(call, q=torch.zeros_like(call.q))
    world.assert_close(call, flash_attn.run(call, variant="fa3"), 2**-7)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", ["dense", "varlen"])
def test_rows_without_keys(variant: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.use_flash(monkeypatch, variant, _newest(variant))
    torch.manual_seed(1)
    q, k, v = torch.randn(5, 2, 16).half(), torch.randn(2, 2, 16).half(), torch.randn(2, 2, 16).half()
    if layout == "dense":
        call = make_call(q[None], k[None], v[None], causal=True, return_lse=True)
    else:
        spans = torch.tensor([0, 4, 5]).int(), torch.tensor([0, 2, 2]).int()
        call = make_call(
            q,
            k,
            v,
            cu_seqlens_q=spans[0],
            cu_seqlens_k=spans[1],
            max_seqlen_q=4,
            max_seqlen_k=2,
            causal=True,
            return_lse=True,
        )
    returned = flash_attn.run(call, variant=variant)
    world.assert_close(call, returned, 2**-10)
    assert torch.isinf(returned[1]).sum() > 0


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("queries", "keys"), [(0, 4), (3, 0)])
def test_nothing_to_attend(variant: str, queries: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.use_flash(monkeypatch, variant, _newest(variant))
    q = torch.randn(2, queries, 4, 16).half().requires_grad_()
    k = torch.randn(2, keys, 2, 16).half()
    call = make_call(q, k, k, return_lse=True)
    out, lse = flash_attn.run(call, variant=variant)
    assert not log, "the kernels refuse an empty batch"
    assert torch.equal(out, torch.zeros(call.out_shape).half())
    assert lse.shape == (2, 4, queries)
    assert torch.all(lse == -torch.inf)
    out.sum().backward()
    assert q.grad is not None
    assert torch.equal(q.grad, torch.zeros_like(q))


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_output_and_log_sum_exp(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.use_flash(monkeypatch, variant, _newest(variant))
    call = cases.build(
        {**cases.plain(), "training": "yes", "lse": "yes", "band": "causal", "format": "float16"}
    )
    grads = []
    for out, lse in (flash_attn.run(call, variant=variant), reference.attend(call, torch.float64)):
        (out.sum() + lse.sum()).backward()
        grads.append([tensor.grad for tensor in (call.q, call.k, call.v)])
        for tensor in (call.q, call.k, call.v):
            tensor.grad = None
    torch.testing.assert_close(grads[0], grads[1], rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("window", [(1, None), (None, 2)])
def test_windows_that_flash_attention_2_reads_otherwise_are_refused(
    window: tuple[int | None, int | None],
) -> None:
    q, k = torch.randn(1, 9, 2, 16).half(), torch.randn(1, 2, 2, 16).half()
    call = make_call(q, k, k, window=window)
    reason = flash_attn.refuses(call, "fa2")
    assert reason is not None
    assert "window" in reason
    assert flash_attn.refuses(call, "fa3") is None


@pytest.mark.parametrize("variant", ["fa2", "fa3", "fa4"])
@pytest.mark.parametrize("lengths", [(1, 5), (5, 1), (3, 3), (4, 6), (6, 4)])
@pytest.mark.parametrize("window", [(0, None), (1, 1), (2, 0), (None, 1), (7, 7), (3, 0)])
def test_windows_for_other_lengths(
    variant: str,
    lengths: tuple[int, int],
    window: tuple[int | None, int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.use_flash(monkeypatch, variant, _newest(variant))
    torch.manual_seed(2)
    q = torch.randn(1, lengths[0], 2, 16).half()
    k, v = torch.randn(1, lengths[1], 2, 16).half(), torch.randn(1, lengths[1], 2, 16).half()
    call = make_call(q, k, v, window=window, return_lse=True)
    if flash_attn.refuses(call, variant) is None:
        world.assert_close(call, flash_attn.run(call, variant=variant), 2**-10)
    else:
        assert variant == "fa2"


def test_one_query_a_sequence_with_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world.use_flash(monkeypatch, "fa2", _newest("fa2"))
    q, k = torch.randn(2, 4, 16).half(), torch.randn(6, 2, 16).half()
    call = make_call(
        q,
        k,
        k,
        cu_seqlens_q=torch.tensor([0, 1, 1, 2]).int(),
        cu_seqlens_k=torch.tensor([0, 2, 4, 6]).int(),
        max_seqlen_q=1,
        max_seqlen_k=2,
    )
    world.assert_close(call, flash_attn.run(call, variant="fa2"), 2**-10)


def test_the_name_flash_attn_without_flash_attention_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    call = cases.build(cases.plain())
    with pytest.raises(ImportError, match="flash-attn-4 alone"):
        flash_attn.run(call, variant="fa2")


def test_which_failures_put_a_kernel_out_of_use() -> None:
    broken = [
        ImportError("undefined symbol"),
        OSError("libcudart.so.12: cannot open"),
        RuntimeError("CUDA error: no kernel image is available for execution on the device"),
        subprocess.CalledProcessError(1, "ninja"),
    ]
    not_broken = [
        NotSupported("flash_attn/fa2", "sinks"),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        MemoryError(),
        CallError("q", "shape [1]", "[batch, seq, heads, head_size]"),
        TypeError("unexpected keyword argument"),
    ]
    for module in (flash_attn, flashinfer):
        assert [error for error in broken if not module.is_broken(error)] == []
        assert [error for error in not_broken if module.is_broken(error)] == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_missing_package_is_an_import_error(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flash_attn", "flash_attn.cute", "flash_attn_interface", "flash_attn_3"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError):
        flash_attn.run(cases.build(cases.plain()), variant=variant)
