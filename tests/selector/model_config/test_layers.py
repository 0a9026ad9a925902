"""Which layer is of which kind, by every way a configuration can say it."""

from __future__ import annotations

import pytest

from selector.model_config import ConfigError, read_config
from selector.model_config.source import Json
from tests.selector.model_config.samples import kinds, llama, only, without, words

WINDOW: dict[str, Json] = {"sliding_window": 1024}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "ffff"),
        ({"layer_types": ["full_attention", "sliding_attention"] * 2, **WINDOW}, "fsfs"),
        ({"layer_types": ["linear_attention", "attention", "conv", "mamba"]}, "lfcm"),
        ({"layers_block_type": ["mamba", "attention", "mlp", "moe"]}, "mfff"),
        ({"attention_layers": ["global", "local", "global", "local"], "window_size": 256}, "fsfs"),
        ({"block_types": ["recurrent", "attention"]}, "rfrf"),
        ({"hybrid_override_pattern": "M*-E"}, "mfff"),
        ({"sliding_window_pattern": 2, **WINDOW}, "sfsf"),
        ({"sliding_window_pattern": "LLG", **WINDOW}, "ssfs"),
        ({"_sliding_window_pattern": 4, **WINDOW}, "sssf"),
        ({"global_attn_every_n_layers": 2, **WINDOW}, "sfsf"),
        ({"full_attention_interval": 2}, "lflf"),
        ({"attn_layer_period": 2, "attn_layer_offset": 0}, "fmfm"),
        ({"layer_group_size": 4}, "lllf"),
        ({"attn_layer_indices": [1]}, "mfmm"),
        ({"full_attn_idxs": [0, 3]}, "fccf"),
        ({"linear_attn_config": {"full_attn_layers": [2, 4], "kda_layers": [1, 3]}}, "lflf"),
        ({"cross_attention_layers": [1]}, "fcff"),
        ({"attn_type_list": [0, 1, 0, 1]}, "lflf"),
        ({"hybrid_layer_pattern": [0, 1, 1, 0], **WINDOW}, "fssf"),
        ({"sparse_attention_config": {"sparse_attention_freq": [0, 1, 1, 1]}}, "fsss"),
        ({"use_sliding_window": True, "max_window_layers": 3, **WINDOW}, "fffs"),
        ({"use_sliding_window": False, "max_window_layers": 3, **WINDOW}, "ffff"),
        (WINDOW, "ssss"),
        ({"sliding_window": None}, "ffff"),
        ({"sliding_window": 0}, "ffff"),
        ({"sliding_window": -1}, "ffff"),
        ({"sliding_window": False}, "ffff"),
        ({"sliding_window": None, "sliding_window_pattern": 2}, "ffff"),
    ],
)
def test_ways_to_say_it(changes: dict[str, Json], expected: str) -> None:
    assert words(llama(model_type="one_of_many", **changes)) == expected


def test_an_explicit_list_comes_before_an_architectures_habit() -> None:
    config = llama(model_type="gemma2", sliding_window=4096)
    assert words(config) == "sfsf"
    assert words(config | {"layer_types": ["full_attention"] * 4}) == "ffff"


def test_a_list_may_go_on_with_drafting_layers() -> None:
    assert words(llama(layer_types=["full_attention"] * 6)) == "ffff"


@pytest.mark.parametrize(
    ("model_type", "changes", "expected"),
    [
        ("qwen2", {"sliding_window": 4096, "max_window_layers": 2}, "ffff"),
        ("qwen2", {"sliding_window": 4096, "max_window_layers": 2, "use_sliding_window": True}, "ffss"),
        ("mistral", {}, "ssss"),
        ("mistral", {"sliding_window": None}, "ffff"),
        ("gemma3_text", {"sliding_window_pattern": 2}, "sfsf"),
        ("cohere2", {}, "sssf"),
        ("exaone4", {"sliding_window": None, "sliding_window_pattern": None}, "ffff"),
        ("llama4_text", {}, "cccf"),
        ("llama4_text", {"no_rope_layers": []}, "cccf"),
        ("llama4_text", {"no_rope_layers": [1, 0, 1, 0]}, "cfcf"),
        ("llama4_text", {"attention_chunk_size": None}, "ffff"),
        ("smollm3", {"no_rope_layers": [1, 1, 1, 0]}, "ffff"),
        ("recurrent_gemma", {}, "rrsr"),
        ("qwen3_next", {}, "lllf"),
        ("jamba", {"attn_layer_period": 4, "attn_layer_offset": 2}, "mmfm"),
        ("minimax", {}, "flfl"),
        ("minimax", {"attn_type_list": [0, 0, 0, 1]}, "lllf"),
        ("bamba", {"attn_layer_indices": []}, "mmmm"),
        ("modernbert", {}, "eeee"),
        ("gpt_oss", {}, "sfsf"),
        ("falcon_h1", {}, "ffff"),
        ("mamba2", {}, "mmmm"),
        ("granite_swa", {"sliding_window": 128}, "fsss"),
    ],
)
def test_architectures(model_type: str, changes: dict[str, Json], expected: str) -> None:
    assert words(llama(model_type=model_type, **changes)) == expected


def test_modernbert_alternates_and_is_an_encoder() -> None:
    config = read_config(llama(model_type="modernbert", num_hidden_layers=6))
    assert kinds(config) == [("text", "encoder", 2), ("text", "encoder, sliding", 4)]
    assert [kind.request["attn_type"] for kind in config.layers] == ["encoder_only", "encoder_only"]


def test_two_attention_blocks_in_each_layer() -> None:
    config = read_config(without(llama(model_type="longcat_flash", num_layers=28), "num_hidden_layers"))
    assert only(config).count == 56
    assert any("two attention blocks" in note for note in config.notes)


def test_a_window_that_never_bites_is_said() -> None:
    kind = only(read_config(llama(model_type="phi3", sliding_window=8192)))
    assert kind.window == 8192
    assert kind.notes == ("the window of 8192 tokens is no narrower than the context of 8192",)
    assert only(read_config(llama(model_type="phi3", sliding_window=2047))).notes == ()


def test_a_number_of_layers_can_come_from_their_list() -> None:
    config = llama(model_type="nemotron_h", layers_block_type=["mamba", "attention", "moe"])
    assert words(without(config, "num_hidden_layers")) == "mff"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 4 layers"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention', expected a list"),
        (
            {"layer_types": ["full_attention", "wavelet", 3, None]},
            "layer_types[1] is 'wavelet', which is no known",
        ),
        (
            {"layer_types": [["full_attention"]] * 4},
            "layer_types[0] is a list of 1 entries, which is no known",
        ),
        ({"hybrid_override_pattern": "M*"}, "hybrid_override_pattern has 2 letters for 4 layers"),
        ({"hybrid_override_pattern": "M*?M"}, "hybrid_override_pattern[2] is '?', which is no known"),
        ({"hybrid_override_pattern": 7}, "hybrid_override_pattern is 7, expected text"),
        (
            {"sliding_window_pattern": 2.5, "sliding_window": 9},
            "sliding_window_pattern is 2.5, expected a whole number",
        ),
        ({"sliding_window": "wide"}, "sliding_window is 'wide', expected a whole number"),
        (
            {"sliding_window": 9, "use_sliding_window": "yes"},
            "use_sliding_window is 'yes', expected true or false",
        ),
        ({"attn_layer_period": 2}, "attn_layer_offset is missing"),
        ({"attn_layer_indices": {"1": True}}, "attn_layer_indices is a mapping of 1 fields, expected a list"),
        ({"attn_layer_indices": [True]}, "attn_layer_indices[0] is true, expected a whole number"),
        ({"attn_type_list": [0, 1, 2, 1]}, "attn_type_list[2] is '2', which is no known"),
        ({"block_configs": [1, 2, 3, 4]}, "block_configs[0] is 1, expected a mapping"),
    ],
)
def test_refusals(changes: dict[str, Json], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(llama(model_type="one_of_many", **changes))
    assert message in str(caught.value)


def test_layers_that_differ_in_their_heads_are_apart() -> None:
    config = read_config(
        llama(num_attention_heads=[8, 16, 8, 16], num_key_value_heads=[2, 4, 2, 2], head_dim=64)
    )
    assert [
        (kind.indices, kind.request["num_heads"], kind.request["num_kv_heads"]) for kind in config.layers
    ] == [
        ((0, 2), 8, 2),
        ((1,), 16, 4),
        ((3,), 16, 2),
    ]


def test_blocks_with_groups_of_their_own() -> None:
    def block(group: int | None, no_op: bool = False) -> Json:
        return {"attention": {"n_heads_in_group": group, "no_op": no_op}, "ffn": {"no_op": False}}

    blocks: Json = [block(8), block(4), block(None, no_op=True), block(8)]
    config = read_config(llama(model_type="nemotron-nas", block_configs=blocks, num_key_value_heads=None))
    assert [(kind.kind, kind.indices, kind.request.get("num_kv_heads")) for kind in config.layers] == [
        ("full attention", (0, 3), 4),
        ("full attention", (1,), 8),
        ("no attention", (2,), None),
    ]


def test_layers_with_fields_of_their_own() -> None:
    """As `transformers` 5 writes models whose layers differ: only what is other, by the layer's number."""
    other: Json = {
        "01": {"head_dim": 256, "num_key_value_heads": 2},
        "2": {"sliding_window": None},
        "3": {"skip": ["attention"]},
    }
    config = read_config(llama(model_type="wombat", sliding_window=1024, per_layer_config=other))
    assert [(kind.kind, kind.indices, kind.window) for kind in config.layers] == [
        ("sliding attention", (0,), 1024),
        ("sliding attention", (1,), 1024),
        ("full attention", (2,), None),
        ("no attention", (3,), None),
    ]
    second = config.layers[1]
    assert (second.request["head_size"], second.request["num_kv_heads"]) == (256, 2)
    assert second.origin["head_size"] == "config.json: per_layer_config.01.head_dim"
    assert config.layers[0].request["head_size"] == 128


def test_a_window_of_one_layer() -> None:
    config = read_config(llama(model_type="wombat", per_layer_config={"2": {"sliding_window": 512}}))
    assert [(kind.kind, kind.indices, kind.window) for kind in config.layers] == [
        ("full attention", (0, 1, 3), None),
        ("sliding attention", (2,), 512),
    ]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([1], "per_layer_config is a list of 1 entries, expected a mapping"),
        ({"4": {}}, "per_layer_config names a layer '4', expected 0 to 3"),
        ({"last": {}}, "per_layer_config names a layer 'last', expected 0 to 3"),
        ({"²": {}}, "per_layer_config names a layer '²', expected 0 to 3"),
        ({"1": 7}, "per_layer_config.1 is 7, expected a mapping"),
        (
            {"1": {"num_attention_heads": "many"}},
            "per_layer_config.1.num_attention_heads is 'many', expected",
        ),
    ],
)
def test_refusals_of_single_layers(other: Json, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(llama(per_layer_config=other))
    assert message in str(caught.value)
