"""Which failures of a kernel say that it cannot be used in this process."""

from __future__ import annotations

import subprocess

import torch

from backends._guard import NotSupported

_NO_MEMORY = ("out of memory", "cudaErrorMemoryAllocation", "CUBLAS_STATUS_ALLOC_FAILED")


def is_broken(error: Exception) -> bool:
    """Whether another kernel should take this one's place from now on.

    A package that does not import, a kernel that does not build or launch: yes. A call that the wrapper refuses, memory
    that ran out, and everything that Python raises for wrong arguments: no - a call has been checked before, so what a
    kernel raises as RuntimeError is not the caller's mistake.
    """
    if isinstance(error, (NotSupported, MemoryError, torch.OutOfMemoryError)):
        return False
    if isinstance(error, (ImportError, OSError, subprocess.CalledProcessError)):
        return True
    return isinstance(error, RuntimeError) and not any(text in str(error) for text in _NO_MEMORY)
