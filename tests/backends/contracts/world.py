"""Runs a wrapper against the stand-in of one recorded version, and says what its result should be."""

from __future__ import annotations

import dataclasses
import functools
from functools import partial
from typing import TYPE_CHECKING

import torch

from backends import flash_attn, flashinfer, reference
from tests.backends.contracts import cases, standin_flash, standin_flashinfer
from tests.backends.contracts.signatures import contracts
from tests.backends.contracts.standin import Log, install

if TYPE_CHECKING:
    import pytest
    from torch import Tensor

    from backends.call import Call
    from tests.backends.contracts.signatures import Contract

PACKAGES = {"fa2": "flash-attn", "fa3": "flash-attn-3", "fa4": "flash-attn-4"}
"""The distribution of each of FlashAttention's variants."""

_FLASH = {
    "fa2": standin_flash.flash_attn_2,
    "fa3": standin_flash.flash_attn_3,
    "fa4": standin_flash.flash_attn_4,
}


@functools.cache
def flash_cases(variant: str, device: str) -> list[tuple[cases.Choice, Call]]:
    """Every choice that a FlashAttention variant honours, with its call."""
    block_size = 256 if variant == "fa2" else 4
    refuses = partial(flash_attn.refuses, variant=variant)
    return list(cases.honoured_choices(refuses, block_size=block_size, device=device))


@functools.cache
def flashinfer_cases(variant: str) -> list[tuple[cases.Choice, Call]]:
    """Every choice that a FlashInfer variant honours, with its call."""
    return list(cases.honoured_choices(partial(flashinfer.refuses, variant=variant)))


def use_flash(patch: pytest.MonkeyPatch, variant: str, contract: Contract, *, dry: bool = False) -> Log:
    """Install the stand-in of a FlashAttention version; its log of calls."""
    log = Log()
    install(patch, contract, (standin_flash.dry if dry else _FLASH[variant])(contract, log))
    return log


def use_flashinfer(patch: pytest.MonkeyPatch, contract: Contract, *, dry: bool = False) -> Log:
    """Install the stand-in of a FlashInfer version, without wrappers or plans of another; its log."""
    log = Log()
    flashinfer.clear()
    patch.setattr("backends._flashinfer_kernels._SINK_SHAPES", {})
    patch.setattr("backends._flashinfer_plan.WORKSPACE_BYTES", 1024)
    install(patch, contract, standin_flashinfer.flashinfer(contract, log, dry=dry))
    return log


def ends(package: str) -> list[Contract]:
    """The oldest and the newest recorded version."""
    everything = contracts(package)
    return [everything[0], everything[-1]]


def expected(call: Call) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp by the reference in float64, of the numbers that the call's tensors store."""
    with torch.no_grad():
        return reference.attend(dataclasses.replace(call, dropout_p=0.0), torch.float64)


def _said(what: str, text: str) -> str:
    return f"{what}: {text}"


def assert_close(
    call: Call,
    returned: Tensor | tuple[Tensor, Tensor],
    relative: float,
    oracle: Call | None = None,
    note: str = "",
) -> None:
    """The result has the promised shapes and is the expected one (of ``oracle``, where given)."""
    out, lse = returned if isinstance(returned, tuple) else (returned, None)
    wanted, wanted_lse = expected(oracle or call)
    assert out.shape == call.out_shape
    assert out.dtype == call.out_dtype
    assert (lse is not None) == call.return_lse
    pairs = [("output", out, wanted)]
    if lse is not None:
        assert lse.dtype == torch.float32
        pairs.append(("log-sum-exp", lse, wanted_lse))
    for name, given, right in pairs:
        torch.testing.assert_close(
            given.double(), right, rtol=relative, atol=relative, msg=partial(_said, f"{name} of {note}")
        )
