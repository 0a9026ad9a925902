"""Configurations that do not determine an answer, unknown architectures, and what the caller says."""

from __future__ import annotations

import pytest

from selector.errors import SelectorError
from selector.model_config import ConfigError, read_config
from selector.model_config.source import Json
from tests.selector.model_config.samples import kinds, llama, only, without

HEADS = "num_attention_heads"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {},
            "num_hidden_layers is missing; nor is there n_layer, n_layers, num_layers, num_transformer_layers",
        ),
        (
            without(llama(model_type="x"), HEADS),
            "num_attention_heads is missing; nor is there n_head, n_heads, num_heads, num_query_heads "
            "(the number of query heads cannot be known)",
        ),
        (
            without(llama(model_type="x"), "hidden_size"),
            "head_dim is missing; nor is there attention_head_dim, kv_channels, hidden_size_per_head, d_kv, "
            "attention_head_size (and there is no hidden_size to derive it from)",
        ),
        (
            llama(num_attention_heads=24),
            "(and hidden_size 4096 is no multiple of num_attention_heads 24, to derive it from)",
        ),
        (
            without(llama(), "torch_dtype"),
            "dtype is missing; nor is there torch_dtype (give one, such as dtype=bfloat16)",
        ),
        (llama(torch_dtype="auto"), "dtype is missing"),
        (
            llama(torch_dtype="float8_e4m3fn"),
            "torch_dtype is 'float8_e4m3fn', expected one of float16, bfloat16,",
        ),
        (llama(torch_dtype=16), "torch_dtype is 16, expected one of"),
        (llama(num_attention_heads=0), "num_attention_heads is 0, expected 1 to 65536"),
        (llama(num_attention_heads=-32), "num_attention_heads is -32, expected 1 to 65536"),
        (llama(num_attention_heads=32.0), "num_attention_heads is 32.0, expected a whole number"),
        (llama(num_attention_heads="32"), "num_attention_heads is '32', expected a whole number"),
        (llama(num_attention_heads=True), "num_attention_heads is true, expected a whole number"),
        (llama(num_attention_heads=float("nan")), "num_attention_heads is nan, expected a whole number"),
        (llama(num_attention_heads=float("inf")), "num_attention_heads is inf, expected a whole number"),
        (
            llama(num_attention_heads=10**30),
            "num_attention_heads is a number of more than 18 digits, expected 1 to",
        ),
        (llama(num_attention_heads=[32]), "num_attention_heads has 1 entries for 4 layers"),
        (llama(num_attention_heads=[8, 8, "8", 8]), "num_attention_heads[2] is '8', expected a whole number"),
        (
            llama(num_attention_heads={"a": 1}),
            "num_attention_heads is a mapping of 1 fields, expected a whole",
        ),
        (llama(num_key_value_heads=-1), "num_key_value_heads is -1, expected 1 to 65536"),
        (llama(head_dim=-64), "head_dim is -64, expected 1 to 65536"),
        (llama(head_dim=False), "head_dim is false, expected a whole number"),
        (
            llama(hidden_size=1 << 31, num_attention_heads=1, num_key_value_heads=1),
            "heads of 2147483648 elements",
        ),
        (llama(num_hidden_layers=1 << 40), "num_hidden_layers is 1099511627776, expected 0 to 10000"),
        (llama(num_hidden_layers=None), "num_hidden_layers is missing"),
        (llama(model_type=["llama"]), "model_type is a list of 1 entries, expected text"),
        (llama(text_config="none"), "text_config is 'none', expected a mapping"),
        (llama(text_config={"model_type": 3}), "text_config.model_type is 3, expected text"),
    ],
)
def test_the_field_is_named(data: dict[str, Json], message: str) -> None:
    known = data if data.get("model_type") != "llama" else data | {"model_type": "x"}
    with pytest.raises(ConfigError) as caught:
        read_config(known)
    assert message in str(caught.value)
    assert str(caught.value).startswith("config.json: ")
    assert caught.value.field
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_errors_are_values() -> None:
    def error() -> ConfigError:
        with pytest.raises(SelectorError) as caught:
            read_config({})
        assert isinstance(caught.value, ConfigError)
        return caught.value

    assert error() == error()
    assert error() != ConfigError("config.json", "num_hidden_layers", "is missing")


def test_terminals_are_not_at_the_mercy_of_a_file() -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(llama(torch_dtype="\x1b[2J\n\x00" + "x" * 10_000))
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 300


def test_an_architecture_nobody_heard_of() -> None:
    config = read_config(llama(model_type="wombat", architectures=["WombatForCausalLM"]))
    assert not config.known
    assert (config.model_type, config.architecture) == ("wombat", "WombatForCausalLM")
    assert config.notes == ("wombat is not known here: read by its standard fields alone",)
    assert kinds(config) == [("text", "full attention", 4)]
    assert only(config).request == only(read_config(llama())).request


def test_a_file_without_a_model_type() -> None:
    config = read_config(without(llama(), "model_type"))
    assert not config.known
    assert config.notes == ("LlamaForCausalLM is not known here: read by its standard fields alone",)
    assert not read_config(without(llama(), "model_type", "architectures")).known


def test_a_known_text_part_in_an_unknown_model() -> None:
    assert read_config({"model_type": "wombat_vl", "text_config": llama()}).known


def test_an_unknown_text_part_is_marked_though_its_images_are_known() -> None:
    config = read_config(
        {
            "model_type": "wombat_vl",
            "text_config": llama(model_type="wombat"),
            "vision_config": {"model_type": "siglip_vision_model"},
        }
    )
    assert not config.known
    assert kinds(config) == [("text", "full attention", 4), ("vision", "vision", 12)]


def test_an_image_part_that_says_too_little_is_told_and_left_out() -> None:
    config = read_config(llama(vision_config={"depth": 2, "hidden_size": 64}))
    assert kinds(config) == [("text", "full attention", 4)]
    ((part, reason),) = config.unread
    assert part == "vision"
    assert reason.startswith("config.json: vision_config.num_attention_heads is missing")
    assert read_config(llama(vision_config=7)).unread == (
        ("vision", "config.json: vision_config is 7, expected a mapping"),
    )


def test_the_caller_decides() -> None:
    kind = only(
        read_config(
            llama(),
            dtype="torch.half",
            kv_cache_dtype="fp8",
            block_size=64,
            given={"batch_invariant": True, "sinks": True},
        )
    )
    mine = {
        "dtype": "float16",
        "kv_cache_dtype": "fp8",
        "block_size": 64,
        "batch_invariant": True,
        "sinks": True,
    }
    assert {axis: kind.request[axis] for axis in mine} == mine
    assert {kind.origin[axis] for axis in mine} == {"you"}
    assert kind.origin["head_size"] != "you"


def test_the_callers_dtype_makes_up_for_a_missing_or_unusable_one() -> None:
    for config in (without(llama(), "torch_dtype"), llama(torch_dtype="float8_e4m3fn")):
        assert only(read_config(config, dtype="bf16")).request["dtype"] == "bfloat16"


def test_axes_of_some_packs_are_kept_apart() -> None:
    kind = only(read_config(llama(canvas_length=64)))
    assert kind.extra == {"diffusion_model": True, "model_config": True}
    assert not kind.extra.keys() & kind.request.keys()
