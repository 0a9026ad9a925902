"""Catalogs for tests: one small pack from text, and shipped packs with edits."""

from __future__ import annotations

import shutil
from pathlib import Path

from selector.catalog import Catalog
from selector.locations import manifests_root

VOCABULARY = """\
vocabulary: 1
axes:
  size: {type: integer, of: request, min: 1, max: 4096}
  size_v: {type: integer, of: request, min: 1, max: 4096, default: {same_as: size}}
  gap: {type: integer, derive: {difference: [size, size_v]}}
  rest: {type: integer, derive: {modulo: [heads, groups]}}
  heads: {type: integer, of: request, min: 1, max: 512}
  groups: {type: integer, of: request, min: 1, max: 512, default: {same_as: heads}}
  dtype: {type: choice, of: request, values: {f16: {tags: [half]}, bf16: {tags: [half]}, f8: {tags: [small]}, f4: {tags: [small]}}}
  sinks: {type: flag, of: request}
  mla: {type: mode, of: request}
  block: {type: integer, of: request, min: 1, max: 1024}
  device: {type: choice, of: environment, values: [cpu, gpu], declare: required}
  cc: {type: version, of: environment, applies_when: {device: gpu}}
  packages: {type: packages, of: environment}
"""


def small(root: Path, pack: str, **manifests: str) -> Catalog:
    """A catalog of a vocabulary of a dozen axes, with the texts of a pack (without its head) and of manifests."""
    folder = root / "small"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "vocabulary.yaml").write_text(VOCABULARY, encoding="utf-8")
    (folder / "pack.yaml").write_text(f"pack: 1\nname: small\n{pack}", encoding="utf-8")
    for name, text in manifests.items():
        (folder / f"{name}.yaml").write_text(f"manifest: 1\nname: {name}\n{text}", encoding="utf-8")
    return Catalog.load("small", manifests=root)


def edited(root: Path, pack: str, *edits: tuple[str, str, str], everywhere: bool = False) -> Catalog:
    """A shipped pack with parts of its files (relative to the manifests directory) replaced: the first of each, or all."""
    shutil.copytree(manifests_root(), root, dirs_exist_ok=True)
    for name, old, new in edits:
        path = root / name
        text = path.read_text(encoding="utf-8")
        assert old in text, (name, old)
        path.write_text(text.replace(old, new, -1 if everywhere else 1), encoding="utf-8")
    return Catalog.load(pack, manifests=root)
