"""What a manifest accepts, its wrapper runs: random calls, put to both.

The tensors are fake (shapes, dtypes and devices, no memory), so CUDA calls need no CUDA. A wrapper may refuse more than
its manifest only for what no axis says; those few reasons are listed. The other way round a manifest may be stricter,
because it also knows the kernels; but a field that a wrapper honours must not be refused by a flag left out of the manifest.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import selector
from backends.call import Call, CallError, make_call, request_fields

CALLS = 500
# A machine on which the kernel runs, if anywhere.
ON = {
    "flash_attn/fa2": "a100",
    "flash_attn/fa3": "h100",
    "flash_attn/fa4": "b200",
    "flashinfer/fa2": "a100",
    "flashinfer/fa3": "h100",
    "flashinfer/fa3_fp8_heads": "h100",
    "flex_attention": "h100",
    "reference": "h100",
    "torch_sdpa/cpu_flash": "cpu",
    "torch_sdpa/cpu_math": "cpu",
    "torch_sdpa/cuda_cudnn": "h100",
    "torch_sdpa/cuda_efficient": "h100",
    "torch_sdpa/cuda_flash": "h100",
    "torch_sdpa/cuda_flash_fa3": "h100",
    "torch_sdpa/cuda_flash_fa4": "b200",
    "torch_sdpa/cuda_varlen": "a100",
    "torch_sdpa/cuda_math": "h100",
}
# Packages of those machines in other versions: torch 2.13 and the newest flash-attn-4 do not go together.
OLDER = {"torch_sdpa/cuda_flash_fa4": {"flash-attn-4": "4.0.0b18"}}
# Refusals for what no axis says: shapes of masks, numbers of windows, a scale of one head as a tensor.
NO_AXIS = (
    "only a number can join",
    "mask with a plane for each head",
    "the kernel would bound it on the right",
    "the kernel would drop the bound",
)
FLAGS = (
    "causal", "sliding_window", "window_right", "softcap", "alibi", "sinks", "custom_mask", "mask_bias", "lse",
    "dropout", "training", "deterministic", "per_head_scales",
)  # fmt: skip
HALF = (torch.float16, torch.bfloat16)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def some_call(draw: random.Random, device: str) -> Call:
    """A random call on fake tensors. CallError where the draw contradicts itself."""

    def often(chance: float) -> bool:
        return draw.random() < chance

    dtype = draw.choice([*HALF, *HALF, torch.float32, torch.float64, FP8[0], FP8[1]])
    kv = dtype if often(0.6) else draw.choice(FP8)
    kv_heads = draw.choice([1, 2, 4])
    heads = kv_heads * draw.choice([1, 1, 4])
    size = draw.choice([16, 40, 64, 64, 72, 96, 128, 128, 192, 256, 256, 512])
    size_v = size if often(0.7) else draw.choice([64, 128, 512])
    layout = draw.choice(["dense", "dense", "varlen", "paged"])
    longest_q, longest_k = draw.choice([(1, 7), (7, 7), (5, 9), (9, 5), (1, 1)])
    block, batch = draw.choice([16, 48, 256, 512]), 2
    training = often(0.2)

    def new(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device).to(dtype)

    packed = layout == "varlen" or (layout == "paged" and often(0.5))
    fields: dict[str, Any] = {}
    q = new(*((batch * longest_q,) if packed else (batch, longest_q)), heads, size, dtype=dtype)
    if packed:
        fields["cu_seqlens_q"] = new(batch + 1, dtype=torch.int32)
        fields["max_seqlen_q"] = longest_q
    if layout == "varlen":
        rows: tuple[int, ...] = (batch * longest_k,)
        fields |= {"cu_seqlens_k": new(batch + 1, dtype=torch.int32), "max_seqlen_k": longest_k}
    elif layout == "paged":
        rows = (4, block)
        fields |= {"block_table": new(batch, 2, dtype=torch.int32), "seq_lens": new(batch, dtype=torch.int32)}
        fields["max_seqlen_k"] = longest_k
    else:
        rows = (batch, longest_k)
    k, v = new(*rows, kv_heads, size, dtype=kv), new(*rows, kv_heads, size_v, dtype=kv)
    if training and dtype.itemsize > 1:
        q.requires_grad_()
    fields["causal"] = often(0.5)
    if often(0.2):
        fields["window"] = draw.choice([(3, None), (3, 2), (None, 2)])
    if often(0.15):
        fields["softcap"] = 30.0
    if often(0.12):
        fields["alibi_slopes"] = new(heads)
    if often(0.15):
        fields["sinks"] = new(heads)
    if often(0.15):
        planes = draw.choice([1, heads])
        mask = new(batch, planes, longest_q, longest_k, dtype=draw.choice([torch.bool, torch.float32]))
        fields["mask"] = mask.requires_grad_() if mask.dtype != torch.bool and often(0.3) else mask
    fields["return_lse"] = often(0.3)
    fields["dropout_p"] = 0.125 if often(0.15) else 0.0
    fields["deterministic"] = often(0.15)
    if kv in FP8 and often(0.5):
        per_head = often(0.6)
        fields["k_scale"] = new(kv_heads) if per_head else 0.5
        fields["v_scale"] = new(kv_heads) if per_head else 0.5
    return make_call(q, k, v, **fields)


def some_calls(device: str, seed: int, count: int) -> Iterator[Call]:
    """Valid random calls."""
    draw = random.Random(seed)
    made = 0
    while made < count:
        try:
            call = some_call(draw, device)
        except CallError:
            continue
        made += 1
        yield call


def wrapper_refuses(candidate: str, call: Call) -> str | None:
    """What the wrapper says, by the entry point that the manifest names."""
    backend, _, variant = candidate.partition("/")
    module = importlib.import_module(f"backends.{backend}")
    reason: str | None = module.refuses(call, variant or None)
    return reason


class Verdicts(NamedTuple):
    """What manifest and wrapper say to one call, and the request that the manifest saw."""

    refusal: str | None
    reasons: tuple[selector.Reason, ...] | None
    """None: accepted."""
    request: Mapping[str, object]


@pytest.fixture(scope="module")
def verdicts() -> Mapping[str, list[Verdicts]]:
    """Both answers to the same random calls, a candidate."""
    catalog = selector.Catalog.load("core")
    found: dict[str, list[Verdicts]] = {candidate: [] for candidate in ON}
    with FakeTensorMode():
        for on, packages in sorted({(on, tuple(OLDER.get(name, {}).items())) for name, on in ON.items()}):
            environment = selector.Environment.preset(
                on, with_packages=dict(packages), vocabulary=catalog.vocabulary
            )
            here = [
                n for n, machine in ON.items() if (machine, tuple(OLDER.get(n, {}).items())) == (on, packages)
            ]
            for call in some_calls("cpu" if on == "cpu" else "cuda", seed=7, count=CALLS):
                request = {name: value for name, value in request_fields(call).items() if name != "device"}
                report = selector.explain(request, environment=environment, catalog=catalog)
                accepted = {ranked.id for ranked in report.ranked} | set(report.excluded)
                for candidate in here:
                    reasons = None if candidate in accepted else report.reasons(candidate)
                    found[candidate].append(Verdicts(wrapper_refuses(candidate, call), reasons, request))
    return found


@pytest.mark.parametrize("candidate", sorted(ON))
def test_a_manifest_accepts_nothing_that_its_wrapper_refuses(
    candidate: str, verdicts: Mapping[str, list[Verdicts]]
) -> None:
    accepted = [verdict for verdict in verdicts[candidate] if verdict.reasons is None]
    for verdict in accepted:
        if verdict.refusal is not None:
            assert any(known in verdict.refusal for known in NO_AXIS), (verdict.refusal, verdict.request)
    assert len(accepted) >= 5
    assert candidate == "reference" or len(accepted) <= CALLS - 50


@pytest.mark.parametrize("candidate", sorted(ON))
def test_a_field_that_a_wrapper_honours_is_declared(
    candidate: str, verdicts: Mapping[str, list[Verdicts]]
) -> None:
    """No flag left out of the manifest is the reason of a refusal where the wrapper runs the call."""
    runs = [verdict for verdict in verdicts[candidate] if verdict.refusal is None]
    for verdict in runs:
        left_out = {why.axis for why in verdict.reasons or () if why.kind == "declared"} & set(FLAGS)
        assert not left_out, (left_out, verdict.request)
    assert len(runs) >= 5
