"""SGLang's recorded decisions against the pack `sglang`.

A row has `env.platform`, `request`, `error` and `selected` (`prefill`, `decode`, `page_size`; null with `error`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from .judge import Fields, Judge, engine
from .result import Difference, Result, Row, compare_rows, read_rows

FIELDS: Final = ("error", "prefill", "decode", "page_size")

FLASHINFER: Final[Fields] = {"flashinfer-python": {"version": "0.6.18", "state": "usable"}}


def cuda(capability: str, packages: Fields) -> Fields:
    """A machine with an NVIDIA GPU and a current CUDA."""
    return {
        "device": "cuda",
        "compute_capability": capability,
        "cuda_version": "12.9",
        "packages": packages,
        "amx": False,
    }


def other(device: str, *, amx: bool = False) -> Fields:
    """A machine without an NVIDIA GPU."""
    return {"device": device, "packages": {}, "amx": amx}


PLATFORMS: Final[Mapping[str, Fields]] = {
    "hopper": cuda("9.0", FLASHINFER),
    "hopper_nofi": cuda("9.0", {}),
    "ampere": cuda("8.0", FLASHINFER),
    "ampere_nofi": cuda("8.0", {}),
    "sm100": cuda("10.0", FLASHINFER),
    "sm120": cuda("12.0", FLASHINFER),
    "hip": other("rocm"),
    "mps": other("mps"),
    "cpu": other("cpu"),
    "cpu_amx": other("cpu", amx=True),
}
"""A row's platform as an environment."""


def request_of(request: Row) -> Fields:
    """The request of a row, without a phase.

    Every row is a model with 16 KV heads and equal query heads; head sizes and dtype are read by no rule.
    """
    fields: Fields = {
        "head_size": 128,
        "dtype": "bfloat16",
        "num_heads": 16,
        "num_kv_heads": 16,
        "causal": True,
        "mla": request["use_mla"],
        "sinks": request["attention_sinks"],
        "asymmetric_kv": request["asymmetric_kv"],
        "speculative_algorithm": request["speculative_algorithm"] or "none",
        "deterministic": request["deterministic"],
        "kv_cache_dtype": request["kv_cache_dtype"],
    }
    for field, axis in (("eagle_topk", "eagle_topk"), ("page_size", "block_size")):
        if request[field] is not None:
            fields[axis] = request[field]
    return fields


def selected_of(judge: Judge, row: Row) -> dict[str, Any] | None:
    """The row's `selected`: the answers of both phases and the page size they leave, None where one is refused."""
    request, environment = request_of(row["request"]), PLATFORMS[row["env"]["platform"]]
    names: dict[str, str] = {}
    sizes: dict[str, int | None] = {}
    for phase in ("prefill", "decode"):
        verdict = judge(
            {**request, "phase": phase},
            environment,
            row["request"]["attention_backend"],
        )
        if not verdict.ranked:
            return None
        best = verdict.ranked[0]
        change = verdict.adjusted.get(best)
        names[phase] = change.use if change is not None and change.use is not None else best
        sizes[phase] = request.get("block_size")
        if change is not None:
            sizes[phase] = change.set.get("block_size", sizes[phase])
    if sizes["prefill"] != sizes["decode"]:
        raise ValueError(f"the phases leave different page sizes: {sizes}")
    return {**names, "page_size": sizes["decode"]}


def compare_row(judge: Judge, row: Row) -> Iterator[Difference]:
    """The differences between a row and the pack's answer."""
    selected = selected_of(judge, row)
    if (selected is None) != row["error"]:
        yield Difference("error", row["error"], selected is None)
    wanted = row["selected"] or {}
    for field in FIELDS[1:]:
        got = None if selected is None else selected[field]
        if got != wanted.get(field):
            yield Difference(field, wanted.get(field), got)


def compare(rows: Iterable[Row]) -> Result:
    """Compare rows."""
    judge = engine("sglang")
    return compare_rows("sglang", rows, FIELDS, lambda row: compare_row(judge, row))


def compare_file(path: Path, limit: int | None = None) -> Result:
    """Compare the rows of a file, at most `limit`."""
    return compare(read_rows(path, limit))
