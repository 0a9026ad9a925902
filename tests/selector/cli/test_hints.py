"""What is written instead of something that the command does not take, and where a file is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from selector import select
from selector.errors import RequestError
from tests.selector.cli.command import ROOT, Command, spawn

LAYER = ("head_size=128", "dtype=bf16")
ONLY_REFERENCE = ("explain", "--on", "b200", *LAYER, "kv_cache_dtype=fp8", "per_head_scales")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("explain", "backend=reference"), "did you mean --backend reference?"),
        (("explain", "on=h100", *LAYER), "did you mean --on h100?"),
        (("explain", "strict=true"), "did you mean --strict?"),
        (("run", "avoid=reference"), "did you mean --avoid reference?"),
        (("run", "--on", "h100"), "explain, plan, env"),
        (("run", "device=cuda"), "explain --env device=... asks about another"),
        (("plan", "--html", "x"), "explain and matrix have it"),
        (("why-not",), "did you mean attn-select explain --why-not?"),
        (("expain",), "did you mean attn-select explain?"),
        (("explain", "--on", "h100", "--backend", "fa3"), "did you mean flash_attn/fa3?"),
        (("explain", "--on", "h100", "--backend", "flsh"), "did you mean flash_attn?"),
        (("explain", "--on", "h100", "--why-not", "fa3"), "did you mean flash_attn/fa3?"),
        (("serve", "--on", "h10"), "did you mean h100?"),
        (("serve", "--on", "./h100.yaml"), "a preset by name, no file"),
        (("explain", "--on", "h100", "--env", "foo=8"), "facts: device, "),
        (
            ("plan", "tests/data/configs/gpt2", "tests/data/configs/gpt2", "--on", "h100"),
            "one file at a time",
        ),
    ],
)
def test_what_was_meant_is_said(command: Command, words: tuple[str, ...], hint: str) -> None:
    ran = command(*words)
    assert (ran.code, ran.out) == (2, "")
    assert hint in ran.err


def test_an_option_that_works_here_alone_says_so(command: Command) -> None:
    assert "no option --on: it works on this machine alone" in command("run", "--on", "h100").err
    assert "this machine" not in command("lint", "--on", "h100").err


def test_a_report_names_the_option_and_the_option_works(command: Command) -> None:
    ran = command(*ONLY_REFERENCE)
    assert ran.code == 3
    assert "choose reference explicitly (--backend reference): it fits" in ran.out
    assert command(*ONLY_REFERENCE, "--backend", "reference").code == 0
    with pytest.raises(Exception, match="backend=reference"):  # a program has an argument
        select(head_size=128, dtype="bf16", kv_cache_dtype="fp8", per_head_scales=True, environment="b200")


def test_help_of_the_command_and_of_one(command: Command) -> None:
    assert command("help") == command("--help")
    assert command("help", "plan") == command("plan", "--help")
    assert command("-V") == command("--version")
    assert command("help", "expain").code == 2


def test_a_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "selector", "-V"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout.partition(" ")[0]) == (0, "attn-select")


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("new", " NAME\n"),
        ("completion", " SHELL\n"),
        ("diff", " OLD [NEW]\n"),
        ("plan", " CONFIG [AXIS=VALUE ...]\n"),
    ],
)
def test_usage_shows_what_is_required(command: Command, name: str, usage: str) -> None:
    head = command(name, "--help").out.partition("\n\n")[0] + "\n"
    assert head.endswith(usage)


def test_help_and_errors_fit_a_narrow_terminal(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    for text in (command("plan", "--help").out, command("explain", "--on", "h10").err):
        assert max(map(len, text.splitlines())) <= 50
    monkeypatch.setenv("COLUMNS", "60")
    assert (
        "  attn-select explain --on h100 head_size=128\n      dtype=bf16" in command("explain", "--help").out
    )


def test_a_place_opens_from_another_directory(tmp_path: Path) -> None:
    words = ("explain", "--on", "h100", "head_size=128", "dtype=bf16", "sinks", "--verbose")
    here, there = spawn(*words), spawn(*words, cwd=tmp_path)
    assert " manifests/core/flash_attn.yaml:" in here.out
    places = [w for w in there.out.split() if ".yaml:" in w]
    assert places
    assert all(os.path.exists(w.split(".yaml:")[0].lstrip("(") + ".yaml") for w in places)
    same = ("explain", *words[1:-1], "--json")
    assert spawn(*same, cwd=tmp_path).out == spawn(*same).out


def test_a_manifest_below_the_current_directory_has_a_relative_place(tmp_path: Path) -> None:
    spawn("new", "my_kernel", cwd=tmp_path)
    asked = (
        "explain",
        "--pack",
        str(tmp_path / "my_kernel"),
        "--on",
        "h100",
        "head_size=77",
        "dtype=fp32",
        "sinks",
    )
    assert " my_kernel/my_kernel.yaml:" in spawn(*asked, cwd=tmp_path).out
    (tmp_path / "my_kernel" / "my_kernel.yaml").write_text("backend: 1\n")
    assert "\nmy_kernel/my_kernel.yaml:" in "\n" + spawn(*asked, cwd=tmp_path).err.removeprefix("error: ")


def test_a_file_that_is_not_there_has_no_position(command: Command, tmp_path: Path) -> None:
    for words in (
        ("explain", "--on", str(tmp_path / "nope.yaml")),
        ("explain", "--pack", str(tmp_path)),
        ("explain", "--pack", "nopack"),
        ("plan", str(ROOT / "tests/data/configs/gpt2"), "--dtype", "bf16", "--fleet", "a100,h100"),
    ):
        ran = command(*words)
        assert ran.code == 2
        assert ":1:1" not in ran.err
    assert "a fleet is a file that lists machines" in ran.err


def test_a_module_that_is_not_on_the_path_is_looked_for_aloud(tmp_path: Path) -> None:
    spawn("new", "my_kernel", "--kernel", cwd=tmp_path)
    asked = [sys.executable, "-P", "-c", "from selector.cli import main; raise SystemExit(main())"]
    asked += [
        "run",
        "--pack",
        "my_kernel/",
        "head_size=64",
        "dtype=float16",
        "causal",
        "--seq",
        "16",
        "--repeat",
        "1",
    ]
    failed = subprocess.run(
        asked,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 3
    assert "it lies in the current directory, so set PYTHONPATH=." in failed.stderr
    path = os.pathsep.join([str(ROOT), "."])
    done = subprocess.run(asked, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, check=False)
    assert done.returncode == 0


def test_what_is_written_is_said(command: Command, tmp_path: Path) -> None:
    for words in (
        ("env", "--save"),
        ("explain", "--on", "h100", *LAYER, "--save"),
        ("explain", *LAYER, "--html"),
    ):
        path = tmp_path / words[0]
        assert command(*words, str(path)).err == f"{path} written\n"


def test_only_packages_that_are_asked_about(command: Command) -> None:
    asked = ("explain", "--on", "h100", *LAYER, "--why-not", "flash_attn/fa2")
    core = command(*asked).out
    assert "flash-attn-3=" in core
    assert "vllm=" not in core
    assert "vllm=" not in command(*asked, "--verbose").out


def test_deep_says_what_was_imported(command: Command) -> None:
    assert "Packages (imported: torch" in command("doctor", "--deep").out
    assert "Packages (by their metadata" in command("doctor").out


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"head_size": 8, "env": "h100"}, 'did you mean environment="h100"'),
        ({"pack": "vllm"}, 'catalog=Catalog.load("vllm")'),
    ],
)
def test_words_of_the_command_in_a_program(fields: dict[str, Any], hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        select(**fields)
    assert hint in str(caught.value)


def test_a_text_is_no_request() -> None:
    with pytest.raises(TypeError, match='a machine is environment="h100"'):
        select("h100")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("is_causal", "did you mean causal?"),
        ("attn_mask", "did you mean mask?"),
        ("enable_gqa", "leave it out"),
        ("return_ls", "did you mean return_lse?"),
    ],
)
def test_arguments_of_other_functions(name: str, hint: str) -> None:
    import torch

    from backends.dispatch import attention

    q, given = torch.zeros(1, 4, 2, 8), dict[str, Any]({name: True})
    with pytest.raises(TypeError) as caught:
        attention(q, q, q, **given)
    assert str(caught.value).startswith(f"attention() has no argument {name!r} (")
    assert hint in str(caught.value)
    with pytest.raises(TypeError) as caught:
        select(head_size=8, num_heads=2, dtype="float32").run(q, q, q, **given)
    assert hint in str(caught.value)


def test_a_table_is_wrapped_and_never_cut(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    ran = command("matrix", "kv_cache_dtype", "layout")
    assert "…" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 60
    axes = command("schema", "axes").out
    assert "…" not in axes
    assert "int4_per_token_head" in axes
    wide = command("explain", "--on", "h100", "head_size=64", "dtype=fp16")
    assert "…" not in wide.out
    assert "torch_sdpa/cuda_math" in wide.out


def test_replay_says_codes_in_words(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    command("explain", "--on", "h100", *LAYER, "kv_cache_dtype=fp8", "--save", str(path))
    saved = json.loads(path.read_text())
    ident = next(
        i for i, rs in saved["decision"]["rejected"].items() if any(r["code"] == "not_listed" for r in rs)
    )
    saved["decision"]["rejected"][ident] = [{"axis": "sinks", "code": "not_supported"}]
    path.write_text(json.dumps(saved))
    ran = command("replay", str(path))
    assert ran.code == 1
    assert f"reasons of {ident}: no longer refused for sinks (not supported); now also " in ran.out
    assert "(not listed)" in ran.out
    assert "_listed" not in ran.out
