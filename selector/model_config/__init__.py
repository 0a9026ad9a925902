"""Reading the `config.json` of a model: which attention layers it has, and what each kind of them needs."""

from __future__ import annotations

from selector.model_config.architectures import Architectures, load_architectures
from selector.model_config.errors import ConfigError
from selector.model_config.reader import read_config
from selector.model_config.results import LayerKind, ModelConfig

__all__ = [
    "Architectures",
    "ConfigError",
    "LayerKind",
    "ModelConfig",
    "load_architectures",
    "read_config",
]
