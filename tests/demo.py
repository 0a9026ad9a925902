"""The main job on real input: `make demo`.

1. A real model configuration with one FP8 scale per attention head, planned for an H100 and for an A100.
2. The same layer's attention on this machine: selected for real tensors, run, compared with the float64 reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends import attention
from backends.call import make_call
from backends.dispatch import report_of
from backends.quantize import quantize_kv
from backends.reference import attend
from selector.cli import main as attn_select

CONFIG = Path(__file__).parent / "data" / "configs" / "llama-3.1-8b-fp8-per-head" / "config.json"
BATCH, SEQ, HEADS, KV_HEADS, HEAD_SIZE = 2, 256, 32, 8, 128


def heading(text: str) -> None:
    """A line between the steps."""
    print(f"\n── {text} ".ljust(110, "─"))


def heavy_tailed(heads: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """bf16 ``[batch, seq, heads, head_size]`` whose heads differ in magnitude, from 10**low to 10**high."""
    spread = torch.logspace(low, high, heads)
    return (torch.randn(BATCH, SEQ, heads, HEAD_SIZE, generator=generator) * spread[:, None]).to(
        torch.bfloat16
    )


def plan(preset: str) -> int:
    """One verdict for each kind of layer, as a user of the command sees it."""
    command = [
        "plan",
        str(CONFIG.relative_to(Path.cwd()) if CONFIG.is_relative_to(Path.cwd()) else CONFIG),
        "--on",
        preset,
    ]
    print(f"$ attn-select {' '.join(command)}\n", flush=True)
    return attn_select(command)


def error(out: Tensor, exact: Tensor) -> str:
    """Root mean square error of each head relative to that head's own size: the worst head, and the median."""
    by_head = (0, 1, 3)
    relative = (out.double() - exact).square().mean(by_head).sqrt() / exact.square().mean(by_head).sqrt()
    return f"relative error {relative.max().item():.1%} in the worst head, {relative.median().item():.1%} in the median one"


def here() -> None:
    """Select for real tensors on this machine and run the winner."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(BATCH, SEQ, HEADS, HEAD_SIZE, generator=generator).to(torch.bfloat16)
    k, v = heavy_tailed(KV_HEADS, -2.0, 0.0, generator), heavy_tailed(KV_HEADS, -4.0, 1.0, generator)
    exact, _ = attend(make_call(q, k, v, causal=True), torch.float64)

    heading("bfloat16 KV cache on this machine")
    out = attention(q, k, v, causal=True)
    assert isinstance(out, Tensor)
    print(f"{report_of(q, k, v, causal=True).selected} ran: {error(out, exact)}")

    for granularity in ("head", "tensor"):
        heading(f"FP8 KV cache, one scale per {granularity}")
        stored_k, k_scale = quantize_kv(k, granularity)
        stored_v, v_scale = quantize_kv(v, granularity)
        fields: dict[str, Any] = {"causal": True, "k_scale": k_scale, "v_scale": v_scale}
        out = attention(q, stored_k, stored_v, **fields)
        assert isinstance(out, Tensor)
        call = make_call(q, stored_k, stored_v, **fields)
        stored_exact, _ = attend(call, torch.float64)
        print(
            f"{report_of(q, stored_k, stored_v, **fields).selected} ran; k_scale {tuple(k_scale.shape)}, stored as {stored_k.dtype}"
        )
        print(f"against the unquantised float64 reference: {error(out, exact)}")
        print(f"against float64 on the same stored values: {error(out, stored_exact)}")


def main() -> int:
    """Run all steps; non-zero if a step did not end as it must."""
    torch.set_num_threads(2)
    heading("a model with per-head FP8 scales on an H100: accepted")
    accepted = plan("h100")
    heading("the same on an A100: refused, with the reasons")
    refused = plan("a100")
    here()
    if accepted != 0 or refused != 3:
        print(
            f"\nunexpected: the H100's plan ended with {accepted} and the A100's with {refused}, not 0 and 3"
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
