"""Where two states of manifests come from: directories, packs by name, or revisions of a git repository."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from contextlib import ExitStack
from typing import NamedTuple

from selector.catalog import pack_names
from selector.errors import SelectorError
from selector.vocabulary import nearest

__all__ = ["Place", "PlaceError", "resolve"]


class PlaceError(SelectorError):
    """A name that stands for no manifests."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message, self.hint = message, hint
        super().__init__(message, hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class Place(NamedTuple):
    """One state: the manifests directory, the packs that are meant (by name or directory), and how it is called."""

    root: str
    packs: dict[str, str]
    label: str


def resolve(text: str, root: str, keep: ExitStack, beside: str | None = None) -> Place:
    """What a name stands for: a manifests directory, a pack's directory or name, ``REV``, or ``REV:path``.

    ``root`` is the manifests directory in use, ``keep`` holds temporary files until it is closed. ``beside`` is what the
    name is compared with: if that is a directory, a revision means what it was then. Raises PlaceError.
    """
    if os.path.isdir(text):
        return _folder(os.path.abspath(text), root, text)
    if text in pack_names(root):
        return Place(root, {text: text}, text)
    revision, sign, path = text.partition(":")
    place = os.path.abspath(beside) if beside is not None and os.path.isdir(beside) else root
    return _revision(revision, path if sign else None, place, root, text, keep)


def _folder(folder: str, root: str, label: str) -> Place:
    if os.path.isfile(os.path.join(folder, "pack.yaml")):
        parent = os.path.dirname(folder)
        base = parent if os.path.isfile(os.path.join(parent, "vocabulary.yaml")) else root
        return Place(base, {os.path.basename(folder): os.path.join(folder, "")}, label)
    if not os.path.isfile(os.path.join(folder, "vocabulary.yaml")):
        raise PlaceError(
            f"{label}: neither a pack nor a manifests directory",
            "there is no pack.yaml and no vocabulary.yaml",
        )
    return Place(folder, {name: name for name in pack_names(folder)}, label)


def _revision(revision: str, path: str | None, here: str, root: str, label: str, keep: ExitStack) -> Place:
    top = _git(here, "rev-parse", "--show-toplevel")
    known = None if top is None else _git(here, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if top is None or known is None or not revision or revision.startswith("-"):
        near = nearest(label, pack_names(root))
        raise PlaceError(
            f"{label}: no directory, no pack{'' if top is None else ' and no git revision'} of that name",
            f"did you mean {near}?" if near else f"packs: {', '.join(pack_names(root))}",
        )
    wanted = (path or os.path.relpath(os.path.realpath(here), os.path.realpath(top.decode().strip()))).strip(
        "/"
    )
    tree = known.decode().strip()
    archive = _git(top.decode().strip(), "archive", "--format=tar", tree, os.path.dirname(wanted) or wanted)
    if archive is None:
        archive = _git(top.decode().strip(), "archive", "--format=tar", tree)
    import tempfile

    folder = keep.enter_context(tempfile.TemporaryDirectory(prefix="attn-select-"))
    with tarfile.open(fileobj=io.BytesIO(archive or b"")) as tar:
        tar.extractall(folder, filter="data")
    place = os.path.join(folder, wanted)
    if not os.path.isdir(place):
        raise PlaceError(f"{label}: revision {revision} has no directory {wanted}")
    return _folder(place, root, label)


def _git(folder: str, *arguments: str) -> bytes | None:
    """What a git command prints, or None if it fails or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
