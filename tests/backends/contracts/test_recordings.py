"""The recordings cover what the manifests promise, and the tool that makes them reads archives right."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.backends.contracts import refresh
from tests.backends.contracts.extract import record
from tests.backends.contracts.recipes import RECIPES, Recipe
from tests.backends.contracts.signatures import Unread, contracts, covered, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from inspect import Signature

MANIFESTS = Path(__file__).parents[3] / "manifests" / "core"

SOURCE = """
from typing import overload

@overload
def attend(q, k) -> None: ...

def attend(q, /, k: int, *rest, scale=None, window=(-1, -1), block=SIZE, **more): pass

class Wrapper:
    def plan(self, lengths, *, causal: bool = False): pass

class Asked(NamedTuple):
    scores: int
    lse: bool = False
"""
RECIPE = Recipe(
    "thing",
    (),
    {"thing": ("thing/__init__.py",)},
    {
        "attend": ("thing/moved.py", "thing/core.py"),
        "Wrapper.plan": ("thing/core.py",),
        "Wrapper.run": ("thing/core.py",),
        "Asked": ("thing/core.py",),
        "other": ("thing/absent.py",),
    },
)
FILES = {
    "thing/core.py": SOURCE,
    "thing/__init__.py": "from .core import attend as attend, Wrapper\nunrelated = 1\n",
}


def test_signatures_are_read_without_importing(tmp_path: Path) -> None:
    recording = record("thing", "1.0", "by hand", RECIPE, lambda path: FILES.get(path))
    assert recording["modules"] == {"thing": ["Wrapper", "attend"]}
    assert recording["callables"] == {
        "attend": [
            ["q", "positional"],
            ["k", "either"],
            ["rest", "rest"],
            ["scale", "keyword", "None"],
            ["window", "keyword", "(-1, -1)"],
            ["block", "keyword", "SIZE"],
            ["more", "keywords"],
        ],
        "Wrapper.plan": [["self", "either"], ["lengths", "either"], ["causal", "keyword", "False"]],
        "Asked": [["scores", "either"], ["lse", "either", "False"]],
    }
    file = tmp_path / "1.0.json"
    file.write_text(refresh.text(recording), encoding="utf-8")
    contract = load(file)
    assert str(contract) == "thing==1.0"
    signature = contract.callables["attend"]
    assert signature.parameters["window"].default == (-1, -1)
    assert isinstance(signature.parameters["block"].default, Unread)
    signature.bind(1, 2, 3, scale=1.0, anything=2)
    with pytest.raises(TypeError):
        signature.bind(q=1, k=2)
    with pytest.raises(TypeError):
        contract.callables["Wrapper.plan"].bind(None, 1, is_causal=True)


def test_a_package_that_moved_everything_is_an_error() -> None:
    with pytest.raises(LookupError, match="moved"):
        record("thing", "2.0", "thing-2.0.whl", RECIPE, lambda _: None)


def _wheel(folder: Path) -> Path:
    path = folder / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
    return path


def _sdist(folder: Path) -> Path:
    path = folder / "thing-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as sdist:
        for name, text in FILES.items():
            member = tarfile.TarInfo(f"thing-1.0/{name}")
            member.size = len(text)
            sdist.addfile(member, io.BytesIO(text.encode()))
    return path


def test_wheels_sdists_and_folders_record_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "RECIPES", {"thing": RECIPE})
    tree = tmp_path / "tree"
    for name, text in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, encoding="utf-8")
    recorded: list[Mapping[str, Signature]] = []
    for option in (["--archive", _wheel(tmp_path)], ["--archive", _sdist(tmp_path)], ["--folder", tree]):
        into = tmp_path / f"into{len(recorded)}"
        assert refresh.main(["thing==1.0", "--into", str(into), *map(str, option)]) == 0
        recorded.append(load(into / "thing" / "1.0.json").callables)
    assert recorded[0] == recorded[1] == recorded[2]


def test_an_unknown_package_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert refresh.main(["numpy==2.0"]) == 2
    assert "flash-attn" in capsys.readouterr().err


def _promised() -> Iterator[tuple[str, str, str]]:
    """(manifest, package, specifier) of every recorded package that a core manifest asks for."""
    for file in sorted(MANIFESTS.glob("*.yaml")):
        manifest = yaml.safe_load(file.read_text(encoding="utf-8"))
        parts = [manifest, *manifest.get("variants", [])]
        for part in parts:
            for package, wanted in part.get("requires", {}).get("packages", {}).items():
                if package in RECIPES and isinstance(wanted, str):
                    yield f"{file.name}:{part['name']}", package, "" if wanted == "any" else wanted


def test_the_manifests_name_the_packages() -> None:
    assert {package for _, package, _ in _promised()} == set(RECIPES)


@pytest.mark.parametrize(("manifest", "package", "specifier"), list(_promised()))
def test_recorded_versions_reach_from_the_first_to_a_late_one(
    manifest: str, package: str, specifier: str
) -> None:
    inside = covered(package, specifier)
    assert inside, f"{manifest} allows no recorded version of {package}"
    recorded = contracts(package)
    assert inside[-1] == recorded[-1], f"{manifest} excludes {recorded[-1]}: out of date?"


MINORS = {
    "flash-attn": ["2.6", "2.7", "2.8"],
    "flash-attn-3": ["3.0"],
    "flash-attn-4": ["4.0"],
    "flashinfer-python": ["0.6", "0.7"],
    "torch": ["2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14"],
}


@pytest.mark.parametrize("package", MINORS)
def test_every_minor_version_is_recorded(package: str) -> None:
    minors = [f"{contract.version.major}.{contract.version.minor}" for contract in contracts(package)]
    assert list(dict.fromkeys(minors)) == MINORS[package]


@pytest.mark.parametrize("package", RECIPES)
def test_a_recording_says_where_it_comes_from(package: str) -> None:
    for file in (refresh.RECORDED / package).glob("*.json"):
        contract = load(file)
        assert contract.package == package
        assert file.stem == str(contract.version)
        exported = {name for names in contract.modules.values() for name in names}
        outer = {name.partition(".")[0] for name in contract.callables}
        operators = set(RECIPES[package].operators)
        assert outer <= exported | operators, "the wrapper could not import some of these"
