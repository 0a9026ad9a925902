"""`explain --from-NAME-error FILE`: what another project's error says, explained with the pack that describes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.selector.cli.command import Command, spawn

REQUEST = (
    "AttentionSelectorConfig(head_size=128, dtype=torch.bfloat16, kv_cache_dtype=fp8, block_size=None, use_mla=False, "
    "has_sink=True, use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=True, "
    "attn_type=AttentionType.DECODER, has_sliding_window=False, use_non_causal=False, use_batch_invariant=False, "
    "use_kv_connector=False, use_adaptive_verification=False, use_pcp=False, use_dcp=False, use_rswa=False)"
)
NOTHING = (
    f"(EngineCore_DP0 pid=42) ERROR 11-30 10:01:22 [core.py:1104] ValueError: No valid attention backend found for cuda "
    f"with {REQUEST}. Reasons: {{FLASH_ATTN: [kv_cache_dtype not supported, per-head quant scales not supported], "
    f"TRITON_ATTN: [per-head quant scales not supported]}}.\n"
)
ASKED = (
    "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. "
    "Reason: ['head_size not supported']\n"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(NOTHING)
    return path


def test_the_request_of_the_error_is_explained(command: Command, log: Path) -> None:
    ran = command("explain", "--on", "a100", "--from-vllm-error", str(log))
    assert ran.code == 3
    assert "it says      TRITON_ATTN: per-head quant scales not supported" in ran.out
    assert "No backend fits" in ran.out
    assert "head_size=128 dtype=bfloat16 kv_cache_dtype=fp8 per_head_scales sinks" in ran.out
    assert "What would help (each tried)" in ran.out
    assert "drop per_head_scales" in ran.out


def test_json_has_the_text_and_the_report(command: Command, log: Path) -> None:
    ran = command("explain", "--on", "a100", "--from-vllm-error", str(log), "--json")
    assert ran.code == 3
    assert ran.json["error"]["facts"] == {"device": "cuda"}
    assert ran.json["error"]["fields"]["kv_cache_dtype"] == "fp8"
    assert ran.json["report"]["selected"] is None
    assert ran.json["report"]["suggestions"]


def test_words_add_to_the_request_and_replace_what_it_says(command: Command, log: Path) -> None:
    asked = ("explain", "--on", "a100", "--from-vllm-error", str(log))
    report = command(*asked, "use_per_head_quant_scales=false", "num_heads=32", "--json").json["report"]
    assert report["selected"] == "TRITON_ATTN/gpu"
    assert report["request"]["num_heads"] == 32
    assert "per_head_scales" not in report["request"]


def test_a_machine_where_the_pack_accepts_what_was_refused(command: Command, log: Path) -> None:
    ran = command("explain", "--on", "h100", "--from-vllm-error", str(log))
    assert ran.code == 0
    assert "FLASH_ATTN is refused there, and accepted by the pack on h100" in " ".join(ran.out.split())
    found = command(
        "explain", "--on", "h100", "--without", "vllm-flash-attn-3", "--from-vllm-error", str(log), "--json"
    )
    assert found.json["error"]["notes"] == []


def test_the_machine_has_to_be_of_the_kind_that_failed(command: Command, log: Path) -> None:
    ran = command("explain", "--on", "mi300x", "--from-vllm-error", str(log))
    assert (ran.code, ran.out) == (2, "")
    assert "comes from a machine with device cuda, and --on mi300x has device rocm" in ran.err


def test_a_backend_that_was_asked_for_is_insisted_on(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "asked.log"
    path.write_text(ASKED)
    asked = ("explain", "--on", "a100", "--from-vllm-error", str(path))
    ran = command(*asked)
    assert ran.code == 2
    assert "carries no request: FLASHINFER: 'head_size not supported'" in ran.err
    ran = command(*asked, "head_size=80", "dtype=bf16")
    assert ran.code == 3
    assert "FLASHINFER cannot be used" in ran.out
    assert "use head_size=64: FLASHINFER works" in ran.out
    other = command(*asked, "head_size=80", "dtype=bf16", "--backend", "FLASH_ATTN")
    assert other.code == 0, other.out


def test_standard_input_and_other_files_of_the_report(log: Path, tmp_path: Path) -> None:
    page, snapshot = tmp_path / "page.html", tmp_path / "snapshot.json"
    ran = spawn(
        "explain", "--on", "a100", "--from-vllm-error", "-", "--html", str(page), "--save", str(snapshot),
        stdin=log.read_bytes(),
    )  # fmt: skip
    assert ran.code == 3, ran.err
    assert "read from    standard input" in ran.out
    assert "per_head_scales" in page.read_text() and "per_head_scales" in snapshot.read_text()


def test_what_cannot_be_read_is_noted(command: Command, log: Path) -> None:
    log.write_text(
        NOTHING.replace("use_pcp=False", "use_warp=True").replace("kv_cache_dtype=fp8", "kv_cache_dtype=fp3")
    )
    notes = command("explain", "--on", "a100", "--from-vllm-error", str(log), "--json").json["error"]["notes"]
    assert any("use_warp=True: pack vllm (vLLM 0.32.0) has no such axis" in note for note in notes)
    assert any("kv_cache_dtype=fp3 could not be read" in note for note in notes)
    log.write_text(NOTHING[:300])
    notes = command("explain", "--on", "a100", "--from-vllm-error", str(log), "--json").json["error"]["notes"]
    assert any("ends inside the request" in note for note in notes)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--from-error", "{log}"), "pack core does not describe the error text"),
        (("--from-error", "{log}", "--pack", "sglang"), "packs that do: vllm"),
        (("--from-vllm-error", "{log}", "--pack", "core"), "takes pack vllm, and --pack asks for core"),
        (("--from-vllm-error", "/nothing/there"), "/nothing/there: No such file"),
        (("--from-vllm-error", "{log}", "--requests", "x"), "--from-vllm-error brings one request"),
        (("--from-sglang-error", "{log}"), "no option --from-sglang-error"),
    ],
)
def test_wrong_usage(command: Command, log: Path, arguments: tuple[str, ...], told: str) -> None:
    ran = command("explain", "--on", "a100", *(a.format(log=log) for a in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


@pytest.mark.parametrize("text", ["", "nothing of the kind\n" * 3, "\x00\xff\xfe binary"])
def test_files_without_an_error(command: Command, tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.log"
    path.write_bytes(text.encode("latin-1"))
    ran = command("explain", "--on", "a100", "--from-vllm-error", str(path))
    assert ran.code == 2
    assert (
        "neither 'AttentionSelectorConfig(' nor 'Selected backend'" in ran.err or "nothing in it" in ran.err
    )


def test_any_pack_may_describe_its_error(manifests: Path, log: Path) -> None:
    """The option is there because the pack's file says so; nothing else names the project."""
    pack = manifests / "core" / "pack.yaml"
    pack.write_text(pack.read_text() + 'error: {request: {after: "cannot run <", before: ">"}}\n')
    log.write_text("! cannot run <head_dim=128, dtype=bf16, per_head_quant_scales=True>\n")
    ran = spawn(
        "explain",
        "--on",
        "a100",
        "--from-core-error",
        str(log),
        env={"ATTN_SELECTOR_MANIFESTS": str(manifests)},
    )
    assert ran.code == 3, ran.err
    assert "head_size=128 dtype=bfloat16 per_head_scales" in ran.out
