"""FlashAttention's three generations behind one wrapper: variants ``fa2``, ``fa3`` and ``fa4``.

Each is another package with another calling convention; see their modules. The packages are imported by the
first call that runs on them. Note that FlashAttention 2 and 4 share the import name ``flash_attn``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends import flash_attn_2, flash_attn_3, flash_attn_4
from backends._failure import is_broken
from backends.call import make_call, request_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from backends._launch import Result
    from backends.call import Call

__all__ = ["HONOURED", "is_broken", "make_call", "refuses", "request_fields", "run"]

_MODULES: Mapping[str, ModuleType] = {
    "fa2": flash_attn_2,
    "fa3": flash_attn_3,
    "fa4": flash_attn_4,
}

HONOURED: Mapping[str, frozenset[str]] = {
    "fa2": flash_attn_2.HONOURED,
    "fa3": flash_attn_3.HONOURED,
    "fa4": flash_attn_4.HONOURED,
}
"""Per variant, the names in :data:`backends._guard.FIELDS` that it honours."""


def refuses(call: Call, variant: str) -> str | None:
    """Why the variant cannot run the call, or None; imports nothing."""
    reason: str | None = _MODULES[variant].refuses(call)
    return reason


def run(call: Call, *, variant: str) -> Result:
    """Run the call; ``[*q.shape[:-1], head_size_v]``, with the log-sum-exp where the call asks for it.

    Raises:
        NotSupported: the variant, or the installed version of its package, cannot honour a field.
        ImportError: the package is missing or broken.
    """
    returned: Result = _MODULES[variant].run(call)
    return returned
