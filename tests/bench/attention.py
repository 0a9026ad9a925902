"""`attention` beside the same call written by hand: what it adds to the smallest input, and to one of 512 tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from backends import attention
from selector import select
from tests.bench.harness import Figure, differences, interleaved, loop, ratios, spread

__all__ = ["by_hand", "long", "small"]


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What a caller with `[batch, seq, heads, head_size]` writes without this project."""
    out = scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
    )
    return out.transpose(1, 2)


HAND = "sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True).transpose(1, 2)"


def _samples(tokens: int, number: int, rounds: int) -> dict[str, list[float]]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, tokens, 8, 64, generator=generator).bfloat16() for _ in range(3))
    run = select(head_size=64, dtype="bf16", num_heads=8, num_kv_heads=8, causal=True).run
    for function in (attention, run):
        torch.testing.assert_close(function(q, k, v, causal=True), by_hand(q, k, v))
    return interleaved(
        {
            "by hand": loop(HAND, number, sdpa=scaled_dot_product_attention, q=q, k=k, v=v),
            "attention": loop("f(q, k, v, causal=True)", number, f=attention, q=q, k=k, v=v),
            "run": loop("f(q, k, v, causal=True)", number, f=run, q=q, k=k, v=v),
        },
        rounds,
    )


def small(quick: bool) -> list[Figure]:
    """The smallest input, on one thread: there is nothing to share out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        samples = _samples(1, 50 if quick else 200, 5 if quick else 501)
    finally:
        torch.set_num_threads(threads)
    whole, kept = differences(samples, "attention", "by hand"), differences(samples, "run", "by hand")
    beside = spread(samples["by hand"])
    return [
        Figure(
            "small/attention", "`attention(q, k, v, causal=True)` less the call by hand, `[1, 1, 8, 64]`, bf16",
            whole.median * 1e6, "µs", 4.0, low=whole.low * 1e6, high=whole.high * 1e6,
            note=f"by hand: {beside.median * 1e6:.1f} µs",
        ),
        Figure(
            "small/run", "the same through a kept `selection.run`",
            kept.median * 1e6, "µs", 1.0, low=kept.low * 1e6, high=kept.high * 1e6,
        ),
    ]  # fmt: skip


def long(quick: bool) -> list[Figure]:
    """512 tokens, on as many threads as torch takes."""
    samples = _samples(512, 1, 3 if quick else 2_001)
    whole, kept = ratios(samples, "attention", "by hand"), ratios(samples, "run", "by hand")
    beside = spread(samples["by hand"])
    return [
        Figure(
            "long/attention", "`attention` over the call by hand, `[1, 512, 8, 64]`, bf16",
            whole.median, "x", 1.01, low=whole.low, high=whole.high,
            note=f"by hand: {beside.median * 1e6:.0f} µs",
        ),
        Figure("long/run", "the same through a kept `selection.run`", kept.median, "x", low=kept.low, high=kept.high),
    ]  # fmt: skip
