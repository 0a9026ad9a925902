"""Preset environments and the software profiles: complete, unambiguous, and enough for what the core pack asks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import selector

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
PRESETS = sorted((MANIFESTS / "environments").glob("*.yaml"))
# Each of these was bought or rented somewhere: what a user may ask about by name.
WANTED = [
    "cpu",
    "v100",
    "t4",
    "a100",
    "l4",
    "l40s",
    "rtx3090",
    "rtx4090",
    "h100",
    "h200",
    "gh200",
    "b200",
    "b300",
    "rtx5090",
    "rtx-pro-6000",
    "gb10",
    "mi250x",
    "mi300x",
    "mi325x",
    "mi355x",
    "rx7900xtx",
    "rx9070xt",
    "pvc",
    "b580",
    "m3",
]


def read(path: Path) -> dict[str, Any]:
    """One YAML file, raw."""
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def test_every_wanted_preset_exists() -> None:
    assert set(WANTED) <= {read(path)["name"] for path in PRESETS}


def test_names_and_aliases_are_unique() -> None:
    names = Counter(name for path in PRESETS for name in [read(path)["name"], *read(path).get("aliases", [])])
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_is_complete(path: Path) -> None:
    raw = read(path)
    facts = raw["facts"]
    assert raw["name"] == path.stem
    assert raw["source"].startswith("https://")
    assert facts["cpu_arch"] in ("x86_64", "aarch64")
    assert ("compute_capability" in facts) == (facts["device"] in ("cuda", "rocm"))
    assert ("gcn_arch" in facts) == (facts["device"] == "rocm")
    assert ("amx" in facts) == (facts["device"] == "cpu")


# https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html; torch reports gfx942 as (9, 4)
@pytest.mark.parametrize(
    "path", [p for p in PRESETS if "gcn_arch" in p.read_text()], ids=lambda path: path.stem
)
def test_amds_capability_is_its_gfx_number(path: Path) -> None:
    facts = read(path)["facts"]
    number = facts["gcn_arch"].removeprefix("gfx")
    assert facts["compute_capability"] == f"{int(number[:-2])}.{int(number[-2], 16)}"


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
@pytest.mark.parametrize("profile", ["full", "bare"])
def test_a_preset_loads(path: Path, profile: str) -> None:
    environment = selector.Environment.preset(path.stem, profile)
    packages = environment.facts["packages"]
    assert "torch" in packages
    assert ("flash-attn" in packages) == (profile == "full" and environment.facts["device"] == "cuda")


def test_the_full_profile_meets_every_package_of_the_core_pack() -> None:
    software = read(MANIFESTS / "software.yaml")["packages"]
    asked = 0
    for path in sorted((MANIFESTS / "core").glob("*.yaml")):
        raw = read(path)
        for part in [raw, *raw.get("variants", [])]:
            for name, specifier in part.get("requires", {}).get("packages", {}).items():
                asked += 1
                version = software[name]["version"]
                assert SpecifierSet(specifier).contains(version, prereleases=True), (path.name, name)
    assert asked > 5


def test_every_package_says_how_to_get_it() -> None:
    for name, package in read(MANIFESTS / "software.yaml")["packages"].items():
        assert "install" in package["install"], name
        assert package["source"].startswith("https://"), name
