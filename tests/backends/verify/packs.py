"""Packs to walk: the mistaken kernels, declared as if they were right, and the machine they run on."""

from __future__ import annotations

from pathlib import Path

from selector.catalog import Catalog
from selector.environment import Environment
from tests.backends.verify.mistaken import MISTAKES

HERE = Environment({"device": "cpu"}, name="here", live=True)

MANIFEST = """\
manifest: 1
name: mistaken
title: Mistaken kernels
kernel: tests.backends.verify.mistaken
requires:
  device: [cpu]
supports:
  dtype: [float32]
  head_size: [64, 128, 192]
  head_size_v: [64, 128, 192]
  layout: [dense, paged]
  causal: true
  softcap: true
  custom_mask: true
  lse: true
variants:
"""


def pack(folder: Path, variants: dict[str, str] | None = None, manifest: str = MANIFEST) -> Catalog:
    """A pack with some variants of the mistaken kernels, each with YAML of its own (indented by four)."""
    (folder / "pack.yaml").write_text("pack: 1\nname: mistaken\ntitle: Mistaken\n", encoding="utf-8")
    own = variants if variants is not None else dict.fromkeys(MISTAKES, "")
    text = manifest + "".join(f"  - name: {name}\n{more}" for name, more in own.items())
    (folder / "mistaken.yaml").write_text(text, encoding="utf-8")
    return Catalog.load(str(folder))


def line_of(folder: Path, text: str) -> int:
    """The number of the first line of the manifest that holds a text."""
    lines = (folder / "mistaken.yaml").read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, start=1) if text in line)
