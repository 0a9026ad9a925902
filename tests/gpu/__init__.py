"""Tests that need a GPU, skipped without one. `python -m tests.gpu` runs them all and writes a report.

`ATTN_SELECTOR_TEST_DEVICE=cpu` runs them on the CPU instead: that tells whether the tests themselves are sound.
"""

from __future__ import annotations

import os

import pytest

__all__ = ["DEVICE", "VARIABLE", "needs_device"]

VARIABLE = "ATTN_SELECTOR_TEST_DEVICE"
DEVICE = os.environ.get(VARIABLE) or "cuda"


def _there() -> bool:
    import torch

    return DEVICE == "cpu" or torch.cuda.is_available()


needs_device = [pytest.mark.gpu, pytest.mark.skipif(not _there(), reason="no CUDA device here")]
