"""The whole way on a GPU: tensors, the selection for this machine, the winner's kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from backends import attention
from backends._flash_impl import current
from backends.bounds import bounds_of
from backends.call import make_call
from backends.dispatch import report_of
from backends.quantize import quantize_kv
from backends.reference import attend
from selector.errors import NoBackendError
from selector.quarantine import quarantined
from tests.gpu import DEVICE, needs_device
from tests.gpu.candidates import usable

pytestmark = needs_device

CALLS: dict[str, dict[str, Any]] = {
    "prefill": {"causal": True},
    "encoder": {},
    "window": {"causal": True, "window": (100, None)},
    "soft cap": {"causal": True, "softcap": 20.0},
    "its own scale": {"scale": 0.25},
}


def usable_of(*idents: str) -> list[str]:
    """Those of the candidates that this machine can run."""
    return [candidate.id for candidate in usable() if candidate.id in idents]


def tensors(batch: int, queries: int, keys: int, size: int = 128, **how: Any) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(batch, queries, 8, size, generator=generator)
    k, v = (torch.randn(batch, keys, 2, size, generator=generator) for _ in range(2))
    return tuple(x.to(torch.bfloat16).to(DEVICE, **how) for x in (q, k, v))


def close(out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **fields: Any) -> None:
    call = make_call(q, k, v, **fields)
    expected, _ = attend(call)
    assert float((out.detach().double() - expected).abs().max()) <= bounds_of(call).out


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("lengths", [(300, 300), (1, 300), (7, 300)], ids=str)
def test_attention(name: str, lengths: tuple[int, int]) -> None:
    q, k, v = tensors(2, *lengths)
    out = attention(q, k, v, **CALLS[name])
    assert isinstance(out, torch.Tensor)
    assert out.device.type == q.device.type
    close(out, q, k, v, **CALLS[name])
    report = report_of(q, k, v, **CALLS[name])
    assert report.ran is not None
    assert not report.failed


def test_scales_a_head() -> None:
    """The deciding example: run by a kernel that has them, or refused by name."""
    q, k, v = tensors(2, 5, 256)
    stored_k, k_scale = quantize_kv(k, "head")
    stored_v, v_scale = quantize_kv(v, "head")
    fields: dict[str, Any] = {"causal": True, "k_scale": k_scale, "v_scale": v_scale}
    try:
        out = attention(q, stored_k, stored_v, **fields)
    except NoBackendError as error:
        assert "per_head_scales" in str(error)
        return
    assert isinstance(out, torch.Tensor)
    close(out, q, stored_k, stored_v, **fields)


def test_inside_a_compiled_function() -> None:
    q, k, v = tensors(2, 64, 64)
    compiled = torch.compile(lambda q, k, v: attention(q, k, v, causal=True), fullgraph=True)
    out = compiled(q, k, v)
    assert isinstance(out, torch.Tensor)
    close(out, q, k, v, causal=True)


def test_gradients_reach_the_inputs() -> None:
    q, k, v = (x.requires_grad_() for x in tensors(1, 64, 64))
    out = attention(q, k, v, causal=True)
    assert isinstance(out, torch.Tensor)
    out.float().sum().backward()  # type: ignore[no-untyped-call]
    assert all(x.grad is not None and bool(torch.isfinite(x.grad).all()) for x in (q, k, v))


@pytest.mark.parametrize("backend", usable_of("torch_sdpa/cuda_flash_fa3", "torch_sdpa/cuda_flash_fa4"))
def test_a_flash_implementation_is_switched_to_and_back(backend: str) -> None:
    """Forward and backward passes on another package's kernels, with torch's own in between."""
    q, k, v = (x.requires_grad_() for x in tensors(1, 64, 64))
    out = attention(q, k, v, causal=True, backend=backend)
    assert isinstance(out, torch.Tensor)
    assert current() == backend[-3:].upper()
    close(out, q, k, v, causal=True)
    own = attention(q, k, v, causal=True, backend="torch_sdpa/cuda_flash")
    assert isinstance(own, torch.Tensor)
    assert current() is None
    found = torch.autograd.grad([out], [q, k, v], [torch.ones_like(out)])
    assert current() == backend[-3:].upper()
    expected = torch.autograd.grad([own], [q, k, v], [torch.ones_like(own)])
    assert current() is None
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("backend", usable_of("torch_sdpa/cuda_varlen"))
@pytest.mark.parametrize("tokens", [8, 9])
def test_the_log_sum_exp_of_as_many_tokens_as_heads(backend: str, tokens: int) -> None:
    """Documented as [tokens, heads], allocated as [heads, tokens]: told apart by the shape, or not at all."""
    q, k, v = (x[0] for x in tensors(1, tokens, tokens))
    starts = torch.tensor([0, tokens], dtype=torch.int32, device=q.device)
    fields: dict[str, Any] = {
        "cu_seqlens_q": starts,
        "cu_seqlens_k": starts,
        "max_seqlen_q": tokens,
        "max_seqlen_k": tokens,
        "causal": True,
        "return_lse": True,
    }
    _, lse = attention(q, k, v, backend=backend, **fields)
    call = make_call(q, k, v, **fields)
    _, expected = attend(call)
    assert float((lse.double() - expected).abs().max()) <= bounds_of(call).lse


@pytest.mark.skipif(DEVICE != "cuda", reason="about the memory and the queue of a GPU")
class TestTheDevice:
    """What only a device can show."""

    def test_memory_that_runs_out_is_no_broken_kernel(self) -> None:
        q, k, v = (torch.randn(1, 16384, 16, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(0.01)
        try:
            with pytest.raises(torch.OutOfMemoryError):
                attention(q, k, v, backend="torch_sdpa/cuda_math")
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        assert "torch_sdpa/cuda_math" not in quarantined()
        small = attention(q[:, :64], k[:, :64], v[:, :64], backend="torch_sdpa/cuda_math")
        assert isinstance(small, torch.Tensor)

    def test_a_call_waits_for_nothing(self) -> None:
        """No wrapper of a dense call reads a value from the device."""
        q, k, v = tensors(2, 256, 256)
        attention(q, k, v, causal=True)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            attention(q, k, v, causal=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_nothing_is_copied(self) -> None:
        """Beside the output and the row sums, no memory of the size of an input is asked for."""
        q, k, v = (torch.randn(4, 2048, 16, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        attention(q, k, v, causal=True)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out = attention(q, k, v, causal=True)
        assert isinstance(out, torch.Tensor)
        used = torch.cuda.max_memory_allocated() - before
        assert used < 1.9 * out.numel() * out.element_size(), used
