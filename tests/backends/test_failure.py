"""What is no kernel's fault puts no kernel out of use: memory of the host, and tensors that torch does not take there."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import selector
from backends import dispatch
from backends._failure import is_broken
from backends.call import CallError
from selector.quarantine import clear_quarantine, quarantined
from tests.backends.calls import random


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    clear_quarantine()
    yield
    clear_quarantine()


def _raised(function: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        function()
    return caught.value


def test_memory_of_the_host() -> None:
    error = _raised(lambda: torch.empty(1 << 60))
    assert "can't allocate memory" in str(error)
    assert not is_broken(error)
    for other in (
        RuntimeError("Cannot allocate memory"),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ):
        assert not is_broken(other)
    # a library that cannot be loaded
    assert is_broken(ImportError("libgomp.so.1: cannot allocate memory in static TLS block"))


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: no kernel image is available for execution on the device",
        "CUDA error: invalid device function",
        "CUDA error: too many resources requested for launch",
        "CUDA driver version is insufficient for CUDA runtime version",
        "Error building extension 'batch_prefill'",
        "Ninja build failed. Ninja output: ...",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        "undefined symbol: _ZN3c10",
        "FlashAttention only supports Ampere GPUs or newer.",
        "out of resource: shared memory, Required: 262144, Hardware limit: 232448",
    ],
)
def test_broken_kernels(text: str) -> None:
    assert is_broken(RuntimeError(text))


def _inference(run: Callable[..., Any]) -> None:
    with torch.inference_mode():
        q = random(1, 4, 2, 8)
    w = random(1, 4, 2, 8).requires_grad_()
    run(q, w, w)


def _jvp(run: Callable[..., Any]) -> None:
    q = random(1, 4, 2, 8)
    torch.func.jvp(lambda x: run(x, q, q), (q,), (q,))


def test_what_torch_raises_for_tensors() -> None:
    leaf = torch.zeros(3, requires_grad=True)
    for mistake in (
        lambda: torch.zeros(2) + torch.zeros(3),
        lambda: leaf.add_(1.0),
        lambda: torch.autograd.grad(torch.zeros(()), leaf),
        lambda: torch.ones(2, dtype=torch.float8_e5m2).neg(),
    ):
        error = _raised(mistake)
        assert isinstance(error, RuntimeError)
        assert not is_broken(error)


@pytest.mark.parametrize("mistake", [_inference, _jvp])
@pytest.mark.parametrize("again", [False, True], ids=["at first", "on the short cut"])
@pytest.mark.parametrize("through", ["attention", "selection"])
@pytest.mark.filterwarnings("ignore:.*cannot run this call:RuntimeWarning")
def test_a_callers_mistake_stays_the_callers(mistake: Callable[..., None], again: bool, through: str) -> None:
    needs = {"dtype": "float32", "head_size": 8, "num_heads": 2, "num_kv_heads": 2, "training": True}
    run = dispatch.attention if through == "attention" else selector.select(needs).run
    q = random(1, 4, 2, 8).requires_grad_()
    if again:
        for _ in range(2):
            run(q, q, q)
    with contextlib.suppress(RuntimeError, selector.SelectorError):
        mistake(run)
    assert quarantined() == {}
    torch.testing.assert_close(run(q, q, q), dispatch.attention(q, q, q, backend="reference"))


def test_forward_derivatives_take_the_next_kernel() -> None:
    q = random(1, 4, 2, 8)
    with pytest.warns(RuntimeWarning, match="cpu_flash cannot run this call .*forward-mode"):
        found = torch.func.jvp(lambda x: dispatch.attention(x, q, q), (q,), (q,))
    expected = torch.func.jvp(lambda x: dispatch.attention(x, q, q, backend="reference"), (q,), (q,))
    torch.testing.assert_close(found, expected)
    assert quarantined() == {}


@pytest.mark.parametrize("field", [0, 1, 2])
def test_tensors_without_strides(field: int) -> None:
    q = random(1, 4, 2, 8)
    for _ in range(2):
        dispatch.attention(q, q, q)
    for other in (q.to_sparse(), q.to_mkldnn()):
        given = [q, q, q]
        given[field] = other
        with pytest.raises(CallError, match=r"layout .*expected torch.strided") as caught:
            dispatch.attention(*given)
        assert caught.value.field == "qkv"[field]
    assert quarantined() == {}
