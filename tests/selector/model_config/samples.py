"""Small configurations to vary, and short ways to look at what was read."""

from __future__ import annotations

from pathlib import Path

from selector.model_config import LayerKind, ModelConfig, read_config
from selector.model_config.source import Json

CONFIGS = Path(__file__).parents[2] / "data" / "configs"

LLAMA: dict[str, Json] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 4,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def llama(**changes: Json) -> dict[str, Json]:
    """The small Llama with some fields replaced; a value of `...` would be no JSON, so removal is `without`."""
    return {**LLAMA, **changes}


def without(config: dict[str, Json], *fields: str) -> dict[str, Json]:
    return {name: value for name, value in config.items() if name not in fields}


def only(config: ModelConfig) -> LayerKind:
    """The one kind of layer of a model that has one."""
    (kind,) = config.layers
    return kind


def kinds(config: ModelConfig) -> list[tuple[str, str, int]]:
    return [(kind.part, kind.kind, kind.count) for kind in config.layers]


def words(data: dict[str, Json]) -> str:
    """The kinds of the text layers in order, a letter each (the first of the kind)."""
    config = read_config(data)
    letters: dict[int, str] = {}
    for kind in config.layers:
        if kind.part in ("text", "decoder"):
            letters.update(dict.fromkeys(kind.indices, kind.kind[0]))
    return "".join(letters[index] for index in sorted(letters))
