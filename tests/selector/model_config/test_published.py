"""Published configurations: the layers each model has, checked against what its authors say of it."""

from __future__ import annotations

import pytest

from selector.model_config import LayerKind, read_config
from selector.model_config.source import Json
from tests.selector.model_config.samples import CONFIGS, kinds

DECODER: dict[str, Json] = {"attn_type": "decoder", "causal": True, "dtype": "bfloat16"}
VISION: dict[str, Json] = {"attn_type": "encoder_only", "causal": False, "dtype": "bfloat16"}


def heads(size: int, queries: int, keys: int) -> dict[str, Json]:
    return {"head_size": size, "num_heads": queries, "num_kv_heads": keys}


def vision(size: int, number: int) -> dict[str, Json]:
    return VISION | heads(size, number, number)


def latent(queries: int, nope: int, value: int) -> dict[str, Json]:
    return (
        DECODER
        | heads(576, queries, 1)
        | {
            "head_size_v": 512,
            "mla": True,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": 64,
            "v_head_dim": value,
        }
    )


FP8: dict[str, Json] = {"kv_cache_dtype": "fp8_e4m3"}
PER_HEAD = FP8 | {"per_head_scales": True}
LLAMA = DECODER | heads(128, 32, 8)
NO_REQUEST: dict[str, Json] = {}

Expected = list[tuple[str, int, dict[str, Json]]]

#: directory -> the kinds of layers, their numbers and requests, in the order of the first layer of each.
PUBLISHED: dict[str, Expected] = {
    "llama-3.1-8b": [("full attention", 32, LLAMA)],
    "llama-3.1-8b-fp8-per-head": [("full attention", 32, LLAMA | PER_HEAD)],
    "llama-3.1-8b-fp8-attention": [("full attention", 32, LLAMA | PER_HEAD)],
    "llama-3.1-8b-fp8-kv": [("full attention", 32, LLAMA | FP8)],
    "qwen3-8b": [("full attention", 36, LLAMA)],
    "mistral-7b-instruct-v0.3": [("full attention", 32, LLAMA)],
    "mistral-7b-v0.1": [("sliding attention", 32, LLAMA | {"sliding_window": True})],
    "gemma-2-9b": [
        ("sliding attention", 21, DECODER | heads(256, 16, 8) | {"sliding_window": True, "softcap": True}),
        ("full attention", 21, DECODER | heads(256, 16, 8) | {"softcap": True}),
    ],
    "gemma-3-27b": [
        ("sliding attention", 52, DECODER | heads(128, 32, 16) | {"sliding_window": True, "mm_prefix": True}),
        ("full attention", 10, DECODER | heads(128, 32, 16) | {"mm_prefix": True}),
        ("vision", 27, vision(72, 16)),
    ],
    "gemma-4-26b-a4b": [
        ("sliding attention", 25, DECODER | heads(256, 16, 8) | {"sliding_window": True, "mm_prefix": True}),
        ("full attention", 5, DECODER | heads(512, 16, 2) | {"mm_prefix": True}),
        ("vision", 27, vision(72, 16)),
    ],
    "gpt-oss-20b": [
        ("sliding attention", 12, DECODER | heads(64, 64, 8) | {"sliding_window": True, "sinks": True}),
        ("full attention", 12, DECODER | heads(64, 64, 8) | {"sinks": True}),
    ],
    "deepseek-v3": [("MLA", 61, latent(128, 128, 128))],
    "deepseek-v3.2": [("MLA sparse", 61, latent(128, 128, 128) | {"sparse": True, "index_topk": 2048})],
    "glm-5.2": [("MLA sparse", 78, latent(64, 192, 256) | {"sparse": True, "index_topk": 2048})],
    "deepseek-v4-flash": [
        (
            "MLA sparse",
            43,
            DECODER | heads(512, 64, 1) | {"mla": True, "sparse": True, "sinks": True, "index_topk": 512},
        )
    ],
    "kimi-k3": [
        ("linear attention", 69, NO_REQUEST),
        ("MLA", 24, latent(96, 128, 128)),
        ("vision", 27, vision(128, 12)),
    ],
    "qwen2.5-vl-7b": [("full attention", 28, DECODER | heads(128, 28, 4)), ("vision", 32, vision(80, 16))],
    "qwen3-next-80b-a3b": [
        ("linear attention", 36, NO_REQUEST),
        ("full attention", 12, DECODER | heads(256, 16, 2)),
    ],
    "qwen3.5-27b": [
        ("linear attention", 48, NO_REQUEST),
        ("full attention", 16, DECODER | heads(256, 24, 4)),
        ("vision", 27, vision(72, 16)),
    ],
    "jamba-1.5-mini": [("mamba", 28, NO_REQUEST), ("full attention", 4, LLAMA)],
    "nemotron-h-56b": [
        ("mamba", 54, NO_REQUEST),
        ("feed-forward", 54, NO_REQUEST),
        ("full attention", 10, DECODER | heads(128, 64, 8)),
    ],
    "nemotron-3-nano-30b-nvfp4": [
        ("mamba", 23, NO_REQUEST),
        ("feed-forward", 23, NO_REQUEST),
        ("full attention", 6, DECODER | heads(128, 32, 2) | FP8),
    ],
    "nemotron-super-49b": [
        ("full attention", 49, DECODER | heads(128, 64, 8)),
        ("no attention", 31, NO_REQUEST),
    ],
    "minimax-m3": [
        ("full attention", 3, DECODER | heads(128, 64, 4)),
        ("sparse attention", 57, DECODER | heads(128, 64, 4) | {"sparse": True}),
    ],
    "mimo-v2-flash": [
        ("full attention", 9, DECODER | heads(192, 64, 4) | {"head_size_v": 128}),
        (
            "sliding attention",
            39,
            DECODER | heads(192, 64, 8) | {"head_size_v": 128, "sliding_window": True, "sinks": True},
        ),
    ],
    "llama-4-scout": [
        ("chunked attention", 36, DECODER | heads(128, 40, 8)),
        ("full attention", 12, DECODER | heads(128, 40, 8)),
    ],
    "bert-base-uncased": [
        (
            "encoder",
            12,
            heads(64, 12, 12) | {"attn_type": "encoder_only", "causal": False, "dtype": "float32"},
        )
    ],
}


def test_every_configuration_is_expected() -> None:
    assert {path.name for path in CONFIGS.iterdir() if path.is_dir()} == {*PUBLISHED, "gpt2"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_layers(name: str) -> None:
    config = read_config(CONFIGS / name)
    assert [(kind.kind, kind.count, kind.request) for kind in config.layers] == PUBLISHED[name]
    assert config.known
    assert not config.unread


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_value_says_where_it_comes_from(name: str) -> None:
    for kind in read_config(CONFIGS / name).layers:
        assert kind.origin.keys() == kind.request.keys()
        assert all(kind.origin.values())
        assert kind.count == len(kind.indices) == len(set(kind.indices))
        assert kind.attention == bool(kind.request)


def test_layers_of_a_part_are_numbered_once() -> None:
    for name in PUBLISHED:
        parts: dict[str, list[int]] = {}
        for kind in read_config(CONFIGS / name).layers:
            parts.setdefault(kind.part, []).extend(kind.indices)
        for indices in parts.values():
            assert sorted(indices) == list(range(len(indices)))


def test_gpt2_names_no_dtype_and_takes_the_callers() -> None:
    config = read_config(CONFIGS / "gpt2", dtype="fp16")
    assert kinds(config) == [("text", "full attention", 12)]
    assert config.layers[0].request["head_size"] == 64
    assert config.layers[0].request["dtype"] == "float16"
    assert config.layers[0].origin["dtype"] == "you"
    assert config.layers[0].origin["head_size"] == "config.json: n_embd / n_head"


def test_first_layers() -> None:
    """Which layers come first is what a count cannot tell."""
    first = {
        "gpt-oss-20b": [(0, 2, 4), (1, 3, 5)],
        "gemma-3-27b": [(0, 1, 2), (5, 11, 17), (0, 1, 2)],
        "qwen3-next-80b-a3b": [(0, 1, 2), (3, 7, 11)],
        "jamba-1.5-mini": [(0, 1, 2), (4, 12, 20)],
        "kimi-k3": [(0, 1, 2), (3, 7, 11), (0, 1, 2)],
        "llama-4-scout": [(0, 1, 2), (3, 7, 11)],
        "nemotron-h-56b": [(0, 2, 4), (1, 3, 5), (7, 18, 29)],
        "minimax-m3": [(0, 1, 2), (3, 4, 5)],
        "nemotron-super-49b": [(0, 1, 2), (6, 7, 11)],
    }
    for name, expected in first.items():
        assert [kind.indices[:3] for kind in read_config(CONFIGS / name).layers] == expected, name


def test_windows() -> None:
    def widths(name: str) -> list[int | None]:
        return [kind.window for kind in read_config(CONFIGS / name).layers]

    assert widths("gemma-3-27b") == [1024, None, None]
    assert widths("gpt-oss-20b") == [128, None]
    assert widths("mistral-7b-v0.1") == [4096]
    assert widths("mistral-7b-instruct-v0.3") == [None]
    assert widths("mimo-v2-flash") == [None, 128]


def kind(name: str, index: int) -> LayerKind:
    return read_config(CONFIGS / name).layers[index]


def test_origins_name_fields_architectures_and_files() -> None:
    gemma = kind("gemma-3-27b", 0)
    assert gemma.origin["num_heads"] == "config.json: text_config.num_attention_heads"
    assert gemma.origin["dtype"] == "config.json: torch_dtype"
    assert gemma.origin["mm_prefix"] == "architecture gemma3"
    assert gemma.origin["sliding_window"] == "default of gemma3_text: sliding_window_pattern"
    assert kind("gpt-oss-20b", 0).origin["sliding_window"] == "config.json: layer_types"
    assert kind("gpt-oss-20b", 0).origin["dtype"] == "default of gpt_oss: dtype"
    assert kind("mistral-7b-v0.1", 0).origin["sliding_window"] == "config.json: sliding_window"
    assert kind("llama-3.1-8b", 0).origin["head_size"] == "config.json: hidden_size / num_attention_heads"
    per_head = kind("llama-3.1-8b-fp8-per-head", 0)
    assert per_head.origin["kv_cache_dtype"] == "config.json: quantization_config.kv_cache_scheme"
    assert per_head.origin["per_head_scales"] == "config.json: quantization_config.kv_cache_scheme.strategy"
    attention = kind("llama-3.1-8b-fp8-attention", 0)
    group = "config.json: quantization_config.config_groups.attention.input_activations"
    assert attention.origin["per_head_scales"] == f"{group}.strategy"
    nemotron = kind("nemotron-3-nano-30b-nvfp4", 2)
    assert nemotron.origin["kv_cache_dtype"] == "hf_quant_config.json: quantization.kv_cache_quant_algo"
    deepseek = kind("deepseek-v3.2", 0)
    assert deepseek.origin["head_size"] == "config.json: kv_lora_rank + qk_rope_head_dim"
    assert deepseek.origin["sparse"] == "config.json: index_topk"
