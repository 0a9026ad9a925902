"""How far a correct kernel may be from the float64 reference: bounds derived from the formats, not tuned.

Notation: ``u`` is the unit roundoff of the call's dtype (half its epsilon), ``a`` that of the accumulator (float32,
float64 for a float64 call), ``L`` the keys a row can see, ``D`` the head size, ``V`` the largest ``|v|``, and ``S`` the
largest value that the sum ``scale * sum(|q| * |k|)`` can take (at most ``|scale| * max|q| * max|k|``, Euclidean norms).

1. A score is a sum of ``D`` products: its error is at most ``(D + 2) a S`` whatever the order of summation (Higham,
   *Accuracy and Stability of Numerical Algorithms*, section 3.1), plus one rounding for each thing done to it
   (softcap, ALiBi, bias), of the size of what is added. Call it ``e``.
2. A weight is ``exp(score - max)``: its relative error is at most ``2 e`` (its own score and the maximum's, to first
   order) plus the score's own rounding, ``a |score|``, plus the exponential's: a few ``a``, but in 16-bit formats and
   below kernels use a short polynomial, because the weight is rounded to the format anyway. ``2**-13`` is allowed for
   that (torch's CPU flash kernel was measured at ``2**-14``), in the weight and in the denominator.
3. The denominator sums ``L`` weights: relative error ``(L + 1) a``. A kernel that works block by block also rescales,
   a few ``a`` a block, which ``L a`` covers.
4. Tensor cores and their kind take the weights in the call's dtype: relative error ``u``.
5. The weighted sum of ``L`` values adds ``(L + 1) a``, and the result is rounded to the call's dtype: ``u``.
6. A factor that a wrapper applies to the rounded output rounds again (``v_scale``: the factor and the product; sinks:
   the product), and a ``q_scale`` or ``k_scale`` that lies on a device is multiplied into the query: ``2 u S`` on a score.

Gradients, for the gradient ``g`` of the output, ``w`` the relative error of a weight by points 1 to 3, ``R`` the query rows of
all heads that share a KV head, and norms of whole heads' vectors:

7. ``dv`` of a key is a sum of ``R`` weights times ``g``: error at most ``R |g| (w + 3 u + (R + 1) a)``; the ``u`` are the
   weight, a partial sum for each query head, and the result.
8. ``ds = p (g . v - g . o)``: at most ``2 |g| |v|`` times the weight. Its relative error is ``w`` for the weight, ``w / 2`` for the
   output in the second product, ``(D_v + 3) a`` for the two products, ``u`` each for the output as it is stored, for ``ds`` where
   it meets the call's dtype, and for each factor applied in that dtype; softcap's derivative adds ``4 e / softcap``.
9. ``dq`` sums ``ds k`` over the keys, and the weights of a row sum to 1; ``dk`` sums ``ds q`` over ``R`` rows.

The weights sum to at most 1, so the output's absolute error is at most ``V`` times the sum of the relative ones. First
order bounds leave out products of errors; where ``e`` is not small (``S`` of 10**4 and more in float32) they do not
hold and ``exp(2 e) - 1`` stands in for ``2 e``, which keeps the bound honest: it becomes vacuous, not wrong. An output is
never more than ``2 V`` away.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from backends.call import Call, Scale

__all__ = ["Bounds", "GradientBounds", "bounds_of", "error_bounds", "gradient_bounds_of"]


class Bounds(NamedTuple):
    """The largest absolute errors a correct kernel can show."""

    out: float
    lse: float


def error_bounds(
    dtype: torch.dtype,
    head_size: int,
    kv_length: int,
    *,
    score: float,
    value: float,
    added: float = 0.0,
    roundings: int = 2,
    query_roundings: int = 0,
) -> Bounds:
    """The bounds of the module's text.

    ``dtype`` is the coarsest format a kernel may hold weights in (the query's, or the cache's where that is fp8),
    ``score`` is ``S``, ``value`` is ``V``, ``added`` the largest magnitude that softcap, ALiBi, a bias or a sink
    brings to a score, ``roundings`` how often the output meets the call's dtype, ``query_roundings`` the query.
    """
    roundoff, accumulator = unit_roundoff(dtype), accumulator_roundoff(dtype)
    scores = _score_error(dtype, head_size, score, added, query_roundings)
    exponential = _exponential_error(dtype)
    weights = _weight_error(dtype, scores, score + added)
    sums = 2.0 * (kv_length + 1) * accumulator
    out = value * min(weights + sums + roundings * roundoff * (1.0 + weights), 2.0)
    size = score + added + math.log(max(kv_length, 1))
    # the log-sum-exp is handed out in float32, also by a float64 kernel
    lse = scores + exponential + (kv_length + 2) * accumulator + 2.0 * unit_roundoff(torch.float32) * size
    return Bounds(out + torch.finfo(_stored(dtype)).smallest_normal, lse)


class Sizes(NamedTuple):
    """What the bounds depend on, read off one call: the module's letters in words."""

    dtype: torch.dtype
    """The coarsest format that a kernel may hold weights in."""
    score: float
    value: float
    added: float
    query_roundings: int


def sizes_of(call: Call) -> Sizes:
    """Largest magnitudes in a call; reads the tensors, so it waits for a device."""
    score = abs(call.softmax_scale) * _norm(call.q, call.q_scale) * _norm(call.k, call.k_scale)
    added = call.softcap or 0.0
    if call.alibi_slopes is not None:
        added += float(call.alibi_slopes.abs().max()) * max(call.max_seqlen_q, call.max_seqlen_k)
    if call.mask is not None and call.mask.dtype != torch.bool:
        # a magnitude near the format's limit is a mask in disguise: it takes part in no sum that matters
        finite = call.mask.detach().double().abs()
        finite = finite[finite < 1e4]
        added += float(finite.max()) if finite.numel() else 0.0
    if call.sinks is not None:
        added += float(call.sinks.detach().abs().max())
    return Sizes(
        max(call.q.dtype, call.k.dtype, key=unit_roundoff),
        score,
        _largest(call.v, call.v_scale),
        added,
        sum(isinstance(factor, torch.Tensor) for factor in (call.q_scale, call.k_scale)),
    )


def bounds_of(call: Call) -> Bounds:
    """The bounds for one call; reads the tensors, so it waits for a device."""
    sizes = sizes_of(call)
    return error_bounds(
        sizes.dtype,
        call.head_size,
        call.max_seqlen_k,
        score=sizes.score,
        value=sizes.value,
        added=sizes.added,
        roundings=2 + 2 * (call.v_scale is not None) + (call.sinks is not None),
        query_roundings=sizes.query_roundings,
    )


class GradientBounds(NamedTuple):
    """The largest absolute errors of gradients of the stored tensors, and of the gradient of one score (a bias)."""

    q: float
    k: float
    v: float
    score: float


def gradient_bounds_of(call: Call, grad: Tensor) -> GradientBounds:
    """The bounds of the gradients of one call, for the gradient ``grad`` of its output (see the module's text)."""
    sizes = sizes_of(call)
    u, a = unit_roundoff(sizes.dtype), accumulator_roundoff(sizes.dtype)
    scores = _score_error(sizes.dtype, call.head_size, sizes.score, sizes.added, sizes.query_roundings)
    weight = _weight_error(sizes.dtype, scores, sizes.score + sizes.added)
    weight += 2.0 * (call.max_seqlen_k + 1) * a
    given = grad.detach().double()
    largest, norm = _largest(given, None), _norm(given, None)
    rows = call.max_seqlen_q * (call.num_heads // call.num_kv_heads)
    roundings = 3.0 + (call.v_scale is not None) + (call.sinks is not None)
    v_factor = float(_factor(call.v_scale).max())
    v = rows * largest * v_factor * (weight + roundings * u + (rows + 1) * a)
    # what one score's gradient can be: the weight times the difference of two products of length-D_v vectors
    size = 2.0 * norm * _norm(call.v, call.v_scale)
    cap = 4.0 * scores / call.softcap if call.softcap is not None else 0.0
    relative = 1.5 * weight + (2.0 + roundings) * u + (call.head_size_v + 3) * a + cap
    relative += sizes.query_roundings * u
    scale = abs(call.softmax_scale)
    q_factor, k_factor = float(_factor(call.q_scale).max()), float(_factor(call.k_scale).max())
    q = scale * q_factor * _norm(call.k, call.k_scale) * size * (relative + u + (call.max_seqlen_k + 1) * a)
    k = scale * k_factor * _norm(call.q, call.q_scale) * rows * size * (relative + u + (rows + 1) * a)
    tiny = torch.finfo(_stored(call.q.dtype)).smallest_normal
    return GradientBounds(q + tiny, k + tiny, v + tiny, size * relative + tiny)


def accumulator_roundoff(dtype: torch.dtype) -> float:
    """The unit roundoff of what sums of this dtype are kept in."""
    return unit_roundoff(torch.float64 if dtype == torch.float64 else torch.float32)


def _score_error(
    dtype: torch.dtype, head_size: int, score: float, added: float, query_roundings: int
) -> float:
    """Absolute error of a score."""
    # factor 4: scale, softcap's tanh (a few ulp) and the additions round separately
    error = accumulator_roundoff(dtype) * ((head_size + 2) * score + 4.0 * (score + added))
    return error + query_roundings * unit_roundoff(dtype) * score


def _exponential_error(dtype: torch.dtype) -> float:
    return 2.0**-13 if dtype.itemsize <= 2 else 8.0 * accumulator_roundoff(dtype)


def _weight_error(dtype: torch.dtype, scores: float, size: float) -> float:
    """Relative error of a weight, from the error of its score and the size that scores have."""
    exponent = 2.0 * scores + accumulator_roundoff(dtype) * size
    return math.expm1(min(exponent, 700.0)) + 2.0 * _exponential_error(dtype)


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number."""
    return float(torch.finfo(dtype).eps) / 2.0


def _stored(dtype: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if dtype.itemsize == 1 else dtype


def _norm(x: Tensor, scale: Scale) -> float:
    """The largest Euclidean norm of a head's vector; what is not finite (padding of a cache) is left out."""
    if not x.numel():
        return 0.0
    norms = torch.linalg.vector_norm(x.detach().double(), dim=-1) * _factor(scale)
    norms = norms[torch.isfinite(norms)]
    return float(norms.max()) if norms.numel() else 0.0


def _largest(x: Tensor, scale: Scale) -> float:
    if not x.numel():
        return 0.0
    sizes = x.detach().double().abs().amax(-1) * _factor(scale)
    sizes = sizes[torch.isfinite(sizes)]
    return float(sizes.max()) if sizes.numel() else 0.0


def _factor(scale: Scale) -> Tensor:
    if isinstance(scale, torch.Tensor):
        return scale.detach().double().abs().reshape(-1)
    return torch.tensor(1.0 if scale is None else abs(scale), dtype=torch.float64)
