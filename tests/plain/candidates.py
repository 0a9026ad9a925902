"""Candidates: what a manifest and its variants say once inheritance is written out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .axes import Raw, Vocabulary, as_list, named_in


class Candidate(NamedTuple):
    """One candidate: its declared limits by canonical axis, and its merged rules in order."""

    id: str
    backend: str
    abstract: bool
    declared: dict[str, Raw]
    rules: list[Mapping[str, Raw]]
    known_wrong: list[Mapping[str, Raw]]
    adjust: list[Mapping[str, Raw]]


def candidates_of(manifest: Mapping[str, Raw], vocabulary: Vocabulary) -> list[Candidate]:
    """The candidates of a manifest in its own order, abstract ones included."""
    name = manifest["name"]
    variants = {variant["name"]: variant for variant in manifest.get("variants") or []}
    if not variants:
        return [merged(None, manifest, manifest, vocabulary)]
    done: dict[str, Candidate] = {}

    def build(variant: str, path: tuple[str, ...]) -> Candidate:
        if variant in path:
            raise ValueError(f"{name}: a cycle of `extends`: " + " -> ".join([*path, variant]))
        if variant not in done:
            parent = variants[variant].get("extends")
            base = build(parent, (*path, variant)) if parent else None
            done[variant] = merged(base, manifest, variants[variant], vocabulary)
        return done[variant]

    return [build(variant, ()) for variant in variants]


def merged(
    base: Candidate | None, manifest: Mapping[str, Raw], variant: Mapping[str, Raw], vocabulary: Vocabulary
) -> Candidate:
    """One variant over its base (the manifest, or a sibling already merged). `variant` may be the manifest itself."""
    alone = variant is manifest
    backend = manifest["name"]
    declared: dict[str, Raw] = {}
    if base is not None:
        declared.update(base.declared)
    else:
        overlay(declared, manifest, vocabulary)
    if not alone:
        overlay(declared, variant, vocabulary)

    def collect(key: str, inherited: list[Mapping[str, Raw]]) -> list[Mapping[str, Raw]]:
        rules = list(inherited)
        for rule in manifest.get(key) or []:
            only = rule.get("variants")
            mine = only is None or variant["name"] in as_list(only)
            if mine and not any(rule is other for other in rules):
                rules.append(rule)
        return rules if alone else rules + list(variant.get(key) or [])

    return Candidate(
        id=backend if alone else f"{backend}/{variant['name']}",
        backend=backend,
        abstract=bool(variant.get("abstract", False)),
        declared=declared,
        rules=collect("rules", base.rules if base else []),
        known_wrong=collect("known_wrong", base.known_wrong if base else []),
        adjust=collect("adjust", base.adjust if base else []),
    )


def overlay(declared: dict[str, Raw], part: Mapping[str, Raw], vocabulary: Vocabulary) -> None:
    """Lay a part's limits over those inherited: an axis replaces, `packages` merge by name, identities are limits."""
    limits = [*(part.get("requires") or {}).items(), *(part.get("supports") or {}).items()]
    for key in part:
        if key in vocabulary.alias and vocabulary.axes[vocabulary.axis_name(key)].get("identity"):
            limits.append((key, part[key]))
    for name, limit in limits:
        axis = vocabulary.axis_name(name)
        if vocabulary.axes[axis]["type"] == "packages":
            declared[axis] = {**declared.get(axis, {}), **limit}
        else:
            declared[axis] = limit


def named_axes(conditions: Iterable[Raw], vocabulary: Vocabulary) -> tuple[str, ...]:
    """The axes that conditions name, each once, in the order they are written."""
    names = [name for condition in conditions for name in named_in(condition)]
    return tuple(dict.fromkeys(vocabulary.axis_name(name) for name in names))
