"""`attention` inside a compiled function: the winner is folded in while tracing, and the graph stays whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from backends import attention


def inputs(heads: int = 4, kv_heads: int = 2, size: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(2, 16, heads, size),
        torch.randn(2, 16, kv_heads, size),
        torch.randn(2, 16, kv_heads, size),
    )


@pytest.mark.parametrize(
    "fields", [{"causal": True}, {}, {"causal": True, "return_lse": True}, {"causal": True, "scale": 0.3}]
)
def test_fullgraph(fields: dict[str, Any]) -> None:
    q, k, v = inputs()

    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return attention(q * 2, k, v, **fields)

    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True, backend="eager")
    got, expected = compiled(q, k, v), function(q, k, v)
    torch.testing.assert_close(got, expected)
    other = inputs(8, 8, 32)
    torch.testing.assert_close(compiled(*other), function(*other))


def test_one_graph() -> None:
    q, k, v = inputs()
    torch._dynamo.reset()

    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return attention(q, k, v, causal=True)

    explained = torch._dynamo.explain(function)(q, k, v)
    assert explained.graph_break_count == 0
    assert explained.graph_count == 1


@pytest.mark.parametrize("lengths", [(5, 5), (1, 9), (3, 9), (9, 3), (1, 1)])
def test_dynamic_shapes(lengths: tuple[int, int]) -> None:
    """Sizes that are symbols are settled where the choice depends on them; lengths stay symbols."""
    torch._dynamo.reset()

    def function(q: Tensor, k: Tensor) -> Any:
        return attention(q, k, k, causal=True)

    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=True, backend="eager")
    for queries, keys in (lengths, (8, 8), (1, 7), (4, 11)):
        q, k = torch.randn(2, queries, 4, 32), torch.randn(2, keys, 2, 32)
        torch.testing.assert_close(compiled(q, k), function(q, k))
    q = torch.randn(3, 6, 2, 16)
    torch.testing.assert_close(compiled(q, q), function(q, q))


def test_a_packed_call_breaks_the_graph_and_is_right() -> None:
    torch._dynamo.reset()
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)

    def function(q: Tensor) -> Any:
        return attention(
            q, q, q, causal=True, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=5, max_seqlen_k=5
        )

    q = torch.randn(8, 2, 16)
    compiled: Callable[..., Any] = torch.compile(function, backend="eager")
    torch.testing.assert_close(compiled(q), function(q))
