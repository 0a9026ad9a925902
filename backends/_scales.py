"""Per-tensor ``q_scale`` and ``k_scale`` for kernels that know no scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from backends.call import Call


def scaled_query(call: Call) -> tuple[Tensor, float]:
    """The query and the softmax scale that take up ``q_scale * k_scale``.

    A float joins the softmax scale, and so does a tensor of one element where reading it waits for nothing. On a
    device the query is multiplied instead, which copies it and rounds it once more.
    """
    q, scale = call.q, call.softmax_scale
    for factor in (call.q_scale, call.k_scale):
        if factor is None:
            continue
        if not isinstance(factor, torch.Tensor):
            scale *= factor
        elif q.device.type == "cpu" and not factor.requires_grad and not torch.compiler.is_compiling():
            scale *= float(factor)
        else:
            q = (q * factor.reshape(())).to(q.dtype)
    return q, scale
