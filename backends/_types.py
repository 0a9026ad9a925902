"""Dtypes of a call by their canonical names, and the error of a call that contradicts itself."""

from __future__ import annotations

import torch

DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float8_e4m3fn: "fp8_e4m3",
    torch.float8_e5m2: "fp8_e5m2",
}
"""Torch's dtypes that a call may have, by their canonical names."""

FP8_DTYPES: frozenset[torch.dtype] = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})


class CallError(ValueError):
    """A call that contradicts itself: a shape, dtype or device that does not fit the others."""

    def __init__(self, field: str, got: object, expected: str) -> None:
        self.field = field
        self.got = got
        self.expected = expected
        super().__init__(f"{field}: got {got}, expected {expected}")
