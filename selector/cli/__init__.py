"""The command `attn-select`."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 selected, 3 nothing fits, 2 wrong usage or broken manifests.

    Errors go to standard error, one screen, without a traceback (`ATTN_SELECTOR_DEBUG=1` shows it).
    """
    from selector.cli.app import run

    return run(argv)
