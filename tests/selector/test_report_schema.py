"""Reports of many kinds have the form that `selector/schema/report.schema.json` states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from selector import preferences
from selector.catalog import Catalog, pack_names
from selector.environment import Environment, preset_names
from selector.report import Report
from selector.selection import decide

ROOT = Path(__file__).resolve().parents[2]
SMALL = ROOT / "tests" / "data" / "render"
SCHEMA = json.loads((ROOT / "selector" / "schema" / "report.schema.json").read_text())

LAYERS: tuple[dict[str, Any], ...] = (
    {},
    {"head_size": 128, "dtype": "bf16"},
    {"head_size": 128, "dtype": "bf16", "kv_cache_dtype": "fp8", "per_head_scales": True, "block_size": 48},
    {"head_size": 576, "head_size_v": 512, "dtype": "bf16", "mla": True},
    {"head_size": 80, "dtype": "fp32", "sinks": True, "alibi": True, "fa_version": 2},
    {"head_size": None, "dtype": None, "kv_cache_dtype": None},
)


def validated(report: Report) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(report.to_json())
    errors = [f"{list(e.path)}: {e.message}" for e in Draft7Validator(SCHEMA).iter_errors(data)]
    assert errors == []
    return data


@pytest.mark.parametrize("pack", pack_names())
def test_reports_of_every_pack(pack: str) -> None:
    catalog = Catalog.load(pack)
    known = catalog.vocabulary.find
    kinds = set()
    for name in ("h100", "a100", "cpu", "mi300x"):
        machine = Environment.preset(name, vocabulary=catalog.vocabulary)
        for fields in LAYERS:
            asked = {k: v for k, v in fields.items() if known(k) is not None}
            data = validated(decide(catalog.request(asked), catalog, machine))
            kinds.add(data["selected"] is None)
    assert True in kinds


def test_every_part_is_there_in_some_report() -> None:
    """Preferences, adjustments, warnings, known wrong results, origins, losses and suggestions."""
    catalog = Catalog.load("small", manifests=SMALL)

    def report(machine: str, wishes: Any = (), strict: bool = False, **fields: Any) -> dict[str, Any]:
        environment = Environment.preset(machine, vocabulary=catalog.vocabulary, root=catalog.root)
        return validated(
            decide(
                catalog.request(fields),
                catalog,
                environment,
                wishes,
                strict=strict,
                origins={"head_size": "config"},
            )
        )

    plain = report("new", head_size=128, dtype="bf16", sinks=True, block_size=64)
    assert plain["candidates"][0]["warnings"]
    assert plain["candidates"][0]["option"]
    assert plain["excluded"] == []
    assert plain["origins"] == {"head_size": "config"}
    assert report("new", head_size=64, dtype="float32")["excluded"] == ["spare"]
    adjusted = report("new", head_size=128, dtype="bf16", sinks=True, block_size=32)
    assert adjusted["candidates"][0]["adjusted"]["changes"]
    assert adjusted["losses"]
    strict = report("new", strict=True, head_size=128, dtype="bf16", sinks=True, block_size=32)
    assert strict["rejected"]["broad"][0]["kind"] == "adjustment"
    wrong = report("new", head_size=192, dtype="bf16", sinks=True)
    assert wrong["rejected"]["swift/three"][0]["kind"] == "known_wrong"
    pinned = report("old", tuple(preferences.from_call("swift/three", ["slow"], ["broad"])), head_size=128)
    assert [p["kind"] for p in pinned["preferences"]] == ["pin", "avoid", "prefer"]
    assert pinned["rejected"]["broad"][0]["kind"] == "preference"
    nothing = report("old", head_size=128, dtype="bf16", per_head_scales=True)
    assert nothing["suggestions"] and nothing["near_misses"]


def test_the_schema_refuses_another_form() -> None:
    catalog = Catalog.load("small", manifests=SMALL)
    machine = Environment.preset("new", vocabulary=catalog.vocabulary, root=catalog.root)
    data = decide(catalog.request({"head_size": 128}), catalog, machine).to_dict()
    validator = Draft7Validator(SCHEMA)
    assert validator.is_valid(data)
    assert not validator.is_valid({**data, "extra": 1})
    assert not validator.is_valid({k: v for k, v in data.items() if k != "losses"})
    assert not validator.is_valid({**data, "format": 2})


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert set(preset_names())
