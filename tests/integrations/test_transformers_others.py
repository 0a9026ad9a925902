"""Other architectures: heads of two sizes, chunks, encoders, a bias of positions, cross attention, images."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from backends.integrations.transformers import LayerError, report
from tests.integrations.models import SIZES, UNCOMPILED, register_all, tokens

register_all()

IDS = tokens(2, 19)
LEFT, RIGHT = torch.ones_like(IDS), torch.ones_like(IDS)
LEFT[1, :5] = 0
RIGHT[1, 14:] = 0

LANGUAGE = [{}, {"attention_mask": LEFT}, {"attention_mask": RIGHT}]
#: An encoder's tokens see those on both sides.
ENCODED = [{"decoder_input_ids": IDS[:, :7]}, {"decoder_input_ids": IDS[:, :7], "attention_mask": RIGHT}]

EXPERTS = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "experts_implementation": "eager",
}
LATENT = {
    **{name: value for name, value in SIZES.items() if name != "head_dim"},
    **EXPERTS,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
}
SEQ2SEQ = {"vocab_size": 97, "d_model": 48, "pad_token_id": 0, "decoder_start_token_id": 0}

CASES: dict[str, tuple[str, str, dict[str, Any], list[dict[str, Tensor]]]] = {
    "latent": ("AutoModelForCausalLM", "DeepseekV3Config", LATENT, LANGUAGE),
    "chunks": (
        "AutoModelForCausalLM",
        "Llama4TextConfig",
        {
            **SIZES,
            "attention_chunk_size": 6,
            "num_local_experts": 2,
            "intermediate_size_mlp": 64,
            "layer_types": ["chunked_attention", "full_attention", "chunked_attention"],
            "no_rope_layers": [1, 0, 1],
        },
        LANGUAGE,
    ),
    "encoder": (
        "AutoModel",
        "BertConfig",
        {
            "vocab_size": 97,
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "initializer_range": 0.3,
        },
        LANGUAGE,
    ),
    "encoder with windows": (
        "AutoModel",
        "ModernBertConfig",
        {
            "vocab_size": 97,
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "local_attention": 6,
            **dict.fromkeys(("pad_token_id", "cls_token_id", "sep_token_id"), 0),
            **dict.fromkeys(("bos_token_id", "eos_token_id"), 1),
        },
        LANGUAGE,
    ),
    "bias of positions": (
        "AutoModelForSeq2SeqLM",
        "T5Config",
        {**SEQ2SEQ, "d_kv": 12, "d_ff": 64, "num_layers": 2, "num_heads": 4, "eos_token_id": 1},
        ENCODED,
    ),
    "cross attention": (
        "AutoModelForSeq2SeqLM",
        "BartConfig",
        {
            **SEQ2SEQ,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "init_std": 0.3,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        ENCODED,
    ),
    "images": (
        "AutoModel",
        "ViTConfig",
        {
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 16,
            "patch_size": 4,
            "initializer_range": 0.3,
        },
        [{"pixel_values": torch.linspace(-1.0, 1.0, 2 * 3 * 16 * 16).view(2, 3, 16, 16)}],
    ),
}


def built(auto: str, config: Any, implementation: str) -> Any:
    torch.manual_seed(0)
    build: Any = getattr(transformers, auto).from_config
    model = build(copy.deepcopy(config), attn_implementation=implementation).eval()
    for name, parameter in model.named_parameters():
        if "relative_attention_bias" in name:
            torch.nn.init.normal_(parameter)
    return model


def answer(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Logits or hidden states, those of real tokens."""
    given = inputs if "pixel_values" in inputs else {"input_ids": IDS, **inputs}
    with torch.no_grad():
        out = model(**given)
    found: Tensor = out.logits if "logits" in out else out.last_hidden_state
    mask = inputs.get("attention_mask")
    return found[mask.bool()] if mask is not None and mask.shape == found.shape[:2] else found


@pytest.mark.parametrize("case", CASES)
def test_other_architectures(case: str) -> None:
    auto, name, fields, situations = CASES[case]
    config = getattr(transformers, name)(**fields)
    eager, ours = built(auto, config, "eager"), built(auto, config, UNCOMPILED)
    exact = copy.deepcopy(eager).to(torch.float64)
    plain = situations[0]
    in_float64 = {key: value.double() if value.is_floating_point() else value for key, value in plain.items()}
    bound = 8.0 * (answer(eager, plain).double() - answer(exact, in_float64)).abs().max().item()
    assert bound > 0.0
    for inputs in situations:
        assert (answer(eager, inputs) - answer(ours, inputs)).abs().max().item() <= bound
    layers = report(ours).layers
    assert layers and all(layer.ran for layer in layers)
    if case == "latent":
        assert layers[0].uses[0].report.request.get("head_size") == 24
        assert layers[0].uses[0].report.request.get("head_size_v") == 12
    if case == "chunks":
        assert [layer.kind for layer in layers] == [
            "chunked attention",
            "full attention",
            "chunked attention",
        ]


def test_sparse_attention_is_refused_by_name() -> None:
    """Its indexer hands the chosen keys to the kernel, and no kernel here takes them."""
    config = transformers.DeepseekV32Config(**LATENT, index_topk=4, index_head_dim=16, index_n_heads=2)
    model = built("AutoModelForCausalLM", config, UNCOMPILED)
    with pytest.raises(
        LayerError, match=r"layer 0 \(DeepseekV32Attention\): indices chooses keys beside the mask"
    ):
        answer(model, {})
