"""`attn-select diff`: two states of manifests, revisions among them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.analysis.catalogs import small
from tests.selector.cli.command import Command

PACK = "policy: [{name: all, order: [a, b]}]\n"
A = "title: A\nrequires: {device: gpu}\nsupports: {size: {max: 256}, dtype: [f16, bf16]}\n"
B = "title: B\nrequires: {device: [cpu, gpu]}\nsupports: {dtype: any}\n"


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work tree whose last commit has another limit than its files."""
    small(tmp_path / "manifests", PACK, a=A, b=B)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "manifests")
    git(tmp_path, "commit", "-q", "-m", "before")
    small(tmp_path / "manifests", PACK, a=A.replace("256", "512"), b=B)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_revision_against_the_working_tree(command: Command, edited: Path) -> None:
    changed = command("diff", "HEAD", "manifests", "--exit-code", "--json")
    assert changed.code == 1
    (pack,) = changed.json["packs"]
    assert (pack["pack"], pack["complete"]) == ("small", True)
    assert [(c["kind"], c["old"], c["new"]) for c in pack["changes"]] == [
        ("winner", "b", "a"),
        ("accepted", "refused", "accepted"),
        ("reasons", "size: takes at most 256", "not said"),
        ("reasons", "not said", "size: takes at most 512"),
    ]
    region = pack["changes"][0]["regions"][0]
    assert region["condition"] == "size 257 to 512"
    assert region["parts"] == {"size": "257 to 512"}
    assert 257 <= region["witness"]["request"]["size"] <= 512


def test_text_and_markdown_say_the_same(command: Command, edited: Path) -> None:
    for option in ([], ["--markdown"], ["-v"]):
        shown = command("diff", "HEAD", "manifests", *option)
        assert shown.code == 0
        assert ("b → a" if option == ["--markdown"] else "b -> a") in shown.out
        assert "size 257 to 512" in shown.out
        assert "b accepts before and a after" in shown.out
        assert "proved" in shown.out
    strict = command("diff", "HEAD", "manifests", "--strict")
    assert (
        "Nothing else changed: proved for every request on every machine under strict selection."
        in strict.out
    )


def test_nothing_changed_and_nothing_to_compare(command: Command, edited: Path) -> None:
    git(edited, "checkout", "-q", "HEAD", "--", "manifests")
    same = command("diff", "HEAD", "manifests", "--exit-code")
    assert same.code == 0
    assert "Nothing changed: proved for every request on every machine." in same.out
    nowhere = command("diff", "nowhere", "manifests")
    assert nowhere.code == 2
    assert "nowhere" in nowhere.err
    assert command("diff").code == 2
    assert command("diff", "HEAD", "manifests", "--limit", "0").code == 2
