from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from selector import preferences
from selector.catalog import Catalog
from selector.locations import manifests_root
from tests.selector.cli.command import SMALL, Command

LOADED: dict[tuple[object, ...], Catalog] = {}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the variables nor the configuration file of whoever runs the tests."""
    for name in ("BACKEND", "AVOID", "PREFER", "CONFIG", "MANIFESTS", "DEBUG"):
        monkeypatch.delenv(f"ATTN_SELECTOR_{name}", raising=False)
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    preferences.forget()
    yield
    preferences.forget()


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped and the small catalog are loaded once; they are immutable, and loading is most of a command's time."""
    load = Catalog.load

    def kept(*names: str, manifests: str | os.PathLike[str] | None = None) -> Catalog:
        ours = all(os.sep not in n and not os.path.exists(n) for n in names)
        if not ours or os.fspath(manifests or manifests_root()) not in (manifests_root(), str(SMALL)):
            return load(*names, manifests=manifests)
        key = (names, manifests)
        if key not in LOADED:
            LOADED[key] = load(*names, manifests=manifests)
        return LOADED[key]

    monkeypatch.setattr(Catalog, "load", kept)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A copy of the shipped manifests that a test may change."""
    import shutil

    copy = tmp_path / "manifests"
    shutil.copytree(manifests_root(), copy)
    return copy
