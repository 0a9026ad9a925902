"""Every field of the call description on every GPU wrapper: honoured, or refused by name - never dropped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from torch._subclasses.fake_tensor import FakeTensorMode

from backends import flash_attn, flashinfer, torch_sdpa
from backends._guard import FIELDS, NotSupported, used_fields
from backends.call import CallError
from tests.backends.contracts import cases, world
from tests.backends.contracts.signatures import contracts

if TYPE_CHECKING:
    from types import ModuleType

    from backends.call import Call

MANIFESTS = Path(__file__).parents[3] / "manifests" / "core"
WRAPPERS = [
    *((flash_attn, variant) for variant in ("fa2", "fa3", "fa4")),
    *((flashinfer, variant) for variant in ("fa2", "fa3", "fa3_fp8_heads")),
]
TORCH = [(torch_sdpa, variant) for variant in torch_sdpa.HONOURED]
USES: dict[str, dict[str, str]] = {
    "dense": {"layout": "dense"},
    "varlen": {"layout": "varlen"},
    "paged": {"layout": "paged"},
    "paged_varlen": {"layout": "paged_varlen"},
    "causal": {"band": "causal"},
    "window_left": {"band": "left"},
    "window_right": {"band": "right"},
    "softcap": {"softcap": "yes"},
    "alibi_slopes": {"slopes": "heads"},
    "sinks": {"sinks": "yes"},
    "mask": {"mask": "plane"},
    "bias": {"mask": "bias"},
    "scale": {"scale": "yes"},
    "gqa": {"groups": "2"},
    "head_size_v": {"size_v": "other"},
    "return_lse": {"lse": "yes"},
    "fp8_query": {},
    "fp8_kv": {},
    "q_scale": {"scales": "number"},
    "k_scale": {"scales": "number"},
    "v_scale": {"scales": "number"},
    "per_head_scales": {"scales": "heads"},
    "dropout_p": {"dropout": "yes"},
    "training": {"training": "yes"},
    "deterministic": {"deterministic": "yes"},
}
"""How a case uses each field, beside the formats, all of which are tried.

A new field of the call has to be added here, and so to every wrapper.
"""


def test_every_field_has_a_case() -> None:
    assert set(USES) == set(FIELDS)


def _call(uses: dict[str, str], variant: str, form: str, **options: Any) -> Call | None:
    if variant in ("fa2", "cuda_varlen"):
        options["block_size"] = 256
    layout = {"layout": "varlen"} if variant == "cuda_varlen" else {}
    try:
        return cases.build({**cases.plain(), **layout, "format": form, **uses}, **options)
    except CallError:
        return None


@pytest.mark.parametrize(("module", "variant"), WRAPPERS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_honoured_or_refused(
    module: ModuleType, variant: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [
        call
        for form in ("bfloat16", "fp8_kv", "fp8")
        if (call := _call(USES[field], variant, form)) is not None and field in used_fields(call)
    ]
    assert calls
    if field not in module.HONOURED[variant]:
        for call in calls:
            reason = module.refuses(call, variant)
            assert reason is not None
            assert field in reason
            with pytest.raises(NotSupported, match=field):
                module.run(call, variant=variant)
        return
    accepted = [call for call in calls if module.refuses(call, variant) is None]
    assert accepted, "a field that is honoured works at least beside nothing else"
    if module is flashinfer:
        world.use_flashinfer(monkeypatch, contracts("flashinfer-python")[-1], dry=True)
    else:
        world.use_flash(monkeypatch, variant, contracts(world.PACKAGES[variant])[-1], dry=True)
    for call in accepted:
        module.run(call, variant=variant)


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_honoured_or_refused_by_varlen_attn(field: str) -> None:
    """On fake CUDA tensors; test_torch.py makes the calls."""
    with FakeTensorMode():
        every = (
            _call(USES[field], "cuda_varlen", form, device="cuda") for form in ("bfloat16", "fp8_kv", "fp8")
        )
        calls = [call for call in every if call is not None and field in used_fields(call)]
        assert calls
        reasons = [torch_sdpa.refuses(call, "cuda_varlen") for call in calls]
        if field in torch_sdpa.HONOURED["cuda_varlen"]:
            assert None in reasons, "a field that is honoured works at least beside nothing else"
            return
        for call, reason in zip(calls, reasons, strict=True):
            assert field in str(reason)
            with pytest.raises(NotSupported, match=field):
                torch_sdpa.run(call, variant="cuda_varlen")


DECLARED = {
    "causal": "causal",
    "sliding_window": "window_left",
    "window_right": "window_right",
    "softcap": "softcap",
    "alibi": "alibi_slopes",
    "sinks": "sinks",
    "custom_mask": "mask",
    "mask_bias": "bias",
    "lse": "return_lse",
    "dropout": "dropout_p",
    "training": "training",
    "deterministic": "deterministic",
    "per_head_scales": "per_head_scales",
}
"""Flag of a manifest -> the field of a call that it stands for."""


@pytest.mark.parametrize(
    ("module", "variant"), [*WRAPPERS, *TORCH], ids=lambda value: getattr(value, "__name__", value)
)
def test_the_manifest_declares_what_the_wrapper_honours(module: ModuleType, variant: str) -> None:
    name = module.__name__.rpartition(".")[2]
    manifest = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text(encoding="utf-8"))
    part = next(part for part in manifest["variants"] if part["name"] == variant)
    declared = {**manifest["supports"], **part.get("supports", {})}
    honoured = module.HONOURED[variant]
    flags = {flag: declared.get(flag, False) is True for flag in DECLARED}
    assert flags == {flag: field in honoured for flag, field in DECLARED.items()}
    formats = declared.get("kv_cache_dtype")
    quantised = formats is None or any(str(name).startswith("fp8") for name in formats)
    # FlashAttention 4 takes fp8 without scales, which its manifest leaves out
    assert quantised == ("fp8_kv" in honoured) or variant == "fa4"
