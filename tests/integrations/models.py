"""Tiny random models of transformers' own classes, each twice: with the library's eager attention, and with ours."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM

from backends.integrations.transformers import NAME, register

# models this small are slower with more threads
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]

#: No kernel is compiled under this name: that takes seconds for every new shape on a CPU.
UNCOMPILED = "attention_selector_uncompiled"

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    # large enough for attention to matter: the default makes every layer nearly the identity
    "initializer_range": 0.3,
}

#: Each model's class of configuration, and what it has that others have not.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 24}),
    "gemma3": (
        "Gemma3TextConfig",
        {"sliding_window": 6, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
    ),
    "gpt_oss": (
        "GptOssConfig",
        {
            "sliding_window": 6,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "experts_implementation": "eager",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "mistral": ("MistralConfig", {"sliding_window": 6}),
    "gemma2": ("Gemma2Config", {"sliding_window": 6, "attn_logit_softcapping": 2.0}),
}

#: Models whose kernels on a CPU need no compiler.
PLAIN = ["llama", "qwen3", "gemma3", "gpt_oss", "mistral"]
ALL = [*PLAIN, "gemma2"]


def config_of(kind: str, **changes: Any) -> Any:
    name, own = MODELS[kind]
    return getattr(transformers, name)(**{**SIZES, **own, **changes})


def name_of(kind: str) -> str:
    """The implementation a model is tested with."""
    return NAME if kind in PLAIN else UNCOMPILED


def register_all() -> None:
    register()
    register(UNCOMPILED, avoid="flex_attention")


def model_of(config: Any, implementation: str) -> Any:
    """A model with the same random weights for the same configuration. The configuration is copied: models change theirs."""
    torch.manual_seed(0)
    build: Any = AutoModelForCausalLM.from_config
    made = build(copy.deepcopy(config), attn_implementation=implementation)
    for name, parameter in made.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(parameter, std=1.0)
    return made.eval()


def pair(kind: str, dtype: torch.dtype = torch.float32, **changes: Any) -> tuple[Any, Any]:
    """(eager, ours)"""
    config = config_of(kind, **changes)
    return model_of(config, "eager").to(dtype), model_of(config, name_of(kind)).to(dtype)


def tokens(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, SIZES["vocab_size"], shape, generator=generator)


def logits(model: Any, ids: Tensor, **inputs: Any) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(ids, **inputs).logits
    return out


def tolerance(eager: Any, run: Callable[[Any], Tensor]) -> float:
    """How far a right answer may be from eager's: eight times what eager's own rounding amounts to in this model.

    The rounding of a whole model follows from its dtype by way of its weights, so it is measured: against the same model in
    float64 throughout.
    """
    exact = run(copy.deepcopy(eager).to(torch.float64))
    own = (run(eager).double() - exact).abs().max().item()
    assert own > 0.0, "no rounding at all: the models are not two"
    return 8.0 * own


def assert_close(
    eager: Any, ours: Any, run: Callable[[Any], Tensor], like: Callable[[Any], Tensor] | None = None
) -> None:
    """The two models give the same, up to rounding; ``like`` is what the rounding is measured on, if not on ``run``.

    Rows that may attend to nothing are NaN in eager's float64 (its masks do not fit its softmax, which is in float32), so
    padded batches are measured without their padding.
    """
    bound = tolerance(eager, run if like is None else like)
    difference = (run(eager).double() - run(ours).double()).abs().max().item()
    assert difference <= bound, f"{difference} > {bound}"
