"""Errors of the command line itself."""

from __future__ import annotations

from selector.errors import SelectorError

__all__ = ["UsageError"]


class UsageError(SelectorError):
    """A command line that cannot be meant so; ``hint`` says what to write instead."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message, self.hint = message, hint
        super().__init__(message, hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"
