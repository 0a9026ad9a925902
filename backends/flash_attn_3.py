"""FlashAttention 3 (its Hopper interface): dense, packed and paged calls, and fp8 with a scale for each head.

Facts, read from ``hopper/flash_attn_interface.py`` in the 2.8.0 and 2.8.3 sdists and at the repository's
head, and from ``hopper/flash_api.cpp`` and ``hopper/softmax.h``:

* The module is ``flash_attn_interface``; newer builds also answer to ``flash_attn_3.flash_attn_interface``.
* ``q``, ``k`` and ``v`` have one dtype: an fp8 cache needs an fp8 query. ``q_descale``, ``k_descale`` and
  ``v_descale`` are fp32 ``[batch, num_kv_heads]``, any strides - the query's too: one factor for a *group*
  of query heads. Without fp8 they are accepted and ignored. The output of fp8 is bfloat16.
* ``return_attn_probs`` is not there in 2.8.3 and gives ``(out, lse)`` later; ``flash_attn_with_kvcache``
  returns the log-sum-exp in every version and takes a dense batch too, but has no backward.
* The log-sum-exp is natural, ``-inf`` for a row that may attend to nothing.
* The paged cache is the kvcache function's ``page_table``. No ALiBi, sinks, masks or dropout.
* The deterministic backward pass refuses heads that round up to 256.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from backends._guard import NotSupported, refusal
from backends._launch import (
    has_nothing_to_do,
    import_first,
    is_vector,
    keywords,
    nothing,
    result,
)
from backends._scales import is_not_positive, positive

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from backends._launch import Result
    from backends.call import Call, Scale

HONOURED: frozenset[str] = frozenset(
    {
        "dense",
        "varlen",
        "paged",
        "paged_varlen",
        "causal",
        "window_left",
        "window_right",
        "softcap",
        "scale",
        "gqa",
        "head_size_v",
        "return_lse",
        "fp8_query",
        "fp8_kv",
        "q_scale",
        "k_scale",
        "v_scale",
        "per_head_scales",
        "training",
        "deterministic",
    }
)
_FP8 = torch.float8_e4m3fn
_FP8_MAX = 448.0
_SMALLEST = 2.0**-100
"""A largest magnitude below this counts as this, so that its inverse is finite."""
_HALF = (torch.float16, torch.bfloat16)
_MODULES = ("flash_attn_interface", "flash_attn_3.flash_attn_interface")


def refuses(call: Call) -> str | None:
    """Why this wrapper cannot run the call, or None. :func:`run` can refuse more: a version."""
    reason = refusal(call, HONOURED)
    if reason is not None:
        return reason
    if call.q.dtype not in (*_HALF, _FP8):
        return f"dtype {call.q.dtype}: FlashAttention 3 takes float16, bfloat16 and float8_e4m3fn"
    if call.k.dtype not in (*_HALF, _FP8):
        return f"keys of {call.k.dtype}: FlashAttention 3 takes float16, bfloat16 and float8_e4m3fn"
    reason = _sizes_fault(call)
    if reason is not None:
        return reason
    if call.k.dtype != _FP8 and not (call.q_scale is call.k_scale is call.v_scale is None):
        return "scales without an fp8 cache: FlashAttention 3 ignores them"
    for name, scale in (("q_scale", call.q_scale), ("k_scale", call.k_scale)):
        if is_not_positive(scale):
            return (
                f"{name} {scale}: the kernel multiplies scores by it after masking, so it has to be above 0"
            )
    if call.training:
        if call.k.dtype == _FP8:
            return "gradients with fp8: FlashAttention 3 has a forward kernel only"
        if call.layout == "paged":
            return "gradients through a paged cache: flash_attn_with_kvcache has no backward"
        if call.deterministic and max(call.head_size, call.head_size_v) > 192:
            return f"deterministic gradients with head size {call.head_size}: at most 192"
    return None


def _sizes_fault(call: Call) -> str | None:
    """Head sizes that ``hopper/flash_api.cpp`` checks before it launches anything."""
    size, size_v = call.head_size, call.head_size_v
    multiple = 16 if call.k.dtype == _FP8 else 8
    if size % multiple != 0 or size_v % multiple != 0:
        return f"head sizes {size} and {size_v}: multiples of {multiple}"
    if size > 256:
        return f"head_size {size}: FlashAttention 3 takes at most 256"
    if size != size_v and not ((128 < size <= 192 and 96 < size_v <= 128) or (size <= 64 and size_v <= 512)):
        return f"head sizes {size} and {size_v}: unequal ones are 129 to 192 with 97 to 128, or 64 with 512 at most"
    if size_v > 256 and call.k.dtype == _FP8:
        return f"head_size_v {size_v}: at most 256 with fp8"
    return None


def run(call: Call) -> Result:
    """Run the call on CUDA.

    An fp8 cache with a float16 or bfloat16 query quantises the query (:func:`_fp8_query`), because the
    kernel takes no mixed call.

    Raises:
        NotSupported: the call uses something :func:`refuses` names, or the installed version cannot give.
        ImportError: the package is missing or broken.
    """
    reason = refuses(call)
    if reason is not None:
        raise NotSupported("flash_attn/fa3", reason)
    if has_nothing_to_do(call):
        return nothing(call)
    out, lse = _launch(import_first(*_MODULES), call)
    return result(call, out.to(call.out_dtype), lse)  # the output of fp8 is bfloat16, also of a float16 query


def _launch(package: ModuleType, call: Call) -> tuple[Tensor, Tensor | None]:
    if call.layout == "paged":
        return _with_kvcache(package, call)
    function = package.flash_attn_func if call.layout == "dense" else package.flash_attn_varlen_func
    probs = {"return_attn_probs": True} if call.return_lse else {}
    if probs and "return_attn_probs" not in keywords(function):
        if call.layout == "dense" and not call.training:
            return _with_kvcache(package, call)
        what = "a packed batch" if call.layout == "varlen" else "gradients"
        raise NotSupported(
            "flash_attn/fa3",
            f"log-sum-exp with {what}: this build's {function.__name__} has no return_attn_probs",
        )
    q, descales = _scales(call)
    q, scale = positive(q, call.softmax_scale)
    common = {
        "softmax_scale": scale,
        "causal": call.causal,
        "window_size": _window(call),
        "softcap": call.softcap or 0.0,
        "deterministic": call.deterministic,
        **descales,
        **probs,
    }
    if call.layout == "dense":
        returned = function(q, call.k, call.v, **common)
    else:
        returned = function(
            q,
            call.k,
            call.v,
            cu_seqlens_q=call.cu_seqlens_q,
            cu_seqlens_k=call.cu_seqlens_k,
            max_seqlen_q=call.max_seqlen_q,
            max_seqlen_k=call.max_seqlen_k,
            **common,
        )
    return _unpacked(returned)


def _with_kvcache(package: ModuleType, call: Call) -> tuple[Tensor, Tensor | None]:
    q, descales = _scales(call)
    q, scale = positive(q, call.softmax_scale)
    returned = package.flash_attn_with_kvcache(
        q,
        call.k,
        call.v,
        cache_seqlens=call.seq_lens,
        page_table=call.block_table,
        cu_seqlens_q=call.cu_seqlens_q,
        max_seqlen_q=call.max_seqlen_q if call.packed_q else None,
        softmax_scale=scale,
        causal=call.causal,
        window_size=_window(call),
        softcap=call.softcap or 0.0,
        return_softmax_lse=call.return_lse,
        **descales,
    )
    return _unpacked(returned)


def _unpacked(returned: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
    """The output and the log-sum-exp; some versions add their split-KV buffers behind them."""
    if isinstance(returned, torch.Tensor):
        return returned, None
    return returned[0], returned[1]


def _window(call: Call) -> tuple[int, int]:
    if call.window is None:
        return (-1, -1)
    left, right = call.window
    return (-1 if left is None else left, -1 if right is None else right)


def _scales(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """The query as the kernel takes it, and the three descale arguments of an fp8 call."""
    if call.k.dtype != _FP8:
        return call.q, {}
    descales: dict[str, Tensor] = {}
    q, q_descale = _fp8_query(call)
    for name, scale in (
        ("q_descale", q_descale),
        ("k_descale", call.k_scale),
        ("v_descale", call.v_scale),
    ):
        matrix = _matrix(scale, call)
        if matrix is not None:
            descales[name] = matrix
    return q, descales


def _matrix(scale: Scale, call: Call) -> Tensor | None:
    """A scale as fp32 ``[batch, num_kv_heads]``, expanded and not copied."""
    if scale is None:
        return None
    shape = (call.batch, call.num_kv_heads)
    if not isinstance(scale, torch.Tensor):
        return torch.full((1, 1), scale, dtype=torch.float32, device=call.q.device).expand(shape)
    if scale.dim() == 2:
        return scale
    return scale.reshape(1, -1).expand(shape)


def _fp8_query(call: Call) -> tuple[Tensor, Scale]:
    """An e4m3 query and its scale.

    * An e4m3 query with no scale, one scale, or one a KV head (as many query heads as KV heads) goes as it
      is.
    * An e4m3 query with ``[num_heads]`` factors over grouped heads: the group's largest goes into the
      descale, what is left into the query. Where a group's factors are equal that is a multiplication by 1,
      and exact; otherwise the smaller ones cost one more rounding to e4m3.
    * A float16 or bfloat16 query is quantised here, with its own factor for each KV head (and, where the
      batch is dense, each sequence): the largest magnitude becomes e4m3's 448. ``q_scale`` is multiplied in
      before.
    """
    q, scale = call.q, call.q_scale
    groups = call.num_heads // call.num_kv_heads
    if q.dtype == _FP8:
        if not is_vector(scale) or groups == 1:
            return q, scale
        assert isinstance(scale, torch.Tensor)
        grouped = scale.view(call.num_kv_heads, groups)
        largest = grouped.abs().amax(1)
        rest = (grouped / largest.clamp_min(_SMALLEST)[:, None]).reshape(-1, 1)
        return (q.to(torch.float32) * rest).to(_FP8), largest
    values = q.to(torch.float32)
    if scale is not None:
        values = values * (scale.reshape(-1, 1) if isinstance(scale, torch.Tensor) else scale)
    split = values.view(*values.shape[:-2], call.num_kv_heads, groups, call.head_size)
    if call.packed_q:
        largest = split.abs().amax((0, 2, 3)).expand(call.batch, call.num_kv_heads)
        factor = largest[0]
    else:
        largest = split.abs().amax((1, 3, 4))
        factor = largest[:, None]
    descale = largest.clamp_min(_SMALLEST) / _FP8_MAX
    quantised = (split * (_FP8_MAX / factor.clamp_min(_SMALLEST))[..., None, None]).to(_FP8)
    return quantised.flatten(-3, -2), descale
