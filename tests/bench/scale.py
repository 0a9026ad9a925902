"""A thousand manifests: copies of the vllm pack's under other names, with other limits, each where its original stands in an order."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

from selector import Catalog, Environment
from tests.bench.draw import distinct
from tests.bench.harness import ROOT, Figure, spread
from tests.bench.select import times

__all__ = ["scale", "write_pack"]

PACK = ROOT / "manifests" / "vllm"
FEW, MANY = 40, 1_000


def scale(quick: bool) -> list[Figure]:
    """The first `select` of a new request at 40 and at 1,000 manifests."""
    many = 120 if quick else MANY
    with tempfile.TemporaryDirectory() as folder:
        roots = {count: Path(folder) / str(count) for count in (FEW, many)}
        for count, root in roots.items():
            write_pack(root, count)
        medians: dict[int, list[float]] = {count: [] for count in roots}
        catalogs = {n: Catalog.load("many", manifests=root) for n, root in roots.items()}
        for number in range(1 if quick else 9):
            for count, root in roots.items() if number % 2 else reversed(roots.items()):
                first = catalogs[count]
                drawn = list(distinct(300 if quick else 3_000, number, first.vocabulary))
                catalog = Catalog.load("many", manifests=root)
                requests = [catalog.request(fields) for fields in drawn]
                environment = Environment.preset("h100", vocabulary=catalog.vocabulary)
                medians[count].append(spread(times(catalog, environment, requests, len(drawn) // 4)).median)
    ratio = spread([b / a for a, b in zip(medians[FEW], medians[many])])
    few, lots = (spread(medians[count]).median * 1e6 for count in (FEW, many))
    return [
        Figure(
            "scale/ratio", "first `select` of a new request at 1,000 manifests over the same at 40",
            ratio.median, "x", 6.0, low=ratio.low, high=ratio.high,
            note=f"{few:.1f} and {lots:.1f} µs" + (f" (quick: at {many})" if quick else ""),
        )
    ]  # fmt: skip


def write_pack(root: Path, count: int) -> None:
    """A manifests directory whose pack `many` has ``count`` manifests."""
    target = root / "many"
    target.mkdir(parents=True)
    (root / "vocabulary.yaml").write_bytes((ROOT / "manifests" / "vocabulary.yaml").read_bytes())
    (target / "vocabulary.yaml").write_bytes((PACK / "vocabulary.yaml").read_bytes())
    originals = [_read(p) for p in sorted(PACK.glob("*.yaml")) if p.stem not in ("pack", "vocabulary")]
    copies: dict[str, list[str]] = {raw["name"]: [] for raw in originals}
    # What a policy names comes first, so that the smaller pack has it too.
    pack = _read(PACK / "pack.yaml")
    named = [name for rule in pack["policy"] for name in _named(rule)]
    originals.sort(key=lambda raw: raw["name"] not in named)
    for k in range(count):
        raw = originals[k % len(originals)]
        turn = k // len(originals)
        name = raw["name"] if not turn else f"{raw['name']}_{turn}"
        copies[raw["name"]].append(name)
        manifest = {**_varied(raw, turn, set(copies)), "name": name}
        _write(target / f"m{k:04}.yaml", manifest)
    for rule in pack["policy"]:
        rule["order"] = [copied for entry in rule["order"] for copied in _copied(entry, copies)]
    pack["policy"] = [rule for rule in pack["policy"] if rule["order"]]
    _write(target / "pack.yaml", {**pack, "name": "many"})


def _read(path: Path) -> Any:
    return yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)


def _write(path: Path, raw: Any) -> None:
    path.write_text(json.dumps(raw, ensure_ascii=False, indent=1), encoding="utf-8")  # YAML too


def _name(entry: Any) -> str:
    return str(entry["candidate"] if isinstance(entry, dict) else entry)


def _named(rule: Any) -> list[str]:
    return [_name(entry).partition("/")[0] for entry in rule["order"]]


def _copied(entry: Any, copies: dict[str, list[str]]) -> list[Any]:
    """An entry of an order for each copy of whom it names."""
    backend, slash, variant = _name(entry).partition("/")
    names = [f"{copy}{slash}{variant}" for copy in copies.get(backend, ())]
    return [{**entry, "candidate": name} if isinstance(entry, dict) else name for name in names]


def _varied(raw: Any, turn: int, names: set[str], key: str = "") -> Any:
    """A manifest's data with larger limits, and with its own copies where it names others."""
    if isinstance(raw, dict):
        return {k: _varied(v, turn, names, k) for k, v in raw.items()}
    if isinstance(raw, list):
        varied = [_varied(v, turn, names, key) for v in raw]
        return [*varied, varied[-1] + 8 * turn] if turn and key == "head_size" and _numbers(raw) else varied
    if turn and key == "max" and isinstance(raw, int):
        return raw + turn
    if turn and key in ("accepts", "use") and str(raw).partition("/")[0] in names:
        backend, slash, variant = str(raw).partition("/")
        return f"{backend}_{turn}{slash}{variant}"
    return raw


def _numbers(raw: list[Any]) -> bool:
    return all(isinstance(n, int) for n in raw)
