"""The kernels behind ``torch.nn.functional.scaled_dot_product_attention``, each forced as a variant of its own.

``cpu_flash`` and ``cpu_math`` call the operators themselves: forcing a kernel with ``torch.nn.attention.sdpa_kernel``
changes flags of the whole process, and these two can do without. The CUDA variants go through ``sdpa_kernel`` (under a
lock, for that reason), because torch pads and aligns for them on the way; ``cuda_flash`` with a log-sum-exp calls its
operator, which is the only one that returns it. ``cuda_flash_fa3`` and ``cuda_flash_fa4`` are the same with another
package's kernels, which torch activates for the whole process (:mod:`backends._flash_impl`): for an explicit choice.
Packed batches and paged caches on CUDA go through ``varlen_attn``, as ``cuda_varlen`` (:mod:`backends._sdpa_varlen`); nested
tensors are not taken.

No kernel here has softcap, ALiBi or sinks, and only ``cuda_varlen`` has a window. ALiBi and windows could be given as a mask of
``seq_q * seq_k`` elements (times the heads); a caller who wants that passes it as ``mask``. This wrapper builds a mask
only where a causal call has fewer queries than keys, or a mask besides (:mod:`backends._sdpa_mask`).

A packed batch (CPU variants) is one kernel call a sequence, with no padding and no copy of the inputs; it reads the
lengths, so ``torch.compile`` cannot trace it. Facts found by running torch 2.13 on a CPU:

* the flash operator reads wrong elements where the last stride is not 1, and stops the process where a length is 0;
* its log-sum-exp of a fully masked row is 0; it has no gradient for the mask;
* the math operator adds a boolean mask as 0 and 1.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from backends import _sdpa_varlen
from backends._failure import is_broken
from backends._flash_impl import LOCK, keep_for_backward, use
from backends._flash_impl import refusal as implementation_refusal
from backends._guard import NotSupported, refusal
from backends._launch import has_nothing_to_do, nothing, result, scaled_output
from backends._lengths import ranges
from backends._scales import scaled_query
from backends._sdpa_mask import Plan, needs_plane, plan
from backends._shortcut import flash_on_cpu
from backends.call import make_call, request_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor
    from torch.nn.attention import SDPBackend

    from backends._launch import Result
    from backends.call import Call

__all__ = ["HONOURED", "is_broken", "make_call", "refuses", "request_fields", "run", "shortcut"]

_EVERYWHERE = frozenset({"dense", "causal", "scale", "training", "q_scale", "k_scale", "v_scale"})
HONOURED: Mapping[str, frozenset[str]] = {
    "cpu_flash": _EVERYWHERE | {"varlen", "gqa", "mask", "bias", "return_lse", "deterministic"},
    "cpu_math": _EVERYWHERE | {"varlen", "gqa", "mask", "bias", "head_size_v", "dropout_p", "deterministic"},
    "cuda_flash": _EVERYWHERE | {"gqa", "return_lse", "dropout_p"},
    "cuda_flash_fa3": _EVERYWHERE | {"gqa", "return_lse"},
    "cuda_flash_fa4": _EVERYWHERE | {"gqa", "return_lse"},
    "cuda_varlen": _sdpa_varlen.HONOURED,
    "cuda_efficient": _EVERYWHERE | {"mask", "bias", "head_size_v", "dropout_p"},
    "cuda_cudnn": _EVERYWHERE | {"gqa", "mask", "bias", "head_size_v", "dropout_p"},
    "cuda_math": _EVERYWHERE | {"gqa", "mask", "bias", "head_size_v", "dropout_p", "deterministic"},
}
"""Per variant, the names in :data:`backends._guard.FIELDS` that it honours."""

_HALF = (torch.float16, torch.bfloat16)
_DTYPES: Mapping[str, tuple[torch.dtype, ...]] = {
    "cpu_flash": (*_HALF, torch.float32, torch.float64),
    "cpu_math": (*_HALF, torch.float32, torch.float64),
    "cuda_flash": _HALF,
    "cuda_flash_fa3": _HALF,
    "cuda_flash_fa4": _HALF,
    "cuda_varlen": _HALF,
    "cuda_efficient": (*_HALF, torch.float32),
    "cuda_cudnn": _HALF,
    "cuda_math": (*_HALF, torch.float32, torch.float64),
}
_IMPLEMENTATION: Mapping[str, str | None] = {
    "cuda_flash": None,
    "cuda_flash_fa3": "FA3",
    "cuda_flash_fa4": "FA4",
    "cuda_varlen": None,
}
"""The flash implementation that a variant runs; None for the one built into torch."""


def refuses(call: Call, variant: str) -> str | None:
    """Why the variant cannot run the call, or None."""
    reason = refusal(call, HONOURED[variant])
    if reason is not None:
        return reason
    if call.q.dtype not in _DTYPES[variant]:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES[variant])
        return f"dtype {call.q.dtype}: takes {names}"
    if call.q.device.type != variant.partition("_")[0]:
        return f"device {call.q.device.type}: runs on {variant.partition('_')[0]}"
    if call.mask is not None and call.mask.requires_grad and variant in ("cpu_flash", "cuda_cudnn"):
        return "mask that requires a gradient: the kernel computes none"
    if variant == "cuda_varlen":
        reason = _sdpa_varlen.refuses(call)
    elif variant in _IMPLEMENTATION:
        reason = _flash_fault(call, variant)
    if reason is None and variant in _IMPLEMENTATION:
        reason = implementation_refusal(_IMPLEMENTATION[variant])
    return reason


def _flash_fault(call: Call, variant: str) -> str | None:
    """What SDPA's flash kernel cannot run, whichever implementation it is."""
    if needs_plane(call.causal, call.max_seqlen_q, call.max_seqlen_k, False):
        return (
            f"causal with {call.max_seqlen_q} queries and {call.max_seqlen_k} keys: "
            "the kernel aligns it top-left"
        )
    if call.return_lse and call.head_size % 8 != 0:
        return f"return_lse with head size {call.head_size}: a multiple of 8"
    if variant != "cuda_flash" and call.head_size > 256:
        return f"head_size {call.head_size}: at most 256"
    return None


def run(call: Call, *, variant: str) -> Result:
    """Run the call; ``[*q.shape[:-1], head_size_v]``, with the log-sum-exp where the call asks for it.

    Raises:
        NotSupported: the variant cannot honour a field, or torch refuses its kernel for these tensors.
    """
    reason = refuses(call, variant)
    if reason is not None:
        raise NotSupported(f"torch_sdpa/{variant}", reason)
    return _attend(call, variant)


def _attend(call: Call, variant: str) -> Result:
    """A call that the variant does not refuse; the CUDA variants too take a CPU's tensors here, where torch does."""
    if has_nothing_to_do(call):
        return nothing(call)
    q, scale = scaled_query(call)
    if variant == "cuda_varlen":
        out, lse = _varlen(call, q, scale)
    elif call.layout == "varlen":
        out, lse = _each_sequence(call, variant, q, scale)
    else:
        out, lse = _batch(variant, call, q, call.k, call.v, call.mask, scale)
    return result(call, scaled_output(out, call.v_scale), lse)


def shortcut(
    variant: str, general: Callable[..., Result], clean: Callable[[], bool]
) -> Callable[..., Result] | None:
    """A short cut for plain calls (:mod:`backends._shortcut`), or None."""
    return flash_on_cpu(general, clean) if variant == "cpu_flash" else None


def _batch(
    variant: str, call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor | None]:
    """``q [batch, sq, heads, size]`` and so on; the output in that order, the log-sum-exp ``[batch, heads, sq]``."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    how = plan(q, k.shape[2], call.causal, mask)
    dead = how.dead
    out, lse = _KERNELS[variant](call, q[:, :, dead:] if dead else q, k, v, how, scale)
    if lse is not None and how.may_be_dead and how.bias is not None:
        lse = lse.masked_fill((how.bias == -torch.inf).all(-1), -torch.inf)
    if dead:
        out = torch.cat([out.new_zeros(*out.shape[:2], dead, out.shape[3]), out], dim=2)
        if lse is not None:
            lse = torch.cat([lse.new_full((*lse.shape[:2], dead), -torch.inf), lse], dim=2)
    return out.transpose(1, 2), None if lse is None else lse.to(torch.float32)


def _each_sequence(call: Call, variant: str, q: Tensor, scale: float) -> tuple[Tensor, Tensor | None]:
    """A packed batch on the CPU, where reading the lengths waits for nothing.

    Raises:
        CallError: lengths that do not fit the tensors; the operators would stop the process, or read beside them.
    """
    assert call.cu_seqlens_q is not None and call.cu_seqlens_k is not None
    ranges_q = ranges("cu_seqlens_q", call.cu_seqlens_q, call.q.shape[0], call.max_seqlen_q)
    ranges_k = ranges("cu_seqlens_k", call.cu_seqlens_k, call.k.shape[0], call.max_seqlen_k)
    outs, lses = [], []
    mask = call.mask
    if mask is not None:
        mask = mask.expand(call.batch, call.num_heads, call.max_seqlen_q, call.max_seqlen_k)
    for index in range(call.batch):
        (begin, end), (first, last) = ranges_q[index], ranges_k[index]
        if begin == end:
            continue
        if first == last:
            outs.append(q.new_zeros(end - begin, call.num_heads, call.head_size_v))
            lses.append(q.new_full((call.num_heads, end - begin), -torch.inf, dtype=torch.float32))
            continue
        plane = None if mask is None else mask[index : index + 1, :, : end - begin, : last - first]
        out, lse = _batch(
            variant,
            call,
            q[None, begin:end],
            call.k[None, first:last],
            call.v[None, first:last],
            plane,
            scale,
        )
        outs.append(out[0])
        if lse is not None:
            lses.append(lse[0])
    return torch.cat(outs), torch.cat(lses, dim=1) if call.return_lse else None


def _cpu_flash(
    call: Call, q: Tensor, k: Tensor, v: Tensor, how: Plan, scale: float
) -> tuple[Tensor, Tensor | None]:
    # the operator takes the last stride for 1 without looking
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    try:
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, how.causal, attn_mask=how.bias, scale=scale
        )
    except NotImplementedError as error:
        if "forward AD" in str(error):
            raise NotSupported("torch_sdpa/cpu_flash", "forward-mode derivatives: it has none") from error
        raise
    return out, lse if call.return_lse else None


def _cpu_math(
    call: Call, q: Tensor, k: Tensor, v: Tensor, how: Plan, scale: float
) -> tuple[Tensor, Tensor | None]:
    out, _ = torch.ops.aten._scaled_dot_product_attention_math(
        q,
        k,
        v,
        how.bias,
        call.dropout_p,
        how.causal,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out, None


def _cuda(
    backend: str, call: Call, q: Tensor, k: Tensor, v: Tensor, how: Plan, scale: float
) -> tuple[Tensor, Tensor | None]:
    if torch.compiler.is_compiling():
        return _launched(backend, call, q, k, v, how, scale)
    with LOCK:
        if backend in _IMPLEMENTATION:
            use(_IMPLEMENTATION[backend], f"torch_sdpa/{backend}")
        out, lse = _launched(backend, call, q, k, v, how, scale)
    if call.training and backend in _IMPLEMENTATION:
        keep_for_backward(out, _IMPLEMENTATION[backend], f"torch_sdpa/{backend}")
    return out, lse


def _launched(
    backend: str, call: Call, q: Tensor, k: Tensor, v: Tensor, how: Plan, scale: float
) -> tuple[Tensor, Tensor | None]:
    if not call.return_lse:
        return _forced(backend, call, q, k, v, how, scale), None
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention(
        q, k, v, call.dropout_p, how.causal, False, scale=scale
    )[:2]
    return out, lse


def _varlen(call: Call, q: Tensor, scale: float) -> tuple[Tensor, Tensor | None]:
    if torch.compiler.is_compiling():
        return _sdpa_varlen.attend(call, q, scale)
    with LOCK:
        use(None, "torch_sdpa/cuda_varlen")
        out, lse = _sdpa_varlen.attend(call, q, scale)
    if call.training:
        keep_for_backward(out, None, "torch_sdpa/cuda_varlen")
    return out, lse


def _forced(backend: str, call: Call, q: Tensor, k: Tensor, v: Tensor, how: Plan, scale: float) -> Tensor:
    from torch.nn.attention import sdpa_kernel

    attend = functools.partial(
        torch.nn.functional.scaled_dot_product_attention,
        q,
        k,
        v,
        attn_mask=how.bias,
        dropout_p=call.dropout_p,
        is_causal=how.causal,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    if not torch.compiler.is_compiling() and _chosen_anyway(backend, call, q, k, v, how, scale):
        return attend()
    try:
        with sdpa_kernel(_backend(backend)):
            return attend()
    except RuntimeError as error:
        if "No available kernel" in str(error):
            reason = "torch finds its kernel unfit for these tensors (the warnings above say why)"
            raise NotSupported(f"torch_sdpa/{backend}", reason) from error
        raise


def _chosen_anyway(
    backend: str, call: Call, q: Tensor, k: Tensor, v: Tensor, how: Plan, scale: float
) -> bool:
    """Whether torch takes this kernel without being forced: entering `sdpa_kernel` costs more than asking.

    Asked of the tensors as they are, so not where autocast would change them first, and not of subclasses (fake tensors
    have no kernels to choose from).
    """
    if type(q) is not torch.Tensor or torch.is_autocast_enabled(q.device.type):
        return False
    choice: int = torch._fused_sdp_choice(
        q,
        k,
        v,
        attn_mask=how.bias,
        dropout_p=call.dropout_p,
        is_causal=how.causal,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return choice == int(_backend(backend).value)


def _backend(name: str) -> SDPBackend:
    from torch.nn.attention import SDPBackend

    return {
        "cuda_flash": SDPBackend.FLASH_ATTENTION,
        "cuda_flash_fa3": SDPBackend.FLASH_ATTENTION,
        "cuda_flash_fa4": SDPBackend.FLASH_ATTENTION,
        "cuda_efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cuda_cudnn": SDPBackend.CUDNN_ATTENTION,
        "cuda_math": SDPBackend.MATH,
    }[name]


_KERNELS: Mapping[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "cpu_flash": _cpu_flash,
    "cpu_math": _cpu_math,
    **{
        name: functools.partial(_cuda, name)
        for name in (
            "cuda_flash",
            "cuda_flash_fa3",
            "cuda_flash_fa4",
            "cuda_efficient",
            "cuda_cudnn",
            "cuda_math",
        )
    },
}
