"""`attn-select diff`: two states of manifests, revisions among them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from selector.locations import manifests_root
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
        assert ("b accepts before and a after" in shown.out) == bool(option)
        first, candidates, winners = (
            shown.out.index(t) for t in ("1 candidate accepts", "What candidates accept", "Another winner")
        )
        assert first < candidates < winners
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


def test_the_most_general_sentence_comes_first(command: Command, edited: Path) -> None:
    lines = command("diff", "HEAD", "manifests").out.splitlines()
    assert lines[0] == "small: 1 candidate accepts something else (a), 1 other winner, 2 other reasons"
    assert lines[1:3] == ["What candidates accept:", "  a: refused -> accepted, size 257 to 512"]
    assert lines[4:6] == ["Another winner:", "  b -> a, size 257 to 512"]


def test_one_number_of_the_core_pack(command: Command, tmp_path: Path) -> None:
    """Some lines, not a screen of what other candidates refuse; on one machine fewer."""
    folder = tmp_path / "manifests"
    shutil.copytree(manifests_root(), folder)
    path = folder / "core" / "flash_attn.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("{multiple_of: 8, max: 256}", "{multiple_of: 8, max: 192}", 1), encoding="utf-8"
    )
    words = ("diff", f"{manifests_root()}/core", f"{folder}/core", "--on", "h100")
    out = command(*words).out
    assert "  flash_attn/fa3: accepted -> refused, head_size 193 to 256\n" in out
    assert "refuses" not in out
    assert "where no better one accepts" in out
    assert len(out.splitlines()) < 30
    assert out.endswith("Nothing else changed: proved for every request on h100.\n")
    found = command(*words, "--json").json["packs"][0]
    assert found["on"] == "h100"
    witnesses = [r["witness"] for c in found["changes"] for r in c["regions"]]
    assert {w["environment"] for w in witnesses} == {"h100"}
    elsewhere = command(*words[:3], "--on", "a100").out
    assert "1 candidate accepts" not in elsewhere
    assert command(*words[:3], "--on", "h1000").code == 2
