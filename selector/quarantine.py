"""Kernels that failed in this process: not used again, and every later decision about this machine knows it.

A kernel is its module and its variant, so a pack that names the same kernel under another candidate shares the fate.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selector.manifest import Candidate
    from selector.reasons import Reason

__all__ = ["clear_quarantine", "put", "quarantined", "reason_of", "why"]

_LOCK = allocate_lock()

#: (kernel module, variant) -> (candidate, reason). Empty in a healthy process: decisions ask for its truth first.
KNOWN: dict[tuple[str | None, str | None], tuple[str, str]] = {}

#: Called after every change, to forget decisions that were made before it.
LISTENERS: list[Callable[[], None]] = []


def quarantined() -> dict[str, str]:
    """Candidates that failed in this process, with the reason."""
    return dict(KNOWN.values())


def why(candidate: Candidate) -> str | None:
    """Why a candidate's kernel is not used in this process; None if it is."""
    found = KNOWN.get((candidate.kernel, candidate.variant))
    return None if found is None else found[1]


def put(candidate: Candidate, reason: str) -> str:
    """Use a candidate's kernel no more in this process; the reason that was first wins, and is returned."""
    with _LOCK:
        found = KNOWN.setdefault((candidate.kernel, candidate.variant), (candidate.id, reason))
    changed()
    return found[1]


def clear_quarantine(ident: str | None = None) -> None:
    """Give one candidate, or all, another chance."""
    with _LOCK:
        for key in [k for k, (known, _) in KNOWN.items() if ident in (None, known)]:
            del KNOWN[key]
    changed()


def changed() -> None:
    """Have everybody forget decisions that were made before."""
    for forget in LISTENERS:
        forget()


def reason_of(candidate: Candidate) -> Reason | None:
    """The reason in the form of a report; None if the kernel is in use."""
    found = why(candidate)
    if found is None:
        return None
    from selector.reasons import Reason

    return Reason(
        "backend",
        "quarantined",
        candidate.id,
        "failed in this process",
        f"{candidate.id} failed in this process and is not used again: {found}",
        found,
        candidate.at,
        None,
        ("backend",),
        "availability",
        "environment",
    )
