"""vLLM as far as the plug-in looks at it, made from what was recorded of its wheel; nothing else is there.

The platform's choice is what a test says; the rest (parameters, fields, members, names) is the recording's.
"""

from __future__ import annotations

import enum
import inspect
import json
import sys
from collections import namedtuple
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.integrations.vllm_record import FIELDS

RECORDED = Path(__file__).parent / "data"
REGISTRY = "vllm.v1.attention.backends.registry"
TYPES = "vllm.v1.attention.backend"
SELECTOR, SELECTOR_CLASS = next(iter(FIELDS.items()))


def recording(version: str = "0.32.0") -> dict[str, Any]:
    """One recording."""
    found: dict[str, Any] = json.loads((RECORDED / f"vllm-{version}.json").read_text(encoding="utf-8"))
    return found


class Standin:
    """The modules of one vLLM on one machine. Change `choose`, `config` or `recorded`'s parts before `install`."""

    def __init__(
        self, device: str = "cuda", capability: tuple[int, int] | None = (9, 0), version: str = "0.32.0"
    ) -> None:
        self.recorded = recording()
        self.device, self.capability, self.version = device, capability, version
        self.installed = {"fa2", "fa3", "flashmla"}
        self.config: Any = None
        self.asked: list[tuple[Any, Any, Any]] = []
        self.choose: Any = lambda selected, config, heads: self.backends["FLASH_ATTN"].get_path()
        self.rank_first = True
        self.modules: dict[str, ModuleType] = {}
        self.enums()

    # -- parts ----------------------------------------------------------------------------------------------------------

    def enums(self) -> None:
        members = self.recorded["enums"]
        registered: dict[str, Any] = members[f"{REGISTRY}:AttentionBackendEnum"]

        def get_path(self: Any, include_classname: bool = True) -> str:
            if not self.value:
                raise ValueError(f"Backend {self.name} must be registered before use")
            return str(self.value)

        make: Any = enum.Enum
        self.backends: Any = make("AttentionBackendEnum", registered)
        self.backends.get_path = get_path
        self.types: Any = make("AttentionType", members[f"{TYPES}:AttentionType"], type=str)
        architectures = list(members["vllm.platforms.interface:CpuArchEnum"])
        self.architectures: Any = make("CpuArchEnum", architectures)
        self.architecture = "X86"

    def question(self, **fields: Any) -> Any:
        """An `AttentionSelectorConfig`."""
        recorded = self.recorded["fields"][f"{SELECTOR}:{SELECTOR_CLASS}"]
        defaults = [self.default(p[2]) for p in recorded if len(p) == 3]
        base: Any = namedtuple(SELECTOR_CLASS, [p[0] for p in recorded], defaults=defaults)  # type: ignore[misc]
        (shown,) = self.recorded["texts"][f"{SELECTOR}:{SELECTOR_CLASS}.__repr__"]
        made: Any = type(SELECTOR_CLASS, (base,), {"__repr__": lambda self: shown.format(self=self)})
        given = {
            "head_size": 128,
            "dtype": torch.bfloat16,
            "kv_cache_dtype": "auto",
            "block_size": None,
            **fields,
        }
        return made(**given)

    def default(self, text: str) -> Any:
        return self.types[text.rpartition(".")[2]] if text.startswith("AttentionType.") else eval(text, {})

    def run(self, **model: Any) -> Any:
        """A `VllmConfig` with a model."""
        text = {k: v for k, v in model.items() if k not in ("heads", "kv_heads", "diffusion", "attn_type")}
        return SimpleNamespace(
            attention_config=SimpleNamespace(flash_attn_version=None, use_trtllm_attention=None),
            cache_config=SimpleNamespace(cache_dtype="auto"),
            parallel_config=SimpleNamespace(),
            model_config=SimpleNamespace(
                hf_text_config=SimpleNamespace(**text),
                is_diffusion=model.get("diffusion", False),
                attn_type=model.get("attn_type", "decoder"),
                get_num_kv_heads=lambda parallel_config: model.get("kv_heads", 8),
                get_num_attention_heads=lambda parallel_config: model.get("heads", 32),
            ),
        )

    def platform(self) -> Any:
        """The current platform, with the recorded parameters of its choice."""
        where = {"cuda": "vllm.platforms.cuda:CudaPlatformBase", "rocm": "vllm.platforms.rocm:RocmPlatform",
                 "xpu": "vllm.platforms.xpu:XPUPlatform", "cpu": "vllm.platforms.cpu:CpuPlatform"}.get(
            self.device, "vllm.platforms.interface:Platform")  # fmt: skip
        parameters = self.recorded["callables"][f"{where}.get_attn_backend_cls"]
        signature = ", ".join(p[0] if len(p) == 2 else f"{p[0]}={p[2]}" for p in parameters)
        names = ", ".join(p[0] for p in parameters[1:])
        scope: dict[str, Any] = {"body": self.body}
        exec(f"def get_attn_backend_cls({signature}): return body({names})", scope)
        capability = (
            None
            if self.capability is None
            else SimpleNamespace(major=self.capability[0], minor=self.capability[1])
        )
        base = type("Platform", (), {"get_attn_backend_cls": classmethod(lambda cls, *a: "the base's")})
        cls = type(
            "SomePlatform",
            (base,),
            {
                "get_attn_backend_cls": classmethod(scope["get_attn_backend_cls"]),
                "get_device_capability": classmethod(lambda cls, device_id=0: capability),
                "get_cpu_architecture": classmethod(lambda cls: self.architectures[self.architecture]),
                **{
                    f"is_{name}": (lambda answer: lambda self: answer)(name == self.device)
                    for name in ("cuda", "rocm", "xpu", "cpu")
                },
            },
        )
        return cls()

    def body(self, selected: Any, config: Any, *more: Any) -> Any:
        self.asked.append((selected, config, more[0] if more else None))
        return self.choose(selected, config, more[0] if more else None)

    # -- putting it there -----------------------------------------------------------------------------------------------

    def install(self, patch: pytest.MonkeyPatch) -> Any:
        """Put the modules into `sys.modules`; the current platform."""
        for name in [n for n in sys.modules if n in ("vllm", "flashinfer") or n.startswith("vllm.")]:
            patch.delitem(sys.modules, name)
        current = self.platform()
        self.module("vllm", __version__=self.version)
        self.module("vllm.platforms", current_platform=current)
        self.module(SELECTOR, AttentionSelectorConfig=type(self.question()))
        self.module(REGISTRY, AttentionBackendEnum=self.backends)
        self.module("vllm.config", get_current_vllm_config_or_none=lambda: self.config)
        self.module("vllm.envs", **dict.fromkeys(self.recorded["names"]["vllm.envs"], True))
        self.module("vllm.distributed.parallel_state", is_local_first_rank=lambda: self.rank_first)
        self.module("vllm.utils.flashinfer", has_flashinfer_cubin=lambda: "cubin" in self.installed,
                    has_nvidia_artifactory=lambda: "network" in self.installed)  # fmt: skip
        self.module("vllm.utils.b12x", get_b12x_paged_attention=lambda: None)
        self.module("vllm.v1.attention.ops.flashmla", _is_flashmla_available=self.flashmla)
        flags = {f"FA{n}_AVAILABLE": f"fa{n}" in self.installed for n in (2, 3, 4)}
        reasons = {
            f"FA{n}_UNAVAILABLE_REASON": None if f"fa{n}" in self.installed else "not built"
            for n in (2, 3, 4)
        }
        names = set(self.recorded["names"]["vllm.vllm_flash_attn.flash_attn_interface"])
        assert names == {*flags, *reasons}
        if {"fa2", "fa3"} & self.installed:
            self.module("vllm.vllm_flash_attn.flash_attn_interface", **flags, **reasons)
        self.module("vllm.platforms.rocm", _GCN_ARCH="gfx942:sramecc+:xnack-")
        self.module("vllm._aiter_ops", IS_AITER_FOUND="aiter" in self.installed)
        if "flashinfer" in self.installed:
            made = ModuleType("flashinfer")
            made.__spec__ = ModuleSpec("flashinfer", None)
            self.modules["flashinfer"] = made
        for name, module in self.modules.items():
            patch.setitem(sys.modules, name, module)
        return current

    def flashmla(self) -> tuple[bool, str | None]:
        return ("flashmla" in self.installed, None if "flashmla" in self.installed else "not compiled")

    def module(self, name: str, **members: Any) -> None:
        """A module and the packages around it."""
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            path = ".".join(parts[:i])
            if path not in self.modules:
                self.modules[path] = ModuleType(path)
                self.modules[path].__path__ = []
        vars(self.modules[name]).update(members)

    def choice(self, platform: Any, config: Any, selected: str | None = None, heads: int | None = 32) -> Any:
        """What vLLM's selector asks of its platform: the backend by position, the rest by name."""
        method = type(platform).get_attn_backend_cls
        assert list(inspect.signature(method).parameters)[1:] == ["attn_selector_config", "num_heads"]
        asked = None if selected is None else self.backends[selected]
        return platform.get_attn_backend_cls(asked, attn_selector_config=config, num_heads=heads)
