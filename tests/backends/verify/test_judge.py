"""Mistakes that kernels make are found, each by the feature that shows it; a kernel without a mistake passes."""

from __future__ import annotations

from typing import Any

import pytest

from backends.verify.draws import PLAIN, Draw, normal, request_of
from backends.verify.judge import judge, refusal_elsewhere
from tests.backends.verify.mistaken import MISTAKES

KERNEL = "tests.backends.verify.mistaken"


def draw(**values: Any) -> dict[str, Any]:
    found = normal({**PLAIN, **values})
    assert request_of(found) is not None
    assert {k: found[k] for k in values} == values
    return found


# what shows the mistake, and what does not
SHOWN: dict[str, tuple[Draw, Draw]] = {
    "top_left": (draw(causal=True, query_length="shorter"), draw(causal=True)),
    "one_key_more": (draw(sliding_window=True, causal=True), draw(sliding_window=True, window="all")),
    "base_two": (draw(lse=True), draw()),
    "dead_rows": (draw(lse=True, causal=True, query_length="longer"), draw(lse=True, causal=True)),
    "padding": (draw(layout="paged", packed=True), draw(layout="varlen")),
    "no_group": (draw(group=2), draw(group=2, num_kv_heads=1)),
    "half_sums": (draw(dtype="float32"), draw(dtype="float16")),
    "gradient": (draw(training=True), draw()),
    "restless": (draw(deterministic=True), draw()),
    "no_softcap": (draw(softcap=True), draw()),
    "no_sinks": (draw(sinks=True), draw()),
    "no_alibi": (draw(alibi=True), draw()),
    "no_scale": (draw(scale="given"), draw()),
    "no_v_scale": (draw(scales="tensor"), draw()),
    "no_mask": (draw(custom_mask=True), draw()),
    "no_dropout": (draw(dropout=True), draw()),
}


@pytest.mark.parametrize("mistake", SHOWN)
def test_a_mistake_is_found(mistake: str) -> None:
    shows, hides = SHOWN[mistake]
    verdict = judge(KERNEL, mistake, shows, "cpu")
    assert verdict.outcome == "wrong", verdict
    assert verdict.message and verdict.fails
    assert judge(KERNEL, mistake, hides, "cpu").outcome == "ok"
    assert judge(KERNEL, "none", shows, "cpu").outcome == "ok"


def test_every_mistake_is_tried() -> None:
    assert set(SHOWN) == set(MISTAKES) - {"none", "error", "crash", "hang", "memory", "picky"}


def test_messages() -> None:
    assert judge(KERNEL, "base_two", draw(lse=True), "cpu").message.startswith("log-sum-exp: off by ")
    assert "gradient of q: off by" in judge(KERNEL, "gradient", draw(training=True), "cpu").message
    assert "nothing was dropped" in judge(KERNEL, "no_dropout", draw(dropout=True), "cpu").message
    verdict = judge(KERNEL, "error", draw(softcap=True, causal=True), "cpu")
    assert (verdict.outcome, verdict.message) == ("error", "RuntimeError: no kernel for softcap and causal")
    verdict = judge(KERNEL, "picky", draw(head_size=192), "cpu")
    assert (verdict.outcome, verdict.message) == ("refused", "head_size 192: at most 128")
    verdict = judge(KERNEL, "memory", draw(head_size=512), "cpu")
    assert (verdict.outcome, verdict.fails) == ("memory", False)


@pytest.mark.parametrize(
    "call",
    [
        draw(dtype="bfloat16", training=True, group=3, causal=True, length="long"),
        draw(dtype="float16", training=True, custom_mask=True, mask_bias=True, mask_grad=True, softcap=True),
        draw(training=True, layout="varlen", ragged="gaps", deterministic=True, scales="tensor"),
        draw(dropout=True, training=True, causal=True, query_length="longer", lse=True),
        draw(kv_cache_dtype="fp8_e4m3", per_head_scales=True, layout="paged", packed=True, ragged="gaps"),
        draw(dtype="fp8_e5m2", kv_cache_dtype="fp8_e5m2", scales="number", memory="transposed"),
        draw(query_length="empty", lse=True, sinks=True),
        draw(kv_length="empty", query_length="one", lse=True, alibi=True),
        draw(memory="expanded", group=2, sliding_window=True, window_right=True, window_left=False),
    ],
    ids=lambda d: ",".join(f"{k}={v}" for k, v in d.items() if v != PLAIN[k]),
)
def test_a_kernel_without_a_mistake(call: Draw) -> None:
    assert judge(KERNEL, "none", call, "cpu")[:2] == ("ok", "")


def test_a_wrapper_for_another_machine() -> None:
    """Only asked: the tensors are on a device that is not here and have no memory."""
    asked = refusal_elsewhere("backends.flash_attn", "fa2", draw(dtype="float16", head_size=264), "cuda")
    assert (asked.outcome, asked.message) == ("refused", "head_size 264: FlashAttention 2 takes at most 256")
    asked = refusal_elsewhere("backends.flash_attn", "fa2", draw(dtype="float16", training=True), "cuda")
    assert asked.outcome == "ok"
