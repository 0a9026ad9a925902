"""What a process of vLLM knows, in the words of the pack `vllm`: its machine, its software, and one layer's question.

Everything is asked of vLLM's own probes, because they decide what its selection sees: a preset or the package metadata could
say otherwise. A probe that fails leaves its fact as this project's own probe found it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from selector.environment import Environment
from selector.vocabulary import PackageState

if TYPE_CHECKING:
    from collections.abc import Callable

    from selector.catalog import Catalog

__all__ = ["device_of", "environment_of", "fields_of"]

#: The pack's names for vLLM's CPU architectures.
CPU_ARCH = {"X86": "x86_64", "ARM": "aarch64", "POWERPC": "ppc64le", "S390X": "s390x", "RISCV": "riscv64"}

#: Attributes of a model's text configuration, and the axes that they are; absent or null ones are left open.
TEXT_CONFIG = ("index_topk", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

#: Distributions that are modules of their own, by the module whose presence vLLM looks for.
MODULES = {"flashinfer-python": "flashinfer", "tokenspeed-mla": "tokenspeed_mla", "hpc-ops": "hpc"}

#: Process variables that vLLM reads itself, and the facts that they are.
SWITCHES = {
    "VLLM_ROCM_USE_AITER": "rocm_use_aiter",
    "VLLM_ROCM_USE_AITER_MLA": "rocm_use_aiter_mla",
    "VLLM_ROCM_USE_AITER_MHA": "rocm_use_aiter_mha",
}

#: FlashInfer's kernels that may be downloaded exist for these majors only; elsewhere nobody asks the network.
DOWNLOADS = (9, 10, 12)


def device_of(platform: Any) -> str | None:
    """The pack's word for vLLM's current platform; None for one that the pack does not know."""
    for name in ("cuda", "rocm", "xpu", "cpu"):
        if getattr(platform, f"is_{name}")():
            return name
    return None


# -- the machine ------------------------------------------------------------------------------------------------------


def environment_of(platform: Any, catalog: Catalog) -> Environment:
    """The machine as vLLM's selection sees it."""
    from selector.probe import probe

    device = device_of(platform)
    here = probe(catalog.root)
    facts: dict[str, Any] = {k: v for k, v in here.facts.items() if k != "packages"}
    if facts.get("device") != device:  # told to use another one than the driver's first
        facts = {k: v for k, v in facts.items() if k in ("cpu_arch", "amx")}
    facts["device"] = device
    packages: dict[str, PackageState] = dict(here.facts.get("packages") or {})
    if device in ("cuda", "rocm"):
        capability = platform.get_device_capability()
        facts["compute_capability"] = None if capability is None else f"{capability.major}.{capability.minor}"
    facts.update(
        {"cuda": _cuda, "rocm": _rocm, "xpu": _nothing, "cpu": _cpu}[device or "cpu"](platform, packages)
    )
    return Environment(
        {**{k: v for k, v in facts.items() if v is not None}, "packages": packages},
        name="this process",
        title=f"this process of vLLM {_vllm_version()} ({device})",
        origin="vLLM's own probes",
        vocabulary=catalog.vocabulary,
    )


def _cuda(platform: Any, packages: dict[str, PackageState]) -> dict[str, Any]:
    version = _vllm_version()

    def part(works: bool | None, detail: str | None = None) -> PackageState:
        return PackageState(version) if works else PackageState(None, "missing", detail)

    interface = _module("vllm.vllm_flash_attn.flash_attn_interface")
    for generation in (2, 3, 4):
        works = getattr(interface, f"FA{generation}_AVAILABLE", False)
        reason = getattr(interface, f"FA{generation}_UNAVAILABLE_REASON", None)
        packages[f"vllm-flash-attn-{generation}"] = part(works, reason and str(reason).splitlines()[0])
    flashmla = _module("vllm.v1.attention.ops.flashmla")
    found, why = flashmla._is_flashmla_available() if flashmla is not None else (False, None)
    packages["vllm-flashmla"] = part(found, why)
    _module("vllm._custom_ops")  # which registers the operators
    operators = getattr(_module("torch"), "ops", None)
    packages["vllm-cutlass-mla"] = part(hasattr(getattr(operators, "_C", None), "sm100_cutlass_mla_decode"))
    for name, module in MODULES.items():
        packages[name] = _present(find_spec(module) is not None, packages.get(name))
    b12x = _module("vllm.utils.b12x")
    packages["b12x"] = _present(
        b12x is not None and b12x.get_b12x_paged_attention() is not None, packages.get("b12x")
    )
    flashinfer = _module("vllm.utils.flashinfer")
    cubins = flashinfer is not None and flashinfer.has_flashinfer_cubin()
    packages["flashinfer-cubin"] = _present(cubins, packages.get("flashinfer-cubin"))
    capability = platform.get_device_capability()
    asks = (
        packages["flashinfer-python"].state == "usable"
        and capability is not None
        and capability.major in DOWNLOADS
    )
    # vLLM asks its network the same, once a process
    return {
        "cubins_reachable": bool(
            cubins or (asks and flashinfer is not None and flashinfer.has_nvidia_artifactory())
        )
    }


def _rocm(platform: Any, packages: dict[str, PackageState]) -> dict[str, Any]:
    arch = getattr(_module("vllm.platforms.rocm"), "_GCN_ARCH", None)
    aiter = _module("vllm._aiter_ops")
    packages["amd-aiter"] = _present(bool(getattr(aiter, "IS_AITER_FOUND", False)), packages.get("amd-aiter"))
    envs = _module("vllm.envs")
    facts: dict[str, Any] = {fact: bool(getattr(envs, variable)) for variable, fact in SWITCHES.items()}
    facts["gcn_arch"] = None if arch is None else str(arch).partition(":")[0]
    return facts


def _cpu(platform: Any, packages: dict[str, PackageState]) -> dict[str, Any]:
    architecture = platform.get_cpu_architecture().name
    torch: Any = import_module("torch")
    amx = architecture == "X86" and bool(torch.cpu._is_amx_tile_supported())
    return {"cpu_arch": CPU_ARCH.get(architecture, architecture.lower()), "amx": amx}


def _nothing(platform: Any, packages: dict[str, PackageState]) -> dict[str, Any]:
    return {}


def _present(there: bool, known: PackageState | None) -> PackageState:
    """The state of a package that vLLM finds or not; its version where the metadata says one."""
    if not there:
        return PackageState(None, "missing")
    return PackageState(None if known is None else known.version)


def _module(name: str) -> Any:
    """A module of vLLM; None where it cannot be imported here, which is how vLLM takes it too."""
    try:
        return import_module(name)
    except (ImportError, OSError):
        return None


def _vllm_version() -> str | None:
    version = getattr(_module("vllm"), "__version__", None)
    return version if isinstance(version, str) and version[:1].isdigit() else None


# -- the layer --------------------------------------------------------------------------------------------------------


def fields_of(config: Any, num_heads: int | None, current: Any) -> dict[str, Any]:
    """One layer's question as fields of a request.

    Arguments:
        config: vLLM's `AttentionSelectorConfig`, whose field names the vocabulary has as aliases.
        num_heads: query heads on this rank, which travels beside it.
        current: the run's `VllmConfig`, or None where vLLM has set none.
    """
    fields = {name: _plain(value) for name, value in config._asdict().items()}
    fields["num_heads"] = num_heads
    if current is None:
        return fields
    attention, cache, model = current.attention_config, current.cache_config, current.model_config
    if attention.flash_attn_version is not None:
        fields["flash_attn_version_override"] = attention.flash_attn_version
    if attention.use_trtllm_attention is not None:
        fields["use_trtllm_attention"] = "forced" if attention.use_trtllm_attention else "disabled"
    if cache is not None and cache.cache_dtype != config.kv_cache_dtype:
        fields["run_kv_cache_dtype"] = _plain(cache.cache_dtype)
    if model is not None:
        fields.update(_model(model, current.parallel_config))
    return fields


def _model(model: Any, parallel: Any) -> dict[str, Any]:
    text = model.hf_text_config
    fields: dict[str, Any] = {"model_config": True}
    for axis, read in _HEADS.items():
        fields[axis] = read(model, parallel)
    for name in TEXT_CONFIG:
        value = getattr(text, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            fields[name] = value
    fields["softcap"] = bool(getattr(text, "attn_logit_softcapping", None))
    fields["diffusion_model"] = bool(model.is_diffusion)
    fields["encoder_decoder_model"] = _plain(model.attn_type) == "encoder_decoder"
    return fields


_HEADS: Mapping[str, Callable[[Any, Any], Any]] = {
    "num_kv_heads": lambda model, parallel: model.get_num_kv_heads(parallel),
    "model_num_heads": lambda model, parallel: model.get_num_attention_heads(parallel),
}


def _plain(value: Any) -> Any:
    """A value as the vocabulary spells it: members of enumerations by their values, number formats by their names."""
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
