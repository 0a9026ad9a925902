"""Training: gradients equal those of the library's eager attention."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.integrations.transformers import report
from tests.integrations.models import ALL, pair, register_all, tokens

register_all()

IDS = tokens(2, 15)


def gradients(model: Any, **inputs: Any) -> dict[str, Tensor]:
    """The gradient of every parameter for the loss of predicting the tokens."""
    model.train()
    model.zero_grad()
    labels = IDS
    if "attention_mask" in inputs:
        # a token that follows padding is predicted from padding
        real = inputs["attention_mask"] == 1
        labels = labels.masked_fill(~(real & real.roll(1, dims=1)), -100)
    model(IDS, labels=labels, use_cache=False, **inputs).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(
    eager: Any, ours: Any, like: Callable[[Any], dict[str, Tensor]], **inputs: Any
) -> None:
    """Each parameter's gradient is as close to eager's as eager's own rounding allows (see `models.tolerance`)."""
    exact = like(copy.deepcopy(eager).to(torch.float64))
    own = like(eager)
    bounds = {name: 8.0 * (own[name].double() - exact[name]).abs().max().item() for name in exact}
    expected, found = gradients(eager, **inputs), gradients(ours, **inputs)
    assert expected.keys() == found.keys() and len(found) > 20
    largest = max(bounds.values())
    for name, gradient in expected.items():
        difference = (gradient - found[name]).abs().max().item()
        assert difference <= max(bounds[name], largest / 8.0), name
    for name, gradient in found.items():
        if "q_proj" in name or name.endswith("sinks"):
            assert gradient.abs().max() > 100.0 * bounds[name], f"{name}: no gradient to speak of"


@pytest.mark.parametrize("kind", ALL)
def test_gradients(kind: str) -> None:
    eager, ours = pair(kind)
    assert_same_gradients(eager, ours, gradients)
    assert {use.phase for use in report(ours).layers[0].uses} == {"training"}


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt_oss"])
def test_gradients_of_a_padded_batch(kind: str) -> None:
    """Rows that may attend to nothing give no gradient, and no NaN."""
    mask = torch.ones_like(IDS)
    mask[0, :4] = 0
    mask[1, 12:] = 0
    eager, ours = pair(kind)
    assert_same_gradients(eager, ours, gradients, attention_mask=mask)
    assert all(gradient.isfinite().all() for gradient in gradients(ours, attention_mask=mask).values())


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_gradients_of_packed_documents(kind: str) -> None:
    positions = torch.cat([torch.arange(6), torch.arange(9)]).expand(2, -1)
    eager, ours = pair(kind)

    def run(model: Any) -> dict[str, Tensor]:
        return gradients(model, position_ids=positions)

    assert_same_gradients(eager, ours, run, position_ids=positions)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(reentrant: bool) -> None:
    eager, ours = pair("gemma3")
    plain = gradients(ours)
    for model in (eager, ours):
        model.activation_checkpointing_enable({"use_reentrant": reentrant})
        assert model.is_activation_checkpointing
    again = gradients(ours)
    assert all(torch.equal(plain[name], again[name]) for name in plain)
    assert_same_gradients(eager, ours, gradients)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma3"])
def test_the_first_step_of_a_checkpointed_padded_batch(kind: str) -> None:
    """What decides how a layer is stated saves nothing for the backward pass, or the second pass would not match."""
    register_all()  # nothing is decided
    mask = torch.ones_like(IDS)
    mask[0, :5] = 0
    _, ours = pair(kind)
    ours.activation_checkpointing_enable({"use_reentrant": False})
    first = gradients(ours, attention_mask=mask)
    ours.activation_checkpointing_disable()
    plain = gradients(ours, attention_mask=mask)
    assert all(torch.equal(plain[name], first[name]) for name in plain)


def test_dropout_takes_a_kernel_that_has_it() -> None:
    """In training only: the same model infers without."""
    _, ours = pair("llama", attention_dropout=0.5)
    torch.manual_seed(1)
    first = gradients(ours)
    second = gradients(ours)
    assert not all(torch.equal(first[name], second[name]) for name in first), "nothing was dropped"
    assert report(ours).layers[0].uses[0].report.request.get("dropout") is True
    ours.eval()
    with torch.no_grad():
        assert torch.equal(ours(IDS).logits, ours(IDS).logits)
