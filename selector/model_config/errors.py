"""The error of reading a model's configuration."""

from __future__ import annotations

from selector.errors import SelectorError, printable

#: Characters of a value that a message shows.
SHOWN = 60


class ConfigError(SelectorError):
    """A model configuration that cannot be read, or that does not determine an answer.

    `file` is the configuration as it was given, `field` the field that is wrong or missing (empty for the
    whole file), `hint` what to do about it.
    """

    def __init__(self, file: str, field: str, message: str, hint: str | None = None) -> None:
        self.file = file
        self.field = field
        self.message = message
        self.hint = hint
        super().__init__(file, field, message, hint)

    def __str__(self) -> str:
        place = self.file if not self.field else f"{self.file}: {self.field}"
        text = f"{place} {self.message}" if self.field else f"{place}: {self.message}"
        return printable(text if self.hint is None else f"{text} ({self.hint})")


def shown(value: object) -> str:
    """A value of a JSON file for a message: short, and on one line."""
    if isinstance(value, dict):
        return f"a mapping of {len(value)} fields"
    if isinstance(value, list):
        return f"a list of {len(value)} entries"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        short = value if len(value) <= SHOWN else value[:SHOWN] + "..."
        return f"{short!r}"
    if isinstance(value, int) and not -(10**18) < value < 10**18:
        return "a number of more than 18 digits"
    return f"{value}"
