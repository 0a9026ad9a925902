"""Which failures of a kernel say that it cannot be used in this process."""

from __future__ import annotations

import torch

from backends._guard import NotSupported

_NO_MEMORY = ("out of memory", "cudaErrorMemoryAllocation", "CUBLAS_STATUS_ALLOC_FAILED")

# After these nothing in the process can use the device any more, the next kernel as little as this one; and what
# brings them about is as often an index in the caller's tensors as the kernel.
_DEVICE_LOST = (
    "device-side assert",
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
)


def is_broken(error: Exception) -> bool:
    """Whether another kernel should take this one's place from now on.

    A package that does not import, a kernel that does not build or launch: yes, in whatever class its compiler says so
    (Triton's and CUTLASS's errors are plain exceptions, FlashAttention 4 asserts). A call that the wrapper refuses, memory
    that ran out, a device that is lost, and what Python raises for wrong arguments: no.
    """
    if isinstance(error, (NotSupported, MemoryError, torch.OutOfMemoryError)):
        return False
    if isinstance(error, (ImportError, OSError)):
        return True
    if isinstance(error, (TypeError, ValueError, LookupError)):
        return False
    text = str(error)
    return not any(part in text for part in (*_NO_MEMORY, *_DEVICE_LOST))
