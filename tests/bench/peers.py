"""What peers take to choose, on the same machine: shown beside, without a target."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.bench.attention import HAND
from tests.bench.harness import Figure, Spread, interleaved, loop, spread

__all__ = ["peers"]


def _transformers() -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return ALL_ATTENTION_FUNCTIONS.get_interface


def _diffusers() -> Any:
    from diffusers.models import attention_dispatch

    return attention_dispatch.dispatch_attention_fn


def _found(make: Callable[[], Any]) -> Any:
    """A peer's function; None where it is not installed. What it prints while it is imported is its own."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return make()
        except ImportError:
            return None


def peers(quick: bool) -> list[Figure]:
    """The choice inside torch, the look-up of transformers, the dispatcher of diffusers around the same kernel."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _figures(50 if quick else 200, 5 if quick else 301)
    finally:
        torch.set_num_threads(threads)


def _figures(number: int, rounds: int) -> list[Figure]:
    q, k, v = (torch.randn(1, 1, 8, 64).bfloat16() for _ in range(3))
    moved = {name: tensor.transpose(1, 2) for name, tensor in (("q", q), ("k", k), ("v", v))}
    subjects = {
        "choice": loop("f(q, k, v, is_causal=True)", number, f=torch._fused_sdp_choice, **moved),
        "hand": loop(HAND, number, sdpa=scaled_dot_product_attention, q=q, k=k, v=v),
    }
    lookup, dispatcher = _found(_transformers), _found(_diffusers)
    if lookup is not None:
        subjects["transformers"] = loop("f('sdpa', None)", number, f=lookup)
    if dispatcher is not None:
        subjects["diffusers"] = loop("f(q, k, v, is_causal=True)", number, f=dispatcher, q=q, k=k, v=v)
    found = {name: spread(samples) for name, samples in interleaved(subjects, rounds).items()}
    return [
        _figure("choice", "torch: `torch._fused_sdp_choice`, `[1, 1, 8, 64]`, bf16", found),
        _figure("hand", "torch: `scaled_dot_product_attention` on it, four transposes around", found),
        _figure(
            "transformers", "transformers: the attention interface's look-up of a name, no kernel", found
        ),
        _figure(
            "diffusers", "diffusers: `dispatch_attention_fn` on it, kernel and transposes included", found
        ),
    ]


def _figure(name: str, what: str, found: Mapping[str, Spread]) -> Figure:
    taken = found.get(name)
    if taken is None:
        return Figure(f"peers/{name}", what, float("nan"), "µs", note="not installed")
    return Figure(f"peers/{name}", what, taken.median * 1e6, "µs", low=taken.low * 1e6, high=taken.high * 1e6)
