"""The FlashInfer wrapper against every recorded version: its calls bind, and mean what they should."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from backends import flashinfer
from backends._guard import NotSupported
from backends.call import make_call
from tests.backends.contracts import cases, world
from tests.backends.contracts.signatures import Contract, contracts

if TYPE_CHECKING:
    from backends.call import Call
    from tests.backends.contracts.standin import Log

VARIANTS = ("fa2", "fa3", "fa3_fp8_heads")
PACKAGE = "flashinfer-python"
EVERY_VERSION = [pytest.param(contract, id=str(contract)) for contract in contracts(PACKAGE)]
ENDS = [pytest.param(contract, id=str(contract)) for contract in world.ends(PACKAGE)]
RELATIVE = {torch.bfloat16: 2**-6, torch.float16: 2**-9}
"""Two roundings: the output's, and that of a scale multiplied into a query or an output."""


def _one_sink_size(contract: Contract, choice: cases.Choice) -> bool:
    """Whether the choice keeps to the one head size that older versions' sink kernel has in a process."""
    fixed = "BatchAttentionWithAttentionSinkWrapper._sink_jit_args" in contract.callables
    return fixed or choice["sinks"] == "no" or (choice["size_v"] == "same" and choice["format"] != "fp8_kv")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("contract", EVERY_VERSION)
def test_every_call_binds(variant: str, contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.use_flashinfer(monkeypatch, contract, dry=True)
    made = 0
    for choice, call in world.flashinfer_cases(variant):
        if _one_sink_size(contract, choice):
            returned = flashinfer.run(call, variant=variant)
            out = returned[0] if isinstance(returned, tuple) else returned
            assert out.shape == call.out_shape
            made += 1
    assert made > 50
    assert len(log) >= made


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("contract", ENDS)
def test_numbers(variant: str, contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    world.use_flashinfer(monkeypatch, contract)
    for choice, call in cases.sampled(iter(world.flashinfer_cases(variant)), 160):
        if _one_sink_size(contract, choice):
            returned = flashinfer.run(call, variant=variant)
            world.assert_close(call, returned, RELATIVE[call.out_dtype], note=str(choice))


def _newest(monkeypatch: pytest.MonkeyPatch) -> Log:
    return world.use_flashinfer(monkeypatch, contracts(PACKAGE)[-1])


def _paged(**changes: str) -> Call:
    return cases.build({**cases.plain(), "layout": "paged", **changes})


@pytest.mark.parametrize(
    ("changes", "kernel"),
    [
        ({"layout": "one"}, "single_prefill_with_kv_cache"),
        ({"layout": "dense"}, "BatchPrefillWithRaggedKVCacheWrapper.run"),
        ({"layout": "varlen"}, "BatchPrefillWithRaggedKVCacheWrapper.run"),
        ({"layout": "paged"}, "BatchPrefillWithPagedKVCacheWrapper.run"),
        ({"layout": "paged_varlen"}, "BatchPrefillWithPagedKVCacheWrapper.run"),
        ({"layout": "decode"}, "BatchDecodeWithPagedKVCacheWrapper.run"),
        ({"layout": "decode", "size_v": "other"}, "BatchPrefillWithPagedKVCacheWrapper.run"),
        ({"layout": "decode", "sinks": "yes"}, "BatchAttentionWithAttentionSinkWrapper.run"),
        ({"layout": "dense", "sinks": "yes"}, "BatchAttentionWithAttentionSinkWrapper.run"),
    ],
)
def test_the_function_for_each_shape(
    changes: dict[str, str], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _newest(monkeypatch)
    flashinfer.run(cases.build({**cases.plain(), **changes}), variant="fa2")
    assert log[-1].name == kernel


@pytest.mark.parametrize(("heads", "size", "cores"), [(2, 64, False), (2, 96, True), (4, 64, True)])
@pytest.mark.parametrize("paged", [False, True])
def test_decode_without_tensor_cores_only_where_its_kernel_can(
    heads: int, size: int, cores: bool, paged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _newest(monkeypatch)
    torch.manual_seed(3)
    q, k = torch.randn(1, 1, heads, size).half(), torch.randn(1, 6, 2, size).half()
    table, lengths = (torch.zeros(1, 1).int(), torch.tensor([5]).int()) if paged else (None, None)
    call = make_call(q, k, k, return_lse=True, block_table=table, seq_lens=lengths)
    world.assert_close(call, flashinfer.run(call, variant="fa2"), 2**-9)
    made = [launch for launch in log if "use_tensor_cores" in launch.arguments]
    assert [launch.arguments["use_tensor_cores"] for launch in made] == [cores]


@pytest.mark.parametrize("variant", ["fa2", "fa3"])
def test_a_cache_with_heads_outside_is_handed_over_as_it_lies(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _newest(monkeypatch)
    call = _paged()
    k, v = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (call.k, call.v))
    call = dataclasses.replace(call, k=k, v=v)
    world.assert_close(call, flashinfer.run(call, variant=variant), 2**-6)
    made = {launch.name.rpartition(".")[2]: launch.arguments for launch in log}
    assert made["__init__"]["kv_layout"] == "HND"
    given = made["run"]["paged_kv_cache"]
    assert [tensor.data_ptr() for tensor in given] == [k.data_ptr(), v.data_ptr()]
    assert all(tensor.is_contiguous() for tensor in given)


def test_tensors_go_through_uncopied(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _newest(monkeypatch)
    for layout in ("one", "dense", "varlen", "paged", "paged_varlen"):
        call = cases.build({**cases.plain(), "layout": layout})
        flashinfer.run(call, variant="fa2")
        arguments = log[-1].arguments
        k, v = (
            arguments["paged_kv_cache"] if "paged_kv_cache" in arguments else (arguments["k"], arguments["v"])
        )
        given = [tensor.data_ptr() for tensor in (arguments["q"], k, v)]
        assert given == [call.q.data_ptr(), call.k.data_ptr(), call.v.data_ptr()]


def test_wrappers_and_workspace_are_reused_and_plans_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _newest(monkeypatch)
    call = _paged()
    for _ in range(3):
        flashinfer.run(call, variant="fa2")
    kinds = [name.rpartition(".")[2] for name in log.names()]
    assert kinds == ["__init__", "plan", "run", "plan", "run", "plan", "run"]
    flashinfer.run(cases.build(cases.plain()), variant="fa2")
    spaces = {
        launch.arguments["float_workspace_buffer"].data_ptr()
        for launch in log
        if launch.name.endswith("__init__")
    }
    assert len(spaces) == 1


def test_lengths_changed_in_place_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    _newest(monkeypatch)
    call = _paged()
    assert call.seq_lens is not None
    world.assert_close(call, flashinfer.run(call, variant="fa2"), 2**-6)
    call.seq_lens.add_(1)
    world.assert_close(call, flashinfer.run(call, variant="fa2"), 2**-6)


def test_plans_are_reused_where_the_caller_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _newest(monkeypatch)
    layers = [_paged(), _paged(band="causal_left")]
    layers[1] = dataclasses.replace(layers[1], block_table=layers[0].block_table, seq_lens=layers[0].seq_lens)
    with flashinfer.reuse_plans():
        for _ in range(3):
            for call in layers:
                world.assert_close(call, flashinfer.run(call, variant="fa2"), 2**-6)
    kinds = [name.rpartition(".")[2] for name in log.names()]
    assert (kinds.count("__init__"), kinds.count("plan"), kinds.count("run")) == (2, 2, 6)
    flashinfer.run(layers[0], variant="fa2")
    assert log.names()[-2:] == [f"BatchPrefillWithPagedKVCacheWrapper.{step}" for step in ("plan", "run")]


def test_other_lengths_are_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _newest(monkeypatch)
    first = _paged()
    second = dataclasses.replace(first, seq_lens=torch.tensor([2, 6, 8]).int())
    with flashinfer.reuse_plans():
        for call in (first, second, first, second):
            world.assert_close(call, flashinfer.run(call, variant="fa2"), 2**-6)
    assert [name.rpartition(".")[2] for name in log.names()].count("plan") == 2


def test_a_failed_plan_leaves_no_wrapper_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _newest(monkeypatch)
    call = _paged()
    broken = dataclasses.replace(call, seq_lens=torch.tensor([5, 900, 1]).int())
    with pytest.raises(IndexError):
        flashinfer.run(broken, variant="fa2")
    world.assert_close(call, flashinfer.run(call, variant="fa2"), 2**-6)
    assert [name.rpartition(".")[2] for name in log.names()] == ["__init__", "__init__", "plan", "run"]


def test_a_mask_does_not_outlive_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    _newest(monkeypatch)
    masked = cases.build({**cases.plain(), "mask": "plane", "band": "causal_left"})
    bare = cases.build(cases.plain())
    for call in (masked, bare, masked, bare):
        world.assert_close(call, flashinfer.run(call, variant="fa2"), 2**-6)


@pytest.mark.parametrize("variant", ["fa2", "fa3"])
@pytest.mark.parametrize("layout", ["one", "dense", "varlen", "paged", "decode"])
def test_rows_without_keys(variant: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for contract in world.ends(PACKAGE):
        with monkeypatch.context() as patch:
            world.use_flashinfer(patch, contract)
            call = cases.build({**cases.plain(), "layout": layout, "lse": "yes", "band": "causal"})
            if call.seq_lens is not None:
                call = dataclasses.replace(call, seq_lens=torch.tensor([5, 0, 1]).int())
            else:
                keys = call.k[:, :1] if call.k.dim() == 4 else call.k
                values = call.v[:, :1] if call.k.dim() == 4 else call.v
                call = dataclasses.replace(call, k=keys, v=values, max_seqlen_k=1 if call.k.dim() == 4 else 5)
                if call.cu_seqlens_k is not None:
                    call = dataclasses.replace(
                        call, cu_seqlens_k=torch.tensor([0, 2, 2, 4, 13]).int(), max_seqlen_k=9
                    )
            returned = flashinfer.run(call, variant=variant)
            world.assert_close(call, returned, 2**-6)
            assert torch.isinf(returned[1]).any()


def test_no_tokens_in_the_whole_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    _newest(monkeypatch)
    for layout in ("paged", "decode"):
        call = cases.build({**cases.plain(), "layout": layout, "lse": "yes"})
        call = dataclasses.replace(call, seq_lens=torch.zeros(3).int())
        world.assert_close(call, flashinfer.run(call, variant="fa2"), 2**-6)


def test_head_scales_reach_the_kernel_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _newest(monkeypatch)
    for layout in ("dense", "varlen", "paged", "decode"):
        call = cases.build(
            {**cases.plain(), "layout": layout, "format": "fp8", "scales": "heads", "groups": "2"}
        )
        flashinfer.run(call, variant="fa3_fp8_heads")
        given = log[-1].arguments["args"]
        torch.testing.assert_close(given, (call.q_scale, call.k_scale, call.v_scale), rtol=0, atol=0)
    call = cases.build({**cases.plain(), "layout": "one", "format": "fp8", "scales": "heads"})
    flashinfer.run(call, variant="fa3_fp8_heads")
    torch.testing.assert_close(log[-1].arguments["scale_k"], call.k_scale, rtol=0, atol=0)


def test_a_second_head_size_with_sinks_is_refused_where_one_kernel_serves_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small, large = (cases.build({**cases.plain(), "sinks": "yes"}, head_size=size) for size in (16, 32))
    for contract in contracts(PACKAGE):
        world.use_flashinfer(monkeypatch, contract)
        world.assert_close(small, flashinfer.run(small, variant="fa2"), 2**-6)
        if "BatchAttentionWithAttentionSinkWrapper._sink_jit_args" in contract.callables:
            world.assert_close(large, flashinfer.run(large, variant="fa2"), 2**-6)
        else:
            with pytest.raises(NotSupported, match="one sink kernel"):
                flashinfer.run(large, variant="fa2")
        world.assert_close(small, flashinfer.run(small, variant="fa2"), 2**-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_missing_package_is_an_import_error(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    form = "fp8" if variant == "fa3_fp8_heads" else "bfloat16"
    with pytest.raises(ImportError):
        flashinfer.run(cases.build({**cases.plain(), "format": form}), variant=variant)
