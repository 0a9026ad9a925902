"""Where the manifests are: beside the package in a checkout, inside it when installed."""

from __future__ import annotations

import os

__all__ = ["VARIABLE", "display_name", "manifests_root", "opened"]

#: Process variable that names another manifests directory.
VARIABLE = "ATTN_SELECTOR_MANIFESTS"

_HERE = os.path.dirname(os.path.abspath(__file__))


def manifests_root() -> str:
    """The manifests directory in use: the variable's, the installed one, or the checkout's."""
    named = os.environ.get(VARIABLE)
    if named:
        return os.path.abspath(named)
    inside = os.path.join(_HERE, "manifests")
    if os.path.isdir(inside):
        return inside
    return os.path.join(os.path.dirname(_HERE), "manifests")


def display_name(path: str, root: str) -> str:
    """How messages and reports call a file: stable for the manifests in use by default, the path for others."""
    inside = os.path.relpath(path, root)
    if inside.startswith(os.pardir) or root != manifests_root() or os.environ.get(VARIABLE):
        return path
    return f"manifests/{inside.replace(os.sep, '/')}"


def opened(file: str) -> str:
    """A file as `display_name` calls it, written so that it opens from the current directory.

    For text that people read; data keep the stable name.
    """
    path = file
    if not os.path.isabs(file) and not os.path.exists(file):
        head, slash, rest = file.partition("/")
        inside = os.path.join(manifests_root(), *rest.split("/"))
        if not slash or head != "manifests" or not os.path.exists(inside):
            return file
        path = inside
    if not os.path.isabs(path):
        return file
    try:
        below = os.path.relpath(path)
    except (OSError, ValueError):  # the current directory is gone, or on another drive
        return path
    return path if below.startswith(os.pardir) else below
