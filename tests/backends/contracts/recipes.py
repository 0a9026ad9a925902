"""What is recorded of each package: which files hold the functions that the wrappers call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Recipe(NamedTuple):
    """Where one package's signatures stand.

    Paths are inside the archive, below its top folder where it is an sdist; of
    several the first that exists counts.
    """

    distribution: str
    """What is downloaded."""
    pip: tuple[str, ...]
    """Options of ``pip download`` beside ``--no-deps``."""
    modules: Mapping[str, tuple[str, ...]]
    """Module that is imported -> its file."""
    callables: Mapping[str, tuple[str, ...]]
    """Function, or Class.method -> its file."""
    stubs: Mapping[str, tuple[str, ...]] = {}
    """The same in stub files, for functions written in C++."""
    operators: Mapping[str, tuple[str, ...]] = {}
    """Operator -> torch's file of operator schemas."""


_FLASH = ("flash_attn/flash_attn_interface.py",)
_HOPPER = ("hopper/flash_attn_interface.py",)
_CUTE = ("flash_attn/cute/interface.py",)
_PREFILL = ("flashinfer/prefill.py",)
_DECODE = ("flashinfer/decode.py",)
_SINK = ("flashinfer/attention/_core.py", "flashinfer/attention.py")
_FLEX = ("torch/nn/attention/flex_attention.py",)
_VARLEN = ("torch/nn/attention/varlen.py",)
_ATTENTION = ("torch/nn/attention/__init__.py",)
_REGISTRY = ("torch/nn/attention/_registry.py",)
_SCHEMAS = ("torchgen/packaged/ATen/native/native_functions.yaml",)
_SOURCE = ("--no-build-isolation", "--no-binary", "flash-attn")
_TRIO = ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache")

RECIPES: Mapping[str, Recipe] = {
    "flash-attn": Recipe(
        "flash-attn",
        _SOURCE,
        {"flash_attn": ("flash_attn/__init__.py",)},
        dict.fromkeys(_TRIO, _FLASH),
    ),
    # not on the index: the Hopper interface travels in flash-attn's sdist, whose 2.8.0 to 2.8.3
    # hold 3.0.0b1
    "flash-attn-3": Recipe(
        "flash-attn",
        _SOURCE,
        {"flash_attn_interface": _HOPPER},
        dict.fromkeys(_TRIO, _HOPPER),
    ),
    "flash-attn-4": Recipe(
        "flash-attn-4",
        ("--pre",),
        {"flash_attn.cute": ("flash_attn/cute/__init__.py",)},
        dict.fromkeys(_TRIO[:2], _CUTE),
    ),
    "flashinfer-python": Recipe(
        "flashinfer-python",
        (),
        {"flashinfer": ("flashinfer/__init__.py",)},
        {
            "single_prefill_with_kv_cache": _PREFILL,
            "single_decode_with_kv_cache": _DECODE,
            "BatchPrefillWithPagedKVCacheWrapper.__init__": _PREFILL,
            "BatchPrefillWithPagedKVCacheWrapper.plan": _PREFILL,
            "BatchPrefillWithPagedKVCacheWrapper.run": _PREFILL,
            "BatchPrefillWithRaggedKVCacheWrapper.__init__": _PREFILL,
            "BatchPrefillWithRaggedKVCacheWrapper.plan": _PREFILL,
            "BatchPrefillWithRaggedKVCacheWrapper.run": _PREFILL,
            "BatchDecodeWithPagedKVCacheWrapper.__init__": _DECODE,
            "BatchDecodeWithPagedKVCacheWrapper.plan": _DECODE,
            "BatchDecodeWithPagedKVCacheWrapper._plan_impl": _DECODE,
            "BatchDecodeWithPagedKVCacheWrapper.run": _DECODE,
            "BatchAttentionWithAttentionSinkWrapper.__init__": _SINK,
            "BatchAttentionWithAttentionSinkWrapper._sink_jit_args": _SINK,
        },
    ),
    # the macOS wheel is the smallest with all Python files
    "torch": Recipe(
        "torch",
        (
            "--platform=macosx_11_0_arm64",
            "--platform=macosx_14_0_arm64",
            "--only-binary=:all:",
            "--python-version=3.11",
        ),
        {
            "torch.nn.functional": ("torch/nn/functional.py",),
            "torch.nn.attention": _ATTENTION,
            "torch.nn.attention.flex_attention": _FLEX,
            "torch.nn.attention.varlen": _VARLEN,
        },
        {
            "sdpa_kernel": _ATTENTION,
            "activate_flash_attention_impl": _REGISTRY,
            "restore_flash_attention_impl": _REGISTRY,
            "list_flash_attention_impls": _REGISTRY,
            "current_flash_attention_impl": _REGISTRY,
            "flex_attention": _FLEX,
            "create_block_mask": _FLEX,
            "AuxRequest": _FLEX,
            "BlockMask.from_kv_blocks": _FLEX,
            "varlen_attn": _VARLEN,
        },
        {"scaled_dot_product_attention": ("torch/_C/_nn.pyi",)},
        dict.fromkeys(
            (
                "_scaled_dot_product_attention_math",
                "_scaled_dot_product_flash_attention",
                "_scaled_dot_product_flash_attention_for_cpu",
                "_flash_attention_forward",
            ),
            _SCHEMAS,
        ),
    ),
}
