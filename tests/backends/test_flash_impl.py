"""Which flash kernel torch runs: what is switched, what is left alone, and what is refused - on torch's own registry."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from backends import _flash_impl, torch_sdpa
from backends._flash_impl import LOCK, current, refusal, use
from backends._guard import NotSupported
from backends.call import Call, make_call
from tests.backends.calls import dense, random, varlen
from tests.backends.contracts.standin_torch import Handle, flash_attention_on_cpu, implementations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

FLASH = ("cuda_flash", "cuda_flash_fa3", "cuda_flash_fa4")


@pytest.fixture
def activated() -> Iterator[list[tuple[str, Handle]]]:
    """Harmless implementations in the place of FA3 and FA4; everything that is activated, in order."""
    with implementations("FA3", "FA4") as activated:
        yield activated
    _flash_impl._OURS.clear()


def switch(wanted: str | None) -> None:
    with LOCK:
        use(wanted, "torch_sdpa/test")


def names(activated: list[tuple[str, Handle]]) -> list[str]:
    return [name for name, _ in activated]


def test_the_wanted_one_is_activated_once_and_taken_back(activated: list[tuple[str, Handle]]) -> None:
    switch("FA3")
    switch("FA3")
    assert current() == "FA3"
    ((name, handle),) = activated
    assert (name, handle.removed) == ("FA3", 0)
    switch(None)
    switch(None)
    assert current() is None
    assert handle.removed == 1


def test_one_of_ours_gives_way_to_another_of_ours(activated: list[tuple[str, Handle]]) -> None:
    for wanted in ("FA3", "FA4", None, "FA4", "FA3"):
        switch(wanted)
        assert current() == wanted
    assert names(activated) == ["FA3", "FA4", "FA4", "FA3"]
    assert [handle.removed for _, handle in activated] == [1, 1, 1, 0]


@pytest.mark.parametrize("wanted", [None, "FA3"])
def test_what_the_user_activated_stays(wanted: str | None, activated: list[tuple[str, Handle]]) -> None:
    nn.attention.activate_flash_attention_impl("FA4")
    with pytest.raises(NotSupported, match="FA4 is active in this process, activated elsewhere"):
        switch(wanted)
    assert current() == "FA4"
    switch("FA4")
    assert names(activated) == ["FA4"]
    assert activated[0][1].removed == 0


@pytest.mark.parametrize("theirs", ["FA3", "FA4"])
def test_what_the_user_activates_after_us_is_theirs(theirs: str, activated: list[tuple[str, Handle]]) -> None:
    """Also under the same name."""
    switch("FA3")
    nn.attention.activate_flash_attention_impl(theirs)
    assert refusal(theirs) is None
    assert refusal(None) is not None
    with pytest.raises(NotSupported, match=theirs):
        switch(None)
    assert current() == theirs
    assert names(activated) == ["FA3", theirs]


def test_what_the_user_takes_back_is_activated_again(activated: list[tuple[str, Handle]]) -> None:
    switch("FA3")
    nn.attention.restore_flash_attention_impl()
    switch("FA3")
    assert names(activated) == ["FA3", "FA3"]
    switch(None)
    assert current() is None


def test_a_package_that_is_missing_leaves_torchs_own() -> None:
    with implementations("FA4"):
        switch("FA4")
        with pytest.raises(ImportError):
            switch("FA3")
        assert current() is None
        switch("FA4")
        switch(None)
        assert current() is None
    assert torch_sdpa.is_broken(ImportError("flash_attn_interface"))


def test_a_torch_without_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.8 and 2.9."""
    for name in ("activate", "restore", "current", "list"):
        suffix = "impls" if name == "list" else "impl"
        monkeypatch.delattr(nn.attention, f"{name}_flash_attention_{suffix}")
    assert current() is None
    switch(None)
    with pytest.raises(NotSupported, match="cannot activate and restore"):
        switch("FA3")


def test_a_torch_that_cannot_take_back(
    activated: list[tuple[str, Handle]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch 2.10: nothing is activated that would stay."""
    monkeypatch.delattr(nn.attention, "restore_flash_attention_impl")
    switch(None)
    with pytest.raises(NotSupported, match="cannot activate and restore"):
        switch("FA4")
    assert not activated
    nn.attention.activate_flash_attention_impl("FA4")
    switch("FA4")
    with pytest.raises(NotSupported, match="activated elsewhere"):
        switch(None)


def half(**fields: object) -> Call:
    return dense(dtype=torch.float16, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", FLASH)
def test_a_variant_runs_its_own(variant: str, activated: list[tuple[str, Handle]]) -> None:
    """The operators have the same names on every device, so this holds on a CPU too."""
    wanted = torch_sdpa._IMPLEMENTATION[variant]
    switch("FA4" if wanted == "FA3" else "FA3")
    out = torch_sdpa._attend(half(causal=True), variant)
    assert current() == wanted
    assert isinstance(out, torch.Tensor)
    expected = torch_sdpa.run(half(causal=True), variant="cpu_flash")
    assert torch.equal(out, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", [*FLASH, "cuda_varlen"])
def test_a_variant_says_before_it_runs_that_another_is_active(
    variant: str, activated: list[tuple[str, Handle]]
) -> None:
    with FakeTensorMode():
        q = torch.empty(2, 7, 4, 16, dtype=torch.float16, device="cuda")
        call = make_call(q, q, q)
        if variant == "cuda_varlen":
            starts = torch.empty(3, dtype=torch.int32, device="cuda")
            packed = q.flatten(0, 1)
            call = make_call(
                packed,
                packed,
                packed,
                cu_seqlens_q=starts,
                cu_seqlens_k=starts,
                max_seqlen_q=7,
                max_seqlen_k=7,
            )
        assert torch_sdpa.refuses(call, variant) is None
        other = "FA4" if torch_sdpa._IMPLEMENTATION[variant] != "FA4" else "FA3"
        nn.attention.activate_flash_attention_impl(other)
        assert f"{other} is active" in str(torch_sdpa.refuses(call, variant))
        with pytest.raises(NotSupported, match=f"torch_sdpa/{variant} .* {other} is active"):
            torch_sdpa.run(call, variant=variant)
        assert current() == other


class _Seen(torch.utils._python_dispatch.TorchDispatchMode):
    """The implementation that is active whenever a flash operator runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[str, str | None]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if "flash_attention" in func.name():
            self.seen.append((func.name().removeprefix("aten::"), current()))
        return func(*args, **(kwargs or {}))


def _trained(variant: str, call: Call) -> Tensor:
    call.q.requires_grad_()
    again = make_call(
        *(call.q, call.k, call.v),
        cu_seqlens_q=call.cu_seqlens_q,
        cu_seqlens_k=call.cu_seqlens_k,
        max_seqlen_q=call.max_seqlen_q if call.cu_seqlens_q is not None else None,
        max_seqlen_k=call.max_seqlen_k if call.cu_seqlens_q is not None else None,
        causal=True,
        v_scale=0.5,
    )
    out = torch_sdpa._attend(again, variant)
    assert isinstance(out, torch.Tensor)
    return out


@pytest.mark.parametrize("variant", FLASH)
@pytest.mark.parametrize("between", [None, "FA3", "FA4"])
@pytest.mark.parametrize("queries", [7, 9])
def test_the_backward_pass_runs_on_what_the_forward_pass_ran_on(
    variant: str, between: str | None, queries: int, activated: list[tuple[str, Handle]]
) -> None:
    """Through the views and the factor after the operator, and with queries that see nothing."""
    wanted = torch_sdpa._IMPLEMENTATION[variant]
    with _Seen() as modes:
        out = _trained(variant, half(sq=queries))
        switch(between)
        torch.autograd.backward([out], [torch.ones_like(out)])
    assert [implementation for _, implementation in modes.seen] == [wanted, wanted]
    assert modes.seen[1][0].endswith("backward")


def test_the_backward_pass_of_a_packed_batch(activated: list[tuple[str, Handle]]) -> None:
    with flash_attention_on_cpu():
        out = _trained("cuda_varlen", varlen(dtype=torch.float16))
        switch("FA3")
        torch.autograd.backward([out], [torch.ones_like(out)])
    assert current() is None
    assert names(activated) == ["FA3"]


def test_a_backward_pass_under_the_users_choice_is_refused(activated: list[tuple[str, Handle]]) -> None:
    out = _trained("cuda_flash_fa3", half())
    nn.attention.activate_flash_attention_impl("FA4")
    with pytest.raises(NotSupported, match="FA4 is active"):
        out.sum().backward()  # type: ignore[no-untyped-call]


def test_nothing_is_switched_while_a_graph_is_traced(activated: list[tuple[str, Handle]]) -> None:
    torch._dynamo.reset()

    def said(x: Tensor) -> Tensor:
        return x + (1 if refusal("FA3") is None else 0)

    compiled = torch.compile(said, fullgraph=True, backend="eager")
    zero = torch.zeros(1)
    assert compiled(zero) == 0
    assert not activated
    switch("FA3")
    assert compiled(zero) == 1, "a switch is seen by what is compiled already"
    switch(None)
    assert compiled(zero) == 0
    assert "while torch.compile traces" not in str(refusal("FA3"))


def test_a_compiled_call_does_not_switch(activated: list[tuple[str, Handle]]) -> None:
    torch._dynamo.reset()

    def attend(q: Tensor) -> Tensor:
        call = make_call(q, q, q, causal=True)
        assert refusal("FA3") is not None
        return torch_sdpa._attend(call, "cuda_flash")  # type: ignore[return-value]

    q = random(1, 5, 2, 16, dtype=torch.float16)
    out = torch.compile(attend, fullgraph=True, backend="eager")(q)
    assert torch.equal(out, torch_sdpa.run(make_call(q, q, q, causal=True), variant="cpu_flash"))  # type: ignore[arg-type]
    assert not activated


def test_threads_get_what_they_ask_for(activated: list[tuple[str, Handle]]) -> None:
    failed: list[BaseException] = []

    def ask(variant: str) -> None:
        try:
            for _ in range(20):
                torch_sdpa._attend(half(causal=True), variant)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(variant,)) for variant in FLASH]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert all(handle.removed == 1 for _, handle in activated[:-1])


def test_the_stand_in_is_gone_afterwards() -> None:
    with flash_attention_on_cpu():
        torch_sdpa._attend(varlen(dtype=torch.float16), "cuda_varlen")
    with pytest.raises(NotImplementedError):
        torch_sdpa._attend(varlen(dtype=torch.float16), "cuda_varlen")
    assert nn.attention.list_flash_attention_impls() == ["FA3", "FA4"]
    assert current() is None
