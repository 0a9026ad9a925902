"""Stand-ins that let vLLM's selection run on a CPU: compiled extensions, optional packages, a platform, a configuration.

No kernel runs. A stand-in is a module of which every attribute is a class that takes anything. What a stand-in makes
available is what the caller says is installed; everything else stays missing and fails to import as it would.

This module needs vLLM and PyTorch and imports them when `start` is called.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTENSIONS: Final[Mapping[str, Sequence[str]]] = {
    "fa2": ["vllm.vllm_flash_attn._vllm_fa2_C"],
    "fa3": ["vllm.vllm_flash_attn._vllm_fa3_C"],
    "flashmla": [
        "vllm._flashmla_C",
        "vllm._flashmla_extension_C",
        "vllm.third_party.flashmla.flash_mla_interface",
    ],
    "flashinfer": ["flashinfer"],
    "flashinfer-cubin": ["flashinfer_cubin"],
    "tokenspeed_mla": ["tokenspeed_mla"],
    "b12x": ["b12x"],
    "hpc": ["hpc"],
    "aiter": ["aiter"],
}
"""What a row calls installed, and the modules (or packages) it brings. `fa4` and `cutlass` are no modules of their own."""

ALWAYS: Final[Mapping[str, Sequence[str]]] = {
    "cuda": ["vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch", "vllm._qutlass_C"],
    "rocm": ["vllm._C_stable_libtorch", "vllm._rocm_C", "amdsmi"],
    "xpu": ["vllm_xpu_kernels"],
    "cpu": [],
}
"""Modules that a platform's wheel always has."""


class Anything:
    """Takes any call and gives itself back; true, and callable without end."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take anything."""

    def __call__(self, *args: object, **kwargs: object) -> Anything:
        """Stand for the result of any call."""
        return self


class Stand(ModuleType):
    """A module that has every attribute."""

    def __init__(self, name: str) -> None:
        """Make an empty package of this name."""
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """A new class of that name."""
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (Anything,), {"run": run_of_sm90_mla})
        setattr(self, name, made)
        return made


def run_of_sm90_mla(self: object, *args: object, ckv_scale_arr: object = None) -> None:
    """Has the keyword by which vLLM recognises a FlashInfer that is new enough."""


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for certain modules and everything below them."""

    def __init__(self, names: Sequence[str]) -> None:
        """Stand in for these."""
        self.names = names

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The stand-in, or None for a module that is none of ours."""
        if any(fullname == name or fullname.startswith(f"{name}.") for name in self.names):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """A new stand-in."""
        return Stand(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def start(platform: str, installed: Sequence[str], arch: str = "") -> Any:
    """Make vLLM believe in a platform with these packages; the platform object. Once a process.

    `arch` is the gfx name on ROCm. Everything that vLLM caches on import belongs to these arguments, so another
    set of packages or another architecture needs another process.
    """
    names = [*ALWAYS[platform], *(module for name in installed for module in EXTENSIONS.get(name, []))]
    sys.meta_path.insert(0, Finder(names))
    if platform == "rocm":
        smi: Any = importlib.import_module("amdsmi")
        smi.amdsmi_init = smi.amdsmi_shut_down = lambda: None
        smi.amdsmi_get_processor_handles = lambda: [0]
        smi.amdsmi_get_gpu_asic_info = lambda handle: {"target_graphics_version": arch}
    os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"
    forgive_missing_operators()
    platforms: Any = importlib.import_module("vllm.platforms")
    here = _platform_class(platform)()
    platforms.current_platform = platforms._current_platform = here
    fill_in_triton()
    if importlib.util.find_spec("torchvision") is None:
        importlib.import_module("vllm.transformers_utils.config")  # which would believe in the stand-in
        sys.meta_path.append(Finder(["torchvision"]))
    if platform == "cuda":
        interface = _try_import("vllm.vllm_flash_attn.flash_attn_interface")
        if interface is not None:
            interface.FA4_AVAILABLE = "fa4" in installed
        if "cutlass" in installed:
            _try_import(
                "vllm.model_executor.layers.attention"
            )  # half of it stays where FlashAttention is missing
            with _empty_on_cpu():
                _try_import("vllm.v1.attention.backends.mla.cutlass_mla")
    return here


def _try_import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _platform_class(platform: str) -> Any:
    """The platform class with its probes replaced by attributes that a row sets."""
    module: Any = importlib.import_module(f"vllm.platforms.{platform}")
    interface: Any = importlib.import_module("vllm.platforms.interface")
    if platform == "cuda":

        class Cuda(module.CudaPlatformBase):  # type: ignore[misc]
            capability = interface.DeviceCapability(9, 0)

            @classmethod
            def get_device_capability(cls, device_id: int = 0) -> Any:
                return cls.capability

            @classmethod
            def get_device_name(cls, device_id: int = 0) -> str:
                return "a GPU"

            @classmethod
            def num_compute_units(cls, device_id: int = 0) -> int:
                return 132

        return Cuda
    if platform == "cpu":

        class Cpu(module.CpuPlatform):  # type: ignore[misc]
            architecture = interface.CpuArchEnum.X86

            @classmethod
            def get_cpu_architecture(cls) -> Any:
                return cls.architecture

        return Cpu
    return getattr(module, {"rocm": "RocmPlatform", "xpu": "XPUPlatform"}[platform])


def forgive_missing_operators() -> None:
    """Let look-ups of operators that no extension registered succeed, and what they would be told about shapes."""
    ops: Any = importlib.import_module("torch._ops")
    found = ops._OpNamespace.__getattr__

    def look_up(self: Any, name: str) -> Any:
        try:
            return found(self, name)
        except AttributeError:
            if name.startswith("__") or not self.name.startswith(
                ("_C", "_rocm", "_flashmla", "_moe", "_xpu")
            ):
                raise
            return Anything()

    ops._OpNamespace.__getattr__ = look_up
    library: Any = importlib.import_module("torch.library")
    library.register_fake = lambda *args, **kwargs: lambda function: function


def fill_in_triton() -> None:
    """Give vLLM's placeholder for Triton every attribute."""
    importing: Any = importlib.import_module("vllm.triton_utils.importing")
    for name in ("TritonPlaceholder", "TritonLanguagePlaceholder"):
        placeholder = getattr(importing, name)
        if "__getattr__" not in vars(placeholder):
            placeholder.__getattr__ = lambda self, attribute: Anything()


@contextmanager
def _empty_on_cpu() -> Iterator[None]:
    """Let modules that allocate GPU memory on import do so on the CPU."""
    torch: Any = importlib.import_module("torch")
    empty = torch.empty
    torch.empty = lambda *size, device=None, **rest: empty(1)
    try:
        yield
    finally:
        torch.empty = empty


def clear_caches() -> None:
    """Forget what vLLM's cached functions answered, so that the next row's settings count."""
    for item in _caches():
        item.cache_clear()


@functools.cache
def _caches() -> tuple[Any, ...]:
    """The cached functions of vLLM's modules that are loaded by now."""
    wrapper = type(_caches)
    return tuple(
        item
        for item in gc.get_objects()
        if isinstance(item, wrapper)
        and str(getattr(item, "__module__", "")).startswith("vllm")
        and item.__name__ not in ("create_composite_attention_backend", "is_aiter_found_and_supported")
    )


def configuration(request: Mapping[str, Any], env: Mapping[str, Any], model: Mapping[str, Any] | None) -> Any:
    """What the selection reads of a configuration, from a row."""
    return SimpleNamespace(
        attention_config=SimpleNamespace(
            backend=None,
            backend_per_kind=None,
            flash_attn_version=env.get("flash_attn_version_override"),
            use_trtllm_attention=env.get("use_trtllm_attention"),
            use_non_causal=request["use_non_causal"],
            tq_max_kv_splits_for_cuda_graph=32,
        ),
        cache_config=SimpleNamespace(
            cache_dtype=request["kv_cache_dtype"] or "auto",
            block_size=request["block_size"],
            user_specified_block_size=request["block_size"] is not None,
        ),
        parallel_config=SimpleNamespace(
            prefill_context_parallel_size=2 if request["use_pcp"] else 1,
            decode_context_parallel_size=2 if request["use_dcp"] else 1,
        ),
        model_config=None if model is None else _model(request, model),
        speculative_config=None,
        kv_transfer_config=None,
        compilation_config=SimpleNamespace(static_forward_context={}),
    )


def _model(request: Mapping[str, Any], model: Mapping[str, Any]) -> Any:
    fields = ("index_topk", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    text = SimpleNamespace(**{name: model[name] for name in fields if name in model})
    text.attn_logit_softcapping = 50.0 if model.get("softcap") else None
    return SimpleNamespace(
        get_head_size=lambda: request["head_size"],
        get_num_attention_heads=lambda parallel: model["num_heads"],
        get_num_kv_heads=lambda parallel: model["num_kv_heads"],
        hf_text_config=text,
        is_mm_prefix_lm=request["use_mm_prefix"],
        rswa_window=128 if request["use_rswa"] else None,
        is_diffusion=model.get("is_diffusion", False),
        attn_type="encoder_decoder" if model.get("is_encoder_decoder") else "decoder",
    )
