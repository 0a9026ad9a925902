"""Manifests: one backend's capability file, decoded into candidates.

A manifest is decoded after it has passed the schema; what a schema cannot say (unknown tags, empty ranges, a variant that
extends nobody) is reported here as faults with their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from selector.conditions import Condition, accepted_ids, axes_of, comparisons, parse
from selector.constraints import Constraint, ConstraintError, parse_declared
from selector.document import Document
from selector.errors import Fault, Mark
from selector.vocabulary import Axis, Vocabulary, nearest

__all__ = ["Adjustment", "Candidate", "Declared", "Manifest", "Rule", "decode_manifest"]

#: What one manifest may hold: variants, rules of all variants together (a rule for all of them counts once each), and
#: adjustments of one candidate, each of which has the request looked at again.
MAX_VARIANTS, MAX_RULES, MAX_ADJUST = 500, 20_000, 100
#: Comparisons of an axis in its rules.
MAX_COMPARISONS = 10_000
SPLIT = "split the backend into several manifests"
#: Faults after which the nearest word is no longer looked for; a screen shows fewer.
HINTS = 50


class Declared(NamedTuple):
    """What a candidate says of one axis, and where; ``family``: the manifest says it for all its variants."""

    axis: Axis
    constraint: Constraint
    at: Mark
    source: str | None
    family: bool = False


class Rule(NamedTuple):
    """A joint limit. ``kind`` is rule, known_wrong or warn; it applies when `when` and not `unless`/`require`/`until`."""

    kind: str
    name: str | None
    text: str
    when: Condition | None
    unless: Condition | None
    require: Condition | None
    until: Condition | None
    axes: tuple[Axis, ...]
    at: Mark
    source: str | None
    note: str | None
    strict: bool
    family: bool

    def accepts(self) -> tuple[str, ...]:
        """The candidates that the rule refers to."""
        parts = (self.when, self.unless, self.require, self.until)
        return tuple(dict.fromkeys(i for p in parts for i in accepted_ids(p)))


class Adjustment(NamedTuple):
    """What a candidate changes in a request to run it."""

    when: Condition | None
    changes: tuple[tuple[Axis, Any], ...]
    use: str | None
    note: str | None
    at: Mark
    source: str | None


class Candidate(NamedTuple):
    """One thing that can be chosen: a backend, or one variant of it."""

    id: str
    backend: str
    variant: str | None
    title: str
    abstract: bool
    declared: Mapping[str, Declared]
    rules: tuple[Rule, ...]
    adjust: tuple[Adjustment, ...]
    kernel: str | None
    note: str | None
    option: str | None
    source: str | None
    homepage: str | None
    at: Mark
    pack: str


class Manifest(NamedTuple):
    """One backend's file."""

    name: str
    title: str
    doc: str
    kernel: str | None
    homepage: str | None
    candidates: tuple[Candidate, ...]
    at: Mark
    pack: str


class _Scope(NamedTuple):
    """What a variant inherits."""

    declared: dict[str, Declared]
    rules: list[tuple[tuple[str, ...] | None, Rule]]
    adjust: list[tuple[tuple[str, ...] | None, Adjustment]]


class _Decoder:
    def __init__(self, document: Document, vocabulary: Vocabulary, pack: str, partial: bool) -> None:
        self.document, self.vocabulary, self.pack, self.partial = document, vocabulary, pack, partial
        self.data: dict[str, Any] = document.data  # type: ignore[assignment]
        self.faults: list[Fault] = []
        self.comparisons = 0
        self.wrong: set[str] = set()  # axes whose declaration is broken; they are not missing as well

    def fault(
        self, path: tuple[str | int, ...], message: str, hint: str | None = None, *, key: bool = False
    ) -> None:
        self.faults.append(self.document.fault(path, message, hint, key=key))

    def report(self, path: tuple[str | int, ...], message: str, hint: str | None) -> None:
        self.fault(path, message, hint, key=message.startswith("unknown axis"))

    def manifest(self) -> Manifest:
        data = self.data
        name = data["name"]
        base = self.scope((), data, _Scope({}, [], []))
        merged: dict[str, _Scope] = {}
        candidates: list[Candidate] = []
        variants = data.get("variants") or []
        names = [v["name"] for v in variants]
        self.check_variant_lists(names)
        for i in self.in_order(variants, names):
            variant = variants[i]
            path: tuple[str | int, ...] = ("variants", i)
            parent = merged.get(variant.get("extends", ""))
            scope = self.inherit(base, parent, variant["name"])
            merged[variant["name"]] = self.scope(path, variant, scope)
        for i, variant in enumerate(variants):
            path = ("variants", i)
            candidates.append(
                self.candidate(f"{name}/{variant['name']}", variant, merged[variant["name"]], path)
            )
        if not variants:
            candidates.append(self.candidate(name, {}, self.inherit(base, None, None), ()))
        if not self.partial:
            self.check_required(candidates, variants)
        self.check_size(candidates)
        return Manifest(
            name,
            data.get("title", name),
            data.get("doc", ""),
            data.get("kernel"),
            data.get("homepage"),
            tuple(candidates),
            self.document.mark(("name",)),
            self.pack,
        )

    def in_order(self, variants: list[dict[str, Any]], names: list[str]) -> Iterable[int]:
        """Positions of the variants, parents before those that extend them."""
        seen: set[str] = set()
        heirs: dict[str | None, list[int]] = {}
        for i, name in enumerate(names):
            if name in seen:
                self.fault(("variants", i, "name"), f"variant {name!r} is there twice")
            else:
                seen.add(name)
                heirs.setdefault(variants[i].get("extends"), []).append(i)
        done: list[int] = []
        ready = heirs.pop(None, [])
        while ready:
            done.extend(ready)
            ready = sorted(i for d in ready for i in heirs.pop(names[d], ()))
        for i in sorted(i for left in heirs.values() for i in left):
            parent = variants[i]["extends"]
            near = nearest(parent, names) if len(self.faults) < HINTS else None
            message = f"variant extends {parent!r}" + (
                " in a circle" if parent in seen else ", which is not there"
            )
            hint = f"did you mean {near}?" if near and parent not in seen else None
            self.fault(("variants", i, "extends"), message, hint)
            done.append(i)
        return done

    def inherit(self, base: _Scope, parent: _Scope | None, variant: str | None) -> _Scope:
        def mine(only: tuple[str, ...] | None) -> bool:
            return only is None or variant in only

        if parent is None:
            return _Scope(
                dict(base.declared),
                [r for r in base.rules if mine(r[0])],
                [a for a in base.adjust if mine(a[0])],
            )
        there = {id(entry) for entry in (*parent.rules, *parent.adjust)}
        rules = [*parent.rules, *(r for r in base.rules if mine(r[0]) and id(r) not in there)]
        adjust = [*parent.adjust, *(a for a in base.adjust if mine(a[0]) and id(a) not in there)]
        return _Scope(dict(parent.declared), rules, adjust)

    def scope(self, path: tuple[str | int, ...], data: Mapping[str, Any], inherited: _Scope) -> _Scope:
        """``inherited`` with the declarations, rules and adjustments of one mapping added."""
        declared = dict(inherited.declared)
        sources = {**(self.data.get("sources") or {}), **(data.get("sources") or {})}
        source = data.get("source") or self.data.get("source") or self.data.get("homepage")
        entries: list[tuple[str, Any, tuple[str | int, ...]]] = []
        for section in ("requires", "supports"):
            for axis_name, raw in (data.get(section) or {}).items():
                entries.append((axis_name, raw, (*path, section, axis_name)))
        for key, raw in data.items():
            axis = self.vocabulary.find(key)
            if axis is not None and axis.identity:
                entries.append((key, raw, (*path, key)))
        for axis_name, raw, where in entries:
            axis = self.vocabulary.find(axis_name)
            if axis is None:
                near = self.vocabulary.nearest(axis_name)
                self.fault(
                    where, f"unknown axis {axis_name!r}", f"did you mean {near}?" if near else None, key=True
                )
                continue
            if axis.type == "packages" and isinstance(raw, Mapping) and axis.name in declared:
                raw = {**self.raw_packages(declared[axis.name].constraint), **raw}
            try:
                constraint = parse_declared(axis, raw)
            except ConstraintError as error:
                self.fault((*where, *error.path), error.message, error.hint)
                self.wrong.add(axis.name)
                continue
            link = next((sources[k] for k in (axis_name, axis.name) if k in sources), source)
            declared[axis.name] = Declared(
                axis, constraint, self.document.mark(where, key=True), link, where[0] != "variants"
            )
        rules = list(inherited.rules)
        for section, kind in (("rules", "rule"), ("known_wrong", "known_wrong")):
            for i, raw in enumerate(data.get(section) or []):
                rules.append(self.rule((*path, section, i), raw, kind, source))
        adjust = list(inherited.adjust)
        for i, raw in enumerate(data.get("adjust") or []):
            adjust.append(self.adjustment((*path, "adjust", i), raw, source))
        return _Scope(declared, rules, adjust)

    @staticmethod
    def raw_packages(constraint: Constraint) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for test in constraint.clauses[0]:
            name, specifiers = test.operand
            found[name] = "absent" if specifiers is None else list(specifiers) or "any"
        return found

    def condition(self, path: tuple[str | int, ...], raw: Mapping[str, Any], key: str) -> Condition | None:
        if raw.get(key) is None:
            return None
        return parse(raw[key], self.vocabulary, self.report, (*path, key))

    def rule(
        self, path: tuple[str | int, ...], raw: Mapping[str, Any], kind: str, source: str | None
    ) -> tuple[tuple[str, ...] | None, Rule]:
        conditions = {key: self.condition(path, raw, key) for key in ("when", "unless", "require", "until")}
        self.comparisons += sum(map(comparisons, conditions.values()))
        axes: list[Axis] = []
        if "axis" in raw:
            for name in raw["axis"] if isinstance(raw["axis"], list) else [raw["axis"]]:
                axis = self.vocabulary.find(name)
                if axis is None:
                    near = self.vocabulary.nearest(name)
                    self.fault(
                        (*path, "axis"), f"unknown axis {name!r}", f"did you mean {near}?" if near else None
                    )
                else:
                    axes.append(axis)
        else:
            for key in ("require", "when", "unless", "until"):
                axes.extend(axes_of(conditions[key]))
        if kind == "rule" and "warn" in raw:
            kind = "warn"
            if "reject" in raw:
                self.fault(
                    (*path, "warn"), "a rule either rejects or warns: reject or warn, not both", key=True
                )
        text = raw.get("warn") if kind == "warn" else raw.get("reject")
        if not text and not self.partial:
            self.fault(path, "a rule says reject: or warn: with the reason in words")
            text = ""
        rule = Rule(
            kind,
            raw.get("name"),
            str(text),
            conditions["when"],
            conditions["unless"],
            conditions["require"],
            conditions["until"],
            tuple(dict.fromkeys(axes)),
            self.document.mark(path),
            raw.get("source") or source,
            raw.get("note"),
            bool(raw.get("strict", False)),
            path[0] != "variants",
        )
        return self.only(raw), rule

    @staticmethod
    def only(raw: Mapping[str, Any]) -> tuple[str, ...] | None:
        variants = raw.get("variants")
        if variants is None:
            return None
        return (variants,) if isinstance(variants, str) else tuple(variants)

    def adjustment(
        self, path: tuple[str | int, ...], raw: Mapping[str, Any], source: str | None
    ) -> tuple[tuple[str, ...] | None, Adjustment]:
        changes: list[tuple[Axis, Any]] = []
        for name, value in (raw.get("set") or {}).items():
            axis = self.vocabulary.find(name)
            if axis is None or axis.of != "request" or axis.derive is not None:
                near = self.vocabulary.nearest(name)
                self.fault(
                    (*path, "set", name),
                    f"{name!r} is no axis that a request can give",
                    f"did you mean {near}?" if near else None,
                    key=True,
                )
                continue
            try:
                changes.append((axis, axis.canonical(value)))
            except ValueError as error:
                self.fault((*path, "set", name), str(error), getattr(error, "hint", None))
        if not changes and not raw.get("use"):
            self.fault(path, "an adjustment says what it changes: set: {axis: value} or use: candidate")
        when = self.condition(path, raw, "when")
        found = Adjustment(
            when,
            tuple(changes),
            raw.get("use"),
            raw.get("note"),
            self.document.mark(path),
            raw.get("source") or source,
        )
        return self.only(raw), found

    def candidate(
        self, ident: str, variant: Mapping[str, Any], scope: _Scope, path: tuple[str | int, ...]
    ) -> Candidate:
        data = self.data
        title = data.get("title", data["name"])
        if variant:
            title = variant.get("title", f"{title} {variant['name']}")
        return Candidate(
            ident,
            data["name"],
            variant.get("name"),
            title,
            bool(variant.get("abstract", False)),
            scope.declared,
            tuple(r for _, r in scope.rules),
            tuple(a for _, a in scope.adjust),
            data.get("kernel"),
            variant.get("note", data.get("note")),
            variant.get("option", data.get("option")),
            variant.get("source") or data.get("source") or data.get("homepage"),
            data.get("homepage"),
            self.document.mark((*path, "name")),
            self.pack,
        )

    def check_variant_lists(self, names: list[str]) -> None:
        for section in ("rules", "known_wrong", "adjust"):
            for i, raw in enumerate(self.data.get(section) or []):
                for variant in self.only(raw) or ():
                    if variant not in names:
                        near = nearest(variant, names)
                        self.fault(
                            (section, i, "variants"),
                            f"no variant {variant!r}",
                            f"did you mean {near}?" if near else None,
                        )

    def check_size(self, candidates: list[Candidate]) -> None:
        """What a manifest may hold, so that the time to read and to decide stays bounded."""
        if len(candidates) > MAX_VARIANTS:
            path = ("variants", MAX_VARIANTS)
            self.fault(path, f"{len(candidates)} variants, and at most {MAX_VARIANTS} are read", SPLIT)
        rules = sum(len(c.rules) for c in candidates)
        if rules > MAX_RULES:
            message = f"{rules} rules in all variants together, and at most {MAX_RULES} are read"
            self.fault(("rules",), message, SPLIT, key=True)
        if self.comparisons > MAX_COMPARISONS:
            message = f"{self.comparisons} comparisons in its rules, and at most {MAX_COMPARISONS} are read"
            self.fault(("rules",), message, SPLIT, key=True)
        long = next((c for c in candidates if len(c.adjust) > MAX_ADJUST), None)
        if long is not None:
            message = f"{long.id} has {len(long.adjust)} adjustments, and at most {MAX_ADJUST} are read"
            at = long.adjust[MAX_ADJUST].at
            self.faults.append(Fault(at, "adjust", message, None, self.document.line(at.line)))

    def check_required(self, candidates: list[Candidate], variants: list[dict[str, Any]]) -> None:
        for axis in self.vocabulary.axes:
            if not axis.declare_required or axis.name in self.wrong:
                continue
            lacking = [c for c in candidates if not c.abstract and axis.name not in c.declared]
            section = "requires" if axis.of == "environment" else "supports"
            for candidate in lacking[:1]:
                path: tuple[str | int, ...] = ()
                if variants and len(lacking) < len([c for c in candidates if not c.abstract]):
                    path = ("variants", [v["name"] for v in variants].index(candidate.variant))
                self.fault(
                    (*path, "name"),
                    f"{candidate.id} does not say its {axis.name}",
                    f"add it under {section} (any: no limit)",
                )


def decode_manifest(
    document: Document, vocabulary: Vocabulary, pack: str, *, partial: bool = False
) -> tuple[Manifest, list[Fault]]:
    """The manifest of a schema-valid document, and what is wrong with it (the manifest is good for its names only then).

    ``partial``: wrong entries were taken away, so what is missing is no mistake.
    """
    decoder = _Decoder(document, vocabulary, pack, partial)
    return decoder.manifest(), decoder.faults
