"""FlashInfer (distribution ``flashinfer-python``, 0.6 and 0.7): prefill and decode, dense, packed and paged.

Variants: ``fa2`` and ``fa3`` name FlashInfer's own kernels; ``fa3_fp8_heads`` is the one path with a scale
for each head - an fp8 query on the fa3 module.

Facts, read from the wheels of 0.6.0, 0.6.18, 0.7.0 and 0.7.4 (``prefill.py``, ``decode.py``, ``attention``,
headers):

* Returned log-sum-exps are ``[tokens, num_heads]`` in base 2. A row that may attend to nothing has about
  -50000 in the older kernels, whose infinity is 5e4, and ``-inf`` in newer ones.
* ``run(sinks=...)`` is read by the trtllm-gen kernels alone: fa2 and fa3 drop it in silence. Sinks have a
  kernel of their own, behind ``BatchAttentionWithAttentionSinkWrapper``: paged, without softcap, given
  ``(sinks, sm_scale)`` as positional arguments of ``run`` - where ``k_scale`` no longer reaches the scores.
* ``run`` of the ragged wrapper drops ``q_scale``, ``k_scale`` and ``v_scale`` on fa2 and fa3 in 0.6.0; so
  for it, and for the single functions, the scales join the softmax scale and the output here.
* Scales of an fp8 query go as three positional arguments of ``run`` (``scale_q [num_heads]``, ``scale_k`` and
  ``scale_v [num_kv_heads]``); its kernel takes no softcap, and the single function refuses a window.
* The ragged wrapper with an fp8 query outside fa3 computes in float16 with a warning.
* ALiBi slopes cannot be handed over: ``pos_encoding_mode="ALIBI"`` computes its own.
* A window has a left bound only. No dropout, no gradients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from backends import _flashinfer_kernels as kernels
from backends._failure import is_broken
from backends._flashinfer_plan import clear, reuse_plans
from backends._guard import NotSupported, refusal
from backends._launch import has_nothing_to_do, import_first, nothing, result
from backends._scales import is_not_positive
from backends.call import make_call, request_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from backends._launch import Result
    from backends.call import Call

__all__ = [
    "HONOURED",
    "clear",
    "is_broken",
    "make_call",
    "refuses",
    "request_fields",
    "reuse_plans",
    "run",
]

_COMMON = frozenset(
    {
        "dense",
        "varlen",
        "paged",
        "paged_varlen",
        "causal",
        "scale",
        "gqa",
        "return_lse",
        "fp8_kv",
        "q_scale",
        "k_scale",
        "v_scale",
        "deterministic",
    }
)
HONOURED: Mapping[str, frozenset[str]] = {
    "fa2": _COMMON | {"window_left", "softcap", "sinks", "mask", "head_size_v"},
    "fa3": _COMMON | {"window_left", "softcap", "sinks", "head_size_v", "fp8_query"},
    "fa3_fp8_heads": _COMMON | {"fp8_query", "per_head_scales"},
}
"""Per variant, the names in :data:`backends._guard.FIELDS` that it honours."""

_HALF = (torch.float16, torch.bfloat16)
_FP8 = torch.float8_e4m3fn
_LN2 = math.log(2.0)
_NO_KEYS = -4.99e4
"""Base-2 log-sum-exps below this belong to rows without keys (``math::inf`` is 5e4 in the older kernels)."""


def refuses(call: Call, variant: str) -> str | None:
    """Why the variant cannot run the call, or None; imports nothing. A version can refuse more."""
    reason = refusal(call, HONOURED[variant])
    if reason is not None:
        return reason
    if call.softcap is not None and call.sinks is not None:
        return "softcap with sinks: FlashInfer's sink kernel has no softcap"
    if variant == "fa2":
        return _fa2_refuses(call)
    if call.k.dtype != call.q.dtype:
        return f"a {call.q.dtype} query with {call.k.dtype} keys: FlashInfer's fa3 takes one dtype"
    if call.q.dtype == _FP8:
        return _fp8_refuses(call)
    if variant == "fa3_fp8_heads" or call.q.dtype not in _HALF:
        wanted = "float8_e4m3fn" if variant == "fa3_fp8_heads" else "float16, bfloat16 and float8_e4m3fn"
        return f"dtype {call.q.dtype}: FlashInfer's {variant} takes {wanted}"
    return None


def _fa2_refuses(call: Call) -> str | None:
    if call.q.dtype not in _HALF:
        return f"dtype {call.q.dtype}: FlashInfer's fa2 takes float16 and bfloat16 queries"
    if call.mask is None:
        return None
    if call.layout != "dense":
        return "mask with packed or paged sequences: only a dense batch's mask is handed over"
    if call.mask.dim() >= 3 and call.mask.shape[-3] != 1:
        return "mask with a plane for each head: FlashInfer takes one for all heads"
    if call.sinks is not None:
        return "mask with sinks: FlashInfer's sink kernel takes no custom mask"
    return None


def _fp8_refuses(call: Call) -> str | None:
    for name, scale in (("q_scale", call.q_scale), ("k_scale", call.k_scale)):
        if is_not_positive(scale):
            return (
                f"{name} {scale}: the kernel multiplies scores by it after masking, so it has to be above 0"
            )
    if call.softcap is not None:
        return "softcap with an fp8 query: the fp8 kernel drops it"
    if call.window is not None:
        return "window with an fp8 query: the single fp8 kernel refuses it"
    if call.sinks is not None:
        return "sinks with an fp8 query: the sink kernel takes no query scales"
    if call.head_size_v != call.head_size:
        return "value heads of another size with an fp8 query"
    return None


def run(call: Call, *, variant: str) -> Result:
    """Run the call on CUDA.

    Batches and paged caches are planned on the host, which waits for the device; see
    :func:`backends._flashinfer_plan.reuse_plans`.

    Raises:
        NotSupported: the variant, or the installed version of the package, cannot honour a field.
        ImportError: the package is missing or broken.
    """
    reason = refuses(call, variant)
    if reason is not None:
        raise NotSupported(f"flashinfer/{variant}", reason)
    if has_nothing_to_do(call):
        return nothing(call)
    job = kernels.job_of(call, import_first("flashinfer"), variant)
    if call.layout == "paged":
        out, lse = kernels.decode(job) if kernels.is_decode(job) else kernels.paged(job)
    elif call.sinks is not None:
        out, lse = kernels.paged(job)
    elif call.layout == "dense" and call.batch == 1:
        out, lse = kernels.single(job)
    else:
        out, lse = kernels.ragged(job)
    return result(call, out.view(call.out_shape), _natural(call, lse))


def _natural(call: Call, lse: Tensor | None) -> Tensor | None:
    """``[tokens, num_heads]`` in base 2 to the call's shape in base e."""
    if lse is None:
        return None
    lse = torch.where(lse < _NO_KEYS, -torch.inf, lse * _LN2)
    if call.packed_q:
        return lse.transpose(0, 1)
    return lse.view(call.batch, -1, call.num_heads).transpose(1, 2)
