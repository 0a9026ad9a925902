"""The generated pages of `docs/`: each module makes the text of its pages from the code, the schemas or the manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selector.yaml_loader import load_file

__all__ = ["DOCS", "MANIFESTS", "ROOT", "build", "manifest"]

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
MANIFESTS = ROOT / "manifests"


def manifest(name: str) -> dict[str, Any]:
    """A YAML file below `manifests/` as plain data."""
    data = load_file(MANIFESTS / name).data
    assert isinstance(data, dict)
    return data


def build() -> dict[str, str]:
    """Every generated page: its path below `docs/` and its text."""
    from tests.docs.pages import api, cli, environments, language, report, support, vocabulary, wrappers

    found: dict[str, str] = {}
    for module in (language, vocabulary, cli, api, environments, report, support, wrappers):
        found |= module.pages()
    return found
