"""Two ways to decide a request on a preset environment, with one answer type, so that a test states a fact once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import selector
from tests.plain.interpreter import Catalog, decide, load_environment, load_pack

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


class Answer(NamedTuple):
    """What one decider says: the ranked candidates, those reached by an explicit choice only, and why not the others."""

    ranked: tuple[str, ...]
    excluded: tuple[str, ...]
    reasons: Mapping[str, frozenset[str]]
    """Axes that each rejected candidate is rejected under."""
    warned: frozenset[str]
    """Accepted candidates with a warning."""

    @property
    def accepted(self) -> frozenset[str]:
        """Every candidate that takes the request, listed by the policy or not."""
        return frozenset(self.ranked) | frozenset(self.excluded)


@cache
def plain_catalog(pack: str) -> Catalog:
    """A pack, read for the plain interpreter."""
    return load_pack(MANIFESTS, pack)


@cache
def preset(on: str, pack: str) -> Mapping[str, Any]:
    """A preset's facts with the full software profile, raw."""
    return load_environment(MANIFESTS, on, pack=pack)


def changed_facts(facts: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with others in their place; ``packages`` are merged by name, None takes one away."""
    out = {**facts, **{axis: value for axis, value in changes.items() if axis != "packages"}}
    packages = dict(facts.get("packages") or {})
    for name, version in (changes.get("packages") or {}).items():
        packages.pop(name, None)
        if version is not None:
            packages[name] = {"version": version, "state": "usable"}
    out["packages"] = packages
    return out


def plain(pack: str, on: str, request: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Answer:
    """The plain interpreter's answer on a preset with the full software profile."""
    decision = decide(plain_catalog(pack), request, changed_facts(preset(on, pack), changes or {}))
    return Answer(
        tuple(decision.ranked),
        tuple(decision.excluded),
        {
            name: frozenset(a for reason in why for a in reason.axes)
            for name, why in decision.rejected.items()
        },
        frozenset(decision.warnings),
    )


@cache
def engine_catalog(pack: str) -> selector.Catalog:
    """A pack, compiled."""
    return selector.Catalog.load(pack)


@cache
def engine_environment(
    on: str, pack: str, changes: tuple[tuple[str, str | None], ...]
) -> selector.Environment:
    """A preset, with facts changed and packages put in another version or taken away."""
    packages = {name[1:]: version for name, version in changes if name.startswith("=")}
    preset = selector.Environment.preset(
        on,
        with_packages={name: version for name, version in packages.items() if version is not None},
        without=[name for name, version in packages.items() if version is None],
        vocabulary=engine_catalog(pack).vocabulary,
    )
    facts = {name: version for name, version in changes if not name.startswith("=")}
    return preset.replace(**facts) if facts else preset


def engine(
    pack: str, on: str, request: Mapping[str, Any], changes: Mapping[str, Any] | None = None
) -> Answer:
    """The compiled engine's answer on a preset with the full software profile."""
    flat = [(f"={name}", version) for name, version in ((changes or {}).get("packages") or {}).items()]
    flat += [(name, value) for name, value in (changes or {}).items() if name != "packages"]
    environment = engine_environment(on, pack, tuple(flat))
    report = selector.explain(request, environment=environment, catalog=engine_catalog(pack))
    return Answer(
        tuple(ranked.id for ranked in report.ranked),
        report.excluded,
        {
            name: frozenset(a for why in reasons for a in why.axes)
            for name, reasons in report.rejected.items()
        },
        frozenset(ranked.id for ranked in report.ranked if ranked.warnings),
    )


DECIDERS: Mapping[str, Callable[..., Answer]] = {"engine": engine, "plain": plain}
