"""`torch.compile` of whole models and of single layers: one graph, the same logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from backends.integrations.transformers import register
from tests.integrations.models import config_of, logits, model_of, register_all, tokens, tolerance

register_all()

IDS = tokens(2, 9)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(target: Any, **options: Any) -> Any:
    build: Any = torch.compile
    return build(target, backend="eager", **options)


def test_a_model_is_one_graph() -> None:
    config = config_of("mistral", num_hidden_layers=1)
    eager, ours = model_of(config, "eager"), model_of(config, "attention_selector")
    bound = tolerance(eager, lambda model: logits(model, IDS))
    expected = logits(eager, IDS)
    found = logits(compiled(ours, fullgraph=True), IDS, use_cache=False)
    assert (found - expected).abs().max().item() <= bound


@pytest.mark.parametrize(("name", "fullgraph"), [("attention_selector", False), ("tensors", True)])
def test_single_layers(name: str, fullgraph: bool) -> None:
    """A mask that comes from outside: one with structure splits the graph, a tensor does not."""
    register("tensors", tensor_masks=True)
    config = config_of("mistral", num_hidden_layers=1)
    eager, ours = model_of(config, "eager"), model_of(config, name)
    bound = tolerance(eager, lambda model: logits(model, IDS))
    expected = logits(eager, IDS)
    layer = ours.model.layers[0]
    layer.forward = compiled(layer.forward, fullgraph=fullgraph)
    assert (logits(ours, IDS, use_cache=False) - expected).abs().max().item() <= bound
