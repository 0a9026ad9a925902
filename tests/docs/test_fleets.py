"""The example of `docs/fleets.md`: its file, and what the command answers, letter by letter."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from selector import preferences
from selector.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "fleets.md").read_text(encoding="utf-8")


def block(kind: str) -> tuple[str, str]:
    """The name and the text of the page's only block of a kind."""
    ((name, text),) = re.findall(rf"^```{kind} file=(\S+)\n(.*?)^```$", PAGE, re.M | re.S)
    return name, text


@pytest.mark.usefixtures("tmp_path")
def test_the_plan_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("BACKEND", "AVOID", "PREFER", "CONFIG", "MANIFESTS"):
        monkeypatch.delenv(f"ATTN_SELECTOR_{variable}", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    preferences.forget()
    monkeypatch.chdir(tmp_path)
    name, fleet = block("yaml")
    Path(name).write_text(fleet, encoding="utf-8")
    model, shown = block("console")
    shutil.copy(ROOT / "tests" / "data" / "configs" / model / "config.json", "config.json")
    assert main(["env", "--on", "rtx5090", "--save", "lab.json"]) == 0
    capsys.readouterr()
    command, _, answer = shown.partition("\n")
    assert main(command.removeprefix("$ attn-select ").split()) == 0
    assert capsys.readouterr().out == answer


def test_every_key_of_the_file_is_explained() -> None:
    import json

    schema = json.loads((ROOT / "selector" / "schema" / "fleet.schema.json").read_text(encoding="utf-8"))
    for key in schema["properties"]["machines"]["items"]["properties"]:
        assert f"`{key}`" in PAGE or key == "note"
