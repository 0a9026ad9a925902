"""A softmax scale of 0 or less, wherever it comes from: kernels take the scale in after masking, and ``-inf`` times it is no mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import selector
from backends import dispatch, flash_attn, flashinfer, flex_attention, reference, torch_sdpa
from backends.call import make_call
from tests.backends.calls import assert_matches, dense, random, varlen
from tests.backends.contracts import cases, world
from tests.backends.contracts.signatures import contracts

if TYPE_CHECKING:
    from types import ModuleType

SCALES: list[dict[str, Any]] = [
    {"scale": 0.0},
    {"scale": -0.5},
    {"scale": 1e-50},
    {"scale": -1e-50},
    {"q_scale": -2.0},
    {"k_scale": 0.0},
    {"scale": -0.3, "q_scale": -2.0},
    {"k_scale": torch.tensor(-1.5)},
]
WRAPPERS = [(torch_sdpa, "cpu_flash"), (torch_sdpa, "cpu_math"), (flex_attention, "eager")]


@pytest.mark.parametrize("given", SCALES, ids=str)
@pytest.mark.parametrize(("module", "variant"), WRAPPERS)
def test_causal(module: ModuleType, variant: str, given: dict[str, Any]) -> None:
    for sq, sk in ((7, 7), (7, 3), (3, 7), (1, 7)):
        assert_matches(module, dense(sq=sq, sk=sk, causal=True, **given), variant)
    assert_matches(module, dense(sq=70, sk=70, **given), variant)
    mask = torch.ones(7, 7, dtype=torch.bool).tril(1)
    assert_matches(module, dense(mask=mask, **given), variant)


@pytest.mark.parametrize("given", SCALES, ids=str)
def test_packed_on_the_cpu(given: dict[str, Any]) -> None:
    assert_matches(torch_sdpa, varlen((3, 5), (3, 9), causal=True, return_lse=True, **given), "cpu_flash")


def test_gradients() -> None:
    q, k, v = (random(1, 6, 2, 8, dtype=torch.float64, seed=s) for s in range(3))
    for scale in (0.0, -0.5):
        found = []
        for module, variant in ((torch_sdpa, "cpu_flash"), (reference, None)):
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            module.run(
                make_call(*leaves, causal=True, scale=scale), variant=variant
            ).square().sum().backward()
            found.append([x.grad for x in leaves])
        torch.testing.assert_close(found[0], found[1])


def test_from_end_to_end() -> None:
    q, k, v = (random(1, 6, 2, 8, seed=s) for s in range(3))
    selection = selector.select(
        {"dtype": "float32", "head_size": 8, "num_heads": 2, "num_kv_heads": 2, "causal": True},
        environment="cpu",
        backend="torch_sdpa/cpu_flash",
    )
    for scale in (None, 0.0, -0.5):
        expected = reference.run(make_call(q, k, v, causal=True, scale=scale))
        for _ in range(3):  # the first call of a kind prepares a short cut
            for run in (dispatch.attention, selection.run):
                torch.testing.assert_close(run(q, k, v, causal=True, scale=scale), expected)
                run(q, k, v, causal=True)


FORMS = {
    "fa2": [("bfloat16", "dense"), ("bfloat16", "varlen"), ("bfloat16", "paged")],
    "fa3": [("bfloat16", "dense"), ("bfloat16", "varlen"), ("fp8", "dense"), ("fp8_kv", "paged")],
    "fa4": [("bfloat16", "dense"), ("bfloat16", "varlen"), ("fp8", "dense")],
}


@pytest.mark.parametrize("variant", FORMS)
def test_flash_attention(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins hold wrappers to a scale above 0."""
    world.use_flash(monkeypatch, variant, contracts(world.PACKAGES[variant])[-1])
    for form, layout in FORMS[variant]:
        for given in SCALES[:7]:
            call = _with(given, form, layout, 256 if variant == "fa2" else 4)
            reason = flash_attn.refuses(call, variant)
            if reason is None:
                world.assert_close(
                    call, flash_attn.run(call, variant=variant), 2**-3 if "fp8" in form else 2**-6
                )
            else:
                assert "scale" in reason
                assert set(given) != {"scale"}


@pytest.mark.parametrize("variant", ["fa2", "fa3", "fa3_fp8_heads"])
def test_flashinfer(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.use_flashinfer(monkeypatch, contracts("flashinfer-python")[-1])
    ran = 0
    for layout in ("dense", "one", "varlen", "paged", "decode"):
        for given in SCALES[:7]:
            call = _with(given, "fp8" if variant == "fa3_fp8_heads" else "bfloat16", layout, 4)
            reason = flashinfer.refuses(call, variant)
            if reason is None:
                world.assert_close(call, flashinfer.run(call, variant=variant), 2**-3)
                ran += 1
            else:
                assert "scale" in reason
                assert set(given) != {"scale"}
    assert ran >= 20


def _with(given: dict[str, Any], form: str, layout: str, block_size: int) -> Any:
    call = cases.build(
        {**cases.plain(), "format": form, "layout": layout, "band": "causal"}, block_size=block_size
    )
    fields = {name: getattr(call, name) for name in type(call).__slots__ if name != "layout"}
    return make_call(**(fields | given))
