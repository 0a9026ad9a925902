"""The candidates of the core pack that the machine under test can run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from backends.verify.machines import standing
from selector.catalog import Catalog
from selector.environment import Environment
from tests.gpu import DEVICE, needs_device

if TYPE_CHECKING:
    from selector.manifest import Candidate

__all__ = ["CATALOG", "machine", "tensor_device", "usable"]

CATALOG = Catalog.load("core")


@functools.cache
def machine() -> Environment:
    """This machine, with tensors on the device under test."""
    here = Environment.probe()
    own = here.get("device")
    return here if own == DEVICE or (DEVICE == "cuda" and own == "rocm") else here.replace(device=DEVICE)


def tensor_device() -> str:
    """What torch calls the device."""
    return DEVICE


@functools.cache
def usable() -> tuple[Candidate, ...]:
    """Candidates that nothing about the machine rules out; none where the device is not there."""
    if any(mark.name == "skipif" and mark.args[0] for mark in needs_device):
        return ()
    against = standing(CATALOG, machine())
    return tuple(c for c in CATALOG.candidates if c.id in against and not against[c.id])
