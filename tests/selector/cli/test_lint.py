"""`attn-select lint` by proof: what it prints, in every form, and what its exit code says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from selector.cli.app import build
from tests.analysis.catalogs import small
from tests.selector.cli.command import ROOT, Command

CLEAN = "policy: [{name: all, order: [a, b]}]\n"
SHADOWED = "policy: [{name: all, order: [b, a]}]\n"
A = "title: A\nrequires: {device: gpu}\nsupports: {size: {max: 256}, dtype: [f16, bf16]}\n"
B = "title: B\nrequires: {device: [cpu, gpu]}\nsupports: {dtype: any}\n"
DEAD = A + "rules: [{when: {device: gpu}, reject: never}]\n"


def pack(root: Path, policy: str, **manifests: str) -> str:
    small(root, policy, **manifests)
    return str(root / "small")


def test_a_clean_pack(command: Command, tmp_path: Path) -> None:
    ran = command("lint", pack(tmp_path, CLEAN, a=A, b=B))
    assert (ran.code, ran.out.strip()) == (0, "1 checked: no errors")


def test_a_warning_has_its_place_its_proof_and_an_example(command: Command, tmp_path: Path) -> None:
    where = pack(tmp_path, SHADOWED, a=A, b=B)
    ran = command("lint", where)
    assert ran.code == 2
    said = "a.yaml:2:7: warning: a is never selected: where it accepts, b comes before it [never-selected]"
    assert said in ran.out
    assert "no counterexample exists; for instance " in ran.out
    assert "1 checked: no errors, 1 warning" in ran.out
    found = command("lint", where, "--json")
    assert found.code == 2
    assert (found.json["errors"], found.json["warnings"], found.json["proved"]) == (0, 1, ["small"])
    finding, note = found.json["findings"]
    assert (note["code"], note["severity"]) == ("order-never-reached", "info")
    assert (finding["code"], finding["severity"], finding["line"]) == ("never-selected", "warning", 2)
    assert finding["proof"] == "no counterexample exists"
    assert finding["witness"]["request"] == {}
    assert finding["witness"]["environment"]["device"] == "gpu"


def test_errors_and_warnings_are_told_apart(command: Command, tmp_path: Path) -> None:
    found = command("lint", pack(tmp_path, CLEAN, a=DEAD, b=B), "--json").json
    severities = {f["code"]: f["severity"] for f in found["findings"]}
    assert severities["never-accepts"] == "error"
    assert severities["order-impossible"] == "warning"
    assert (found["errors"], found["warnings"]) == (1, len(severities) - 1)


def test_notes_and_what_is_allowed_are_shown_on_request(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "notes"
    where = pack(root, "unlisted: excluded\npolicy: [{name: all, order: [b]}]\n", a=A, b=B)
    quiet = command("lint", where)
    assert (quiet.code, quiet.out.strip()) == (
        0,
        "1 checked: no errors, 1 note (--verbose shows them)",
    )
    assert "[only-by-name]" in command("lint", where, "-v").out
    where = pack(tmp_path / "allowed", SHADOWED, a=f"# lint: allow-in-file never-selected: theirs\n{A}", b=B)
    assert (
        command("lint", where).out.strip() == "1 checked: no errors, 1 note (--verbose shows them), 1 allowed"
    )
    assert "[never-selected]" in command("lint", where, "-v").out
    assert command("lint", where, "--json").json["allowed"][0]["code"] == "never-selected"


def test_quick_proves_nothing(command: Command, tmp_path: Path) -> None:
    ran = command("lint", pack(tmp_path, SHADOWED, a=DEAD, b=B), "--quick", "--json")
    assert ran.code == 0
    assert (ran.json["proved"], ran.json["findings"]) == ([], [])


def test_an_order_that_names_nobody_is_a_mistake_of_the_file(command: Command, tmp_path: Path) -> None:
    where = pack(tmp_path, CLEAN, a=A, b=B)
    path = Path(where) / "pack.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("[a, b]", "[a, bb]"), encoding="utf-8")
    ran = command("lint", where)
    assert ran.code == 2
    assert "pack.yaml:3:" in ran.out
    assert "bb" in ran.out
    assert "did you mean b?" in ran.out


def test_sarif_names_the_places(command: Command, tmp_path: Path) -> None:
    ran = command("lint", pack(tmp_path, SHADOWED, a=A, b=B), "--format", "sarif")
    assert ran.code == 2
    result, note = ran.json["runs"][0]["results"]
    assert (note["ruleId"], note["level"]) == ("order-never-reached", "note")
    assert (ran.json["version"], result["ruleId"], result["level"]) == ("2.1.0", "never-selected", "warning")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("small/a.yaml")
    assert place["region"] == {"startLine": 2, "startColumn": 7}


@pytest.mark.parametrize("name", ["attn-select-lint", "attn-select-prove"])
def test_the_hooks_run_commands_that_exist(name: str) -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    hook = next(h for h in hooks if h["id"] == name)
    program, *words = hook["entry"].split()
    assert program == "attn-select"
    assert build().parse_args(words).command == words[0]
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    extra = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("analysis = [", 1)[1].split("]", 1)[0]
    assert all(requirement in extra for requirement in hook["additional_dependencies"])


def test_sentences_may_speak_of_a_packs_own_axes_and_names(command: Command, tmp_path: Path) -> None:
    small(tmp_path, CLEAN, a=A, b=B)
    own = tmp_path / "small" / "vocabulary.yaml"
    own.write_text(
        "vocabulary: 1\naxes: {theirs: {type: flag, of: request, undeclared: any}}\n", encoding="utf-8"
    )
    path = tmp_path / "invariants.yaml"
    path.write_text(
        "invariants:\n  - {name: one, when: {theirs: true}, never: {selected: a}}\n", encoding="utf-8"
    )
    assert command("lint", str(path)).code == 0
    path.write_text(
        "invariants:\n  - {name: one, when: {sinks: true}, never: {selected: aa}}\n", encoding="utf-8"
    )
    wrong = command("lint", str(path))
    assert wrong.code == 2
    assert "invariants.yaml:2:56: pack small has no candidate or backend 'aa'" in wrong.out


def test_a_manifest_alone_is_read_beyond_what_its_schema_refuses(command: Command, tmp_path: Path) -> None:
    text = """\
manifest: 1
name: alone
requires: {device: cuda}
supports: {dtype: [bf16, f17], head_size: {min: 9, max: 8}, sinkz: true}
rules:
  - {when: {kv_cache_dtype: {tagged: nonsense}}, reject: no}
"""
    (tmp_path / "alone.yaml").write_text(text, encoding="utf-8")
    ran = command("lint", str(tmp_path / "alone.yaml"))
    assert ran.code == 2
    places = [
        line.split(": ")[0].rpartition("alone.yaml:")[2]
        for line in ran.out.splitlines()
        if "alone.yaml:" in line
    ]
    assert places == ["4:26", "4:49", "4:61", "6:38"]
    assert "does not say" not in ran.out  # nothing is missing: the rest was taken away as wrong
