"""What the targets share: catalogs, one machine, the words of the language, and what holds of every error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from selector import Catalog, Environment
from selector.errors import ManifestError
from selector.locations import manifests_root
from selector.yaml_loader import load_text

ROOT = manifests_root()
DATA = Path(__file__).resolve().parents[1] / "data"
REQUEST = {"head_size": 64, "dtype": "bf16"}


def sound(error: BaseException) -> None:
    """What holds of the text of every error."""
    text = str(error)
    text.encode("utf-8")
    assert text.strip()
    assert "Traceback" not in text
    if isinstance(error, ManifestError):
        assert error.faults
        # 0:0 is a whole file: one that is not there
        assert all((f.at.line >= 1 and f.at.column >= 1) or f.at[1:3] == (0, 0) for f in error.faults)
        assert len(text) < 100_000


@cache
def core() -> Catalog:
    return Catalog.load("core")


@cache
def vllm() -> Catalog:
    return Catalog.load("vllm")


@cache
def h100() -> Environment:
    return Environment.preset("h100")


def words() -> list[str]:
    """The names of axes and of their values."""
    found: dict[str, None] = {}
    for axis in vllm().vocabulary.axes:
        found.update(dict.fromkeys((axis.name, *axis.aliases)))
        if axis.type == "choice":
            found.update(dict.fromkeys(map(str, axis.spellings())))
    return [w for w in found if w]


def no_words() -> list[str]:
    return []


def as_yaml(data: bytes) -> Any:
    return load_text(data, "seed.yaml").data


def files_of(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(Path(ROOT).glob(pattern))]
