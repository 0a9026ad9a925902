"""`explain`: the deciding table, where preferences come from, `--why-not`, and other machines than this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.selector.cli.command import SMALL, Command

#: A layer with an FP8 KV cache that has one scale a head.
LAYER = (
    "head_size=128",
    "num_heads=32",
    "num_kv_heads=8",
    "dtype=bf16",
    "kv_cache_dtype=fp8",
    "per_head_scales",
)
PLAIN = ("head_size=128", "dtype=bf16")
IN_SMALL = ("--manifests", str(SMALL), "--pack", "small")


def test_per_head_scales_run_on_fa3_and_on_nothing_else(command: Command) -> None:
    ran = command("explain", "--on", "h100", *LAYER, "--json")
    assert ran.code == 0
    found = ran.json
    assert found["selected"] == "flash_attn/fa3"
    for ident in ("flash_attn/fa2", "flash_attn/fa4", "flex_attention", "torch_sdpa/cuda_flash"):
        assert "per_head_scales" in [r["axis"] for r in found["rejected"][ident]]


def test_the_same_in_words_on_one_screen(command: Command) -> None:
    ran = command("explain", "--on", "h100", *LAYER)
    assert ran.out.startswith("flash_attn/fa3 is selected")
    assert "per_head_scales: does not support per-head scales" in ran.out
    assert "manifests/core/flash_attn.yaml:" in ran.out
    assert len(ran.out.splitlines()) <= 48


def test_an_a100_has_no_kernel_for_it_and_says_what_would_help(command: Command) -> None:
    ran = command("explain", "--on", "a100", *LAYER)
    assert ran.code == 3
    head = ran.out.splitlines()[0]
    assert head.startswith("No backend fits: ")
    assert "per_head_scales" in head
    assert "drop per_head_scales" in ran.out


def test_a_pinned_version_names_what_stands_against_it_and_the_other_version(command: Command) -> None:
    ran = command("explain", "--on", "h100", *LAYER, "fa_version=2")
    assert ran.code == 3
    lines = ran.out.splitlines()
    nearest = lines[lines.index("Nearest") :]
    assert nearest[1].startswith("  flash_attn/fa2")
    assert any("per_head_scales" in line for line in nearest)
    assert any(line.startswith("  drop fa_version=2: flash_attn/fa3 works") for line in nearest)


def test_text_where_nothing_fits_is_on_standard_output(command: Command) -> None:
    ran = command("explain", "--on", "a100", *LAYER)
    assert ran.out and not ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "selected"),
    [
        (("--backend", "flash_attn/fa2"), 0, "flash_attn/fa2"),
        (("--backend", "FLASHINFER"), 0, "flashinfer/fa3"),
        (("--backend", "reference"), 0, "reference"),
        (("--avoid", "flash_attn", "--avoid", "flashinfer"), 0, "torch_sdpa/cuda_cudnn"),
        (("--avoid", "flash_attn,flashinfer"), 0, "torch_sdpa/cuda_cudnn"),
        (("--prefer", "flex_attention"), 0, "flex_attention"),
        (("--backend", "torch_sdpa/cpu_math"), 3, None),
        (("--without", "flash-attn-3"), 0, "flashinfer/fa3"),
        (("--env", "packages.flash-attn-3=missing"), 0, "flashinfer/fa3"),
        (("--env", "packages.flash-attn-3=broken import"), 0, "flashinfer/fa3"),
        (("--env", "cuda_version=12.0"), 0, "flash_attn/fa4"),
        (("--profile", "bare"), 0, "torch_sdpa/cuda_cudnn"),
        (("--profile", "bare", "--with", "flash-attn==2.8.3"), 0, "flash_attn/fa2"),
    ],
)
def test_preferences_and_changes_of_the_machine(
    command: Command, arguments: tuple[str, ...], code: int, selected: str | None
) -> None:
    ran = command("explain", "--on", "h100", *PLAIN, *arguments, "--json")
    assert (ran.code, ran.json["selected"]) == (code, selected)


def test_a_variable_pins_and_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from selector import preferences

    monkeypatch.setenv("ATTN_SELECTOR_BACKEND", "flash_attn/fa4")
    preferences.forget()
    ran = command("explain", "--on", "h100", *LAYER)
    assert ran.code == 3
    assert "flash_attn/fa4 cannot be used, and ATTN_SELECTOR_BACKEND asks for it" in ran.out
    flag = command("explain", "--on", "h100", *LAYER, "--backend", "flash_attn/fa3", "--json")
    assert [p["source"] for p in flag.json["preferences"]] == ["flag"]


def test_a_configuration_file_pins_and_is_named_with_its_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from selector import preferences

    path = tmp_path / "config.yaml"
    path.write_text("# mine\nbackend: flash_attn/fa4\n")
    monkeypatch.setenv("ATTN_SELECTOR_CONFIG", str(path))
    preferences.forget()
    ran = command("explain", "--on", "h100", *LAYER)
    assert ran.code == 3
    assert f"{path}:2:1" in ran.out.replace("\n  ", " ")


def test_why_not_gives_reasons_sources_and_tried_changes(command: Command) -> None:
    ran = command("explain", "--on", "h100", *LAYER, "--why-not", "flash_attn/fa2")
    assert ran.code == 0
    assert ran.out.startswith("flash_attn/fa2 is rejected: ")
    assert "https://" in ran.out
    assert "flash_attn/fa2 works" in ran.out


def test_why_not_of_a_backend_answers_for_every_variant(command: Command) -> None:
    ran = command("explain", "--on", "h100", *LAYER, "--why-not", "flash_attn", "--json")
    states = {c["id"]: c["state"] for c in ran.json["candidates"]}
    assert states == {
        "flash_attn/fa2": "rejected",
        "flash_attn/fa3": "selected",
        "flash_attn/fa4": "rejected",
    }
    for entry in ran.json["candidates"]:
        assert bool(entry["reasons"]) == (entry["state"] == "rejected")


def test_why_not_of_one_that_is_only_further_down(command: Command) -> None:
    ran = command("explain", "--on", "h100", *PLAIN, "--why-not", "flex_attention")
    assert "flex_attention fits, in place " in ran.out
    assert "flash_attn/fa3 is first" in ran.out


def test_why_not_of_nobody_is_wrong_usage(command: Command) -> None:
    ran = command("explain", "--on", "h100", *PLAIN, "--why-not", "flexatention")
    assert ran.code == 2
    assert "did you mean flex_attention?" in ran.err


def test_why_not_says_when_nothing_helps(command: Command) -> None:
    ran = command("explain", *IN_SMALL, "--on", "old", *PLAIN, "--why-not", "swift/three")
    assert "Nothing helps" in ran.out


def test_strict_refuses_adjustments(command: Command) -> None:
    asked = ("explain", *IN_SMALL, "--on", "host", "--json", "head_size=64", "dtype=fp16", "block_size=32")
    lax, strict = command(*asked), command(*asked, "--strict")
    assert lax.json["candidates"][0]["adjusted"]["changes"] == {"block_size": {"from": 32, "to": 64}}
    assert strict.json["selected"] == "slow"
    assert [r["kind"] for r in strict.json["rejected"]["broad"]] == ["adjustment"]


def test_two_packs_make_one_catalog(command: Command) -> None:
    ran = command(
        "explain", "--on", "h100", *PLAIN, "--pack", "core", "--pack", "transformer_engine", "--json"
    )
    assert ran.json["catalog"]["packs"] == ["core", "transformer_engine"]
    assert ran.json["selected"] == "flash_attn/fa3"


def test_null_leaves_a_field_open(command: Command) -> None:
    ran = command("explain", "--on", "h100", "head_size=128", "kv_cache_dtype=null", "--json")
    assert ran.json["request"] == {"head_size": 128, "kv_cache_dtype": None}
    assert ran.json["open"] == ["dtype"]


def test_aliases_of_fields_and_values(command: Command) -> None:
    ran = command(
        "explain", "--on", "h100", "head_dim=128", "torch_dtype=torch.bfloat16", "has_sink=true", "--json"
    )
    assert ran.json["request"] == {"head_size": 128, "dtype": "bfloat16", "sinks": True}


def test_verbose_shows_every_reason_and_source(command: Command) -> None:
    ran = command("explain", "--on", "a100", *LAYER, "--verbose")
    found = command("explain", "--on", "a100", *LAYER, "--json").json
    for reasons in found["rejected"].values():
        for reason in reasons:
            assert reason["source"] in ran.out
    assert "more" not in [line.split()[1] for line in ran.out.splitlines() if line.startswith("  and")]


def test_width_follows_columns(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    ran = command("explain", "--on", "a100", *LAYER)
    wide = [line for line in ran.out.splitlines() if len(line) > 60]
    assert not wide


RULED = """
manifest: 1
name: mine
requires: {device: any}
supports:
  dtype: [float16, bfloat16]
  head_size: {multiple_of: 8, max: 128}
  causal: any
  sinks: any
rules:
  - when: {head_size: {min: 97}, dtype: float16}
    reject: not with float16
  - when: {not: {any: [{dtype: float16}, {causal: true}]}}
    reject: bfloat16 is causal
  - when: {max_head_size: {min: 65}, sinks: true}
    reject: sinks take small heads
  - when: {packages: {triton: "<3"}, head_size: 40}
    reject: an old triton
"""


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("head_size=128", "dtype=fp16", "causal"), ["use dtype=bfloat16", "use head_size=96"]),
        (("head_size=64", "dtype=bf16"), ["use dtype=float16", "use causal=true"]),
        (("head_size=72", "dtype=bf16", "causal", "sinks"), ["drop sinks", "use head_size=64"]),
        (("head_size=40", "dtype=fp16", "--with", "triton==2.1"), ["change triton 2.1 to", "remove triton"]),
    ],
)
def test_what_a_rule_refuses_is_helped_by_one_field(
    command: Command, tmp_path: Path, fields: tuple[str, ...], told: list[str]
) -> None:
    """A rule's own conditions are what can be changed; what the exact search finds the other says, too."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.yaml").write_text(RULED, encoding="utf-8")
    pack = "pack: 1\nname: mine\npolicy: [{name: all, order: [mine]}]\n"
    (folder / "pack.yaml").write_text(pack, encoding="utf-8")
    asked = ("explain", "--pack", f"{folder}/", "--on", "a100", *fields)
    plain, why = command(*asked), command(*asked, "--why-not", "mine")
    assert plain.code == why.code == 3
    for ran in (plain, why):
        for text in told:
            assert text in ran.out
        assert "Nothing helps" not in ran.out
