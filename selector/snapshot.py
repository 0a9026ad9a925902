"""Snapshots: a decision with all it depended on, to be decided again elsewhere or later.

A snapshot holds the request, the environment's facts, the packs with their content hash, the preferences and the decision. It holds
no user names, paths or serial numbers: facts are axes of the vocabulary and versions of packages, and error texts lose their paths.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.errors import SelectorError
from selector.preferences import Preference

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.report import Report

__all__ = ["FORMAT", "Replay", "SnapshotError", "load", "replay", "save", "snapshot"]

#: Version of the form. Readers take this one and say so of others.
FORMAT = 1

#: Bytes of a snapshot that are read.
LIMIT = 4 << 20

_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/](?:[^\s'\":;,)\]}]+[\\/])*[^\s'\":;,)\]}]*")


class SnapshotError(SelectorError):
    """A file that is no snapshot, or one of another version."""


class Replay(NamedTuple):
    """A snapshot decided again: what was, what is, and the differences in words."""

    recorded: Mapping[str, Any]
    report: Report
    differences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "same": not self.differences,
            "differences": list(self.differences),
            "recorded": self.recorded["decision"],
            "now": decision(self.report),
        }


def without_paths(text: str) -> str:
    """An error's text with every path replaced."""
    return _PATH.sub("<path>", text)


def decision(report: Report) -> dict[str, Any]:
    """What is compared: the winner, the order, the excluded, and every reason's axis, code and message."""
    from selector.render.data import answer_dict

    found = {**answer_dict(report), "excluded": list(report.excluded)}
    for reasons in found["rejected"].values():
        for reason in reasons:
            if reason["axis"] == "packages":  # the only messages that carry a foreign text
                reason["message"] = without_paths(reason["message"])
    return found


def snapshot(report: Report) -> dict[str, Any]:
    """A report as a snapshot."""
    facts = report.environment.to_dict()
    for entry in (facts.get("packages") or {}).values():
        if "detail" in entry:
            entry["detail"] = without_paths(str(entry["detail"]))
    origin = report.environment.origin
    return {
        "snapshot": FORMAT,
        "request": report.request.to_dict(),
        "environment": {
            "name": report.environment.name,
            "title": report.environment.title,
            "origin": without_paths(origin),
            "facts": facts,
        },
        "catalog": {"packs": [p.name for p in report.catalog.packs], "hash": report.catalog.hash},
        "preferences": [{**p.to_dict(), "where": without_paths(p.where)} for p in report.preferences],
        "strict": report.strict,
        "decision": decision(report),
    }


def save(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a report's snapshot; an existing file is replaced whole or not at all."""
    target = os.fspath(path)
    text = json.dumps(snapshot(report), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    scratch = f"{target}.{os.getpid()}.tmp"
    try:
        with open(scratch, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(scratch, target)
    except OSError as error:
        raise SnapshotError(f"cannot write {target}: {error.strerror or error}") from None


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a snapshot. Raises SnapshotError for anything else."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read(LIMIT + 1)
    except (OSError, ValueError) as error:
        raise SnapshotError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LIMIT:
        raise SnapshotError(f"{name} is larger than {LIMIT >> 20} MiB: no snapshot")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"{name} is no JSON: {error}") from None
    if not isinstance(found, dict) or "snapshot" not in found:
        raise SnapshotError(f"{name} is no snapshot (a report's `save()` or `explain --save` writes one)")
    if found["snapshot"] != FORMAT:
        raise SnapshotError(
            f"{name} is a snapshot of format {found['snapshot']!r}, and this version reads {FORMAT}"
        )
    shapes = {"request": dict, "environment": dict, "catalog": dict, "preferences": list, "decision": dict}
    for key, kind in shapes.items():
        if not isinstance(found.get(key), kind):
            raise SnapshotError(f"{name}: {key} is missing or of the wrong type")
    if not isinstance(found["environment"].get("facts"), dict):
        raise SnapshotError(f"{name}: environment.facts is missing or of the wrong type")
    if not isinstance(found.get("strict", False), bool):
        raise SnapshotError(f"{name}: strict is true or false")
    return found


def replay(recorded: Mapping[str, Any], catalog: Catalog | None = None) -> Replay:
    """Decide a snapshot again with today's manifests (or the given catalog)."""
    from selector.catalog import Catalog as Packs
    from selector.environment import Environment
    from selector.selection import decide

    packs = (
        catalog
        if catalog is not None
        else Packs.load(*(str(p) for p in recorded["catalog"].get("packs") or ()))
    )
    machine = recorded["environment"]
    environment = Environment(
        machine["facts"],
        name=str(machine.get("name", "recorded")),
        title=machine.get("title"),
        origin=str(machine.get("origin", "snapshot")),
        vocabulary=packs.vocabulary,
    )
    preferences = tuple(_preference(p) for p in recorded["preferences"])
    report = decide(
        packs.request(recorded["request"]),
        packs,
        environment,
        preferences,
        strict=recorded.get("strict", False),
    )
    return Replay(recorded, report, tuple(_differences(recorded, report)))


def _preference(raw: Any) -> Preference:
    try:
        return Preference(
            str(raw["kind"]), tuple(str(n) for n in raw["names"]), str(raw["source"]), str(raw["where"])
        )
    except (TypeError, KeyError):
        raise SnapshotError("a preference of the snapshot has the wrong form") from None


def _differences(recorded: Mapping[str, Any], report: Report) -> list[str]:
    was, now = recorded["decision"], decision(report)
    found = []
    if was.get("selected") != now["selected"]:
        found.append(f"selected: {was.get('selected') or 'nothing'}, now {now['selected'] or 'nothing'}")
    for key in ("candidates", "excluded"):
        before, after = list(was.get(key) or ()), list(now[key])
        if before != after:
            gone = [c for c in before if c not in after]
            new = [c for c in after if c not in before]
            parts = [f"no longer {', '.join(gone)}"] * bool(gone) + [f"now also {', '.join(new)}"] * bool(new)
            found.append(f"{key}: {'; '.join(parts) or 'another order: ' + ', '.join(after)}")
    refused = was.get("rejected") or {}
    for ident in dict.fromkeys([*refused, *now["rejected"]]):
        before_codes = _codes(refused.get(ident))
        after_codes = _codes(now["rejected"].get(ident))
        if before_codes != after_codes and ident in refused and ident in now["rejected"]:
            lost = sorted(before_codes - after_codes)
            more = sorted(after_codes - before_codes)
            parts = [f"no longer refused for {', '.join(lost)}"] * bool(lost) + [
                f"now also {', '.join(more)}"
            ] * bool(more)
            found.append(f"reasons of {ident}: {'; '.join(parts)}")
    if was.get("policy_rule") != now["policy_rule"]:
        found.append(f"policy rule: {was.get('policy_rule')}, now {now['policy_rule']}")
    return found


def _codes(reasons: Any) -> set[str]:
    return {_in_words(r.get("axis"), r.get("code")) for r in reasons or () if isinstance(r, dict)}


def _in_words(axis: Any, code: Any) -> str:
    """`kv_cache_dtype (not listed)`; every code is made of words."""
    return f"{axis} ({str(code).replace('_', ' ')})"
