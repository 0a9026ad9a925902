"""What is refused, by name of layer and field, and what is only preferred."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AttentionInterface

from backends.integrations.transformers import NAME, LayerError, register, report
from selector import preferences
from selector.errors import NoBackendError, PinError
from tests.integrations.models import (
    UNCOMPILED,
    config_of,
    logits,
    model_of,
    pair,
    register_all,
    tokens,
)

register_all()

IDS = tokens(2, 11)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Preferences of the process are read anew before and after."""
    preferences.forget()
    yield
    preferences.forget()


# -- a backend that is insisted on ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "backend", "words"),
    [
        ("gemma2", "torch_sdpa/cpu_flash", ["layer 0 (Gemma2Attention)", "softcap"]),
        ("gpt_oss", "torch_sdpa/cpu_math", ["layer 0 (GptOssAttention)", "sinks"]),
        ("gpt_oss", "flex_attention", ["layer 0 (GptOssAttention)", "sinks"]),
        ("llama", "flash_attn/fa2", ["layer 0 (LlamaAttention)", "device"]),
        ("llama", "flash_attn", ["layer 0 (LlamaAttention)", "flash_attn/fa3", "device"]),
    ],
)
def test_register_with_a_backend_that_cannot(kind: str, backend: str, words: list[str]) -> None:
    register("pinned", backend=backend)
    model = model_of(config_of(kind), "pinned")
    with pytest.raises(PinError) as caught:
        logits(model, IDS)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.report is not None
    assert report(model).layers[0].uses[0].backend is None, "the report says it before anything runs"


def test_only_the_layers_that_need_it_are_refused() -> None:
    """The error names the first layer that cannot, not the first layer."""
    register("pinned", backend="torch_sdpa/cpu_flash")
    config = config_of("gpt_oss")
    model = model_of(config, "pinned")
    plain = model_of(config_of("llama"), "pinned")
    logits(plain, IDS)
    with pytest.raises(PinError, match="sinks"):
        logits(model, IDS)


def test_a_pin_takes_another_way_to_state_the_layer() -> None:
    """The kernel has no window, and takes a tensor instead."""
    register("pinned", backend="torch_sdpa/cpu_math")
    eager, _ = pair("mistral")
    model = model_of(config_of("mistral"), "pinned")
    assert torch.allclose(logits(model, IDS), logits(eager, IDS), atol=1e-4)
    assert report(model).backends == {
        f"model.layers.{i}.self_attn": ("torch_sdpa/cpu_math",) for i in range(3)
    }
    assert {use.form for use in report(model).layers[0].uses} == {"mask"}


def test_a_users_configuration_file_insists(
    forgotten: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("backend: torch_sdpa/cpu_flash\n")
    monkeypatch.setenv("ATTN_SELECTOR_CONFIG", str(file))
    register("configured")
    with pytest.raises(PinError) as caught:
        logits(model_of(config_of("gpt_oss"), "configured"), IDS)
    assert f"{file}:1:1" in str(caught.value)
    assert "layer 0 (GptOssAttention)" in str(caught.value) and "sinks" in str(caught.value)


def test_a_variable_insists(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTN_SELECTOR_BACKEND", "torch_sdpa/cpu_math")
    register("configured")
    model = model_of(config_of("llama"), "configured")
    logits(model, IDS)
    assert report(model).layers[2].backends == ("torch_sdpa/cpu_math",)
    with pytest.raises(PinError, match=r"(?s)layer 0 \(GptOssAttention\).*ATTN_SELECTOR_BACKEND.*sinks"):
        logits(model_of(config_of("gpt_oss"), "configured"), IDS)


def test_nothing_left() -> None:
    register("picky", avoid=["flex_attention", "reference", "torch_sdpa"])
    with pytest.raises(NoBackendError, match=r"layer 0 \(LlamaAttention\).*No backend fits") as caught:
        logits(model_of(config_of("llama"), "picky"), IDS)
    assert not isinstance(caught.value, PinError)


# -- what is only preferred -------------------------------------------------------------------------------------------


def test_a_models_configuration_prefers() -> None:
    register("wished", avoid="flex_attention")
    config = config_of("llama", attention_selector="torch_sdpa/cpu_math")
    model = model_of(config, "wished")
    logits(model, IDS)
    assert report(model).layers[0].backends == ("torch_sdpa/cpu_math",)
    ranked = report(model).layers[0].uses[0].report.ranked
    assert ranked[0].because == "preferred by the model's configuration"
    assert ranked[1].id == "torch_sdpa/cpu_flash"


def test_a_models_wish_that_cannot_be_met_is_no_error() -> None:
    """Its first wish has no sinks, and on this machine no kernel of the second is there."""
    config = config_of("gpt_oss", attention_selector=["torch_sdpa/cpu_math", "flash_attn"])
    model = model_of(config, NAME)
    assert report(model).layers[0].backends == ("reference",)
    logits(model, IDS)
    assert report(model).layers[0].backends == ("reference",)


def test_what_register_says_goes_before_the_models_wish() -> None:
    register("pinned", backend="reference")
    model = model_of(config_of("llama", attention_selector="torch_sdpa/cpu_math"), "pinned")
    logits(model, IDS)
    assert report(model).layers[0].backends == ("reference",)


def test_prefer() -> None:
    register("preferring", prefer="reference")
    model = model_of(config_of("llama"), "preferring")
    logits(model, IDS)
    assert report(model).layers[0].backends == ("reference",)


def test_registering_again_replaces() -> None:
    register("changing", prefer="reference")
    model = model_of(config_of("llama"), "changing")
    logits(model, IDS)
    register("changing", prefer="torch_sdpa/cpu_math")
    assert not report(model).layers[0].ran
    logits(model, IDS)
    assert report(model).layers[0].backends == ("torch_sdpa/cpu_math",)


# -- calls that are none ----------------------------------------------------------------------------------------------


def attend(**arguments: Any) -> Any:
    """One call of the implementation, as a model makes it."""
    module = torch.nn.Module()
    module.layer_idx = 5  # type: ignore[assignment]
    q = torch.randn(2, 4, arguments.pop("queries", 6), 8)
    k = torch.randn(2, 2, 6, 8)
    registered: Any = AttentionInterface
    return registered()[UNCOMPILED](module, q, k, k, arguments.pop("attention_mask", None), **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"indices": torch.zeros(2, 6, 3)}, "layer 5 (Module): indices chooses keys beside the mask"),
        ({"output_attentions": True}, "attn_implementation='eager'"),
        ({"attention_mask": torch.ones(2, 6)}, "attention_mask of shape [2, 6], expected [batch, heads"),
        ({"attention_mask": torch.ones(2, 1, 6, 7) > 0}, "mask: got shape [2, 1, 6, 7], expected"),
        ({"queries": 3}, "3 queries, 6 keys and no attention_mask: causal has two meanings"),
        ({"s_aux": torch.ones(3)}, "s_aux of shape [3], expected [4]"),
        ({"sinks": torch.ones(2, 4, 6, 1)}, "sinks of single tokens"),
        ({"softcap": -1.0}, "layer 5 (Module): softcap: got -1.0, expected a positive number"),
    ],
)
def test_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LayerError) as caught:
        attend(**arguments)
    assert message in str(caught.value)
    assert str(caught.value).startswith("layer 5 (Module): ")


def test_without_a_mask() -> None:
    """Causal unless somebody says otherwise, one query sees everything, and a window is the library's: it counts itself."""
    whole = attend(is_causal=False)[0]
    assert whole.shape == (2, 6, 4, 8)
    for arguments in (
        {},
        {"is_causal": False},
        {"queries": 1},
        {"sliding_window": 3},
        {"is_causal": False, "sliding_window": 3},
    ):
        torch.manual_seed(0)
        found = attend(**arguments)[0]
        torch.manual_seed(0)
        q = torch.randn(2, 4, arguments.get("queries", 6), 8)
        k = torch.randn(2, 2, 6, 8).repeat_interleave(2, dim=1)
        place = torch.arange(6)[-q.shape[2] :, None] - torch.arange(6)[None]
        kept = torch.ones_like(place, dtype=torch.bool)
        if arguments.get("is_causal", True):
            kept &= place >= 0
        if "sliding_window" in arguments:
            kept &= place.abs() < 3
        scores = (q @ k.transpose(2, 3) / 8**0.5).masked_fill(~kept, -torch.inf)
        assert torch.allclose(found, (scores.softmax(-1) @ k).transpose(1, 2), atol=1e-6), arguments


def test_position_bias() -> None:
    """A bias of positions, as T5 has: added to the scores, with its gradient."""
    bias = torch.randn(1, 4, 6, 6, requires_grad=True)
    torch.manual_seed(0)
    found = attend(position_bias=bias, scaling=1.0)[0]
    loss: Any = found.square().sum()
    loss.backward()
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8).repeat_interleave(2, dim=1)
    own = bias.detach().clone().requires_grad_()
    kept = torch.ones(6, 6, dtype=torch.bool).tril()
    expected = ((q @ k.transpose(2, 3) + own).masked_fill(~kept, -torch.inf).softmax(-1) @ k).transpose(1, 2)
    own_loss: Any = expected.square().sum()
    own_loss.backward()
    assert torch.allclose(found, expected, atol=1e-5)
    assert bias.grad is not None and own.grad is not None
    assert torch.allclose(bias.grad, own.grad, atol=1e-5)


@pytest.mark.parametrize("name", ["flash_mine", "my-sdpa", "eager2", "paged|x", "someone/kernel"])
def test_names_that_mean_something_to_the_library(name: str) -> None:
    with pytest.raises(ValueError, match="the library reads a meaning into"):
        register(name)


def test_the_hub_is_never_asked() -> None:
    assert os.environ["HF_HUB_OFFLINE"] == "1"
