"""A kernel module whose variants fail in every way a kernel can; `sound` is the reference implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from backends import reference
from backends._failure import is_broken
from backends._guard import NotSupported
from backends.call import make_call, request_fields

if TYPE_CHECKING:
    from backends.call import Call

__all__ = ["is_broken", "make_call", "refuses", "request_fields", "run"]

#: How often each variant was asked to run.
ASKED: dict[str, int] = {}

#: Told to variants that fail, for tests that mend them.
MENDED: set[str] = set()


class CompilerError(Exception):
    """As Triton's and CUTLASS's: no RuntimeError."""


FAILURES: dict[str, Exception] = {
    "no_image": RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore"),
    "no_build": CompilerError("at 3:4: no matching operand"),
    "no_library": OSError("libcudart.so.99: cannot open shared object file"),
    "no_package": ImportError("undefined symbol: _ZN3c10"),
    "no_memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    "lost_device": RuntimeError("CUDA error: device-side assert triggered"),
    "mistaken": IndexError("index 9 is out of bounds for dimension 0 with size 3"),
    "this_version": NotSupported("failing/this_version", "sinks: the installed version has none"),
}


def refuses(call: Call, variant: str) -> str | None:
    """`picky` takes no softcap, which its manifest forgets."""
    return "softcap: not honoured" if variant == "picky" and call.softcap is not None else None


def run(call: Call, *, variant: str) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Fail as the variant's name says."""
    ASKED[variant] = ASKED.get(variant, 0) + 1
    reason = refuses(call, variant)
    if reason is not None:
        raise NotSupported(f"failing/{variant}", reason)
    if variant in FAILURES and variant not in MENDED:
        raise FAILURES[variant]
    return reference.run(call)
