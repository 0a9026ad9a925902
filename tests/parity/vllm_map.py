"""A recorded decision of vLLM as a request and an environment of the pack `vllm`, and its axis names as the pack's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from .judge import Fields
from .result import Row

PACKAGES: Final = {
    "fa2": ("vllm-flash-attn-2", "0.32.0"),
    "fa3": ("vllm-flash-attn-3", "0.32.0"),
    "fa4": ("vllm-flash-attn-4", "0.32.0"),
    "flashmla": ("vllm-flashmla", "0.32.0"),
    "cutlass": ("vllm-cutlass-mla", "0.32.0"),
    "flashinfer": ("flashinfer-python", "0.6.18"),
    "flashinfer-cubin": ("flashinfer-cubin", "0.6.18"),
    "tokenspeed_mla": ("tokenspeed-mla", "0.1.0"),
    "b12x": ("b12x", "0.1.0"),
    "hpc": ("hpc-ops", "0.1.0"),
}
"""A name of a row's `env.installed`, and the package (with a version that the pack accepts) that it stands for."""

MODEL: Final = {
    "num_kv_heads": "num_kv_heads",
    "num_heads": "model_num_heads",
    "softcap": "softcap",
    "index_topk": "index_topk",
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "is_diffusion": "diffusion_model",
    "is_encoder_decoder": "encoder_decoder_model",
}
"""A field of a row's `model`, and its axis."""

CPU_ARCH: Final = {
    "x86": "x86_64",
    "arm": "aarch64",
    "powerpc": "ppc64le",
    "s390x": "s390x",
    "riscv": "riscv64",
}

AXES: Final[Mapping[str, frozenset[str]]] = {
    "fa_version": frozenset({"fa_version", "vllm_fa_checked", "vllm_fa_default"}),
    "availability": frozenset({"packages", "vllm_fa4_available", "device"}),
    "compute_capability": frozenset({"compute_capability", "gcn_arch", "device"}),
    "arch": frozenset({"gcn_arch", "device"}),
}
"""An axis name of a row, and the axes of the pack that mean it; every other name is the axis of that name.

`compute_capability` is read from the architecture on ROCm; a backend of another device lacks both.
"""

PATHS: Final = {
    "vllm.v1.attention.backends.mla.flashattn_mla.XPUFlashAttnMLABackend": "FLASH_ATTN_MLA",
}
"""Class paths that vLLM returns for a backend that has no name of its own."""


def environment_of(env: Row) -> Fields:
    """The environment of a row. KeyError for a platform, a package or a setting nobody knows."""
    platform = env["platform"]
    return {"device": platform, **_FACTS[platform](env)}


def _cuda(env: Row) -> Fields:
    return {
        "compute_capability": env["capability"],
        "packages": dict(_package(name) for name in env["installed"]),
    }


def _package(name: str) -> tuple[str, Fields]:
    package, version = PACKAGES[name]
    return package, {"version": version, "state": "usable"}


def _rocm(env: Row) -> Fields:
    installed, switched_on = {"none": (False, False), "off": (True, False), "on": (True, True)}[env["aiter"]]
    packages = {"amd-aiter": {"version": "0.1.20", "state": "usable"}} if installed else {}
    return {
        "compute_capability": env["capability"],
        "gcn_arch": env["gcn_arch"],
        "rocm_use_aiter": switched_on,
        "packages": packages,
    }


def _xpu(env: Row) -> Fields:
    return {"packages": {}}


def _cpu(env: Row) -> Fields:
    return {"cpu_arch": CPU_ARCH[env["arch"]], "amx": env["amx"], "packages": {}}


_FACTS: Final = {"cuda": _cuda, "rocm": _rocm, "xpu": _xpu, "cpu": _cpu}


def request_of(row: Row) -> Fields:
    """The request of a row. KeyError for a field of the model nobody knows.

    The fields of vLLM's own configuration go by their own names, which the vocabulary has as aliases; a null stays one.
    """
    env, model = row["env"], row["model"]
    fields: Fields = dict(row["request"])
    fields["num_heads"] = env.get("num_heads")
    if env.get("flash_attn_version_override") is not None:
        fields["flash_attn_version_override"] = env["flash_attn_version_override"]
    if env.get("use_trtllm_attention") is not None:
        fields["use_trtllm_attention"] = "forced" if env["use_trtllm_attention"] else "disabled"
    if model is not None:
        fields["model_config"] = True
        fields.update({MODEL[name]: value for name, value in model.items()})
    return fields


def backend_of(candidate: str | None) -> str | None:
    """The backend's name: a candidate without its variant, a class path as the name it stands for."""
    return None if candidate is None else PATHS.get(candidate, candidate.partition("/")[0])


def explains(reason: Iterable[str], axes: frozenset[str]) -> bool:
    """Do the pack's axes explain a reason of vLLM, a list of axis names any of which is enough?

    `other` stands for a text of vLLM that names no field; any reason explains it.
    """
    return any((name == "other" and axes) or AXES.get(name, frozenset({name})) & axes for name in reason)
