"""The tensors and fields of one draw: seeded, small, and awkward where the draw says so."""

from __future__ import annotations

import random
import zlib
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backends.call import DTYPE_NAMES, FP8_DTYPES
from backends.verify.draws import Draw, key_of, lengths

__all__ = ["Made", "make"]

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}

#: Small enough to bend scores whose standard deviation is about 1.
SOFTCAP = 1.5
SCALE = 0.3
DROPOUT = 0.5


class Made(NamedTuple):
    """Arguments of `make_call`, and the leaves that a gradient is asked for."""

    tensors: tuple[Tensor, Tensor, Tensor]
    fields: dict[str, Any]
    leaves: dict[str, Tensor]


class _Maker:
    def __init__(self, draw: Draw, device: str) -> None:
        self.draw, self.device = draw, device
        seed = zlib.crc32(key_of(draw).encode())
        self.generator = torch.Generator().manual_seed(seed)
        self.random = random.Random(seed)
        self.kv_heads = int(draw["num_kv_heads"] or 0)
        self.heads = self.kv_heads * int(draw["group"] or 0)
        self.size = int(draw["head_size"] or 0)
        self.size_v = int(draw["head_size_v"] or self.size)
        self.batch = int(draw["batch"] or 0)
        self.queries, self.keys = lengths(draw)
        self.dtype = _DTYPES[str(draw["dtype"])]
        kept = str(draw["kv_cache_dtype"])
        self.kv_dtype = self.dtype if kept == "auto" else _DTYPES[kept]

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def of_lengths(self, longest: int) -> list[int]:
        """The sequences' lengths; the first is the longest one."""
        if self.draw["ragged"] == "even":
            return [longest] * self.batch
        least = 0 if self.draw["ragged"] == "gaps" else min(longest, 1)
        others = [self.random.randint(least, longest) for _ in range(self.batch - 1)]
        if self.draw["ragged"] == "gaps":
            others[0] = 0
        return [longest, *others]

    # -- tensors ------------------------------------------------------------------------------------------------------

    def laid(self, x: Tensor, rows: int) -> Tensor:
        """``x [..., rows, heads, size]`` with the same values and the draw's strides; ``rows`` is that dimension's index."""
        memory = self.draw["memory"]
        if memory == "transposed":
            return x.transpose(rows, rows + 1).contiguous().transpose(rows, rows + 1)
        if memory == "strided":
            wide = torch.empty(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
            wide[..., ::2] = x
            wide[..., 1::2] = 0
            return wide[..., ::2]
        return x

    def expanded(self, x: Tensor) -> Tensor:
        """One head, or one sequence of a dense batch, for all."""
        if self.draw["memory"] != "expanded":
            return x
        if self.kv_heads > 1:
            return x[..., :1, :].expand(x.shape)
        return x[:1].expand(x.shape)

    def stored(self, x: Tensor, dtype: torch.dtype, heads: int, per_head: bool) -> tuple[Tensor, Any]:
        """``x [..., heads, size]`` in ``dtype`` and the factor that gives it back, in the form of the draw."""
        form = self.draw["scales"]
        if per_head and heads > 1:
            factors = torch.linspace(0.25, 2.0, heads)
        elif form == "none":
            return x.to(dtype), None
        else:
            factors = torch.tensor(0.5)
        if dtype in FP8_DTYPES:
            x = x / (factors[:, None] if factors.dim() else factors)
        value: Any = factors.to(self.device) if factors.dim() or form == "tensor" else 0.5
        return x.to(dtype), value

    def make(self) -> Made:
        draw = self.draw
        per_head = bool(draw["per_head_scales"])
        lengths_q, lengths_k = self.of_lengths(self.queries), self.of_lengths(self.keys)
        if draw["query_length"] == "same":
            lengths_q = lengths_k
        fields: dict[str, Any] = {}
        packed = draw["layout"] == "varlen" or bool(draw["packed"])
        q = (
            self.normal(sum(lengths_q), self.heads, self.size)
            if packed
            else self.normal(self.batch, self.queries, self.heads, self.size)
        )
        if packed:
            fields |= {"cu_seqlens_q": _starts(lengths_q), "max_seqlen_q": self.queries}
        if draw["layout"] == "varlen":
            rows: tuple[int, ...] = (sum(lengths_k),)
            fields |= {"cu_seqlens_k": _starts(lengths_k), "max_seqlen_k": self.keys}
        elif draw["layout"] == "paged":
            places, rows, used = self.places(lengths_k)
            fields |= places
        else:
            rows = (self.batch, self.keys)
        k = self.expanded(self.normal(*rows, self.kv_heads, self.size))
        v = self.expanded(self.normal(*rows, self.kv_heads, self.size_v))
        q, q_scale = self.stored(q, self.dtype, self.heads, bool(draw["query_scales"]))
        k, k_scale = self.stored(k, self.kv_dtype, self.kv_heads, per_head)
        v, v_scale = self.stored(v, self.kv_dtype, self.kv_heads, per_head)
        if draw["layout"] == "paged":
            k, v = (_unused(x, used) for x in (k, v))
        if draw["memory"] == "expanded":
            k, v = self.expanded(k), self.expanded(v)
        q, k, v = (self.laid(x, 0 if x.dim() == 3 else 1).to(self.device) for x in (q, k, v))
        fields |= self.features()
        scales = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
        fields |= {name: value for name, value in scales.items() if value is not None}
        fields = {n: x.to(self.device) if isinstance(x, Tensor) else x for n, x in fields.items()}
        leaves: dict[str, Tensor] = {}
        if draw["training"]:
            leaves = {n: x for n, x in (("q", q), ("k", k), ("v", v)) if x.dtype not in FP8_DTYPES}
            if draw["mask_grad"]:
                leaves["mask"] = fields["mask"]
            for leaf in leaves.values():
                leaf.requires_grad_()
        return Made((q, k, v), fields, leaves)

    def places(self, lengths_k: list[int]) -> tuple[dict[str, Any], tuple[int, ...], Tensor]:
        """The block table, the cache's leading sizes, and which of its slots hold a token.

        Blocks lie in no order, with one that nobody uses between them; entries beyond a sequence's end point to it.
        """
        block = int(self.draw["block_size"] or 1)
        counts = [-(-length // block) for length in lengths_k]
        blocks = sum(counts) + 1
        order = torch.randperm(blocks, generator=self.generator).tolist()
        spare = order.pop()
        table = torch.full((self.batch, max(-(-self.keys // block), 1)), spare, dtype=torch.int32)
        used = torch.zeros(blocks, block, dtype=torch.bool)
        for index, (length, count) in enumerate(zip(lengths_k, counts, strict=True)):
            for place in range(count):
                table[index, place] = order.pop()
                used[table[index, place], : length - place * block] = True
        seq_lens = torch.tensor(lengths_k, dtype=torch.int32)
        places = {"block_table": table, "seq_lens": seq_lens, "max_seqlen_k": self.keys}
        return places, (blocks, block), used

    # -- features -----------------------------------------------------------------------------------------------------

    def features(self) -> dict[str, Any]:
        """What the flags of the draw stand for."""
        draw = self.draw
        found: dict[str, Any] = {
            "causal": bool(draw["causal"]),
            "return_lse": bool(draw["lse"]),
            "deterministic": bool(draw["deterministic"]),
        }
        if draw["sliding_window"]:
            found["window"] = self.window()
        if draw["softcap"]:
            found["softcap"] = SOFTCAP
        if draw["alibi"]:
            slopes = torch.logspace(-1, -4, self.heads, base=2.0)
            found["alibi_slopes"] = (
                torch.stack([slopes / (n + 1) for n in range(self.batch)])
                if draw["slopes"] == "batch"
                else slopes
            )
        if draw["sinks"]:
            found["sinks"] = self.normal(self.heads)
        if draw["custom_mask"]:
            found["mask"] = self.mask()
        if draw["dropout"]:
            found["dropout_p"] = DROPOUT
        if draw["scale"] == "given":
            found["scale"] = SCALE
        return found

    def window(self) -> tuple[int | None, int | None]:
        width = {"some": max(self.keys // 4, 1), "none": 0, "all": self.keys + 5}[str(self.draw["window"])]
        if not self.draw["window_right"]:
            return (width, None)
        # a bound of 0 on the right would be causal
        return (width if self.draw["window_left"] else None, max(width - 1, 1))

    def mask(self) -> Tensor:
        """One row of the boolean mask keeps nothing; the bias has entries of ``-inf``."""
        sizes = {
            "plane": (self.queries, self.keys),
            "keys": (self.batch, 1, 1, self.keys),
            "heads": (1, self.heads, self.queries, self.keys),
            "full": (self.batch, self.heads, self.queries, self.keys),
        }[str(self.draw["mask_shape"])]
        values = self.normal(*sizes)
        keep = values > -0.7
        if self.draw["mask_bias"]:
            dtype = torch.bfloat16 if self.dtype in FP8_DTYPES else self.dtype
            return values.masked_fill(~keep, -torch.inf).to(dtype)
        if keep.shape[-2] > 2:
            keep[..., 1, :] = False
        return keep


def _starts(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *torch.tensor(sizes).cumsum(0).tolist()], dtype=torch.int32)


def _unused(x: Tensor, used: Tensor) -> Tensor:
    """NaN in the slots of a cache that hold no token: nothing may depend on them."""
    marked = x.contiguous().view(torch.uint8) if x.dtype in FP8_DTYPES else x.contiguous()
    # 0x7f is NaN in both fp8 formats
    marked = torch.where(used[..., None, None], marked, 0x7F if x.dtype in FP8_DTYPES else torch.nan)
    return marked.view(x.dtype) if x.dtype in FP8_DTYPES else marked.to(x.dtype)


def make(draw: Draw, device: str) -> Made:
    """The call of a draw in its normal form, on ``device``; the same draw always gives the same values."""
    return _Maker(draw, device).make()
