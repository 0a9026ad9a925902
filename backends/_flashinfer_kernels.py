"""FlashInfer's functions and wrapper objects, one function of this module each: single, ragged, paged,
decode.

Each takes a :class:`Job` and returns ``[tokens, num_heads, head_size_v]`` and the log-sum-exp as FlashInfer
gives it: ``[tokens, num_heads]``, base 2, or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from backends import _flashinfer_batch as batches
from backends._flashinfer_plan import Shared, planned, stream_of, workspace
from backends._guard import NotSupported
from backends._launch import scaled_output
from backends._scales import is_not_positive, positive

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from backends.call import Call, Scale

    Pair = tuple[Tensor, Tensor | None]

_CUDA_CORE_HEAD_SIZES = (64, 128, 256)
_HOST = torch.device("cpu")
_SINK_SHAPES: dict[tuple[object, ...], tuple[object, ...]] = {}


class Job(NamedTuple):
    """One call, ready for any of FlashInfer's functions."""

    call: Call
    package: ModuleType
    variant: str
    backend: str
    """``fa2`` or ``fa3``, FlashInfer's name of the kernels."""
    q: Tensor
    """``[tokens, num_heads, head_size]``; scales that are tensors are in it already (but an fp8 query's)."""
    softmax_scale: float
    """The call's, above 0."""
    q_scale: float | None
    k_scale: float | None
    """What is left of the two scales: numbers."""
    v_scale: Scale
    """The values' scale, one for the tensor; None where the kernel gets it in ``head_scales``."""
    head_scales: tuple[Tensor, ...]
    """``scale_q``, ``scale_k`` and ``scale_v`` of an fp8 query, one factor a head; else empty."""

    @property
    def window_left(self) -> int:
        """FlashInfer's window; a custom mask has the window in it."""
        window = self.call.window
        return -1 if window is None or window[0] is None or self.call.mask is not None else window[0]

    @property
    def folded_scale(self) -> float:
        """The softmax scale with the query's and the keys' scales in it."""
        return self.softmax_scale * (self.q_scale or 1.0) * (self.k_scale or 1.0)

    @property
    def causal(self) -> bool:
        """FlashInfer's causal mode; a custom mask has the limit in it."""
        return self.call.causal and self.call.mask is None


def job_of(call: Call, package: ModuleType, variant: str) -> Job:
    """Make the query and the scales ready; nothing waits for the device."""
    backend = "fa2" if variant == "fa2" else "fa3"
    q = batches.tokens(call.q)
    if q.dtype == torch.float8_e4m3fn:
        heads = _head_scales(call)
        q, softmax_scale = positive(q, call.softmax_scale)
        return Job(call, package, variant, backend, q, softmax_scale, None, None, None, heads)
    numbers: list[float | None] = []
    for scale in (call.q_scale, call.k_scale):
        if isinstance(scale, torch.Tensor):
            q = q * scale.to(q.dtype).reshape(())  # to read the number would be to wait for it
            numbers.append(None)
        else:
            numbers.append(scale)
    softmax_scale = call.softmax_scale
    if is_not_positive(softmax_scale) or any(is_not_positive(number) for number in numbers):
        for number in numbers:
            softmax_scale *= 1.0 if number is None else number
        q, softmax_scale = positive(q, softmax_scale)
        numbers = [None, None]
    return Job(call, package, variant, backend, q, softmax_scale, numbers[0], numbers[1], call.v_scale, ())


def _head_scales(call: Call) -> tuple[Tensor, ...]:
    """The three scales as contiguous fp32 vectors over their heads."""

    def vector(scale: Scale, heads: int) -> Tensor:
        if isinstance(scale, torch.Tensor):
            return scale.reshape(-1).expand(heads).contiguous()
        value = 1.0 if scale is None else scale
        return torch.full((heads,), value, dtype=torch.float32, device=call.q.device)

    kv_heads = call.num_kv_heads
    return (
        vector(call.q_scale, call.num_heads),
        vector(call.k_scale, kv_heads),
        vector(call.v_scale, kv_heads),
    )


def _pair(call: Call, returned: Any) -> Pair:
    return (returned[0], returned[1]) if call.return_lse else (returned, None)


def single(job: Job) -> Pair:
    """One dense sequence: functions without a plan."""
    call = job.call
    k, v = call.k[0], call.v[0]
    common: dict[str, object] = {
        "window_left": job.window_left,
        "logits_soft_cap": call.softcap,
        "sm_scale": job.folded_scale,
        "return_lse": call.return_lse,
    }
    one_query = call.max_seqlen_q == 1 and call.mask is None and call.head_size == call.head_size_v
    if job.backend == "fa2" and one_query:
        cores = _tensor_cores(call)
        returned = job.package.single_decode_with_kv_cache(job.q[0], k, v, use_tensor_cores=cores, **common)
        out, lse = _pair(call, returned)
        return scaled_output(out[None], job.v_scale), None if lse is None else lse[None]
    mask = batches.keep_mask(call)
    returned = job.package.single_prefill_with_kv_cache(
        job.q,
        k,
        v,
        o_dtype=call.out_dtype,
        custom_mask=None if mask is None else mask[0],
        causal=job.causal,
        backend=job.backend,
        **dict(zip(("scale_q", "scale_k", "scale_v"), job.head_scales, strict=False)),
        **common,
    )
    out, lse = _pair(call, returned)
    return scaled_output(out, job.v_scale), lse


def _tensor_cores(call: Call) -> bool:
    """Whether to decode on tensor cores: the other kernel has few head sizes and no gain from groups."""
    return call.num_heads != call.num_kv_heads or call.head_size not in _CUDA_CORE_HEAD_SIZES


def ragged(job: Job) -> Pair:
    """A dense batch or packed sequences."""
    call = job.call
    shared = _shared(job, "ragged")
    mask = batches.keep_mask(call)

    def build() -> object:
        space = workspace(shared.device, shared.stream)
        return job.package.BatchPrefillWithRaggedKVCacheWrapper(space, "NHD", backend=job.backend)

    def plan(wrapper: Any) -> None:
        where = call.q.device if mask is not None else _HOST  # FlashInfer packs the mask where it lies
        wrapper.plan(
            batches.query_starts(call, where),
            batches.key_starts(call, where),
            call.num_heads,
            call.num_kv_heads,
            call.head_size,
            head_dim_vo=call.head_size_v,
            custom_mask=None if mask is None else mask.reshape(-1),
            causal=job.causal,
            sm_scale=job.folded_scale,
            **_plan_common(job),
        )

    k, v = (call.k, call.v) if call.layout == "varlen" else (call.k.flatten(0, 1), call.v.flatten(0, 1))
    tensors = (call.cu_seqlens_q, call.cu_seqlens_k, call.mask)
    with planned(shared, _numbers(job), tensors, build, plan) as wrapper:
        returned = wrapper.run(job.q, k, v, *job.head_scales, return_lse=call.return_lse)
    out, lse = _pair(call, returned)
    return scaled_output(out, job.v_scale), lse


def is_decode(job: Job) -> bool:
    """Whether each sequence of a paged call has exactly one query and the decode wrapper can take it."""
    call = job.call
    one_query = call.max_seqlen_q == 1 and job.q.shape[0] == call.batch
    return job.backend == "fa2" and one_query and call.sinks is None and call.head_size == call.head_size_v


def decode(job: Job) -> Pair:
    """A paged cache and one query a sequence."""
    call = job.call
    layout, k, v = batches.cache_layout(call)
    cores = _tensor_cores(call)
    shared = _shared(job, "decode", layout, (cores,))

    def build() -> object:
        space = workspace(shared.device, shared.stream)
        return job.package.BatchDecodeWithPagedKVCacheWrapper(
            space, layout, use_tensor_cores=cores, backend=job.backend
        )

    def plan(wrapper: Any) -> None:
        pages = batches.pages(call)
        wrapper.plan(
            pages.indptr,
            pages.indices,
            pages.last_page_len,
            call.num_heads,
            call.num_kv_heads,
            call.head_size,
            pages.page_size,
            sm_scale=job.softmax_scale,
            **_plan_common(job),
        )

    with planned(shared, _numbers(job), (call.block_table, call.seq_lens), build, plan) as wrapper:
        returned = wrapper.run(job.q, (k, v), return_lse=call.return_lse, **_run_scales(job))
    out, lse = _pair(call, returned)
    return scaled_output(out, _rest(job.v_scale)), lse


def paged(job: Job) -> Pair:
    """A paged cache; with sinks also dense and packed calls, as pages of one token."""
    call = job.call
    if call.layout == "paged":
        (layout, k, v), pages = batches.cache_layout(call), None
    else:
        layout = "NHD"
        k, v, pages = batches.pages_of_one(call)
    shared = _shared(job, "paged", layout, () if call.sinks is None else _sink_kernel(job))

    def build() -> object:
        space = workspace(shared.device, shared.stream)
        if call.sinks is None:
            return job.package.BatchPrefillWithPagedKVCacheWrapper(space, layout, backend=job.backend)
        return job.package.BatchAttentionWithAttentionSinkWrapper(
            space,
            layout,
            backend=job.backend,
            q_data_type=call.q.dtype,
            kv_data_type=call.k.dtype,
            head_dim_qk=call.head_size,
            head_dim_vo=call.head_size_v,
            window_left=job.window_left,
        )

    def plan(wrapper: Any) -> None:
        found = pages or batches.pages(call)
        wrapper.plan(
            batches.query_starts(call, _HOST),
            found.indptr,
            found.indices,
            found.last_page_len,
            call.num_heads,
            call.num_kv_heads,
            call.head_size,
            found.page_size,
            head_dim_vo=call.head_size_v,
            causal=call.causal,
            sm_scale=job.softmax_scale,
            **_plan_common(job),
        )

    tensors = (call.cu_seqlens_q, call.cu_seqlens_k, call.block_table, call.seq_lens)
    with planned(shared, _numbers(job), tensors, build, plan) as wrapper:
        if call.sinks is None:
            scales = {} if job.head_scales else _run_scales(job)
            returned = wrapper.run(job.q, (k, v), *job.head_scales, return_lse=call.return_lse, **scales)
            out, lse = _pair(call, returned)
            return scaled_output(out, _rest(job.v_scale)), lse
        sinks = call.sinks.to(torch.float32)
        returned = wrapper.run(job.q, (k, v), sinks, job.folded_scale, return_lse=call.return_lse)
    out, lse = _pair(call, returned)
    return scaled_output(out, job.v_scale), lse


def _sink_kernel(job: Job) -> tuple[object, ...]:
    """What the sink kernel is compiled for.

    Up to 0.7.0 FlashInfer names the compiled kernel by the query's dtype and the presence of a window only,
    so that a second head size in one process would get the first one's kernel: that is refused.
    """
    call = job.call
    shape = (call.head_size, call.head_size_v, call.k.dtype)
    named = (call.q.dtype, job.window_left >= 0, job.backend)
    if not hasattr(job.package.BatchAttentionWithAttentionSinkWrapper, "_sink_jit_args"):
        first = _SINK_SHAPES.setdefault(named, shape)
        if first != shape:
            raise NotSupported(
                f"flashinfer/{job.variant}",
                f"sinks with head sizes and key dtype {shape} after {first} in one process: "
                "this version compiles one sink kernel for both (newer ones do not)",
            )
    return (*shape, call.q.dtype, job.window_left >= 0)


def _shared(job: Job, kind: str, layout: str = "NHD", specialised: tuple[object, ...] = ()) -> Shared:
    device = job.call.q.device
    masked = job.call.mask is not None
    return Shared(kind, device, stream_of(device), layout, job.backend, masked, specialised)


def _plan_common(job: Job) -> dict[str, object]:
    call = job.call
    return {
        "window_left": job.window_left,
        "logits_soft_cap": call.softcap,
        "q_data_type": call.q.dtype,
        "kv_data_type": call.k.dtype,
        "o_data_type": call.out_dtype,
    }


def _numbers(job: Job) -> tuple[object, ...]:
    """All that a plan depends on beside its index tensors."""
    call = job.call
    shapes = (tuple(call.q.shape), tuple(call.k.shape), call.head_size_v)
    return (call.q.dtype, call.k.dtype, *shapes, call.causal, call.window, call.softcap, job.folded_scale)


def _run_scales(job: Job) -> dict[str, float]:
    """The scales that are numbers, as ``run`` of the paged wrappers takes them."""
    scales = (("q_scale", job.q_scale), ("k_scale", job.k_scale), ("v_scale", job.v_scale))
    return {name: scale for name, scale in scales if isinstance(scale, float | int)}


def _rest(scale: Scale) -> Scale:
    """What :func:`_run_scales` left out: a scale on the device."""
    return scale if isinstance(scale, torch.Tensor) else None
