"""Requests as a server's layers make them, drawn at random: sizes, dtypes, caches, now and then a feature."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from selector.vocabulary import Vocabulary

__all__ = ["distinct", "fields"]

SIZES = (64, 80, 96, 128, 128, 128, 192, 256, 512, 576)
CACHES = ("auto", "auto", "auto", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16")
FEATURES = ("causal", "sliding_window", "sinks", "softcap", "alibi", "mla", "sparse", "kv_connector", "dcp")
RARE = ("non_causal", "mm_prefix", "batch_invariant", "per_head_scales", "lse", "dropout", "deterministic")


def fields(random: Random, vocabulary: Vocabulary) -> dict[str, Any]:
    """The fields of one request."""
    found: dict[str, Any] = {
        "head_size": random.choice(SIZES) if random.random() < 0.7 else 8 * random.randint(4, 72),
        "dtype": random.choice(("bfloat16", "bfloat16", "float16", "float32")),
        "num_heads": random.randint(1, 128),
        "num_kv_heads": random.choice((1, 2, 4, 8, 16)),
    }
    if random.random() < 0.8:
        found["kv_cache_dtype"] = random.choice(CACHES)
    if random.random() < 0.7:
        found["block_size"] = random.choice((16, 32, 64, 128, 256))
    for names, share in ((FEATURES, 0.12), (RARE, 0.03)):
        for name in names:
            if random.random() < share and vocabulary.find(name) is not None:
                found[name] = True
    return found


def distinct(count: int, seed: int, vocabulary: Vocabulary) -> Iterator[dict[str, Any]]:
    """Requests no two of which have the same fields."""
    random = Random(seed)
    seen: set[tuple[tuple[str, Any], ...]] = set()
    while len(seen) < count:
        drawn = fields(random, vocabulary)
        key = tuple(sorted(drawn.items()))
        if key not in seen:
            seen.add(key)
            yield drawn
