"""`docs/reference/wrappers.md`: every field of a call on every kernel wrapper, as the wrappers themselves answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from importlib import import_module

from backends._guard import FIELDS
from backends.verify.draws import PLAIN, Value, normal, request_of
from backends.verify.judge import refusal_elsewhere
from selector.catalog import Catalog
from selector.environment import Environment
from tests.docs.pages.markdown import code, escape, head, table

__all__ = ["DRAWS", "answers", "columns", "pages"]

#: How a call uses each field, beside a form that the wrapper takes.
DRAWS: Mapping[str, Mapping[str, Value]] = {
    "dense": {"layout": "dense"},
    "varlen": {"layout": "varlen"},
    "paged": {"layout": "paged"},
    "paged_varlen": {"layout": "paged", "packed": True},
    "causal": {"causal": True},
    "window_left": {"sliding_window": True},
    "window_right": {"sliding_window": True, "window_right": True, "window_left": False},
    "softcap": {"softcap": True},
    "alibi_slopes": {"alibi": True},
    "sinks": {"sinks": True},
    "mask": {"custom_mask": True},
    "bias": {"custom_mask": True, "mask_bias": True},
    "scale": {"scale": "given"},
    "gqa": {"group": 2},
    "head_size_v": {"head_size_v": 32},
    "return_lse": {"lse": True},
    "fp8_query": {"dtype": "fp8_e4m3", "kv_cache_dtype": "fp8_e4m3"},
    "fp8_kv": {"kv_cache_dtype": "fp8_e4m3"},
    "q_scale": {"scales": "number"},
    "k_scale": {"scales": "number"},
    "v_scale": {"scales": "number"},
    "per_head_scales": {"per_head_scales": True},
    "dropout_p": {"dropout": True},
    "training": {"training": True},
    "deterministic": {"deterministic": True},
}

#: Forms of a call, of which a wrapper that honours a field takes at least one: a page of 256 tokens suits everybody's pages.
FORMS: tuple[Mapping[str, Value], ...] = tuple(
    {"layout": layout, "dtype": dtype, "kv_cache_dtype": kept, "block_size": 256, "query_length": length}
    for layout, dtype, kept, length in itertools.product(
        ("dense", "varlen"), ("float16", "fp8_e4m3", "float32"), ("auto", "fp8_e4m3"), ("same", "one")
    )
)

#: Devices on which one wrapper answers apart.
APART = ("flex_attention",)


def columns() -> list[tuple[str, str, str | None, str]]:
    """Every wrapper with the device it is asked on: (title, kernel module, variant, device)."""
    from backends.verify.machines import standing

    catalog = Catalog.load("core")
    found = []
    on_cpu = standing(catalog, Environment.preset("cpu"))
    for candidate in catalog.candidates:
        assert candidate.kernel is not None
        here = not on_cpu[candidate.id]
        if candidate.id in APART:
            found.append((f"{candidate.id} on a GPU", candidate.kernel, candidate.variant, "cuda"))
        title = f"{candidate.id} on a CPU" if candidate.id in APART else candidate.id
        found.append((title, candidate.kernel, candidate.variant, "cpu" if here else "cuda"))
    return found


def honoured(kernel: str, variant: str | None, device: str, field: str) -> bool:
    """Whether the wrapper takes some call that uses the field. A field that its table lacks, it has to refuse by name."""
    named: frozenset[str] = import_module(kernel).HONOURED[variant]
    for form in FORMS:
        wanted = {**form, **DRAWS[field]}
        draw = normal({**PLAIN, **wanted})
        if request_of(draw) is None or any(draw[k] != v for k, v in DRAWS[field].items()):
            continue
        verdict = refusal_elsewhere(kernel, variant, draw, device)
        if field not in named:
            assert f"{field} is not honoured" in verdict.message, (kernel, variant, field, verdict)
            return False
        if verdict.outcome == "ok":
            return True
    return False


def answers() -> dict[str, dict[str, bool]]:
    """Column title -> field -> whether it is honoured."""
    return {
        title: {field: honoured(kernel, variant, device, field) for field in FIELDS}
        for title, kernel, variant, device in columns()
    }


def pages() -> dict[str, str]:
    """The page."""
    found = answers()
    lines = head(
        "Wrappers",
        "the wrappers of backends/",
        "A wrapper honours a field of the call, or it refuses the call and says which field it was: nothing is dropped in silence. "
        "Each cell is the wrapper's own answer to calls that use the field, beside forms (layout, dtype, page size, lengths) that suit it; a "
        "field can still be refused in one combination, which the manifests say. `attn-select verify` runs the combinations.",
    )
    for group in _groups(list(found)):
        lines += table(
            ("field", "what it is", *(code(title.partition("/")[2] or title) for title in group[1])),
            [
                (code(field), escape(words), *("yes" if found[t][field] else "–" for t in group[1]))
                for field, words in FIELDS.items()
            ],
        )
        lines[-len(FIELDS) - 3 : -len(FIELDS) - 3] = [f"## {group[0]}", ""]
    return {"reference/wrappers.md": "\n".join(lines).rstrip() + "\n"}


def _groups(titles: list[str]) -> list[tuple[str, list[str]]]:
    """Columns of one backend together; backends of one or two columns share a table."""
    by_backend: dict[str, list[str]] = {}
    for title in titles:
        by_backend.setdefault(title.partition("/")[0].partition(" ")[0], []).append(title)
    large = [(name, found) for name, found in by_backend.items() if len(found) > 2]
    small = [(name, found) for name, found in by_backend.items() if len(found) <= 2]
    joint = (", ".join(name for name, _ in small), [t for _, found in small for t in found])
    return [*large, *([joint] if small else [])]
