"""Whether the framework here can put tensors on a device: without it every call would fail, whatever the manifests say."""

from __future__ import annotations

__all__ = ["missing"]

#: What a device is called beside its name in the vocabulary.
TITLES = {"cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU", "mps": "MPS"}


def missing(device: str) -> str | None:
    """Why no tensor can lie on a device (a value of the axis); None if one can. Imports torch, and starts no device."""
    if device == "cpu":
        return None
    try:
        import torch
    except ImportError:
        return "torch is not installed here"
    name = TITLES.get(device, device)
    if device in ("cuda", "rocm"):
        built = torch.version.hip is not None if device == "rocm" else torch.version.cuda is not None
        there = torch.cuda.is_available()
    elif device == "xpu":
        built, there = hasattr(torch, "xpu"), torch.xpu.is_available()
    elif device == "mps":
        built, there = torch.backends.mps.is_built(), torch.backends.mps.is_available()
    else:
        return f"torch has no device {device}"
    if not built:
        return f"torch here has no {name}"
    return None if there else f"torch finds no {name} device here"
