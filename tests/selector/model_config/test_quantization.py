"""How a checkpoint says that its KV cache is quantised, and what the caller's own choice does to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selector.model_config import ConfigError, read_config
from selector.model_config.source import Json
from tests.selector.model_config.samples import CONFIGS, llama, only


def scheme(**changes: Json) -> dict[str, Json]:
    return {
        "num_bits": 8,
        "type": "float",
        "strategy": "tensor",
        "dynamic": False,
        "symmetric": True,
        **changes,
    }


def group(target: Json, weights: Json = None, **changes: Json) -> dict[str, Json]:
    return {"targets": [target], "weights": weights, "input_activations": scheme(**changes)}


def asked(quantization: Json, name: str = "quantization_config", **arguments: str) -> tuple[Json, Json]:
    """The KV-cache dtype and per-head scales of a Llama with such a `quantization_config`."""
    request = only(read_config(llama(**{name: quantization}), **arguments)).request  # type: ignore[arg-type]
    return request.get("kv_cache_dtype"), request.get("per_head_scales")


PER_HEAD = ("fp8_e4m3", True)
PER_TENSOR = ("fp8_e4m3", None)
NOTHING = (None, None)
CT: dict[str, Json] = {"quant_method": "compressed-tensors"}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        (CT | {"kv_cache_scheme": scheme(strategy="attn_head")}, PER_HEAD),
        (CT | {"kv_cache_scheme": scheme()}, PER_TENSOR),
        (CT | {"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, PER_TENSOR),
        (CT | {"kv_cache_scheme": scheme(num_bits=4)}, ("nvfp4", None)),
        (CT | {"kv_cache_scheme": None}, NOTHING),
        (CT | {"config_groups": {"a": group("LlamaAttention", strategy="attn_head")}}, PER_HEAD),
        (CT | {"config_groups": {"a": group("Qwen3VLTextAttention")}}, PER_TENSOR),
        (CT | {"config_groups": {"a": group("re:.*self_attn$", strategy="attn_head")}}, PER_HEAD),
        (CT | {"config_groups": {"a": group("model.layers.0.self_attn", strategy="attn_head")}}, PER_HEAD),
        (CT | {"config_groups": {"a": group("Linear", weights=scheme(), strategy="token")}}, NOTHING),
        (
            CT | {"config_groups": {"a": group("re:.*self_attn.*", weights=scheme(), strategy="token")}},
            NOTHING,
        ),
        (CT | {"config_groups": {"a": group("re:.*self_attn.q_proj$", strategy="token")}}, NOTHING),
        (CT | {"config_groups": {"FP8_DYNAMIC": ["Linear"]}}, NOTHING),
        (
            CT
            | {
                "config_groups": {
                    "group_0": group("LlamaAttention", strategy="attn_head"),
                    "group_1": group("Linear", weights=scheme(strategy="channel"), strategy="token"),
                }
            },
            PER_HEAD,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": scheme()}, PER_TENSOR),
        ({"quant_method": "modelopt", "kv_cache_scheme": "FP8"}, PER_TENSOR),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "fp8"}, PER_TENSOR),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, ("nvfp4", None)),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": None}}, NOTHING),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "none"}, NOTHING),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}, NOTHING),
        ({"quant_method": "mxfp4"}, NOTHING),
        (
            {
                "quant_method": "quark",
                "export": {"kv_cache_group": ["*k_proj", "*v_proj"]},
                "kv_cache_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}},
            },
            PER_TENSOR,
        ),
        ({"quant_method": "quark", "export": {"kv_cache_group": []}, "kv_cache_quant_config": {}}, NOTHING),
        ({}, NOTHING),
        (None, NOTHING),
    ],
)
def test_forms(quantization: Json, expected: tuple[Json, Json]) -> None:
    assert asked(quantization) == expected


def test_other_places() -> None:
    quantization = CT | {"kv_cache_scheme": scheme(strategy="attn_head")}
    assert asked(quantization, "compression_config") == PER_HEAD
    nested = {"model_type": "x", "text_config": llama(quantization_config=quantization)}
    kind = only(read_config(nested))
    assert kind.request["per_head_scales"] is True
    assert kind.origin["kv_cache_dtype"] == "config.json: text_config.quantization_config.kv_cache_scheme"


def test_the_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama()))
    assert "kv_cache_dtype" not in only(read_config(tmp_path)).request
    beside = tmp_path / "hf_quant_config.json"
    beside.write_text(
        json.dumps({"producer": {"name": "modelopt"}, "quantization": {"kv_cache_quant_algo": "FP8"}})
    )
    for path in (tmp_path, tmp_path / "config.json", str(tmp_path)):
        assert only(read_config(path)).request["kv_cache_dtype"] == "fp8_e4m3"
    beside.write_text("[]")
    with pytest.raises(ConfigError, match=r"hf_quant_config\.json: holds a list of 0 entries"):
        read_config(tmp_path)


PER_HEAD_MODEL = CONFIGS / "llama-3.1-8b-fp8-per-head"


@pytest.mark.parametrize("own", ["fp8", "fp8_e4m3", "FP8_E4M3"])
def test_asking_for_what_the_checkpoint_has_keeps_its_scales(own: str) -> None:
    kind = only(read_config(PER_HEAD_MODEL, kv_cache_dtype=own))
    assert kind.request["kv_cache_dtype"] == own
    assert kind.origin["kv_cache_dtype"] == "you"
    assert kind.request["per_head_scales"] is True
    assert kind.notes == ()


@pytest.mark.parametrize("own", ["bfloat16", "fp8_e5m2"])
def test_another_format_than_the_checkpoints_has_no_scales(own: str) -> None:
    kind = only(read_config(PER_HEAD_MODEL, kv_cache_dtype=own))
    assert kind.request["kv_cache_dtype"] == own
    assert "per_head_scales" not in kind.request
    assert kind.notes == (
        "the checkpoint asks for a KV cache in fp8_e4m3 "
        "(config.json: quantization_config.kv_cache_scheme); you decided otherwise",
    )


def test_auto_leaves_it_to_the_checkpoint() -> None:
    assert asked(CT | {"kv_cache_scheme": scheme(strategy="attn_head")}, kv_cache_dtype="auto") == PER_HEAD


def test_a_format_without_a_name_is_refused_unless_the_caller_decides() -> None:
    config = llama(quantization_config=CT | {"kv_cache_scheme": scheme(type="int")})
    with pytest.raises(ConfigError) as caught:
        read_config(config)
    assert str(caught.value) == (
        "config.json: quantization_config.kv_cache_scheme asks for 8-bit numbers of type 'int', which have no name here "
        "(give kv_cache_dtype to decide it yourself)"
    )
    kind = only(read_config(config, kv_cache_dtype="bfloat16"))
    assert kind.request["kv_cache_dtype"] == "bfloat16"
    assert kind.notes[0].endswith("you decided otherwise")


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ("fp8", "quantization_config is 'fp8', expected a mapping"),
        ({"kv_cache_scheme": 8}, "quantization_config.kv_cache_scheme is 8, expected a mapping"),
        ({"kv_cache_scheme": {"type": "float"}}, "kv_cache_scheme.num_bits is null, expected a whole number"),
        (
            {"kv_cache_scheme": scheme(num_bits=True)},
            "kv_cache_scheme.num_bits is true, expected a whole number",
        ),
        (
            {"kv_cache_scheme": scheme(strategy="token")},
            "strategy is 'token', expected one of tensor, attn_head",
        ),
        (
            {"kv_cache_scheme": scheme(strategy=["attn_head"])},
            "strategy is a list of 1 entries, expected one of",
        ),
        ({"kv_cache_scheme": scheme(type=["float"])}, "asks for 8-bit numbers of type a list of 1 entries"),
        ({"kv_cache_quant_algo": "INT7"}, "kv_cache_quant_algo is 'INT7', which has no name here"),
        ({"kv_cache_quant_algo": 8}, "kv_cache_quant_algo is 8, which has no name here"),
        ({"config_groups": 3}, "quantization_config.config_groups is 3, expected a mapping"),
    ],
)
def test_refusals(quantization: Json, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        asked(quantization)
    assert message in str(caught.value)


def test_images_have_no_kv_cache() -> None:
    config = llama(
        vision_config={"depth": 2, "num_heads": 4, "hidden_size": 64},
        quantization_config=CT | {"kv_cache_scheme": scheme(strategy="attn_head")},
    )
    text, vision = read_config(config).layers
    assert text.request["per_head_scales"] is True
    assert not {"kv_cache_dtype", "per_head_scales"} & vision.request.keys()
