from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from selector import preferences
from tests.selector.cli.command import Command


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


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A copy of the shipped manifests that a test may change."""
    import shutil

    from selector.locations import manifests_root

    copy = tmp_path / "manifests"
    shutil.copytree(manifests_root(), copy)
    return copy
