"""Every field of a call, on every wrapper that runs on a CPU: it changes the result as the reference says, or is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from backends import flex_attention, reference, torch_sdpa
from backends._guard import FIELDS, NotSupported, refusal, used_fields
from backends.call import Call, make_call
from tests.backends.calls import assert_matches, dense, paged, random, run, varlen

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

WRAPPERS: list[tuple[ModuleType, str | None]] = [
    (reference, None),
    (torch_sdpa, "cpu_flash"),
    (torch_sdpa, "cpu_math"),
    (flex_attention, "eager"),
]
# on this machine only their refusals can be seen
ELSEWHERE: list[tuple[ModuleType, str | None]] = [
    (torch_sdpa, "cuda_flash"),
    (torch_sdpa, "cuda_flash_fa3"),
    (torch_sdpa, "cuda_flash_fa4"),
    (torch_sdpa, "cuda_varlen"),
    (torch_sdpa, "cuda_efficient"),
    (torch_sdpa, "cuda_cudnn"),
    (torch_sdpa, "cuda_math"),
    (flex_attention, "compiled"),
    (flex_attention, None),
]
E4M3 = torch.float8_e4m3fn


def _training(**fields: Any) -> Call:
    call = dense(**fields)
    call.q.requires_grad_()
    return call


# the call that uses the field, and the same without it (None: nothing to compare with)
USES: dict[str, tuple[Callable[[], Call], Callable[[], Call] | None]] = {
    "dense": (dense, None),
    "varlen": (lambda: varlen(kv_heads=4), None),
    "paged": (lambda: paged(kv_heads=4), None),
    "paged_varlen": (lambda: paged(kv_heads=4, lengths_q=(3, 0, 1)), None),
    "causal": (lambda: dense(causal=True), dense),
    "window_left": (lambda: dense(window=(2, None)), dense),
    "window_right": (lambda: dense(window=(None, 2)), dense),
    "softcap": (lambda: dense(softcap=1.5), dense),
    "alibi_slopes": (lambda: dense(alibi_slopes=torch.tensor([0.5, 0.25, 1.0, 2.0])), dense),
    "sinks": (lambda: dense(sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])), dense),
    "mask": (lambda: dense(mask=random(7, 7) > 0), dense),
    "bias": (lambda: dense(mask=random(7, 7)), dense),
    "scale": (lambda: dense(scale=0.7), dense),
    "gqa": (lambda: dense(kv_heads=2), None),
    "head_size_v": (lambda: dense(size_v=24), None),
    "return_lse": (lambda: dense(return_lse=True), None),
    "fp8_query": (lambda: dense(dtype=E4M3), None),
    "fp8_kv": (lambda: dense(kv_dtype=E4M3), None),
    "q_scale": (lambda: dense(q_scale=2.5), dense),
    "k_scale": (lambda: dense(k_scale=torch.tensor(0.3)), dense),
    "v_scale": (lambda: dense(v_scale=torch.tensor([0.4])), dense),
    "per_head_scales": (lambda: dense(v_scale=torch.tensor([1.0, 2.0, 3.0, 0.5])), dense),
    "dropout_p": (lambda: dense(dropout_p=0.5), dense),
    "training": (_training, None),
    "deterministic": (lambda: dense(deterministic=True), None),
}

# every part of a Call, and the fields that stand for it in the guard: a part that is added must be put here, and so
# be named, tried and honoured or refused
PARTS: dict[str, set[str]] = {
    "q": {"dense", "fp8_query", "training"},
    "k": {"dense", "fp8_kv", "gqa"},
    "v": {"dense", "fp8_kv", "head_size_v"},
    "layout": {"dense", "varlen", "paged", "paged_varlen"},
    "cu_seqlens_q": {"varlen", "paged_varlen"},
    "cu_seqlens_k": {"varlen"},
    "max_seqlen_q": {"dense", "varlen", "paged_varlen"},
    "max_seqlen_k": {"dense", "varlen", "paged"},
    "block_table": {"paged", "paged_varlen"},
    "seq_lens": {"paged", "paged_varlen"},
    "causal": {"causal"},
    "window": {"window_left", "window_right"},
    "softcap": {"softcap"},
    "alibi_slopes": {"alibi_slopes"},
    "sinks": {"sinks"},
    "mask": {"mask", "bias"},
    "scale": {"scale"},
    "return_lse": {"return_lse"},
    "q_scale": {"q_scale", "per_head_scales"},
    "k_scale": {"k_scale", "per_head_scales"},
    "v_scale": {"v_scale", "per_head_scales"},
    "dropout_p": {"dropout_p"},
    "deterministic": {"deterministic"},
}


def test_the_guard_knows_every_part_of_a_call() -> None:
    assert set(PARTS) == set(Call.__slots__)
    assert set().union(*PARTS.values()) == set(FIELDS) == set(USES)


def _honoured(module: ModuleType, variant: str | None) -> frozenset[str]:
    names: frozenset[str] = module.HONOURED[variant]
    return names


@pytest.mark.parametrize("field", FIELDS)
def test_the_case_uses_the_field(field: str) -> None:
    use, without = USES[field]
    assert field in used_fields(use())
    if without is not None:
        assert field not in used_fields(without())


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("module", "variant"), WRAPPERS, ids=[f"{m.__name__[9:]}/{v}" for m, v in WRAPPERS])
def test_honoured_or_refused(module: ModuleType, variant: str | None, field: str) -> None:
    use, without = USES[field]
    call = use()
    if field not in _honoured(module, variant):
        with pytest.raises(NotSupported, match=f"{field} is not honoured") as caught:
            run(module, call, variant)
        assert module.refuses(call, variant) == caught.value.reason
        return
    if field == "dropout_p":
        _check_dropout(module, variant)
        return
    if field == "training":
        _check_training(module, variant)
        return
    assert_matches(module, call, variant)
    if without is not None:
        difference = (run(module, call, variant)[0] - run(module, without(), variant)[0]).abs().max()
        assert difference > 0.01, "the field made no difference"


def _check_training(module: ModuleType, variant: str | None) -> None:
    """The gradients of q, k and v are those of the reference."""
    gradients = []
    for which, name in ((module, variant), (reference, None)):
        call = dense(sq=5, causal=True, dtype=torch.float64, q_scale=0.5)
        for tensor in (call.q, call.k, call.v):
            tensor.requires_grad_()
        out, _ = run(which, call, name)
        torch.autograd.backward([out], [random(*out.shape, dtype=torch.float64)])
        gradients.append([call.q.grad, call.k.grad, call.v.grad])
    for got, expected in zip(*gradients, strict=True):
        assert got is not None and expected is not None
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


def _check_dropout(module: ModuleType, variant: str | None) -> None:
    """Dropped weights are zero, the others doubled: the mean stays, single results do not."""
    values = torch.ones(1, 200, 1, 8)
    call = make_call(torch.zeros(1, 400, 1, 8), torch.zeros(1, 200, 1, 8), values, dropout_p=0.5)
    torch.manual_seed(0)
    out, _ = run(module, call, variant)
    rows = out[0, :, 0, 0]
    # each row is the mean of 200 values that are 0 or 2 with equal chance: standard deviation 1 / sqrt(200)
    assert abs(rows.mean().item() - 1.0) < 5 / (200 * 400) ** 0.5
    assert 0.8 < rows.std().item() * 200**0.5 < 1.2


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("module", "variant"), ELSEWHERE, ids=[f"{m.__name__[9:]}/{v}" for m, v in ELSEWHERE]
)
def test_refused_elsewhere(module: ModuleType, variant: str | None, field: str) -> None:
    reason = module.refuses(USES[field][0](), variant)
    if field not in _honoured(module, variant):
        assert reason is not None and f"{field} is not honoured" in reason
    elif module is torch_sdpa:
        # of a packed batch only, what a batch of equal lengths does is refused for that
        assert reason is not None and f"{field} is not honoured" not in reason, "no CUDA here"
        assert "not honoured" not in reason or variant == "cuda_varlen"
    elif field in ("return_lse", "sinks", "training"):
        assert reason is not None and field in reason, "the compiled CPU kernel has none of these"
    else:
        assert reason is None


def test_a_refusal_names_every_field() -> None:
    call = dense(softcap=2.0, window=(1, None), return_lse=True)
    assert refusal(call, frozenset({"dense", "return_lse"})) == (
        "window_left is not honoured (window with a bound on the left); softcap is not honoured (softcap)"
    )


def test_not_supported_says_who_and_why() -> None:
    with pytest.raises(NotSupported) as caught:
        torch_sdpa.run(dense(softcap=2.0), variant="cpu_flash")
    assert caught.value.wrapper == "torch_sdpa/cpu_flash"
    assert str(caught.value) == (
        "torch_sdpa/cpu_flash cannot run this call: softcap is not honoured (softcap)"
    )
