"""Numbers and sizes of heads, tensor parallelism, latent attention, and the facts of architectures."""

from __future__ import annotations

import pytest

from selector.model_config import ConfigError, LayerKind, read_config
from selector.model_config.source import Json
from tests.selector.model_config.samples import CONFIGS, kinds, llama, only, without


def heads(kind: LayerKind) -> tuple[Json, Json, Json]:
    return kind.request["num_heads"], kind.request["num_kv_heads"], kind.request["head_size"]


GPT: dict[str, Json] = {"n_head": 16, "n_layer": 2, "n_embd": 1024, "torch_dtype": "float16"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (GPT | {"model_type": "gpt2"}, (16, 16, 64)),
        (GPT | {"model_type": "gpt_bigcode"}, (16, 1, 64)),
        (GPT | {"model_type": "gpt_bigcode", "multi_query": False}, (16, 16, 64)),
        (llama(model_type="falcon"), (32, 1, 128)),
        (llama(model_type="falcon", num_kv_heads=8, new_decoder_architecture=True), (32, 8, 128)),
        (without(llama(model_type="falcon", multi_query=False), "num_key_value_heads"), (32, 32, 128)),
        (
            {"model_type": "mpt", "n_heads": 32, "n_layers": 2, "d_model": 4096, "dtype": "bfloat16"},
            (32, 32, 128),
        ),
        (
            {
                "model_type": "dbrx",
                "n_heads": 48,
                "n_layers": 2,
                "d_model": 6144,
                "attn_config": {"kv_n_heads": 8},
                "dtype": "bfloat16",
            },
            (48, 8, 128),
        ),
        (
            {
                "model_type": "chatglm",
                "num_attention_heads": 32,
                "num_layers": 2,
                "hidden_size": 4096,
                "kv_channels": 128,
                "multi_query_group_num": 2,
                "torch_dtype": "float16",
            },
            (32, 2, 128),
        ),
        (llama(head_dim=64), (32, 8, 64)),
        (llama(head_dim=0), (32, 8, 128)),
        (llama(head_dim=None, num_key_value_heads=None), (32, 32, 128)),
        (without(llama(head_dim=80), "hidden_size"), (32, 8, 80)),
    ],
)
def test_names_of_the_same_thing(data: dict[str, Json], expected: tuple[int, int, int]) -> None:
    assert heads(only(read_config(data))) == expected


@pytest.mark.parametrize(
    ("tp", "expected"), [(1, (32, 8)), (2, (16, 4)), (8, (4, 1)), (16, (2, 1)), (32, (1, 1))]
)
def test_tensor_parallelism(tp: int, expected: tuple[int, int]) -> None:
    assert heads(only(read_config(llama(), tp=tp)))[:2] == expected


@pytest.mark.parametrize(
    ("changes", "tp", "message"),
    [
        ({}, 3, "num_attention_heads says that 32 heads cannot be split over tp=3 ranks"),
        ({}, 64, "num_attention_heads says that 32 heads cannot be split over tp=64 ranks"),
        (
            {"num_attention_heads": 48, "num_key_value_heads": 12, "head_dim": 128},
            8,
            "num_key_value_heads says that 12 key/value heads cannot be split over tp=8 ranks",
        ),
        (
            {"num_attention_heads": 48, "num_key_value_heads": 6, "head_dim": 128},
            8,
            "num_key_value_heads says that 6 key/value heads cannot be split over tp=8 ranks",
        ),
        ({"num_key_value_heads": 5}, 1, "num_attention_heads 32 is not a multiple of 5 key/value heads"),
    ],
)
def test_heads_that_do_not_divide(changes: dict[str, Json], tp: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(llama(**changes), tp=tp)
    assert message in str(caught.value)


@pytest.mark.parametrize("tp", [0, -1, True, 2.0, "2", None, 10**9])
def test_a_number_of_ranks_that_is_none(tp: object) -> None:
    with pytest.raises(ConfigError, match="expected a number of ranks"):
        read_config(llama(), tp=tp)  # type: ignore[arg-type]


def test_an_image_encoder_that_cannot_be_split_is_left_whole() -> None:
    config = read_config(CONFIGS / "kimi-k3", tp=8)
    mla, vision = (kind for kind in config.layers if kind.attention)
    assert heads(mla) == (12, 1, 576)
    assert mla.origin["num_kv_heads"] == "latent attention has one, repeated for tp=8"
    assert heads(vision) == (12, 12, 128)
    assert vision.notes == ("12 heads cannot be split over tp=8 ranks: every rank has all of them",)


LATENT: dict[str, Json] = {
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
}


def test_a_latent_rank_makes_any_architecture_latent() -> None:
    kind = only(read_config(llama(model_type="one_of_many", **LATENT)))
    assert (kind.kind, heads(kind), kind.request["head_size_v"]) == ("MLA", (40, 1, 288), 256)


def test_latent_vectors_that_are_expanded_first() -> None:
    kind = only(read_config(llama(model_type="minicpm3", **LATENT)))
    assert (kind.kind, heads(kind), kind.request["head_size_v"]) == ("full attention", (40, 40, 96), 64)
    assert "mla" not in kind.request


def test_latent_attention_without_its_rotary_part_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(without(llama(**LATENT), "qk_rope_head_dim"))
    assert str(caught.value) == (
        "config.json: qk_rope_head_dim is missing (kv_lora_rank says that the attention is latent)"
    )


def test_zeros_are_parts_that_do_not_exist() -> None:
    """As DeepSeek's small models, which have no latent vectors, write it."""
    zeros: dict[str, Json] = {
        "kv_lora_rank": 0,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "v_head_dim": 0,
    }
    kind = only(read_config(llama(model_type="deepseek_v2", head_dim=0, **zeros)))
    assert (kind.kind, heads(kind)) == ("full attention", (32, 8, 128))
    assert "head_size_v" not in kind.request


def test_an_indexer_serves_every_layer_or_those_listed() -> None:
    sparse = llama(model_type="one_of_many", index_topk=2048, **LATENT)
    assert kinds(read_config(sparse)) == [("text", "MLA sparse", 4)]
    listed = sparse | {"layer_types": ["indexed_attention", "full_attention"] * 2}
    config = read_config(listed)
    assert kinds(config) == [("text", "MLA sparse", 2), ("text", "MLA", 2)]
    assert [kind.request.get("index_topk") for kind in config.layers] == [2048, None]
    assert kinds(read_config(sparse | {"index_topk": None})) == [("text", "MLA", 4)]


@pytest.mark.parametrize(
    ("data", "axes"),
    [
        (llama(model_type="bloom"), {"alibi": True}),
        (llama(model_type="mpt"), {"alibi": True}),
        (llama(model_type="mpt", attn_config={"alibi": False}), {"alibi": None}),
        (llama(model_type="falcon", alibi=True), {"alibi": True}),
        (llama(model_type="falcon"), {"alibi": None}),
        (
            llama(model_type="bert", position_embedding_type="alibi"),
            {"alibi": True, "attn_type": "encoder_only"},
        ),
        (llama(model_type="baichuan", hidden_size=5120, num_attention_heads=40), {"alibi": True}),
        (llama(model_type="baichuan"), {"alibi": None}),
        (llama(model_type="gemma2"), {"softcap": True}),
        (llama(model_type="gemma2", attn_logit_softcapping=None), {"softcap": None}),
        (llama(attn_logit_softcapping=30.0), {"softcap": True}),
        (llama(attn_logit_softcapping=0.0), {"softcap": None}),
        (llama(final_logit_softcapping=30.0), {"softcap": None}),
        (llama(is_causal=False), {"causal": False, "attn_type": "encoder_only"}),
        (llama(is_causal=True), {"causal": True, "attn_type": "decoder"}),
        (llama(model_type="gemma3_text", use_bidirectional_attention=True), {"attn_type": "encoder_only"}),
        (llama(architectures=["SomethingForMaskedLM"], model_type="x"), {"attn_type": "encoder_only"}),
        (llama(is_mm_prefix_lm=True), {"mm_prefix": True}),
        (llama(attention_sinks=True), {"sinks": True}),
        (llama(rswa_window=64), {"rswa": True}),
        (llama(model_type="dream"), {"causal": False, "non_causal": True, "attn_type": "decoder"}),
        (llama(v_head_dim=64), {"head_size_v": 64}),
        (llama(v_head_dim=128), {"head_size_v": None}),
    ],
)
def test_facts(data: dict[str, Json], axes: dict[str, Json]) -> None:
    request = read_config(data).layers[0].request
    assert {axis: request.get(axis) for axis in axes} == axes


def test_an_encoder_has_no_kv_cache() -> None:
    kind = only(read_config(llama(model_type="bert"), kv_cache_dtype="fp8", block_size=16))
    assert not {"kv_cache_dtype", "block_size"} & kind.request.keys()


T5: dict[str, Json] = {
    "model_type": "t5",
    "d_model": 768,
    "d_kv": 64,
    "num_heads": 12,
    "num_layers": 12,
    "num_decoder_layers": 6,
    "torch_dtype": "float32",
}
WHISPER: dict[str, Json] = {
    "model_type": "whisper",
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "decoder_layers": 4,
    "decoder_attention_heads": 20,
    "torch_dtype": "float16",
}


def test_encoder_decoder() -> None:
    config = read_config(WHISPER, kv_cache_dtype="fp8_e5m2")
    assert kinds(config) == [
        ("encoder", "encoder", 32),
        ("decoder", "full attention", 4),
        ("cross", "cross attention", 4),
    ]
    assert [kind.request["attn_type"] for kind in config.layers] == ["encoder", "decoder", "encoder_decoder"]
    assert [kind.request["causal"] for kind in config.layers] == [False, True, False]
    assert [kind.request.get("kv_cache_dtype") for kind in config.layers] == [None, "fp8_e5m2", "fp8_e5m2"]
    assert all(kind.extra["encoder_decoder_model"] is True for kind in config.layers)
    assert {heads(kind) for kind in config.layers} == {(20, 20, 64)}


def test_relative_position_biases_are_a_mask_of_self_attention() -> None:
    config = read_config(T5)
    assert kinds(config) == [
        ("encoder", "encoder", 12),
        ("decoder", "full attention", 6),
        ("cross", "cross attention", 6),
    ]
    assert [kind.request.get("custom_mask") for kind in config.layers] == [True, True, None]


def test_nested_encoder_and_decoder() -> None:
    module: dict[str, Json] = {
        "model_type": "t5_gemma_module",
        "hidden_size": 2304,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "num_hidden_layers": 26,
    }
    config = read_config({"model_type": "t5gemma", "encoder": module, "decoder": module, "dtype": "bfloat16"})
    assert kinds(config) == [
        ("encoder", "encoder, sliding", 13),
        ("encoder", "encoder", 13),
        ("decoder", "sliding attention", 13),
        ("decoder", "full attention", 13),
        ("cross", "cross attention", 26),
    ]
    assert {kind.request.get("softcap") for kind in config.layers[:4]} == {True}
    assert config.layers[2].origin["head_size"] == "config.json: decoder.head_dim"
    bidirectional = module | {"use_bidirectional_attention": True}
    config = read_config(
        {"model_type": "t5gemma", "encoder": bidirectional, "decoder": module, "dtype": "bfloat16"}
    )
    assert {kind.request["attn_type"] for kind in config.layers if kind.part == "encoder"} == {"encoder"}


def test_speech_and_image_parts_of_one_model() -> None:
    text = without(llama(), "architectures")
    thinker: dict[str, Json] = {
        "text_config": text,
        "vision_config": {"depth": 32, "num_heads": 16, "hidden_size": 1280},
        "audio_config": {"encoder_layers": 32, "encoder_attention_heads": 20, "d_model": 1280},
    }
    config = read_config({"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": text})
    assert kinds(config) == [
        ("text", "full attention", 4),
        ("talker", "full attention", 4),
        ("vision", "vision", 32),
        ("audio", "audio", 32),
    ]
    assert [heads(kind) for kind in config.layers[2:]] == [(16, 16, 80), (20, 20, 64)]


def test_sparse_nested_configurations_fall_back_to_their_architecture() -> None:
    """Files written by older libraries hold only what differs from the defaults of a model type."""
    config = read_config(
        {
            "model_type": "llava",
            "text_config": {"model_type": "llama", "torch_dtype": "float16"},
            "vision_config": {
                "model_type": "clip_vision_model",
                "num_hidden_layers": 24,
                "hidden_size": 1024,
                "num_attention_heads": 16,
            },
        }
    )
    text, vision = config.layers
    assert (text.count, heads(text)) == (32, (32, 32, 128))
    assert text.origin["num_heads"] == "default of llama: num_attention_heads"
    assert (vision.count, heads(vision)) == (24, (16, 16, 64))
    assert vision.request["dtype"] == "float16"


def test_a_nested_configuration_is_not_completed_by_the_fields_around_it() -> None:
    """Some files repeat the text fields at the top, and those are not kept up to date."""
    with pytest.raises(ConfigError, match=r"text_config\.num_attention_heads is missing"):
        read_config(llama(model_type="x", text_config={"num_hidden_layers": 2, "hidden_size": 64}))
