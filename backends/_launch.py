"""What the wrappers of the GPU packages share: results, scales and a look at a function's keywords.

Nothing here reads a value from a device: shapes, dtypes and strides decide.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from torch import Tensor

    from backends.call import Call, Scale

    Result = Tensor | tuple[Tensor, Tensor]


def import_first(*names: str) -> ModuleType:
    """The first of these modules that can be imported; the first one's error when none can.

    Raises:
        ImportError: of the first name.
    """
    first: ImportError | None = None
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            first = first or error
    assert first is not None, "at least one name"
    raise first


@functools.lru_cache(maxsize=64)
def keywords(function: Callable[..., object]) -> frozenset[str]:
    """The parameter names of a function; where a package's versions differ, this tells them apart."""
    return frozenset(inspect.signature(function).parameters)


def is_vector(scale: Scale) -> bool:
    """Whether a scale has a factor for each head."""
    return isinstance(scale, torch.Tensor) and scale.numel() > 1


def folded_factor(call: Call) -> float:
    """``q_scale * k_scale`` of a call whose two are floats or absent: a factor of the softmax scale."""
    factor = 1.0
    for scale in (call.q_scale, call.k_scale):
        if scale is not None:
            assert not isinstance(scale, torch.Tensor), (
                "only floats can join the softmax scale without a wait"
            )
            factor *= scale
    return factor


def scaled_output(out: Tensor, scale: Scale) -> Tensor:
    """``out`` times a per-tensor ``v_scale``; ``out`` itself where there is none."""
    if scale is None:
        return out
    return out * (scale.to(out.dtype).reshape(()) if isinstance(scale, torch.Tensor) else scale)


def cumulative(seq_lens: Tensor) -> Tensor:
    """int32 ``[batch + 1]`` starts of sequences from their lengths ``[batch]``, on the same device."""
    starts = torch.zeros(seq_lens.shape[0] + 1, dtype=torch.int32, device=seq_lens.device)
    torch.cumsum(seq_lens, 0, dtype=torch.int32, out=starts.narrow(0, 1, seq_lens.shape[0]))
    return starts


def result(call: Call, out: Tensor, lse: Tensor | None) -> Result:
    """What ``run`` gives back: the output, with the log-sum-exp if the call asked for it."""
    if not call.return_lse:
        return out
    assert lse is not None, "the wrapper asked its kernel for the log-sum-exp"
    return out, lse


def has_nothing_to_do(call: Call) -> bool:
    """Whether no query or no key exists, as far as shapes tell: the kernels refuse some of these calls."""
    return call.q.numel() == 0 or call.k.numel() == 0 or call.max_seqlen_k == 0


def nothing(call: Call) -> Result:
    """The result of a call without queries or without keys: zeros, and ``-inf`` or the sinks as log-sum-exp.

    With autograd on, the zeros hang on the inputs (through empty slices), so that ``backward`` gives zero
    gradients.
    """
    out = torch.zeros(call.out_shape, dtype=call.out_dtype, device=call.q.device)
    if call.training:
        for tensor in (call.q, call.k, call.v):
            out = out + tensor[..., :0].sum()
    if not call.return_lse:
        return out
    heads = call.num_heads
    shape = (heads, call.q.shape[0]) if call.packed_q else (call.q.shape[0], heads, call.q.shape[1])
    lse = torch.full(shape, -torch.inf, dtype=torch.float32, device=call.q.device)
    if call.sinks is not None:
        lse = lse.copy_(call.sinks.detach().to(torch.float32)[:, None].expand(shape))
    return out, lse
