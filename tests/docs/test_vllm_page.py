"""The examples of `docs/integrations/vllm.md`: the texts of errors, and what the command makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from selector import preferences
from selector.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "integrations" / "vllm.md").read_text(encoding="utf-8")

#: What is shown of an answer ends before the section that is named.
SHOWN = re.findall(r'^```console until="([^"]+)"\n\$ attn-select (.*)\n((?:.*\n)*?)```$', PAGE, re.M)
ASKED = (
    "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. "
    "Reason: ['head_size not supported']\n"
)


@pytest.mark.parametrize(("until", "command", "answer"), SHOWN, ids=[command for _, command, _ in SHOWN])
def test_the_answers_of_the_page(
    until: str,
    command: str,
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable in ("BACKEND", "AVOID", "PREFER", "CONFIG", "MANIFESTS"):
        monkeypatch.delenv(f"ATTN_SELECTOR_{variable}", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    preferences.forget()
    monkeypatch.chdir(tmp_path)
    ((name, log),) = re.findall(r"^```text file=(\S+)\n(.*?)^```$", PAGE, re.M | re.S)
    Path(name).write_text(log, encoding="utf-8")
    Path("asked.log").write_text(ASKED, encoding="utf-8")
    assert main(command.split()) == 3
    shown, section, rest = capsys.readouterr().out.partition(f"\n{until}\n")
    assert section
    pattern = re.escape(answer.rstrip("\n")).replace(re.escape("..."), ".*?")
    assert re.fullmatch(pattern, shown.rstrip("\n"), re.S), shown
    assert "What would help (each tried)" in rest


def test_there_are_examples() -> None:
    assert len(SHOWN) == 2


def test_the_page_has_the_modes_and_the_logger() -> None:
    from backends.integrations import vllm

    for mode in vllm.MODES:
        assert f"| `{mode}` |" in PAGE
    assert vllm.VARIABLE in PAGE and f"`{vllm.logger.name}`" in PAGE
