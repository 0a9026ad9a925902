"""Random tensors for a request, run by a selection and compared with the float64 reference (`attn-select run`)."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from backends.bounds import bounds_of
from backends.call import DTYPE_NAMES, FP8_DTYPES, Call, make_call, request_fields
from backends.quantize import quantize_kv
from backends.reference import attend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

__all__ = ["Measured", "Shapes", "Trial", "make_trial", "measure"]

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}

#: What stands for a flag of the request: a soft cap, and the share of the keys that a window shows.
SOFTCAP, WINDOW = 30.0, 4

#: Sizes where the request leaves them open: elements, heads, tokens in a block.
HEAD_SIZE, HEADS, BLOCK = 64, 8, 16


class Shapes(NamedTuple):
    """Sizes that no axis names: sequences, key tokens and query tokens of each, and the seed of the values."""

    batch: int
    keys: int
    queries: int
    seed: int


class Trial(NamedTuple):
    """Arguments of one call, the fields that the selector reads off it, and the unquantised tensors behind it."""

    tensors: tuple[Tensor, Tensor, Tensor]
    fields: dict[str, Any]
    request: dict[str, object]
    exact: Call
    shapes: Shapes


class Measured(NamedTuple):
    """Largest and mean absolute error against float64 on the same stored values, the bound, and seconds of one run.

    ``unquantized`` is the largest error against float64 on the values before they were quantised, None where they were not.
    """

    largest: float
    mean: float
    bound: float
    unquantized: float | None
    seconds: float
    runs: int


def make_trial(request: Mapping[str, Any], device: str, shapes: Shapes) -> Trial:
    """Tensors on ``device`` for a request's fields (canonical names and values; those not given are chosen here).

    Raises:
        ValueError: a format that torch cannot store, or one that no random tensor stands for.
    """
    generator = torch.Generator().manual_seed(shapes.seed)
    heads = _number(request, "num_heads", HEADS)
    kv_heads = _number(request, "num_kv_heads", heads)
    size = _number(request, "head_size", HEAD_SIZE)
    size_v = _number(request, "head_size_v", size)
    dtype = _dtype("dtype", request.get("dtype") or "float32")
    layout = request.get("layout") or ("paged" if request.get("block_size") else "dense")

    def random(tokens: int, count: int, width: int) -> Tensor:
        return torch.randn(shapes.batch, tokens, count, width, generator=generator)

    q = random(shapes.queries, heads, size)
    k, v = random(shapes.keys, kv_heads, size), random(shapes.keys, kv_heads, size_v)
    query, query_scale = _stored(q, dtype, request, heads)
    exact = [q.to(torch.bfloat16 if dtype in FP8_DTYPES else dtype), k, v]
    kept = request.get("kv_cache_dtype")
    kv_dtype = dtype if kept in (None, "auto") else _dtype("kv_cache_dtype", kept)
    key, key_scale = _stored(k, kv_dtype, request, kv_heads)
    value, value_scale = _stored(v, kv_dtype, request, kv_heads)
    exact[1:] = [x.to(exact[0].dtype) for x in (k, v)]
    fields = _features(request, shapes, heads, generator)
    scales = {"q_scale": query_scale, "k_scale": key_scale, "v_scale": value_scale}
    scales = {name: scale.to(device) for name, scale in scales.items() if scale is not None}
    tensors, places = _laid_out((query, key, value), str(layout), request, shapes)
    fields = {name: _to(x, device) for name, x in fields.items()}
    places = {name: _to(x, device) for name, x in places.items()}
    on = [x.to(device) for x in tensors]
    if request.get("training"):
        on = [x.requires_grad_() for x in on]
    given = {**fields, **places, **scales}
    call = make_call(on[0], on[1], on[2], **given)
    dense = [x.to(device) for x in exact]
    return Trial(
        (on[0], on[1], on[2]),
        given,
        {name: value for name, value in request_fields(call).items() if name != "device"},
        make_call(dense[0], dense[1], dense[2], **fields),
        shapes,
    )


def measure(trial: Trial, run: Any, repeat: int) -> Measured:
    """Run ``run(q, k, v, **fields)`` once to warm up and ``repeat`` times on the clock; the median counts."""
    call = make_call(*trial.tensors, **trial.fields)
    out = _output(run(*trial.tensors, **trial.fields))
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        _output(run(*trial.tensors, **trial.fields))
        times.append(time.perf_counter() - begin)
    reference = attend(call)[0].detach()
    error = (out.double() - reference.double()).abs()
    quantized = call.q.dtype in FP8_DTYPES or call.k.dtype in FP8_DTYPES
    before = None
    if quantized:
        exact, _ = attend(trial.exact)
        before = float((out.double().reshape(exact.shape) - exact.double()).abs().max())
    return Measured(
        float(error.max()),
        float(error.mean()),
        bounds_of(call).out,
        before,
        statistics.median(times),
        repeat,
    )


def _output(result: Any) -> Tensor:
    """The output of a run, finished: a device works on after the call returns."""
    out: Tensor = result[0] if isinstance(result, tuple) else result
    if out.device.type != "cpu":
        torch.accelerator.synchronize(out.device)
    return out.detach()


def _number(request: Mapping[str, Any], axis: str, default: int) -> int:
    value = request.get(axis)
    return default if value is None else int(value)


def _dtype(axis: str, name: str) -> torch.dtype:
    found = _DTYPES.get("fp8_e4m3" if name == "fp8" else name)
    if found is None:
        raise ValueError(f"{axis} {name}: torch has no such format: {', '.join(_DTYPES)}")
    return found


def _stored(
    x: Tensor, dtype: torch.dtype, request: Mapping[str, Any], heads: int
) -> tuple[Tensor, Tensor | None]:
    """``x [batch, tokens, heads, size]`` in ``dtype``; fp8 with a scale, for each head where the request says so."""
    if dtype not in FP8_DTYPES:
        return x.to(dtype), None
    per_head = bool(request.get("per_head_scales")) and heads > 1
    return quantize_kv(x, "head" if per_head else "tensor", dtype)


def _features(
    request: Mapping[str, Any], shapes: Shapes, heads: int, generator: torch.Generator
) -> dict[str, Any]:
    """The fields of the call that flags of the request stand for."""
    fields: dict[str, Any] = {"causal": bool(request.get("causal"))}
    if request.get("sliding_window") or request.get("window_right"):
        width = max(shapes.keys // WINDOW, 1)
        fields["window"] = (width, width if request.get("window_right") else None)
    if request.get("softcap"):
        fields["softcap"] = SOFTCAP
    if request.get("alibi"):
        fields["alibi_slopes"] = torch.logspace(-1, -heads, heads, base=2.0)
    if request.get("sinks"):
        fields["sinks"] = torch.randn(heads, generator=generator)
    if request.get("custom_mask") or request.get("mask_bias"):
        plane = torch.randn(1, 1, shapes.queries, shapes.keys, generator=generator)
        fields["mask"] = plane if request.get("mask_bias") else plane > -0.5
    if request.get("lse"):
        fields["return_lse"] = True
    if request.get("deterministic"):
        fields["deterministic"] = True
    return fields


def _laid_out(
    tensors: tuple[Tensor, Tensor, Tensor], layout: str, request: Mapping[str, Any], shapes: Shapes
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Dense tensors in the layout that the request names, and the fields that say where each sequence lies."""
    q, k, v = tensors
    batch = shapes.batch
    if layout == "varlen":
        starts = {
            "cu_seqlens_q": torch.arange(batch + 1, dtype=torch.int32) * shapes.queries,
            "cu_seqlens_k": torch.arange(batch + 1, dtype=torch.int32) * shapes.keys,
            "max_seqlen_q": shapes.queries,
            "max_seqlen_k": shapes.keys,
        }
        return tuple(x.flatten(0, 1) for x in tensors), starts
    if layout != "paged":
        return tensors, {}
    block = _number(request, "block_size", BLOCK)
    blocks = -(-shapes.keys // block)
    # Blocks of a sequence lie in a random order and between those of others, as in a cache that has been in use.
    order = torch.randperm(batch * blocks, generator=torch.Generator().manual_seed(shapes.seed))
    table = order.to(torch.int32).reshape(batch, blocks)

    def paged(x: Tensor) -> Tensor:
        spare = blocks * block - shapes.keys
        padded = torch.cat([x, x.new_zeros(batch, spare, *x.shape[2:])], dim=1) if spare else x
        cache = padded.new_zeros(batch * blocks, block, *x.shape[2:])
        cache[order] = padded.reshape(batch * blocks, block, *x.shape[2:])
        return cache

    lengths = torch.full((batch,), shapes.keys, dtype=torch.int32)
    places = {"block_table": table, "seq_lens": lengths, "max_seqlen_k": shapes.keys}
    return (q, paged(k), paged(v)), places


def _to(value: Any, device: str) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value
