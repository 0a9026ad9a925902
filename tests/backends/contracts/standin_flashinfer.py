"""Stand-ins of FlashInfer's functions and classes, by their meaning in the source, traps included."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from packaging.version import Version

from tests.backends.contracts.standin import Launch, Log, bind, function
from tests.backends.contracts.standin_math import attend, band

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tests.backends.contracts.signatures import Contract

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_HALF = (torch.float16, torch.bfloat16)


def flashinfer(contract: Contract, log: Log, *, dry: bool = False) -> dict[str, object]:
    """The members of the ``flashinfer`` module that the wrapper uses; ``dry`` ones compute nothing."""
    kernels = _Kernels(contract, dry=dry)
    members: dict[str, object] = {
        "single_prefill_with_kv_cache": function(
            contract, "single_prefill_with_kv_cache", kernels.single_prefill, log
        ),
        "single_decode_with_kv_cache": function(
            contract, "single_decode_with_kv_cache", kernels.single_decode, log
        ),
    }
    paged = _wrapper(
        contract, "BatchPrefillWithPagedKVCacheWrapper", kernels.plan_paged, kernels.run_paged, log
    )
    ragged = _wrapper(
        contract, "BatchPrefillWithRaggedKVCacheWrapper", kernels.plan_ragged, kernels.run_ragged, log
    )
    decode = _wrapper(
        contract, "BatchDecodeWithPagedKVCacheWrapper", kernels.plan_decode, kernels.run_decode, log
    )
    for kind in (paged, ragged, decode):
        members[kind.__name__] = kind
    members["BatchAttentionWithAttentionSinkWrapper"] = _sink_wrapper(contract, paged, kernels, log)
    return members


def _wrapper(
    contract: Contract,
    name: str,
    plan: Callable[[Any, SimpleNamespace], None],
    run: Callable[[Any, SimpleNamespace], object],
    log: Log,
) -> type:
    signatures = {method: contract.callables[f"{name}.{method}"] for method in ("__init__", "plan", "run")}
    inner = contract.callables.get(f"{name}._plan_impl")

    def init(self: Any, *args: object, **kwargs: object) -> None:
        arguments = bind(signatures["__init__"], (self, *args), kwargs)
        log.append(Launch(f"{name}.__init__", arguments))
        self.options = SimpleNamespace(**arguments)
        self.state = None
        self.kept_mask = None

    def plan_method(self: Any, *args: object, **kwargs: object) -> None:
        arguments = bind(signatures["plan"], (self, *args), kwargs)
        if inner is not None and "kwargs" in arguments:
            assert not arguments["deprecated_positional_args"], "deprecated: pass by keyword"
            arguments = bind(inner, (self, *args), kwargs)
        arguments.pop("self")
        log.append(Launch(f"{name}.plan", arguments))
        self.state = SimpleNamespace(**arguments)
        plan(self, self.state)

    def run_method(self: Any, *args: object, **kwargs: object) -> object:
        arguments = bind(signatures["run"], (self, *args), kwargs)
        arguments.pop("self")
        log.append(Launch(f"{name}.run", arguments))
        assert self.state is not None, "plan before run"
        return run(self, SimpleNamespace(**arguments))

    return type(name, (), {"__init__": init, "plan": plan_method, "run": run_method})


def _sink_wrapper(contract: Contract, paged: type, kernels: _Kernels, log: Log) -> type:
    name = "BatchAttentionWithAttentionSinkWrapper"
    signature = contract.callables[f"{name}.__init__"]
    named_fully = f"{name}._sink_jit_args" in contract.callables

    def init(self: Any, *args: object, **kwargs: object) -> None:
        arguments = bind(signature, (self, *args), kwargs)
        options = SimpleNamespace(**arguments)
        log.append(Launch(f"{name}.__init__", arguments))
        assert options.backend in ("fa2", "fa3")
        self.options, self.state, self.kept_mask = options, None, None
        shape = (options.head_dim_qk, options.head_dim_vo, options.kv_data_type)
        uri: tuple[object, ...] = (options.q_data_type, options.window_left >= 0, options.backend)
        if named_fully:
            uri = (*uri, *shape)
        self.compiled = kernels.compiled.setdefault(uri, shape)

    def run(self: Any, *args: Any, **kwargs: Any) -> object:
        arguments = bind(contract.callables["BatchPrefillWithPagedKVCacheWrapper.run"], (self, *args), kwargs)
        arguments.pop("self")
        log.append(Launch(f"{name}.run", arguments))
        return kernels.run_sinks(self, SimpleNamespace(**arguments))

    members: dict[str, object] = {"__init__": init, "run": run}
    if named_fully:
        members["_sink_jit_args"] = staticmethod(lambda: None)
    return type(name, (paged,), members)


class _Kernels:
    """The computations, with what differs between versions."""

    def __init__(self, contract: Contract, *, dry: bool) -> None:
        self.dry = dry
        self.infinity = 5e4 if contract.version < Version("0.7.1") else math.inf
        self.ragged_scales = contract.version >= Version("0.7.1")
        self.compiled: dict[tuple[object, ...], tuple[object, ...]] = {}

    def _sequence(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sm_scale: float,
        *,
        causal: bool,
        window_left: int,
        softcap: float | None,
        mask: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Output ``[rows, heads, size]`` and base-2 log-sum-exp ``[rows, heads]``."""
        assert isinstance(sm_scale, float), "the kernel takes a C++ double"
        assert isinstance(window_left, int)
        if self.dry:
            return torch.zeros(*q.shape[:-1], v.shape[-1]), torch.zeros(q.shape[:-1])
        left = None if window_left < 0 else window_left
        keep = band(q.shape[0], k.shape[0], left, 0 if causal and mask is None else None)
        if mask is not None:
            assert mask.dtype == torch.bool
            keep &= mask
        out, lse = attend(q, k, v, sm_scale, keep, softcap=softcap or 0.0, sinks=sinks)
        base2 = (lse / math.log(2.0)).transpose(0, 1)
        return out, torch.where(base2 == -torch.inf, -self.infinity, base2)

    def _check(self, backend: str, q: torch.dtype, k: torch.dtype) -> None:
        assert backend in ("fa2", "fa3")
        if backend == "fa2":
            assert q in _HALF, "fp8 tensor core is not supported in fa2 backend"
            assert k == q or k in _FP8
        else:
            assert q == k

    def single_prefill(self, a: SimpleNamespace) -> object:
        self._check(a.backend, a.q.dtype, a.k.dtype)
        assert a.kv_layout == "NHD"
        q, k, v, softcap = a.q, a.k, a.v, a.logits_soft_cap
        if q.dtype in _FP8:
            assert a.window_left == -1
            assert q.shape[-1] == k.shape[-1] == v.shape[-1]
            q, k, v = self._head_scaled(q, k, v, (a.scale_q, a.scale_k, a.scale_v))
            softcap = None
        mask = a.custom_mask
        assert mask is None or (a.backend == "fa2" and mask.shape == (q.shape[0], k.shape[0]))
        out, lse = self._sequence(
            q, k, v, a.sm_scale, causal=a.causal, window_left=a.window_left, softcap=softcap, mask=mask
        )
        return self._returned(out, lse, a.o_dtype or a.q.dtype, a.return_lse)

    def single_decode(self, a: SimpleNamespace) -> object:
        assert a.q.dim() == 2
        assert a.v.shape[-1] == a.q.shape[-1]
        self._check("fa2", a.q.dtype, a.k.dtype)
        _decode_heads(a.q.shape[-2], a.k.shape[-2], a.q.shape[-1], tensor_cores=a.use_tensor_cores)
        out, lse = self._sequence(
            a.q[None],
            a.k,
            a.v,
            a.sm_scale,
            causal=False,
            window_left=a.window_left,
            softcap=a.logits_soft_cap,
        )
        return self._returned(out[0], lse[0], a.q.dtype, a.return_lse)

    @staticmethod
    def _head_scaled(
        q: Tensor, k: Tensor, v: Tensor, scales: tuple[Any, Any, Any]
    ) -> tuple[Tensor, Tensor, Tensor]:
        scaled = []
        for tensor, scale in zip((q, k, v), scales, strict=True):
            assert scale.shape == (tensor.shape[-2],)
            assert scale.dtype == torch.float32
            assert scale.is_contiguous()
            scaled.append(tensor.double() * scale.double()[:, None])
        return scaled[0], scaled[1], scaled[2]

    @staticmethod
    def _returned(out: Tensor, lse: Tensor, dtype: torch.dtype, return_lse: bool) -> object:
        return (out.to(dtype), lse.float()) if return_lse else out.to(dtype)

    def plan_ragged(self, wrapper: Any, p: SimpleNamespace) -> None:
        self._planned(wrapper, p)
        assert p.kv_indptr.dtype == torch.int32
        if p.custom_mask is not None:
            assert wrapper.options.backend == "fa2"
            wrapper.kept_mask = p.custom_mask  # and never forgotten, as in the package

    def plan_paged(self, wrapper: Any, p: SimpleNamespace) -> None:
        self._planned(wrapper, p)
        _pages(p.paged_kv_indptr, p.paged_kv_indices, p.paged_kv_last_page_len, p.page_size)
        assert p.custom_mask is None

    def plan_decode(self, wrapper: Any, p: SimpleNamespace) -> None:
        p.qo_indptr, p.head_dim_qk, p.head_dim_vo, p.causal = p.indptr, p.head_dim, p.head_dim, False
        self._planned(wrapper, p)
        _pages(p.indptr, p.indices, p.last_page_len, p.page_size)
        _decode_heads(
            p.num_qo_heads, p.num_kv_heads, p.head_dim, tensor_cores=wrapper.options.use_tensor_cores
        )

    def _planned(self, wrapper: Any, p: SimpleNamespace) -> None:
        assert wrapper.options.float_workspace_buffer.dtype == torch.uint8
        assert p.qo_indptr.dtype == torch.int32
        assert p.num_qo_heads % p.num_kv_heads == 0
        p.kv_data_type = p.kv_data_type or p.q_data_type
        p.o_data_type = p.o_data_type or p.q_data_type
        p.head_dim_vo = p.head_dim_vo or p.head_dim_qk
        assert p.o_data_type in _HALF, "fa2 and fa3 write no fp8"
        assert p.pos_encoding_mode == "NONE"
        assert p.window_left >= -1
        self._check(wrapper.options.backend, p.q_data_type, p.kv_data_type)

    @staticmethod
    def _same_dtypes(p: SimpleNamespace, q: Tensor, k: Tensor) -> None:
        if (q.dtype, k.dtype) != (p.q_data_type, p.kv_data_type):
            message = "The dtypes of q and k do not match those specified in plan function."
            raise ValueError(message)
        assert q.shape[1:] == (p.num_qo_heads, p.head_dim_qk)

    def run_ragged(self, wrapper: Any, a: SimpleNamespace) -> object:
        p = wrapper.state
        self._same_dtypes(p, a.q, a.k)
        assert a.k.shape[1:] == (p.num_kv_heads, p.head_dim_qk)
        assert a.v.shape[1:] == (p.num_kv_heads, p.head_dim_vo)
        q, k, v, softcap, sm_scale = a.q, a.k, a.v, p.logits_soft_cap, p.sm_scale
        if a.q.dtype in _FP8:
            q, k, v = self._head_scaled(q, k, v, a.args)
            softcap = None
        elif self.ragged_scales and a.k.dtype in _FP8:
            sm_scale = sm_scale * (a.q_scale or 1.0) * (a.k_scale or 1.0)
        outs, lses, at = [], [], 0
        q_spans, k_spans = _spans(p.qo_indptr), _spans(p.kv_indptr)
        for (q0, q1), (k0, k1) in zip(q_spans, k_spans, strict=True):
            mask = None
            if wrapper.kept_mask is not None:
                size = (q1 - q0) * (k1 - k0)
                mask = wrapper.kept_mask[at : at + size].view(q1 - q0, k1 - k0)
                at += size
            out, lse = self._sequence(
                q[q0:q1],
                k[k0:k1],
                v[k0:k1],
                sm_scale,
                causal=p.causal,
                window_left=p.window_left,
                softcap=softcap,
                mask=mask,
            )
            outs.append(out)
            lses.append(lse)
        dtype = torch.bfloat16 if a.q.dtype in _FP8 else a.q.dtype
        return self._returned(torch.cat(outs), torch.cat(lses), dtype, a.return_lse)

    def run_paged(self, wrapper: Any, a: SimpleNamespace) -> object:
        p = wrapper.state
        pages = (p.paged_kv_indptr, p.paged_kv_indices, p.paged_kv_last_page_len)
        return self._run_pages(
            wrapper, a, pages, p.qo_indptr, sinks=None
        )  # a.sinks is dropped, as in the package

    def run_decode(self, wrapper: Any, a: SimpleNamespace) -> object:
        p = wrapper.state
        assert a.q.shape[0] == p.last_page_len.shape[0]
        each = torch.arange(a.q.shape[0] + 1, dtype=torch.int32)
        return self._run_pages(wrapper, a, (p.indptr, p.indices, p.last_page_len), each, sinks=None)

    def run_sinks(self, wrapper: Any, a: SimpleNamespace) -> object:
        """The sink kernel: no softcap, and its softmax scale is its own argument."""
        p = wrapper.state
        sinks, sm_scale = a.args
        assert wrapper.compiled == (p.head_dim_qk, p.head_dim_vo, p.kv_data_type), "another size's kernel"
        assert (wrapper.options.window_left >= 0) == (p.window_left >= 0)
        assert sinks.dtype == torch.float32
        assert sinks.shape == (p.num_qo_heads,)
        pages = (p.paged_kv_indptr, p.paged_kv_indices, p.paged_kv_last_page_len)
        return self._run_pages(wrapper, a, pages, p.qo_indptr, sinks=sinks, own_scale=sm_scale)

    def _run_pages(
        self,
        wrapper: Any,
        a: SimpleNamespace,
        pages: tuple[Tensor, Tensor, Tensor],
        qo_indptr: Tensor,
        *,
        sinks: Tensor | None,
        own_scale: float | None = None,
    ) -> object:
        p = wrapper.state
        k_cache, v_cache = a.paged_kv_cache
        self._same_dtypes(p, a.q, k_cache)
        if wrapper.options.kv_layout == "HND":
            k_cache, v_cache = k_cache.transpose(1, 2), v_cache.transpose(1, 2)
        assert k_cache.shape[1:] == (p.page_size, p.num_kv_heads, p.head_dim_qk)
        q, softcap = a.q, None if own_scale is not None else p.logits_soft_cap
        sm_scale = p.sm_scale * (a.q_scale or 1.0) * (a.k_scale or 1.0) if own_scale is None else own_scale
        fp8 = q.dtype in _FP8
        outs, lses = [], []
        indptr, indices, last = pages
        for index, (q0, q1) in enumerate(_spans(qo_indptr)):
            own = indices[int(indptr[index]) : int(indptr[index + 1])].long()
            length = max(own.shape[0] - 1, 0) * p.page_size + int(last[index])
            k, v = k_cache[own].flatten(0, 1)[:length], v_cache[own].flatten(0, 1)[:length]
            rows = q[q0:q1]
            if fp8:
                rows, k, v = self._head_scaled(rows, k, v, a.args)
            out, lse = self._sequence(
                rows,
                k,
                v,
                sm_scale,
                causal=p.causal,
                window_left=p.window_left,
                softcap=None if fp8 else softcap,
                sinks=sinks,
            )
            outs.append(out)
            lses.append(lse)
        out = torch.cat(outs)
        if a.v_scale is not None:
            out = out * a.v_scale
        return self._returned(out, torch.cat(lses), p.o_data_type, a.return_lse)


def _spans(indptr: Tensor) -> list[tuple[int, int]]:
    return [(start, end) for start, end in pairwise(indptr.tolist())]


def _pages(indptr: Tensor, indices: Tensor, last: Tensor, page_size: int) -> None:
    for tensor in (indptr, indices, last):
        assert tensor.dtype == torch.int32
    assert int(indptr[-1]) == indices.shape[0]
    for (start, end), tokens in zip(_spans(indptr), last.tolist(), strict=True):
        assert (0 < tokens <= page_size) if end > start else tokens == 0


def _decode_heads(heads: int, kv_heads: int, size: int, *, tensor_cores: bool) -> None:
    """``DISPATCH_GQA_GROUP_SIZE`` and ``DISPATCH_HEAD_DIM`` of the kernel without tensor cores."""
    if not tensor_cores:
        assert heads // kv_heads in (1, 2, 3, 4, 8)
        assert size in (64, 128, 256, 512)
