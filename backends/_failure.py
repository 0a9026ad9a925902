"""Which failures of a kernel say that it cannot be used in this process."""

from __future__ import annotations

import errno

import torch

from backends._guard import NotSupported

_NO_MEMORY = (
    "out of memory",
    "cudaerrormemoryallocation",
    "cublas_status_alloc_failed",
    "can't allocate memory",  # torch's allocator for CPUs
    "cannot allocate memory",
    "not enough memory",
    "std::bad_alloc",
)

# After these nothing in the process can use the device any more, the next kernel as little as this one; and what
# brings them about is as often an index in the caller's tensors as the kernel.
_DEVICE_LOST = (
    "device-side assert",
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
)

# What a plain RuntimeError says where a library, its build or its launch is at fault. Torch raises the same class for
# whatever it does not do with somebody's tensors (inference mode, transforms of functions), which is nobody's breakage.
_BROKEN = (
    "cuda error",
    "hip error",
    "cuda driver",
    "cudnn error",
    "cudnn_status",
    "cudnn frontend",
    "cublas_status",
    "nvrtc",
    "nvcc",
    "ninja",
    "no kernel image",
    "invalid device function",
    "undefined symbol",
    "cannot open shared object",
    "no such operator",
    "operator does not exist",
    "error building",
    "failed to build",
    "failed to compile",
    "compilation",
    "compiler",
    "ptx",
    "launch fail",
    "failed to launch",
    "shared memory",
    "compute capability",
    "architecture",
    "ampere",
    "hopper",
    "blackwell",
    "or newer",
    "or higher",
)

# Of torch.compile's tracer, for tensors that it cannot trace; its errors for a kernel that does not build have other names.
_UNTRACED = ("Unsupported", "TorchRuntimeError")


def is_broken(error: Exception) -> bool:
    """Whether another kernel should take this one's place from now on.

    A package that does not import, a kernel that does not build or launch: yes, in whatever class its compiler says so
    (Triton's and CUTLASS's errors are plain exceptions, FlashAttention 4 asserts). A call that the wrapper refuses, memory
    that ran out, a device that is lost, and what Python or torch raise for wrong arguments: no.
    """
    if isinstance(error, (NotSupported, MemoryError, torch.OutOfMemoryError)):
        return False
    if isinstance(error, OSError):
        return error.errno != errno.ENOMEM
    if isinstance(error, ImportError):
        return True
    if isinstance(error, (TypeError, ValueError, LookupError)):
        return False
    kind = type(error)
    if kind.__module__.startswith("torch._dynamo") and kind.__name__ in _UNTRACED:
        return False
    text = str(error).lower()
    if any(part in text for part in (*_NO_MEMORY, *_DEVICE_LOST)):
        return False
    # a class of its own is a library's; these two are torch's for everything
    return kind not in (RuntimeError, NotImplementedError) or any(part in text for part in _BROKEN)
