"""Which flash kernel torch's operators run: FlashAttention 2 of torch's own build, or one that somebody activated.

``torch.nn.attention.activate_flash_attention_impl("FA3" | "FA4")`` puts another package's kernels in the place of torch's
own, for the whole process: for SDPA, for ``varlen_attn`` and for every other thread. So

* a variant that wants one that is current just runs;
* what this module activated, it may replace and take back; it remembers the registry's own entry, not the name, so that
  the same name activated again by somebody else is theirs;
* what somebody else activated stays, and a variant that wants another kernel refuses the call by name;
* while ``torch.compile`` traces, nothing is switched. (The tracer guards what it reads here, so a compiled function is
  traced again after a switch.)

The backward pass looks its kernel up when it runs, which may be after a switch: :func:`keep_for_backward`.

torch 2.8 and 2.9 have no registry and run their own kernel; 2.10 has one that cannot be taken back, and knows FA4 only.
An implementation whose register function returns no handle is not seen: torch itself does not report it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

from backends._guard import NotSupported

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.graph import Node

LOCK = threading.Lock()
"""Held around whatever depends on, or changes, how torch chooses kernels: the implementation, and ``sdpa_kernel``."""

_OURS: list[object] = []
"""The registry's entry of what this module activated; empty where it activated nothing."""


def current() -> str | None:
    """The name of the implementation that is active; None for torch's own, and where torch has no registry."""
    if not hasattr(torch.nn.attention, "current_flash_attention_impl"):
        return None
    return torch.nn.attention.current_flash_attention_impl()


def refusal(wanted: str | None) -> str | None:
    """Why a call that wants this implementation (None: torch's own) cannot have it now, or None."""
    active = current()
    if active == wanted:
        return None
    if active is not None and not _is_ours():
        return (
            f"the flash implementation {active} is active in this process, activated elsewhere: "
            f"this variant runs {wanted or 'the one built into torch'}"
        )
    if torch.compiler.is_compiling():
        return (
            f"the flash implementation {wanted or 'built into torch'} is not active, "
            "and cannot be switched to while torch.compile traces"
        )
    if wanted is not None and wanted not in _known():
        return (
            f"this torch ({torch.__version__}) cannot activate and restore the flash implementation {wanted}"
        )
    return None


def use(wanted: str | None, wrapper: str) -> None:
    """Make an implementation (None: torch's own) the active one. :data:`LOCK` has to be held.

    Raises:
        NotSupported: for what :func:`refusal` says, in the name of ``wrapper``.
        ImportError: the implementation's package is missing or broken; torch's own is active then.
    """
    reason = refusal(wanted)
    if reason is not None:
        raise NotSupported(wrapper, reason)
    if current() == wanted:
        return
    _OURS.clear()
    if wanted is None:
        torch.nn.attention.restore_flash_attention_impl()
        return
    torch.nn.attention.activate_flash_attention_impl(wanted)
    _OURS.append(_entry())


def keep_for_backward(out: Tensor, wanted: str | None, wrapper: str) -> None:
    """Have the backward pass of ``out`` run on the implementation that made it, whatever is active by then.

    The lock is not held while the kernel of the backward pass is launched: another thread that switches in between
    makes it run on its own choice, which computes the same gradients or raises.
    """
    node = _flash_node(out.grad_fn)
    if node is None or not hasattr(torch.nn.attention, "current_flash_attention_impl"):
        return

    def before(_: tuple[Tensor, ...]) -> None:
        with LOCK:
            use(wanted, wrapper)

    node.register_prehook(before)


def _flash_node(node: Node | None) -> Node | None:
    """The operator's node of the graph, through the views, slices and factors that follow it."""
    for _ in range(8):
        if node is None or any(part in node.name() for part in ("FlashAttention", "varlen_attn")):
            return node
        node = next((before for before, _ in node.next_functions if before is not None), None)
    return None


def _known() -> list[str]:
    """What can be activated and taken back again."""
    if not hasattr(torch.nn.attention, "restore_flash_attention_impl"):
        return []
    return torch.nn.attention.list_flash_attention_impls()


def _is_ours() -> bool:
    return bool(_OURS) and _OURS[0] is _entry()


def _entry() -> object:
    """The registry's record of what is active: a new object each time something is activated.

    No public function tells one activation from the next of the same name.
    """
    return getattr(torch.nn.attention._registry, "_FLASH_ATTENTION_ACTIVE", None)
