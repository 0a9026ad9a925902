"""Mistakes of a vocabulary that no schema sees are told where they stand, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector import Catalog, ManifestError
from selector.errors import Fault

WORDS = """\
vocabulary: 1
axes:
  size: {type: integer, of: request, min: 1, max: 64, default: 100}
  dtype:
    type: choice
    of: request
    values: [f16, bf16]
    default: f17
  device: {type: choice, of: environment, values: [cpu, gpu]}
"""


def faults(folder: Path, base: str, pack: str | None = None) -> list[Fault]:
    (folder / "vocabulary.yaml").write_text(base, encoding="utf-8")
    (folder / "p").mkdir(exist_ok=True)
    (folder / "p" / "pack.yaml").write_text("pack: 1\nname: p\n", encoding="utf-8")
    if pack is not None:
        (folder / "p" / "vocabulary.yaml").write_text(pack, encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        Catalog.load("p", manifests=folder)
    return list(caught.value.faults)


def test_a_default_outside_its_domain(tmp_path: Path) -> None:
    first, second = faults(tmp_path, WORDS)
    assert str(first).startswith(
        f"{tmp_path}/vocabulary.yaml:3:64: the default of size: "
        "size is a whole number of at least 1 and at most 64, not 100\n"
    )
    assert (second.at.line, second.at.column, second.path) == (8, 14, "axes.dtype.default")
    assert second.message == "the default of dtype: 'f17' is no value of dtype: f16, bf16"


def test_a_pack_that_replaces_a_default(tmp_path: Path) -> None:
    base = WORDS.replace("default: 100", "default: 10").replace("default: f17", "default: f16")
    (fault,) = faults(
        tmp_path, base, "vocabulary: 1\naxes:\n  size:\n    type: integer\n    of: request\n    default: 65\n"
    )
    assert str(fault.at) == f"{tmp_path}/p/vocabulary.yaml:6:14"
    assert "not 65" in fault.message


def test_an_addition_to_an_axis_that_is_not_there(tmp_path: Path) -> None:
    base = WORDS.replace("default: 100", "default: 10").replace("default: f17", "default: f16")
    (fault,) = faults(tmp_path, base, "vocabulary: 1\naxes:\n  sise: {values: [a]}\n")
    assert str(fault.at) == f"{tmp_path}/p/vocabulary.yaml:3:3"
    assert (fault.message, fault.hint) == ("no axis is called 'sise'", "did you mean size?")
    (tmp_path / "p" / "vocabulary.yaml").unlink()
    (fault,) = faults(tmp_path, base + "  xyz: {}\n")
    assert (fault.message, fault.hint) == ("no axis is called 'xyz'", "a new axis says what type it has")
