"""Requests read out of error texts: whole, coloured, wrapped, behind prefixes, cut off, and in any other noise."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector import Catalog
from selector.error_text import Reading, read_error
from selector.pack import Between, ErrorText

CATALOG = Catalog.load("vllm")
FORM = CATALOG.packs[0].error
assert FORM is not None
BACKENDS = {m.name.lower(): m.name for m in CATALOG.manifests}

FIELDS: dict[str, Any] = {
    "head_size": 192,
    "dtype": "torch.bfloat16",
    "kv_cache_dtype": "fp8_e5m2",
    "block_size": None,
    "use_mla": False,
    "has_sink": True,
    "use_sparse": False,
    "attn_type": "AttentionType.ENCODER_ONLY",
    "has_sliding_window": True,
}
TRUTH = {
    **FIELDS,
    "dtype": "bfloat16",
    "attn_type": "encoder_only",
}
REASONS = {
    "FLASH_ATTN": "kv_cache_dtype not supported, attention sinks not supported",
    "FLASHINFER": "ImportError: libcuda.so.1 (no such file), sinks [x] not supported",
    "TRITON_ATTN": "",
}


def body(fields: dict[str, Any]) -> str:
    return f"AttentionSelectorConfig({', '.join(f'{k}={v}' for k, v in fields.items())})"


def error(fields: dict[str, Any] = FIELDS, device: str = "cuda") -> str:
    reasons = ", ".join(f"{k}: [{v}]" for k, v in REASONS.items())
    return f"ValueError: No valid attention backend found for {device} with {body(fields)}. Reasons: {{{reasons}}}."


def read(text: str) -> Reading:
    assert FORM is not None
    return read_error(text, FORM, CATALOG.vocabulary, BACKENDS)


def hard(text: str, width: int) -> list[str]:
    return [text[i : i + width] for i in range(0, len(text), width)]


PREFIXES = {
    "none": "",
    "vllm": "\x1b[0;36m(EngineCore_DP0 pid=41)\x1b[0;0m ERROR 11-30 10:0{n}:2{n} [core.py:9{n}4] ",
    "compose": "vllm-1  | ",
    "indented": "        ",
}


def test_the_whole_text() -> None:
    found = read(error())
    assert found.fields == TRUTH
    assert (found.facts, found.cut, found.requests, found.backend) == ({"device": "cuda"}, False, 1, None)
    assert found.refusals == REASONS
    assert not found.unknown and not found.impossible


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("width", [24, 37, 64, 80, 119, 400])
@pytest.mark.parametrize("break_words", [True, False])
def test_wrapped_lines_behind_prefixes(prefix: str, width: int, break_words: bool) -> None:
    lines = hard(error(), width) if break_words else textwrap.wrap(error(), width, break_on_hyphens=False)
    text = "\n".join(PREFIXES[prefix].format(n=i % 6) + line for i, line in enumerate(lines))
    before = PREFIXES[prefix].format(n=1) + "INFO starting 3 workers\n"
    found = read(f"{before}{text}\n{before}")
    assert found.fields == TRUTH
    assert found.facts == {"device": "cuda"}
    assert list(found.refusals) == list(REASONS)
    if break_words and width <= 80 and prefix in ("none", "compose"):
        # lines of one length were broken anywhere, so they are joined without a space
        assert found.refusals["FLASH_ATTN"] == REASONS["FLASH_ATTN"]


@pytest.mark.parametrize(
    "colour", ["\x1b[31m", "\x1b[38;5;9m", "\\x1b[31m", "\\u001b[1;31m", "^[[31m", "\\033[0m"]
)
def test_colours_anywhere(colour: str) -> None:
    assert read(re.sub(r"(?<=[a-z])(?=[ (,=])", lambda _: colour, error())).fields == TRUTH


def test_a_line_of_json() -> None:
    line = json.dumps({"level": "error", "message": f"Traceback:\n  in f\n{error()}", "t": 1})
    assert read(line).fields == TRUTH
    assert read(line).refusals["FLASH_ATTN"] == REASONS["FLASH_ATTN"]


@pytest.mark.parametrize("behind", ["", "\nINFO 11-30 10:00:00 [x.py:1] ready (yes)\n", "...\n"])
def test_a_cut_text_gives_no_wrong_value(behind: str) -> None:
    text = error()
    begin = text.index("head_size")
    end = text.index(")", begin)
    for cut in range(begin, end):
        found = read(text[:cut] + behind)
        wrong = {k: v for k, v in found.fields.items() if TRUTH[k] != v}
        assert not wrong, (text[:cut], wrong)
        if "head_size=192," in text[:cut] and not behind:
            assert found.cut and found.fields["head_size"] == 192


def test_the_last_of_several_requests() -> None:
    first, second = error({**FIELDS, "head_size": 64}), error()
    lines = [PREFIXES["vllm"].format(n=i) + e for i, e in enumerate((first, first, second, second))]
    found = read("\n".join(lines))
    assert found.fields["head_size"] == 192
    assert found.requests == 2


@pytest.mark.parametrize("width", range(46, 130, 6))
def test_lines_that_begin_with_the_same_words_keep_them(width: int) -> None:
    """Reasons repeat themselves; only what a logger puts before a line is a prefix."""
    reasons = "per-head quant scales not supported, attention sinks not supported"
    names = [m.name for m in CATALOG.manifests][:30]
    text = (
        error().partition(" Reasons: ")[0]
        + " Reasons: {"
        + ", ".join(f"{n}: [{reasons}]" for n in names)
        + "}."
    )
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
    for prefix in PREFIXES.values():
        found = read("\n".join(prefix.format(n=i % 6) + line for i, line in enumerate(lines)))
        assert found.fields == TRUTH
        assert found.facts == {"device": "cuda"}
        assert found.refusals == dict.fromkeys(names, reasons)


def test_a_marker_in_a_line_of_a_program_is_no_request() -> None:
    trace = '  File "selector.py", line 9, in get\n    config = AttentionSelectorConfig(\n             ^^^^^^^^^^^\n'
    assert not read(trace).found
    assert read(error() + "\n" + trace).fields == TRUTH


def test_a_backend_that_was_asked_for() -> None:
    text = (
        "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. "
        "Reason: ['head_size not supported', 'attention sinks not supported']"
    )
    found = read(text)
    assert (found.backend, found.requests, found.fields) == ("FLASHINFER", 0, {})
    assert found.refusals == {"FLASHINFER": "'head_size not supported', 'attention sinks not supported'"}
    older = read(f"{error()}\n{text}")
    assert older.backend == "FLASHINFER" and older.requests == 0  # that request was another one
    assert read(f"{text}\n{error()}").backend is None


def test_what_the_vocabulary_does_not_have_is_told() -> None:
    found = read(error({**FIELDS, "use_warp_drive": True, "kv_cache_dtype": "fp3", "cpu_arch": "x86"}))
    assert found.unknown == {"use_warp_drive": "True", "cpu_arch": "x86"}
    assert found.impossible == {"kv_cache_dtype": "fp3"}
    assert "kv_cache_dtype" not in found.fields


@pytest.mark.parametrize(
    "shown", ["encoder_only", "'encoder_only'", "<AttentionType.ENCODER_ONLY: 'encoder_only'>"]
)
def test_values_as_python_shows_them(shown: str) -> None:
    assert read(error({**FIELDS, "attn_type": shown})).fields == TRUTH


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300), st.text(max_size=80), st.integers(0, 700), st.integers(0, 700))
def test_any_noise_is_survived(noise: str, inside: str, one: int, two: int) -> None:
    text = error()
    begin, end = sorted((one % len(text), two % len(text)))
    for damaged in (
        noise,
        noise + text + noise,
        text[:begin] + inside + text[end:],
        text[end:] + text[:begin],
    ):
        read(damaged)
    assert read(f"{noise[:40]}\n{text}\n{noise}").found


def test_two_pieces_of_a_narrow_terminal_that_begin_alike() -> None:
    fields = {
        "head_size": 1, "head_size_v": 1, "num_heads": None, "num_kv_heads": None, "block_size": None,
        "query_length": "empty", "kv_length": "empty", "dtype": "float16", "kv_cache_dtype": "auto",
    }  # fmt: skip
    lines = hard(error(fields), 17)
    assert {"ength=empty, kv_l", "ength=empty, dtyp"} <= set(lines)
    assert read("\n".join(lines)).fields == fields


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_requests_come_back(data: st.DataObject) -> None:
    axes = [a for a in CATALOG.vocabulary.axes if a.of == "request" and a.derive is None]
    chosen = data.draw(st.lists(st.sampled_from(axes), min_size=1, max_size=12, unique_by=lambda a: a.name))
    fields: dict[str, Any] = {}
    for axis in chosen:
        if axis.type in ("flag", "mode"):
            fields[axis.name] = data.draw(st.booleans())
        elif axis.type == "choice":
            fields[axis.name] = data.draw(st.sampled_from([*axis.values, None]))
        elif axis.type == "integer":
            fields[axis.name] = data.draw(
                st.integers(max(axis.min or 0, 0), min(axis.max or 512, 512)) | st.none()
            )
    if not fields:
        return
    width = data.draw(st.integers(8, 200))
    assert read("\n".join(hard(error(fields), width))).fields == fields


def test_another_project_is_another_description() -> None:
    for between, text in (
        (Between("cannot run layer {", "}"), "cannot run layer {head_dim=64, causal=True}: no {x}"),
        (Between("request is ", ";"), "the request is head_dim=64, causal=True; sorry"),
    ):
        form = ErrorText(between, None, {}, None, None, CATALOG.packs[0].at)
        assert read_error(text, form, CATALOG.vocabulary, {}).fields == {"head_dim": 64, "causal": True}
