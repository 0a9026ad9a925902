"""Random vocabularies, manifests, policies, environments and requests, all valid by the language's rules.

Domains are tiny (a handful of numbers, versions and words), so that limits are met and missed about equally often
and two rules often speak of the same value. Cycles cannot arise: an axis speaks of earlier axes only, and a candidate
names (`accepts`, `use`, `extends`) candidates of lower rank only.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from .axes import Raw, Vocabulary
from .conditions import PACKAGES, STATES, VERSIONS, Axes, conditions, declared_limits, value_of
from .vocabularies import vocabularies

__all__ = ["Case", "Question", "cases", "catalogs", "environments", "questions", "requests", "vocabularies"]


class RawCatalog(NamedTuple):
    """The raw parts of a catalog, and the names of its backends and listed candidates."""

    vocabulary: dict[str, Raw]
    pack: dict[str, Raw]
    manifests: list[dict[str, Raw]]
    names: list[str]


class Question(NamedTuple):
    """One question to a catalog. `backend` is None or the name of a backend or candidate to pin."""

    request: dict[str, Raw]
    environment: dict[str, Raw]
    backend: str | None
    strict: bool


class Case(NamedTuple):
    """A catalog's raw parts, and questions to it."""

    vocabulary: dict[str, Raw]
    pack: dict[str, Raw]
    manifests: list[dict[str, Raw]]
    questions: list[Question]


def sometimes(draw: DrawFn, one_in: int) -> bool:
    """True about once in so many times (and not in a minimal example)."""
    return draw(st.integers(0, one_in - 1)) == one_in - 1


def given_axes(axes: Axes, of: str) -> Axes:
    """The axes a request or an environment may give."""
    return {n: a for n, a in axes.items() if "derive" not in a and a.get("of", "request") == of}


@st.composite
def limits(draw: DrawFn, axes: Axes, of: str, *, most: int = 2) -> dict[str, Raw]:
    """A `supports` (of the request) or `requires` (of the environment)."""
    names = [
        name
        for name, axis in axes.items()
        if Vocabulary({"axes": axes}).of(name) == of and (axis["type"] != "packages" or sometimes(draw, 4))
    ]
    chosen = draw(st.lists(st.sampled_from(names), max_size=most, unique=True)) if names else []
    return {name: draw(declared_limits(axes[name])) for name in chosen}


@st.composite
def rules(draw: DrawFn, axes: Axes, others: Sequence[str], *, kind: str) -> dict[str, Raw]:
    """One entry of `rules` or `known_wrong`, as the kind says."""
    rule: dict[str, Raw] = {}
    parts = ["when", "unless", *(["require"] if kind == "rules" else ["until"])]
    for part in parts:
        if part == "when" or sometimes(draw, 3):
            rule[part] = draw(conditions(axes, others))
    if kind == "rules" and sometimes(draw, 8):
        del rule["when"]
    if kind == "rules" and sometimes(draw, 3):
        rule["warn"] = "mind this"
        if sometimes(draw, 2):
            rule["strict"] = True
    else:
        rule["reject"] = "not this"
        if sometimes(draw, 5):
            rule["axis"] = draw(st.lists(st.sampled_from(sorted(axes)), min_size=1, max_size=2, unique=True))
    return rule


def taken(axis: dict[str, Raw], limit: Raw) -> Raw:
    """A value that a declared limit takes, if it is plain to see; else None."""
    if axis["type"] in ("flag", "mode"):
        return limit if axis["type"] == "mode" and isinstance(limit, bool) else False
    first = limit["in"] if isinstance(limit, dict) and "in" in limit and axis["type"] != "version" else limit
    first = first[0] if isinstance(first, list) else first
    return None if isinstance(first, dict) or first == "any" or axis["type"] == "version" else deepcopy(first)


@st.composite
def adjustments(draw: DrawFn, axes: Axes, others: Sequence[str], supports: dict[str, Raw]) -> dict[str, Raw]:
    """One entry of `adjust`; some mend what the candidate's own `supports` would refuse. Empty if nothing can be set."""
    entry: dict[str, Raw] = {}
    if draw(st.booleans()):
        entry["when"] = draw(conditions(axes, others, depth=1))
    settable = [n for n, a in given_axes(axes, "request").items() if not a.get("identity")]
    mended = {name: taken(axes[name], limit) for name, limit in supports.items() if name in settable}
    mending = {name: value for name, value in mended.items() if value is not None}
    if mending and not sometimes(draw, 2):
        entry["set"] = mending
    elif settable and not (others and sometimes(draw, 3)):
        chosen = draw(st.lists(st.sampled_from(settable), min_size=1, max_size=2, unique=True))
        entry["set"] = {name: draw(value_of(axes[name])) for name in chosen}
    elif others:
        entry["use"] = draw(st.sampled_from(list(others)))
    return entry if "set" in entry or "use" in entry else {}


@st.composite
def bodies(draw: DrawFn, axes: Axes, others: Sequence[str]) -> dict[str, Raw]:
    """What a manifest and a variant have in common: limits, rules, known faults, adjustments."""
    body: dict[str, Raw] = {}
    for key, of in (("requires", "environment"), ("supports", "request")):
        if draw(st.booleans()):
            body[key] = draw(limits(axes, of))
    for key, one_in in (("rules", 3), ("known_wrong", 8)):
        if sometimes(draw, one_in):
            body[key] = draw(st.lists(rules(axes, others, kind=key), min_size=1, max_size=2))
    if sometimes(draw, 3):
        entries = draw(st.lists(adjustments(axes, others, body.get("supports", {})), min_size=1, max_size=2))
        if any(entries):
            body["adjust"] = [entry for entry in entries if entry]
    return body


@st.composite
def manifests(
    draw: DrawFn, axes: Axes, name: str, earlier: Sequence[str]
) -> tuple[dict[str, Raw], list[str]]:
    """One manifest and the ids of its candidates (abstract ones included), lowest rank first."""
    manifest: dict[str, Raw] = {
        "manifest": 1,
        "name": name,
        "title": name.upper(),
        **draw(bodies(axes, earlier)),
    }
    for axis, entry in axes.items():
        if entry.get("declare") == "required":
            part = "supports" if entry.get("of", "request") == "request" else "requires"
            manifest.setdefault(part, {}).setdefault(axis, draw(declared_limits(entry)))
    count = draw(st.integers(0, 3))
    if not count:
        return manifest, [name]
    variants: list[dict[str, Raw]] = []
    ids: list[str] = []
    for rank in range(count):
        variant: dict[str, Raw] = {"name": f"v{rank}"}
        if rank and sometimes(draw, 2):
            variant["extends"] = f"v{draw(st.integers(0, rank - 1))}"
        if sometimes(draw, 5):
            variant["abstract"] = True
        for axis, entry in axes.items():
            if entry.get("identity") and sometimes(draw, 2):
                variant[axis] = draw(value_of(entry))
        variant.update(draw(bodies(axes, [*earlier, *ids])))
        variants.append(variant)
        ids.append(f"{name}/v{rank}")
    names = [variant["name"] for variant in variants]
    if all(variant.get("abstract") for variant in variants):
        del variants[0]["abstract"]
    for key in ("rules", "known_wrong", "adjust"):
        for rule in manifest.get(key, []):
            if sometimes(draw, 3):
                rule["variants"] = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    manifest["variants"] = draw(st.permutations(variants))
    return manifest, ids


@st.composite
def packs(draw: DrawFn, axes: Axes, names: Sequence[str], ids: Sequence[str]) -> dict[str, Raw]:
    """A pack: `names` can stand in an order (listed candidates and backends), `ids` after `accepts`."""
    pack: dict[str, Raw] = {"pack": 1, "name": "random", "title": "Random"}
    if sometimes(draw, 3):
        pack["unlisted"] = draw(st.sampled_from(["last", "excluded"]))
    policy = []
    for index in range(draw(st.integers(0, 3))):
        rule: dict[str, Raw] = {"name": f"rule {index}"}
        if draw(st.booleans()):
            rule["when"] = draw(conditions(axes, ids))
        order: list[Raw] = []
        for name in draw(st.lists(st.sampled_from(list(names)), max_size=5)):
            if sometimes(draw, 3):
                entry: dict[str, Raw] = {"candidate": name}
                for part in draw(st.sampled_from([["when"], ["unless"], ["when", "unless"]])):
                    entry[part] = draw(conditions(axes, ids))
                order.append(entry)
            else:
                order.append(name)
        rule["order"] = order
        if sometimes(draw, 3):
            rule["unlisted"] = draw(st.sampled_from(["last", "excluded"]))
        policy.append(rule)
    pack["policy"] = policy
    return pack


@st.composite
def catalogs(draw: DrawFn) -> RawCatalog:
    """A whole catalog of one to four backends."""
    vocabulary = draw(vocabularies())
    axes: Axes = vocabulary["axes"]
    ids: list[str] = []
    made: list[dict[str, Raw]] = []
    for index in range(draw(st.integers(1, 4))):
        manifest, found = draw(manifests(axes, f"m{index}", tuple(ids)))
        made.append(manifest)
        ids += found
    names = [manifest["name"] for manifest in made]
    for manifest in made:
        names += [
            f"{manifest['name']}/{v['name']}" for v in manifest.get("variants", []) if not v.get("abstract")
        ]
    return RawCatalog(vocabulary, draw(packs(axes, names, ids)), made, names)


@st.composite
def requests(draw: DrawFn, axes: Axes) -> dict[str, Raw]:
    """A request: any of its axes given, left out, or null."""
    request: dict[str, Raw] = {}
    for name, axis in given_axes(axes, "request").items():
        how = draw(st.integers(0, 5))
        plain = axis["type"] in ("flag", "mode") or axis.get("identity")
        if how == 1:
            request[name] = None
        elif how > (4 if plain else 1):
            request[draw(st.sampled_from([name, *axis.get("aliases", [])]))] = draw(
                value_of(axis, alias=True)
            )
    return request


@st.composite
def environments(draw: DrawFn, axes: Axes) -> dict[str, Raw]:
    """An environment: facts that are known, facts left out (unknown), packages in every state."""
    environment: dict[str, Raw] = {}
    for name, axis in given_axes(axes, "environment").items():
        if sometimes(draw, 8):
            continue
        if axis["type"] not in ("packages", "flag", "mode") and sometimes(draw, 12):
            environment[name] = None
            continue
        if axis["type"] == "packages":
            environment[name] = {
                package: {
                    "version": draw(st.sampled_from([*VERSIONS, None])),
                    "state": draw(st.sampled_from(STATES)),
                }
                for package in draw(st.lists(st.sampled_from(PACKAGES), unique=True))
            }
        else:
            off = axis["type"] in ("flag", "mode") and draw(st.booleans())
            environment[name] = False if off else draw(value_of(axis, alias=True))
    return environment


@st.composite
def questions(draw: DrawFn, axes: Axes, names: Sequence[str]) -> Question:
    """A question to a catalog with these axes; `names` can be pinned."""
    return Question(
        draw(requests(axes)),
        draw(environments(axes)),
        draw(st.sampled_from(list(names))) if sometimes(draw, 5) else None,
        sometimes(draw, 4),
    )


@st.composite
def cases(draw: DrawFn, *, most: int = 4) -> Case:
    """A catalog and some questions to it."""
    catalog = draw(catalogs())
    asked = questions(catalog.vocabulary["axes"], catalog.names)
    return Case(
        catalog.vocabulary,
        catalog.pack,
        catalog.manifests,
        draw(st.lists(asked, min_size=1, max_size=most)),
    )
