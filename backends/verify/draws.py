"""A draw: everything about one call that can be chosen, by name. It is plain data, and says what request the call makes.

Dimensions are of two kinds. Most are axes of a request under their own names (`dtype`, `sinks`). The others vary what no axis
says: how long sequences are, how tensors lie in memory, which shape a mask has (:data:`FREE`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "DIMENSIONS",
    "FREE",
    "PLAIN",
    "Dimension",
    "Draw",
    "Value",
    "key_of",
    "lengths",
    "normal",
    "request_of",
]

Value = str | int | bool | None
Draw = Mapping[str, Value]

FP8 = ("fp8_e4m3", "fp8_e5m2")


class Dimension(NamedTuple):
    """One thing to choose. The first of ``values`` is the plain one.

    ``needs``: where another value than the plain one is to count, these dimensions have one of these values.
    """

    name: str
    values: tuple[Value, ...]
    needs: Mapping[str, tuple[Value, ...]] = {}


_FLAG = (False, True)
_PAGED = {"layout": ("paged",)}
_MASKED = {"custom_mask": (True,)}

DIMENSIONS: tuple[Dimension, ...] = (
    Dimension("dtype", ("float32", "float16", "bfloat16", "float64", *FP8)),
    Dimension("kv_cache_dtype", ("auto", *FP8)),
    Dimension("head_size", (64, 8, 16, 20, 40, 72, 80, 96, 128, 192, 256, 264, 512, 1)),
    Dimension("head_size_v", (None, 32, 64, 128, 256)),
    Dimension("num_kv_heads", (2, 1, 4)),
    Dimension("group", (1, 2, 3, 8)),
    Dimension("layout", ("dense", "varlen", "paged")),
    Dimension("block_size", (16, 1, 48, 128, 256), _PAGED),
    Dimension("packed", _FLAG, _PAGED),
    Dimension("ragged", ("even", "uneven", "gaps"), {"layout": ("varlen", "paged"), "batch": (3,)}),
    Dimension("batch", (3, 1)),
    Dimension("query_length", ("same", "one", "shorter", "longer", "empty")),
    Dimension("kv_length", ("many", "one", "empty"), {"query_length": ("one", "longer", "empty")}),
    Dimension("length", ("short", "long")),
    Dimension("causal", _FLAG),
    Dimension("sliding_window", _FLAG),
    Dimension("window_right", _FLAG, {"sliding_window": (True,), "causal": (False,)}),
    Dimension("window_left", (True, False), {"window_right": (True,)}),
    Dimension("window", ("some", "none", "all"), {"sliding_window": (True,)}),
    Dimension("softcap", _FLAG),
    Dimension("alibi", _FLAG),
    Dimension("slopes", ("heads", "batch"), {"alibi": (True,)}),
    Dimension("sinks", _FLAG),
    Dimension("custom_mask", _FLAG),
    Dimension("mask_bias", _FLAG, _MASKED),
    Dimension("mask_grad", _FLAG, {**_MASKED, "mask_bias": (True,), "training": (True,)}),
    Dimension("mask_shape", ("plane", "keys", "heads", "full"), _MASKED),
    Dimension("lse", _FLAG),
    Dimension("dropout", _FLAG),
    Dimension("training", _FLAG),
    Dimension("deterministic", _FLAG),
    Dimension("per_head_scales", _FLAG, {"num_kv_heads": (2, 4)}),
    Dimension("query_scales", _FLAG, {"per_head_scales": (True,)}),
    Dimension("scales", ("none", "number", "tensor")),
    Dimension("scale", ("default", "given")),
    Dimension("memory", ("contiguous", "transposed", "strided", "expanded")),
)
"""Every dimension, with the values that any candidate is asked; `space` adds the sides of a candidate's own limits."""

PLAIN: Draw = {d.name: d.values[0] for d in DIMENSIONS}

NEEDS: Mapping[str, Mapping[str, tuple[Value, ...]]] = {d.name: d.needs for d in DIMENSIONS}

FREE: frozenset[str] = frozenset(
    (
        "packed", "ragged", "batch", "length", "window_left", "window", "slopes", "mask_shape", "query_scales", "scales",
        "scale", "memory",
    )
)  # fmt: skip
"""Dimensions that no axis of a request says."""

#: Tokens of a short and a long sequence of keys; the long one is more than a block of 128 of FlexAttention.
SHORT, LONG = 9, 150


def key_of(draw: Draw) -> str:
    """One text for one call: what differs from the plain values."""
    return json.dumps({k: v for k, v in sorted(draw.items()) if v != PLAIN[k]}, separators=(",", ":"))


def normal(draw: Draw) -> dict[str, Value]:
    """The draw with everything that does not count at its plain value, so that equal calls are equal draws."""
    found = dict(draw)
    changed = True
    while changed:
        changed = False
        for name, needs in NEEDS.items():
            if name != "kv_length" and found[name] != PLAIN[name]:
                for other, allowed in needs.items():
                    if found[other] not in allowed:
                        found[name], changed = PLAIN[name], True
                        break
    if found["head_size_v"] == found["head_size"]:
        found["head_size_v"] = None
    alone = found["num_kv_heads"] == 1 and (found["layout"] != "dense" or found["batch"] == 1)
    if found["memory"] == "expanded" and alone:
        found["memory"] = "contiguous"  # nothing to expand over
    return found


def lengths(draw: Draw) -> tuple[int, int]:
    """(query tokens, key tokens) of the longest sequence."""
    long = draw["length"] == "long"
    block = draw["block_size"] if draw["layout"] == "paged" else 1
    assert isinstance(block, int)
    keys = {"empty": 0, "one": 1}.get(str(draw["kv_length"]))
    if keys is None:
        # a long sequence ends inside its second block of the cache
        keys = max(LONG, block + block // 2 + 1) if long else SHORT
    queries = {
        "empty": 0,
        "one": 1,
        "same": keys,
        "shorter": keys // 2,
        "longer": keys + (40 if long else 4),
    }[str(draw["query_length"])]
    return queries, keys


def _length_class(queries: int, keys: int) -> str:
    if queries <= 1:
        return "one" if queries else "empty"
    return "same" if queries == keys else "shorter" if queries < keys else "longer"


def request_of(draw: Draw) -> dict[str, Value] | None:
    """The request that the call makes, as `backends.call.request_fields` reads it off the tensors, without the device.

    None where the draw contradicts itself and there is no such call. Takes a draw in its normal form.
    """
    queries, keys = lengths(draw)
    if _length_class(queries, keys) != draw["query_length"]:
        return None
    quantised = draw["kv_cache_dtype"] in FP8
    if draw["dtype"] in FP8 and (draw["training"] or not quantised):
        return None  # there is no gradient of an fp8 query, and keys in the format of an fp8 query are named
    kv_heads, group = draw["num_kv_heads"], draw["group"]
    assert isinstance(kv_heads, int) and isinstance(group, int)
    request: dict[str, Value] = {
        name: draw[name]
        for name in (
            "dtype", "kv_cache_dtype", "head_size", "num_kv_heads", "layout", "causal", "query_length", "kv_length",
            "sliding_window", "window_right", "softcap", "alibi", "sinks", "custom_mask", "mask_bias", "mask_grad",
            "lse", "dropout", "training", "deterministic", "per_head_scales",
        )
    }  # fmt: skip
    request["head_size_v"] = draw["head_size"] if draw["head_size_v"] is None else draw["head_size_v"]
    request["num_heads"] = kv_heads * group
    if draw["layout"] == "paged":
        request["block_size"] = draw["block_size"]
    return request
