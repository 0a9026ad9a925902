"""Targets that read requests: words of the command, whole command lines, and lines of JSON."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from functools import cache
from typing import Any

from selector import Request, explain
from selector.cli.app import run
from selector.cli.batch import _Answerer
from selector.cli.options import request_of
from selector.errors import SelectorError
from tests.fuzz.common import core, h100, sound


def _explained(request: Request) -> None:
    try:
        report = explain(request, environment=h100(), catalog=core())
    except SelectorError as error:
        sound(error)
        return
    report.to_text()


def run_words(data: bytes) -> None:
    """`AXIS=VALUE` words, one a line."""
    words = [word for word in data.decode("utf-8", "surrogateescape").split("\n") if word]
    try:
        request = request_of(words, core().vocabulary)
    except SelectorError as error:
        assert str(error)
        return
    _explained(request)


def run_command(data: bytes) -> None:
    """The whole command with any arguments, one a line. Nothing is written: options that write are left out."""
    words = [w for w in data.decode("utf-8", "surrogateescape").split("\n") if "\0" not in w]
    words = [w for w in words if not w.startswith(("--h", "--sa", "--se", "--w"))]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    kept = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(), "utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(["explain", "--on", "h100", *words])
    finally:
        sys.stdin = kept
    err.flush()
    said = err.buffer.getvalue().decode()
    assert code in (0, 2, 3), (code, said)
    assert "Traceback" not in said
    assert "unexpected" not in said
    assert len(said.splitlines()) <= 60, said


@cache
def _answerer() -> _Answerer:
    return _Answerer(core(), h100(), (), strict=False, reasons=True)


def run_lines(data: bytes) -> None:
    """One line of `explain --requests`."""
    try:
        answer = _answerer().answer(data)
    except (SelectorError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        assert str(error)
    except ValueError as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        own = where is not None and where.tb_frame.f_code.co_filename.endswith("batch.py")
        digits = "integer string conversion" in str(error)  # Python's own limit, said in its own words
        if not own and not digits:
            raise
    else:
        assert answer.endswith("\n")
        json.loads(answer)
        answer.encode("utf-8", "surrogatepass")


def request_lines() -> list[bytes]:
    common = {"head_size": 128, "dtype": "bf16", "num_heads": 32, "num_kv_heads": 8}
    lines: list[dict[str, Any]] = [
        {"request": common},
        {"request": {**common, "kv_cache_dtype": "fp8", "per_head_scales": True}, "environment": "h100"},
        {
            "request": {**common, "mla": True, "head_size": 576},
            "environment": "b200",
            "backend": "flashinfer",
        },
        {
            "request": {**common, "sinks": True},
            "avoid": ["flash_attn"],
            "prefer": "flashinfer",
            "strict": True,
        },
        {"request": common, "environment": {"device": "cuda", "compute_capability": "9.0", "packages": {}}},
        {
            "request": common,
            "environment": {
                "name": "x",
                "facts": {
                    "device": "cuda",
                    "packages": {"torch": "2.13.0", "flash-attn": {"version": None, "state": "unknown"}},
                },
            },
        },
    ]
    return [json.dumps(line).encode() for line in lines]


def word_seeds() -> list[bytes]:
    return [
        b"head_size=128\ndtype=bf16\nkv_cache_dtype=fp8\nper_head_scales",
        b"head_size=576\nmla\nnum_heads=128\nnum_kv_heads=1",
        b"head_dim=64\ndtype=torch.float32\ncausal\nsinks=true\nalibi=no\nwindow=128",
        b"dtype=half\nmask=padding_causal\nblock_size=16\nsoft_cap",
        *(f"{axis.name}={axis.allowed()}"[:80].encode() for axis in core().vocabulary.axes),
    ]


def command_seeds() -> list[bytes]:
    head = b"head_size=128\ndtype=bf16\n"
    return [
        head + b"--json",
        head + b"--backend\nflashinfer\n--strict",
        head + b"--avoid\nflash_attn\n--prefer\ntorch_sdpa,flex_attention\n-v",
        head + b"--env\ncompute_capability=8.0\n--env\npackages.flash-attn=2.8.3",
        head + b"--with\nflash-attn==2.8.3\n--without\nflashinfer-python\n--profile\nbare",
        head + b"--why-not\nflash_attn/fa2",
        head + b"--pack\ntransformer_engine\n--on\ncpu",
        head + b"--requests\n-",
        head + b"--from-error\n-",
    ]
