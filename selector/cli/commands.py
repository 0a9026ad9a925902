"""The subcommands: modules of `selector.cli` with `register(subparsers)`, in the order that help lists them.

A module adds its parser with `selector.cli.parser.add_command` and names the function that runs it. Only the module of the
command in use is imported.
"""

from __future__ import annotations

__all__ = ["COMMANDS"]

COMMANDS = (
    "explain",
    "plan",
    "run",
    "verify",
    "tune",
    "env",
    "doctor",
    "matrix",
    "lint",
    "prove",
    "diff",
    "coverage",
    "schema",
    "new",
    "replay",
    "serve",
    "completion",
)
