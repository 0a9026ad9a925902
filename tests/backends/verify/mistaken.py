"""A kernel module whose variants make one mistake each, as real kernels do; `none` makes none."""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from backends import reference
from backends._failure import is_broken
from backends._guard import NotSupported
from backends.call import make_call, request_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from backends.call import Call

__all__ = ["is_broken", "make_call", "refuses", "request_fields", "run"]


def _again(call: Call, **changes: Any) -> Call:
    """The call with some fields changed."""
    fields = {name: getattr(call, name) for name in call.__slots__ if name != "layout"}
    return make_call(**{**fields, **changes})


def _exact(call: Call) -> tuple[Tensor, Tensor]:
    out, lse = reference.attend(call)
    return out.to(call.out_dtype), lse.float()


def _top_left(call: Call) -> tuple[Tensor, Tensor]:
    """Causal, aligned at the first query: what SDPA and FlashAttention before 2.1 do."""
    if not call.causal or call.layout != "dense":
        return _exact(call)
    i = torch.arange(call.max_seqlen_q)[:, None]
    mask = torch.arange(call.max_seqlen_k)[None] <= i
    if call.mask is not None and call.mask.dtype == torch.bool:
        mask = mask & call.mask
    elif call.mask is not None:
        mask = call.mask.masked_fill(~mask, -math.inf)
    return _exact(_again(call, causal=False, mask=mask))


def _one_key_more(call: Call) -> tuple[Tensor, Tensor]:
    """A window that takes its left end to be outside."""
    if call.window is None or call.window[0] is None:
        return _exact(call)
    return _exact(_again(call, window=(call.window[0] + 1, call.window[1])))


def _base_two(call: Call) -> tuple[Tensor, Tensor]:
    out, lse = _exact(call)
    return out, lse / math.log(2.0)


def _dead_rows(call: Call) -> tuple[Tensor, Tensor]:
    """The log-sum-exp of a row that sees nothing is +inf."""
    out, lse = _exact(call)
    return out, torch.where(lse == -torch.inf, torch.inf, lse)


def _padding(call: Call) -> tuple[Tensor, Tensor]:
    """Slots of a cache that hold no token count as weight zero times what lies in them."""
    out, lse = _exact(call)
    if call.layout != "paged" or not bool(torch.isnan(call.v.float()).any()):
        return out, lse
    return out * torch.nan, lse


def _no_group(call: Call) -> tuple[Tensor, Tensor]:
    """Query heads that share a KV head, interleaved instead of in a row."""
    group = call.num_heads // call.num_kv_heads
    if group == 1 or call.num_kv_heads == 1 or call.layout == "paged":
        return _exact(call)
    k, v = (x.repeat(*[1] * (x.dim() - 2), group, 1) for x in (call.k, call.v))
    scales = {
        name: getattr(call, name).repeat(group)
        for name in ("k_scale", "v_scale")
        if isinstance(getattr(call, name), torch.Tensor) and getattr(call, name).numel() > 1
    }
    return _exact(_again(call, k=k, v=v, **scales))


def _half_sums(call: Call) -> tuple[Tensor, Tensor]:
    """Weights summed in float16 whatever the call's format is."""
    out, lse = _exact(call)
    return out.half().to(out.dtype), lse


def _gradient(call: Call) -> tuple[Tensor, Tensor]:
    """The right value and a gradient without the softmax scale's share of it."""
    out, lse = _exact(call)
    if call.training:
        out = out.detach() + (out - out.detach()) * 1.25
    return out, lse


_TURN = [0]


_TURNS = itertools.count()


def _restless(call: Call) -> tuple[Tensor, Tensor]:
    """Another rounding each time."""
    out, lse = _exact(call)
    return out * (1.0 + next(_TURNS) % 2 * 2.0**-21), lse


def _dropped(name: str, plain: Any) -> Callable[[Call], tuple[Tensor, Tensor]]:
    """A field dropped in silence."""
    return lambda call: _exact(_again(call, **{name: plain}))


def _error(call: Call) -> tuple[Tensor, Tensor]:
    if call.softcap is not None and call.causal:
        raise RuntimeError("no kernel for softcap and causal\nat line 3")
    return _exact(call)


def _crash(call: Call) -> tuple[Tensor, Tensor]:
    if call.dropout_p > 0.0:
        sys.stderr.write("Fatal error: the kernel wrote where it must not\n")
        sys.stderr.flush()
        os.abort()
    return _exact(call)


def _hang(call: Call) -> tuple[Tensor, Tensor]:
    if call.q.dtype == torch.float64:
        time.sleep(600)
    return _exact(call)


def _memory(call: Call) -> tuple[Tensor, Tensor]:
    if call.head_size > 256:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return _exact(call)


MISTAKES: dict[str, Callable[[Call], tuple[Tensor, Tensor]]] = {
    "none": _exact,
    "top_left": _top_left,
    "one_key_more": _one_key_more,
    "base_two": _base_two,
    "dead_rows": _dead_rows,
    "padding": _padding,
    "no_group": _no_group,
    "half_sums": _half_sums,
    "gradient": _gradient,
    "restless": _restless,
    "no_softcap": _dropped("softcap", None),
    "no_sinks": _dropped("sinks", None),
    "no_alibi": _dropped("alibi_slopes", None),
    "no_scale": _dropped("scale", None),
    "no_v_scale": _dropped("v_scale", None),
    "no_mask": _dropped("mask", None),
    "no_dropout": _dropped("dropout_p", 0.0),
    "error": _error,
    "crash": _crash,
    "hang": _hang,
    "memory": _memory,
    "picky": _exact,
}


def refuses(call: Call, variant: str) -> str | None:
    """`picky` refuses head sizes above 128, and masks of their own for each head, which no axis says."""
    if variant == "picky" and call.head_size > 128:
        return f"head_size {call.head_size}: at most 128"
    if variant == "picky" and call.mask is not None and call.mask.dim() == 4 and call.mask.shape[1] > 1:
        return "mask with a plane for each head"
    return None


def run(call: Call, *, variant: str) -> Tensor | tuple[Tensor, Tensor]:
    """The reference, with the variant's mistake."""
    reason = refuses(call, variant)
    if reason is not None:
        raise NotSupported(f"mistaken/{variant}", reason)
    print("kernels print what they like")
    out, lse = MISTAKES[variant](call)
    return (out, lse) if call.return_lse else out
