"""The wheel and the sdist carry manifests and schemas, and work from an unrelated directory in a fresh environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel built from it, as `python -m build` makes them."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(PROJECT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def names(archive: Path) -> set[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {n.partition("/")[2] for n in sdist.getnames()}


def test_the_wheel_carries_data(built: Path) -> None:
    found = names(next(built.glob("*.whl")))
    for needed in (
        "selector/manifests/vocabulary.yaml",
        "selector/manifests/core/flash_attn.yaml",
        "selector/manifests/vllm/pack.yaml",
        "selector/manifests/environments/h100.yaml",
        "selector/schema/manifest.schema.json",
        "selector/py.typed",
        "backends/reference.py",
    ):
        assert needed in found
    assert not [n for n in found if n.startswith("tests/")]


def test_the_sdist_carries_what_a_build_and_a_test_need(built: Path) -> None:
    found = names(next(built.glob("*.tar.gz")))
    assert {
        "manifests/vocabulary.yaml",
        "selector/catalog.py",
        "tests/packaging/test_distributions.py",
        "LICENSE",
        "README.md",
    } <= found


def test_a_fresh_environment_elsewhere(built: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    site = next((home / "lib").glob("python*")) / "site-packages"
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    # The dependencies are this environment's; its own .pth files (an editable install) are not read from there.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ATTN_"))}

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(python), *arguments],
            cwd=elsewhere,
            env=clean,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    where = run("-c", "import selector; print(selector.__file__)").strip()
    assert Path(where).is_relative_to(site)
    request = ("head_size=128", "dtype=bf16", "kv_cache_dtype=fp8_e4m3", "per_head_scales")
    answer = json.loads(run("-m", "selector.cli", "explain", "--on", "h100", *request, "--json"))
    assert answer["selected"] == "flash_attn/fa3"
    assert any(
        r["at"].startswith("manifests/core/") for rs in answer["rejected"].values() for r in rs if r["at"]
    )
    run("-m", "selector.cli", "explain", "--on", "a100", *request, code=3)
    run("-m", "selector.cli", "lint")
