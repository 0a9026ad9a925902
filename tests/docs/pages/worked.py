"""Worked examples of the language, computed by the engine: what constraints accept, what derived axes come to."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from selector import Catalog
from selector.constraints import parse_condition
from selector.vocabulary import Axis

__all__ = ["AXES", "CONSTRAINTS", "DERIVED", "Constraint", "accepted", "derived"]

#: The axes of the examples: those of the shipped vocabulary that everybody knows, cut down to what the examples need.
AXES: dict[str, dict[str, Any]] = {
    "device": {"type": "choice", "of": "environment", "values": ["cuda", "cpu"]},
    "compute_capability": {"type": "version", "of": "environment"},
    "packages": {"type": "packages", "of": "environment"},
    "head_size": {"type": "integer", "of": "request"},
    "head_size_v": {"type": "integer", "of": "request"},
    "num_heads": {"type": "integer", "of": "request"},
    "num_kv_heads": {"type": "integer", "of": "request"},
    "window": {"type": "pair", "of": "request"},
    "causal": {"type": "flag", "of": "request"},
    "kv_cache_dtype": {
        "type": "choice",
        "of": "request",
        "values": {
            "auto": {},
            "bfloat16": {},
            "fp8_e4m3": {"tags": ["fp8", "quantized"]},
            "nvfp4": {"tags": ["quantized"]},
        },
    },
}


class Constraint(NamedTuple):
    """A constraint on an axis, and the values that it is tried on."""

    axis: str
    text: Any
    values: tuple[Any, ...]


_SIZES = (64, 72, 100, 256, 264)
_WINDOWS = ([-1, 0], [128, 0], [128, 128])
_FORMATS = ("auto", "bfloat16", "fp8_e4m3", "nvfp4")
_CAPABILITIES = ("7.5", "8.0", "8.9", "9.0", "10.3")

CONSTRAINTS = (
    Constraint("head_size", 64, _SIZES),
    Constraint("head_size", [64, 256], _SIZES),
    Constraint("head_size", {"multiple_of": 8, "max": 256}, _SIZES),
    Constraint("head_size", {"min": 65, "not_in": [100]}, _SIZES),
    Constraint("head_size", [{"max": 64}, {"in": [256]}], _SIZES),
    Constraint("kv_cache_dtype", "auto", _FORMATS),
    Constraint("kv_cache_dtype", ["auto", "bfloat16"], _FORMATS),
    Constraint("kv_cache_dtype", {"tagged": "quantized"}, _FORMATS),
    Constraint("kv_cache_dtype", {"tagged": ["fp8"], "not_in": ["nvfp4"]}, _FORMATS),
    Constraint("kv_cache_dtype", "any", _FORMATS),
    Constraint("compute_capability", ">=8.0,<9", _CAPABILITIES),
    Constraint("compute_capability", ["==9.*", ">=10.3"], _CAPABILITIES),
    Constraint("compute_capability", {"in": ["8.0", "9.0"]}, _CAPABILITIES),
    Constraint("window", [-1, 0], _WINDOWS),
    Constraint("window", [[-1, 0], [128, 0]], _WINDOWS),
    Constraint("window", {"not_in": [[128, 128]]}, _WINDOWS),
    Constraint(
        "packages",
        {"flash-attn": ">=2.6,<3"},
        ({"flash-attn": "2.8.3"}, {"flash-attn": "3.0.0"}, {}),
    ),
    Constraint("packages", {"flash-attn": "absent"}, ({"flash-attn": "2.8.3"}, {})),
)


class Derived(NamedTuple):
    """A derived axis, and the fields that it is worked out for."""

    type: str
    derive: dict[str, Any]
    given: tuple[dict[str, Any], ...]


DERIVED: dict[str, Derived] = {
    "max": Derived(
        "integer", {"max": ["head_size", "head_size_v"]}, ({"head_size": 192, "head_size_v": 128},)
    ),
    "min": Derived(
        "integer", {"min": ["head_size", "head_size_v"]}, ({"head_size": 192, "head_size_v": 128},)
    ),
    "sum": Derived(
        "integer", {"sum": ["head_size", "head_size_v", 1]}, ({"head_size": 192, "head_size_v": 128},)
    ),
    "product": Derived(
        "integer", {"product": ["num_heads", "head_size"]}, ({"num_heads": 8, "head_size": 128},)
    ),
    "gcd": Derived("integer", {"gcd": ["head_size", 96]}, ({"head_size": 128},)),
    "difference": Derived(
        "integer",
        {"difference": ["head_size", "head_size_v"]},
        ({"head_size": 192, "head_size_v": 128}, {"head_size": 192}),
    ),
    "modulo": Derived(
        "integer", {"modulo": ["num_heads", "num_kv_heads"]}, ({"num_heads": 8, "num_kv_heads": 3},)
    ),
    "floor_div": Derived("integer", {"floor_div": ["head_size", 48]}, ({"head_size": 128},)),
    "ratio": Derived(
        "integer",
        {"ratio": ["num_heads", "num_kv_heads"]},
        ({"num_heads": 8, "num_kv_heads": 2}, {"num_heads": 8, "num_kv_heads": 3}),
    ),
    "round_up": Derived("integer", {"round_up": ["head_size", 64]}, ({"head_size": 72},)),
    "element": Derived("integer", {"element": ["window", 0]}, ({"window": [128, 0]},)),
    "tag": Derived(
        "flag",
        {"tag": {"axis": "kv_cache_dtype", "tag": "quantized"}},
        ({"kv_cache_dtype": "nvfp4"}, {"kv_cache_dtype": "auto"}, {}),
    ),
    "when": Derived(
        "flag",
        {"when": {"causal": True, "head_size": {"max": 128}}},
        ({"causal": True, "head_size": 64}, {"head_size": 64}),
    ),
    "table": Derived(
        "integer",
        {"table": {"axis": "kv_cache_dtype", "map": {"fp8_e4m3": 8, "nvfp4": 4}, "else": 16}},
        ({"kv_cache_dtype": "nvfp4"}, {"kv_cache_dtype": "auto"}, {}),
    ),
    "case": Derived(
        "integer",
        {
            "case": [
                {"when": {"head_size": {"max": 64}}, "value": 128},
                {"when": {"causal": True}, "value": {"axis": "head_size"}},
            ],
            "else": {"product": ["head_size", 2]},
        },
        ({"head_size": 64}, {"head_size": 96, "causal": True}, {"head_size": 96}),
    ),
}


def accepted(example: Constraint) -> tuple[list[Any], list[Any]]:
    """The values that a constraint accepts, and those that it refuses."""
    axis = Axis(example.axis, AXES[example.axis], 0, None, None)
    constraint = parse_condition(axis, example.text)
    found: tuple[list[Any], list[Any]] = ([], [])
    for value in example.values:
        found[not constraint.holds(axis.canonical(value))].append(value)
    return found


def derived() -> dict[str, list[tuple[Mapping[str, Any], Any]]]:
    """Each derived example with what the engine makes of it."""
    axes = {**AXES, **{f"x_{name}": {"type": d.type, "derive": d.derive} for name, d in DERIVED.items()}}
    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder, "worked")
        pack.mkdir()
        files: dict[Path, dict[str, Any]] = {
            Path(folder, "vocabulary.yaml"): {"vocabulary": 1, "axes": axes},
            pack / "pack.yaml": {"pack": 1, "name": "worked"},
            pack / "kernel.yaml": {"manifest": 1, "name": "kernel"},
        }
        for path, data in files.items():
            path.write_text(json.dumps(data), encoding="utf-8")
        catalog = Catalog.load("worked", manifests=folder)
    by_name = catalog.vocabulary.by_name
    found: dict[str, list[tuple[Mapping[str, Any], Any]]] = {}
    for name, example in DERIVED.items():
        found[name] = []
        for given in example.given:
            fields = {by_name[axis].index: by_name[axis].canonical(value) for axis, value in given.items()}
            values = catalog.program.trace(catalog.program.template({}, fields)).values
            found[name].append((given, values[by_name[f"x_{name}"].index]))
    return found
