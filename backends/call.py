"""One description of one attention call, shared by every kernel wrapper.

What a call means, in one place (``i`` a query row, ``j`` a key row of the same sequence, ``sq``/``sk`` that sequence's
lengths, ``p = i + sk - sq`` the position of the query among the keys):

1. ``s = scale * (q_scale * q[i]) . (k_scale * k[j])`` - query head ``h`` reads KV head ``h // (num_heads / num_kv_heads)``;
2. ``softcap``: ``s = softcap * tanh(s / softcap)``;
3. ``alibi_slopes``: ``s -= slope[h] * abs(p - j)``;
4. an additive ``mask`` is added; a boolean one keeps the pairs that are True;
5. ``causal`` keeps ``j <= p`` (aligned bottom-right: the last query sees the last key, as FlashAttention >= 2.1 does);
6. ``window=(left, right)`` keeps ``p - left <= j <= p + right``, both ends included;
7. softmax over ``j``; a head's ``sinks`` logit joins the denominator and carries no value; dropout; times ``v_scale * v``.

The log-sum-exp is that of the denominator, the sink included. A row that may attend to nothing gives 0, and a
log-sum-exp of ``-inf`` (of the sink's logit where there is one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from backends import _check
from backends._types import DTYPE_NAMES, FP8_DTYPES, CallError

if TYPE_CHECKING:
    from torch import Tensor

    Window = tuple[int | None, int | None]
    Scale = float | Tensor | None

__all__ = ["DTYPE_NAMES", "FP8_DTYPES", "Call", "CallError", "make_call", "request_fields"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call:
    """One attention call; built and checked by :func:`make_call`.

    Fields hold canonical values: a thing that is off is None, 0.0 or False and has no second spelling (a softcap of 0
    is None, a scale factor of 1.0 is None, ``window=(128, 0)`` is ``causal`` with ``window=(128, None)``).
    """

    q: Tensor
    """``[batch, seq_q, num_heads, head_size]``, or packed ``[tokens_q, num_heads, head_size]``."""
    k: Tensor
    """dense ``[batch, seq_k, num_kv_heads, head_size]``, varlen ``[tokens_k, num_kv_heads, head_size]``, paged
    ``[num_blocks, block_size, num_kv_heads, head_size]``."""
    v: Tensor
    """Like ``k`` with ``head_size_v`` in place of ``head_size``."""
    layout: str
    """``dense``, ``varlen`` (queries and keys packed) or ``paged`` (a KV cache in blocks; queries dense or packed)."""
    cu_seqlens_q: Tensor | None
    """int32 ``[batch + 1]``: where each sequence's queries start in a packed ``q``; the last entry is the end."""
    cu_seqlens_k: Tensor | None
    """int32 ``[batch + 1]``: the same of packed keys (varlen only)."""
    max_seqlen_q: int
    """The longest query sequence, in tokens (dense: ``seq_q``)."""
    max_seqlen_k: int
    """The longest key sequence, in tokens (dense: ``seq_k``; paged: ``max_blocks * block_size`` unless given)."""
    block_table: Tensor | None
    """int32 ``[batch, max_blocks]``: the blocks of each sequence, in order (paged only)."""
    seq_lens: Tensor | None
    """int32 ``[batch]``: the keys of each sequence, those of the current queries included (paged only)."""
    causal: bool
    window: Window | None
    """(left, right) counts of keys beside the query's own position; None on a side: no bound. Never (None, None); with
    ``causal`` the right side is always None, because causal is the tighter bound."""
    softcap: float | None
    alibi_slopes: Tensor | None
    """fp32 ``[num_heads]`` or ``[batch, num_heads]``."""
    sinks: Tensor | None
    """``[num_heads]``: a learned logit for each head, in the units of the scaled scores."""
    mask: Tensor | None
    """bool (True: may attend) or a float bias, broadcastable to ``[batch, num_heads, max_seqlen_q, max_seqlen_k]``; a
    shorter sequence of a packed or paged batch uses the upper left part of its plane."""
    scale: float | None
    """Factor of the scores; None: ``head_size ** -0.5`` (see :attr:`softmax_scale`)."""
    return_lse: bool
    """Also return the natural log-sum-exp, fp32: ``[batch, num_heads, seq_q]``, or ``[num_heads, tokens_q]`` packed."""
    q_scale: Scale
    """What a stored value is multiplied by: a float, an fp32 tensor of one element, or fp32 ``[num_heads]``."""
    k_scale: Scale
    """The same of the keys; per head it is ``[num_kv_heads]``."""
    v_scale: Scale
    """The same of the values; per head it is ``[num_kv_heads]``."""
    dropout_p: float
    deterministic: bool
    """The backward pass must give the same bits on every run."""

    def __repr__(self) -> str:
        """Shapes and dtypes of tensors, and only what is set: ``Call(q=float16[2, 7, 4, 16], ...)``."""
        parts = []
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, torch.Tensor):
                value = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            if value is not None and value is not False and value != 0.0:
                parts.append(f"{name}={value}")
        return f"Call({', '.join(parts)})"

    @property
    def packed_q(self) -> bool:
        """Whether ``q`` is ``[tokens, num_heads, head_size]`` with ``cu_seqlens_q``."""
        return self.cu_seqlens_q is not None

    @property
    def batch(self) -> int:
        """Number of sequences."""
        if self.cu_seqlens_q is not None:
            return self.cu_seqlens_q.shape[0] - 1
        return self.q.shape[0]

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.q.shape[-2]

    @property
    def num_kv_heads(self) -> int:
        """Key and value heads."""
        return self.k.shape[-2]

    @property
    def head_size(self) -> int:
        """Elements of one query or key head."""
        return self.q.shape[-1]

    @property
    def head_size_v(self) -> int:
        """Elements of one value head."""
        return self.v.shape[-1]

    @property
    def block_size(self) -> int | None:
        """Tokens in a block of the KV cache; None where there is no cache."""
        return self.k.shape[1] if self.block_table is not None else None

    @property
    def softmax_scale(self) -> float:
        """``scale``, or what it defaults to."""
        return self.scale if self.scale is not None else float(self.q.shape[-1] ** -0.5)

    @property
    def out_dtype(self) -> torch.dtype:
        """dtype of the output: the query's, or bfloat16 for an fp8 query."""
        return torch.bfloat16 if self.q.dtype in FP8_DTYPES else self.q.dtype

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the output: the query's with ``head_size_v`` last."""
        return (*self.q.shape[:-1], self.v.shape[-1])

    @property
    def per_head_scales(self) -> bool:
        """Whether any of the three scales is a vector over heads."""
        return _is_vector(self.q_scale) or _is_vector(self.k_scale) or _is_vector(self.v_scale)

    @property
    def training(self) -> bool:
        """Whether autograd will ask this call for a gradient."""
        return torch.is_grad_enabled() and (
            self.q.requires_grad
            or self.k.requires_grad
            or self.v.requires_grad
            or any(
                isinstance(extra, torch.Tensor) and extra.requires_grad
                for extra in (
                    self.sinks,
                    self.mask,
                    self.alibi_slopes,
                    self.q_scale,
                    self.k_scale,
                    self.v_scale,
                )
            )
        )


def _is_vector(scale: Scale) -> bool:
    return isinstance(scale, torch.Tensor) and scale.numel() > 1


def make_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    block_table: Tensor | None = None,
    seq_lens: Tensor | None = None,
    causal: bool = False,
    window: Window | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    mask: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    q_scale: Scale = None,
    k_scale: Scale = None,
    v_scale: Scale = None,
    dropout_p: float = 0.0,
    deterministic: bool = False,
) -> Call:
    """Check the fields against each other and put them into a :class:`Call`.

    The layout follows from what is given: ``block_table`` makes it paged, ``cu_seqlens`` varlen, else it is dense.
    Only shapes, dtypes and devices are looked at, never values on a device: nothing here waits for a GPU.

    Raises:
        CallError: naming the field, what it is, and what it had to be.
    """
    if (causal is not True and causal is not False) or (return_lse is not True and return_lse is not False):
        causal, return_lse = _check.flag("causal", causal), _check.flag("return_lse", return_lse)
    if deterministic is not True and deterministic is not False:
        deterministic = _check.flag("deterministic", deterministic)
    packed = cu_seqlens_q is not None or cu_seqlens_k is not None
    layout = "paged" if block_table is not None else "varlen" if packed else "dense"
    _check.tensors(q, k, v, layout, packed_q=cu_seqlens_q is not None or layout == "varlen")
    batch, longest_q, longest_k = _check.lengths(
        q, k, layout, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table, seq_lens
    )
    causal, window = _check.canonical_window(causal, window)
    heads, kv_heads = q.shape[-2], k.shape[-2]
    if alibi_slopes is not None:
        _check.alibi(alibi_slopes, batch, heads, q.device)
    if sinks is not None:
        _check.sinks(sinks, heads, q.device)
    if mask is not None:
        _check.mask(mask, (batch, heads, longest_q, longest_k), q.device)
    softcap, scale, dropout_p = _check.numbers(softcap, scale, dropout_p)
    # in the order of the class: by name takes twice as long
    return Call(
        q,
        k,
        v,
        layout,
        cu_seqlens_q,
        cu_seqlens_k,
        longest_q,
        longest_k,
        block_table,
        seq_lens,
        causal,
        window,
        softcap,
        alibi_slopes,
        sinks,
        mask,
        scale,
        return_lse,
        None if q_scale is None else _check.scale("q_scale", q_scale, heads, q.device),
        None if k_scale is None else _check.scale("k_scale", k_scale, kv_heads, q.device),
        None if v_scale is None else _check.scale("v_scale", v_scale, kv_heads, q.device),
        dropout_p,
        deterministic,
    )


def request_fields(call: Call) -> dict[str, object]:
    """The selector's axes that this call needs, by their names in the vocabulary.

    An fp8 cache is always named, also where the query is fp8 too: ``auto`` means a cache that is not quantised. Lengths
    appear as classes, so that a growing cache does not change the request.
    """
    q, k, mask, window = call.q, call.k, call.mask, call.window
    fields: dict[str, object] = {
        "device": q.device.type,
        "head_size": q.shape[-1],
        "head_size_v": call.v.shape[-1],
        "num_heads": q.shape[-2],
        "num_kv_heads": k.shape[-2],
        "dtype": DTYPE_NAMES[q.dtype],
        "kv_cache_dtype": DTYPE_NAMES[k.dtype] if k.dtype in FP8_DTYPES else "auto",
        "layout": call.layout,
        "causal": call.causal,
        "query_length": _query_length(call.max_seqlen_q, call.max_seqlen_k),
        "kv_length": "many" if call.max_seqlen_k > 1 else "one" if call.max_seqlen_k == 1 else "empty",
        "sliding_window": window is not None,
        "window_right": window is not None and window[1] is not None,
        "softcap": call.softcap is not None,
        "alibi": call.alibi_slopes is not None,
        "sinks": call.sinks is not None,
        "custom_mask": mask is not None,
        "mask_bias": mask is not None and mask.dtype != torch.bool,
        "mask_grad": mask is not None and mask.requires_grad and torch.is_grad_enabled(),
        "lse": call.return_lse,
        "dropout": call.dropout_p > 0.0,
        "training": call.training,
        "deterministic": call.deterministic,
        "per_head_scales": call.per_head_scales,
    }
    if call.block_table is not None:
        fields["block_size"] = k.shape[1]
    return fields


def _query_length(queries: int, keys: int) -> str:
    if queries == 0:
        return "empty"
    if queries == 1:
        return "one"
    return "same" if queries == keys else "shorter" if queries < keys else "longer"
