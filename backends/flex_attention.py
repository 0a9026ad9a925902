"""FlexAttention: the call's masks and changes of the scores become part of the kernel.

Variants:

* ``compiled`` (also the meaning of no variant): the fused kernel that ``torch.compile`` makes. On a CPU it is C++, for
  inference only, in float16, bfloat16 or float32, without a log-sum-exp and so without sinks.
* ``eager``: torch's unfused form of the same functions. It holds the whole score matrix in memory; it exists for
  what the compiled CPU kernel lacks, and to check the functions without a compiler.

The first call of a kind compiles: about 5 s on one CPU core (20 s for the first in a process), logged at INFO by the
logger ``backends.flex_attention``, and kept for the process (torch also caches the result on disk). On a CPU every new
shape is a new kernel: with symbolic sizes torch 2.13 generates C++ that does not compile (it replaces a symbol's name by
text, and so ``ks1`` inside ``ks13`` too). A decode loop over a growing dense cache therefore belongs on another
backend there. On a GPU torch turns a size that changes into a symbol, and a kernel is kept for each set of features,
heads and dtype.

A packed batch is one long sequence with a mask between its documents. A paged cache is gathered into a dense copy
(see :func:`backends._flex_rows.gathered`). Sinks rescale the output by the log-sum-exp.
"""

from __future__ import annotations

import logging
import time
import types
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import torch

from backends._failure import is_broken
from backends._flex_mods import any_key, capped, chained, in_band, limited, masked, sloped
from backends._flex_rows import (
    BLOCK,
    Blocks,
    Rows,
    blocks,
    cache_rows,
    dense_rows,
    gathered,
    packed_rows,
    realized,
)
from backends._guard import FIELDS, NotSupported, refusal
from backends._launch import has_nothing_to_do, nothing, result, scaled_output
from backends._lengths import check
from backends._scales import scaled_query
from backends.call import make_call, request_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from backends._launch import Result
    from backends.call import Call

    Kernel = Callable[..., tuple[Tensor, Tensor | None]]

__all__ = ["HONOURED", "is_broken", "make_call", "refuses", "request_fields", "run"]

_NEVER = frozenset({"fp8_query", "fp8_kv", "per_head_scales", "dropout_p", "deterministic"})
HONOURED: Mapping[str | None, frozenset[str]] = {
    None: frozenset(FIELDS) - _NEVER,
    "compiled": frozenset(FIELDS) - _NEVER,
    "eager": frozenset(FIELDS) - _NEVER - {"training"},
}
"""Per variant, the names in :data:`backends._guard.FIELDS` that it honours; :func:`refuses` adds what a device lacks."""

_INFERENCE_ONLY = {"cpu": "CPU", "mps": "MPS"}
"""Devices whose compiled kernels give the output and nothing else."""
_KEPT = 128
_LOG = logging.getLogger(__name__)
_COMPILED: OrderedDict[tuple[object, ...], Kernel] = OrderedDict()


class Shape(NamedTuple):
    """What is fixed in a kernel, beside the tensors' shapes and dtypes."""

    scale: float
    softcap: float | None
    band: bool
    """Rows have limits, and a block mask is given."""
    row_batch: bool
    """The rows differ between the sequences of the batch."""
    grouped: bool
    lse: bool


def refuses(call: Call, variant: str | None) -> str | None:
    """Why the variant cannot run the call, or None."""
    reason = refusal(call, HONOURED[variant])
    if reason is not None:
        return reason
    if call.mask is not None and call.layout != "dense":
        return f"{call.layout} layout with a mask: a mask is for the dense layout"
    if call.mask is not None and call.mask.requires_grad and torch.is_grad_enabled():
        return "mask that requires a gradient: FlexAttention sums none for it where the mask is broadcast"
    if call.layout == "paged" and call.training:
        return "gradients through a paged cache: its gathered copy is for inference"
    if call.q.dtype == torch.float64 and variant != "eager":
        return "dtype torch.float64: the compiled kernels take float16, bfloat16 and float32"
    device = _INFERENCE_ONLY.get(call.q.device.type)
    if device is not None and variant != "eager":
        if call.return_lse:
            return f"return_lse: the compiled {device} kernel gives no log-sum-exp"
        if call.sinks is not None:
            return f"sinks: the compiled {device} kernel gives no log-sum-exp to apply them with"
        if call.training:
            return f"training: the compiled {device} kernel is for inference"
    return None


def run(call: Call, *, variant: str | None = None) -> Result:
    """Run the call; ``[*q.shape[:-1], head_size_v]``, with the log-sum-exp where the call asks for it.

    Raises:
        NotSupported: the variant cannot honour a field.
        CallError: on a CPU, values of ``cu_seqlens``, ``seq_lens`` or ``block_table`` that do not fit the tensors.
    """
    reason = refuses(call, variant)
    if reason is not None:
        raise NotSupported(f"flex_attention/{variant or 'compiled'}", reason)
    if has_nothing_to_do(call):
        return nothing(call)
    if call.layout != "dense" and call.q.is_cpu and not torch.compiler.is_compiling():
        check(call)
    q, scale = scaled_query(call)
    k, v, rows = call.k, call.v, None
    if call.layout == "paged":
        k, v = gathered(call)
    if call.packed_q:
        q = realized(q[None])
        k, v = (realized(x[None] if x.dim() == 3 else x.flatten(0, 1)[None]) for x in (k, v))
        rows = packed_rows(call)
    elif call.layout == "paged":
        rows = cache_rows(call)
    elif _has_band(call) or call.alibi_slopes is not None:
        rows = dense_rows(call)
    shape = _shape(call, scale, rows)
    parts = blocks(rows, k.shape[1]) if shape.band and rows is not None else None
    if rows is not None:
        rows = Rows(*(None if x is None else realized(x) for x in rows))  # type: ignore[arg-type]
    arguments = (
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        rows,
        parts,
        _slopes(call),
        None
        if call.mask is None
        else realized(call.mask).expand(call.batch, call.num_heads, *_lengths(call)),
    )
    out, lse = _launch(shape, arguments, variant)
    if call.sinks is not None:
        assert lse is not None, "asked for in _shape"
        out, lse = _with_sinks(out, lse, call.sinks)
    out = scaled_output(out.transpose(1, 2), call.v_scale)
    lse = None if lse is None else lse.to(torch.float32)
    if call.packed_q:
        return result(call, out[0], None if lse is None else lse[0])
    return result(call, out, lse)


def _slopes(call: Call) -> Tensor | None:
    """In the precision of the scores."""
    slopes = call.alibi_slopes
    return None if slopes is None else realized(slopes.to(torch.promote_types(call.q.dtype, torch.float32)))


def _lengths(call: Call) -> tuple[int, int]:
    return call.max_seqlen_q, call.max_seqlen_k


def _shape(call: Call, scale: float, rows: Rows | None) -> Shape:
    return Shape(
        scale=scale,
        softcap=call.softcap,
        band=rows is not None and _has_band(call),
        row_batch=rows is not None and rows.first.dim() == 2,
        grouped=call.num_heads != call.num_kv_heads,
        lse=call.return_lse or call.sinks is not None,
    )


def _has_band(call: Call) -> bool:
    """Whether any query row sees less than every key, leaving an explicit mask aside."""
    return call.layout != "dense" or call.window is not None or (call.causal and call.max_seqlen_q > 1)


def _with_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor]:
    """``out [batch, heads, rows, size]`` with the sink in its denominator: a logistic function of ``lse - sink``."""
    logit = sinks.to(lse.dtype)[:, None].expand_as(lse)
    total = torch.logaddexp(lse, logit)
    share = torch.exp(lse - torch.where(total == -torch.inf, 0.0, total))
    return (out * share[..., None]).to(out.dtype), total


def _launch(shape: Shape, arguments: tuple[object, ...], variant: str | None) -> tuple[Tensor, Tensor | None]:
    kernel = _kernel(shape)
    if torch.compiler.is_compiling():
        return kernel(*arguments)
    if variant == "eager":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            return kernel(*arguments)
    key = (shape, *_static(arguments))
    compiled = _COMPILED.get(key)
    if compiled is not None:
        _COMPILED.move_to_end(key)
        return compiled(*arguments)
    compiled = torch.compile(_own_code(kernel), fullgraph=True, dynamic=_dynamic(arguments))
    began = time.perf_counter()
    returned = compiled(*arguments)
    _LOG.info("compiled a FlexAttention kernel in %.1f s: %s", time.perf_counter() - began, shape)
    _COMPILED[key] = compiled
    if len(_COMPILED) > _KEPT:
        _COMPILED.popitem(last=False)
    return returned


def _dynamic(arguments: tuple[object, ...]) -> bool | None:
    q = arguments[0]
    assert isinstance(q, torch.Tensor)
    return False if q.device.type == "cpu" else None


def _static(arguments: tuple[object, ...]) -> list[object]:
    """What one compiled kernel is for: on a CPU exact shapes, else what torch fixes in a kernel."""
    key: list[object] = [torch.is_grad_enabled()]
    for tensor in arguments[:3]:
        assert isinstance(tensor, torch.Tensor)
        if tensor.device.type == "cpu":
            key += [tensor.shape, tensor.stride(), tensor.dtype]
        else:
            batch, heads, length, size = tensor.shape
            key += [tensor.device, tensor.dtype, heads, size, batch == 1, length == 1, tensor.requires_grad]
    mask = arguments[6]
    key.append((mask.dtype, mask.stride()) if isinstance(mask, torch.Tensor) else None)
    return key


def _own_code(function: Kernel) -> Kernel:
    """The function with a code object of its own, because torch counts recompilations (8 at most) a code object."""
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=function.__name__)
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def _kernel(shape: Shape) -> Kernel:
    """The function that is compiled (or not) for one :class:`Shape`."""

    def kernel(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rows: Rows | None,
        parts: Blocks | None,
        slopes: Tensor | None,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

        band = in_band(rows, shape.row_batch) if rows is not None and shape.band else None
        steps = []
        if shape.softcap is not None:
            steps.append(capped(shape.softcap))
        if slopes is not None and rows is not None:
            steps.append(sloped(rows, slopes, shape.row_batch))
        if mask is not None:
            steps.append(masked(mask))
        if steps and band is not None:
            steps.append(limited(band))
        block_mask = None
        if parts is not None and band is not None:
            block_mask = BlockMask.from_kv_blocks(
                *parts,
                BLOCK_SIZE=BLOCK,
                mask_mod=any_key if steps else band,
                seq_lengths=(q.shape[2], k.shape[2]),
            )
        returned = flex_attention(
            q,
            k,
            v,
            score_mod=chained(steps) if steps else None,
            block_mask=block_mask,
            scale=shape.scale,
            enable_gqa=shape.grouped,
            return_aux=AuxRequest(lse=True) if shape.lse else None,
        )
        if isinstance(returned, tuple):
            out, aux = returned
            assert not isinstance(aux, torch.Tensor)
            return out, aux.lse
        return returned, None

    return kernel
