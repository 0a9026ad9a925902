"""The selection language, interpreted plainly: every candidate is judged by walking its raw YAML.

Slow and obvious on purpose. It is the measure that the compiled engine is held against, so it imports nothing
from `selector` and shares no idea with it: no masks, no specialisation, no look-up tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from .axes import UNKNOWN, Raw, Vocabulary, as_list
from .candidates import Candidate, candidates_of, named_axes
from .limits import meets
from .loading import load_environment, read_pack
from .values import Situation

__all__ = [
    "UNKNOWN",
    "Catalog",
    "Decision",
    "Reason",
    "Situation",
    "decide",
    "load_environment",
    "load_pack",
    "read_pack",
]

Kind = Literal["declared", "rule", "known_wrong", "adjustment", "policy"]


class Reason(NamedTuple):
    """Why a candidate is rejected.

    `axes` are the axes it is reported under, `axis` the first of them ("" without one); `index` is the place of
    the rule among the candidate's merged rules of that kind, -1 for a declared limit; `value` is what the axis has.
    """

    kind: Kind
    axis: str
    axes: tuple[str, ...]
    index: int  # type: ignore[assignment]  # hides the tuple method of this name, which nothing here uses
    value: Raw


class Decision(NamedTuple):
    """What the language says about one request on one environment."""

    ranked: list[str]
    excluded: list[str]
    rejected: dict[str, list[Reason]]
    policy_rule: str | None
    warnings: dict[str, list[str]]
    adjusted: dict[str, dict[str, Raw]]
    values: dict[str, Raw]


class Verdict(NamedTuple):
    """One candidate judged on one request."""

    reasons: list[Reason]
    warnings: list[str]
    adjusted: dict[str, Raw]


class Catalog:
    """A vocabulary and one pack, from raw mappings."""

    def __init__(
        self, vocabulary: Mapping[str, Raw], pack: Mapping[str, Raw], manifests: Sequence[Mapping[str, Raw]]
    ) -> None:
        self.vocabulary = Vocabulary(vocabulary)
        self.pack = pack
        self.manifests = list(manifests)
        self.candidates: dict[str, Candidate] = {}
        for manifest in manifests:
            for candidate in candidates_of(manifest, self.vocabulary):
                self.candidates[candidate.id] = candidate

    def named(self, name: str) -> list[str]:
        """The listed candidates that a name of a backend or of a candidate stands for. ValueError for no one's."""
        found = [c.id for c in self.candidates.values() if not c.abstract and name in (c.id, c.backend)]
        if not found:
            raise ValueError(f"no candidate is called {name!r}")
        return found

    def given(self, request: Mapping[str, Raw], environment: Mapping[str, Raw]) -> dict[str, Raw]:
        """Request and environment as one mapping of canonical values. A null that is given stays null."""
        given: dict[str, Raw] = {}
        for part, of in ((request, "request"), (environment, "environment")):
            for name, value in part.items():
                axis = self.vocabulary.axis_name(name)
                entry = self.vocabulary.axes[axis]
                if "derive" in entry:
                    raise ValueError(f"{axis} is derived and cannot be given")
                if self.vocabulary.of(axis) != of:
                    raise ValueError(f"{axis} does not belong to the {of}")
                given[axis] = self.vocabulary.canonical(axis, value)
        return given


def load_pack(manifests_dir: Raw, pack: str) -> Catalog:
    """The catalog of one pack of a manifests directory (its `vocabulary.yaml`, merged with the pack's own)."""
    return Catalog(*read_pack(manifests_dir, pack))


class Judge:
    """Judges candidates of one catalog; `strict` refuses changes to the request."""

    def __init__(self, catalog: Catalog, *, strict: bool) -> None:
        self.catalog = catalog
        self.strict = strict
        self.open: list[str] = []

    def accepts(self, name: str, situation: Situation) -> bool:
        """Does a candidate (an abstract one too) accept the request? ValueError for a cycle."""
        return not self.verdict(name, situation).reasons

    def holds(self, situation: Situation, condition: Raw, *, null: bool, unknown: bool) -> bool:
        """A condition of a manifest or a policy at a given sense."""
        return situation.holds(
            condition, null=null, unknown=unknown, accepts=lambda name: self.accepts(name, situation)
        )

    def verdict(self, name: str, situation: Situation) -> Verdict:
        """The whole verdict on one candidate."""
        if name in self.open:
            raise ValueError("a cycle of `accepts`: " + " -> ".join([*self.open, name]))
        if name not in self.catalog.candidates:
            raise ValueError(f"no candidate is called {name!r}")
        self.open.append(name)
        try:
            candidate = self.catalog.candidates[name]
            changed, reasons, adjusted = self.adjust(candidate, situation)
            reasons += self.declared(candidate, changed)
            reasons += self.rejections("rule", candidate.rules, changed)
            reasons += self.rejections("known_wrong", candidate.known_wrong, changed)
            warned = [
                (index, rule)
                for index, rule in enumerate(candidate.rules)
                if "warn" in rule and self.applies(rule, changed)
            ]
            if self.strict:
                reasons += [
                    self.reason("rule", rule, index, changed) for index, rule in warned if rule.get("strict")
                ]
            return Verdict(reasons, [rule["warn"] for _, rule in warned], adjusted)
        finally:
            self.open.pop()

    def adjust(
        self, candidate: Candidate, asked: Situation
    ) -> tuple[Situation, list[Reason], dict[str, Raw]]:
        """The request the candidate would run, why it may not, and what was changed (keys `set` and `use`)."""
        vocabulary = self.catalog.vocabulary
        situation = asked
        touched: list[str] = []
        use: tuple[int, str] | None = None
        for index, entry in enumerate(candidate.adjust):
            if not self.applies(entry, situation):
                continue
            given = dict(situation.given)
            for name, value in (entry.get("set") or {}).items():
                axis = vocabulary.axis_name(name)
                touched.append(axis)
                given[axis] = vocabulary.canonical(axis, value)
            situation = Situation(vocabulary, given)
            if "use" in entry:
                use = (index, entry["use"])
        changes = [axis for axis in dict.fromkeys(touched) if situation.value(axis) != asked.value(axis)]
        reasons: list[Reason] = []
        adjusted: dict[str, Raw] = {}
        if changes:
            adjusted["set"] = {axis: situation.value(axis) for axis in changes}
        if self.strict:
            reasons += [
                Reason("adjustment", axis, (axis,), -1, asked.value(axis))
                for axis in changes
                if asked.value(axis) is not None
            ]
        if use is not None:
            index, other = use
            adjusted["use"] = other
            if self.strict or not self.accepts(other, situation):
                reasons.append(Reason("adjustment", "", (), index, other))
        return situation, reasons, adjusted

    def declared(self, candidate: Candidate, situation: Situation) -> list[Reason]:
        """The declared limits that the request or the environment misses."""
        return [
            Reason("declared", axis, (axis,), -1, situation.value(axis))
            for axis in self.catalog.vocabulary.axes
            if not self.within(candidate, axis, situation.value(axis))
        ]

    def within(self, candidate: Candidate, axis: str, value: Raw) -> bool:
        """Is the value within what the candidate declares (or, where it declares nothing, what that means)?"""
        entry = self.catalog.vocabulary.axes[axis]
        kind = entry["type"]
        if axis in candidate.declared:
            limit = candidate.declared[axis]
        else:
            limit = undeclared(entry)
        if limit == "any" and kind != "packages":
            return True
        if limit == "none":
            return value is None
        if kind == "flag" and self.catalog.vocabulary.of(axis) == "request":
            # Not needed, or had: what has the flag takes every request.
            return limit is True or value is False or value is None
        return meets(self.catalog.vocabulary, axis, limit, value, null=True, unknown=False)

    def rejections(
        self, kind: Kind, rules: Sequence[Mapping[str, Raw]], situation: Situation
    ) -> list[Reason]:
        """Rejecting rules that reject: null resolves towards not rejecting, UNKNOWN towards rejecting."""
        return [
            self.reason(kind, rule, index, situation)
            for index, rule in enumerate(rules)
            if "reject" in rule
            and self.holds(situation, rule.get("when"), null=False, unknown=True)
            and not any(
                part in rule and self.holds(situation, rule[part], null=True, unknown=False)
                for part in ("unless", "require", "until")
            )
        ]

    def applies(self, rule: Mapping[str, Raw], situation: Situation) -> bool:
        """Does a warning, a policy rule or an adjustment apply? null and UNKNOWN make it not apply."""
        return self.holds(situation, rule.get("when"), null=False, unknown=False) and not any(
            part in rule and self.holds(situation, rule[part], null=True, unknown=True)
            for part in ("unless", "require", "until")
        )

    def reason(self, kind: Kind, rule: Mapping[str, Raw], index: int, situation: Situation) -> Reason:
        """The reason of a rule: under the axes it says, or those named in require, when, unless, until."""
        vocabulary = self.catalog.vocabulary
        if "axis" in rule:
            axes = tuple(vocabulary.axis_name(axis) for axis in as_list(rule["axis"]))
        else:
            parts = [rule.get(part) for part in ("require", "when", "unless", "until")]
            axes = named_axes(parts, vocabulary)
        axis = axes[0] if axes else ""
        return Reason(kind, axis, axes, index, situation.value(axis) if axis else None)


def undeclared(entry: Mapping[str, Raw]) -> Raw:
    """The limit that stands for one a candidate leaves out: "any", "none", or False (a flag not had, a mode off)."""
    if entry.get("identity"):
        return "none"
    if entry["type"] == "packages":
        return {}
    asked = entry.get("of", "request") == "request" and "derive" not in entry
    if asked and entry["type"] in ("flag", "mode"):
        return "any" if entry.get("undeclared") == "any" else False
    return entry.get("undeclared", "any")


def policy_order(judge: Judge, situation: Situation) -> tuple[str | None, list[str], str]:
    """The first policy rule that applies: its name, the candidates it lists, and what it does with the others."""
    pack = judge.catalog.pack
    unlisted = pack.get("unlisted", "last")
    for rule in pack.get("policy") or []:
        if not judge.applies(rule, situation):
            continue
        order: list[str] = []
        for entry in rule.get("order") or []:
            spec = {"candidate": entry} if isinstance(entry, str) else entry
            if judge.applies(spec, situation):
                order += judge.catalog.named(spec["candidate"])
        return rule.get("name"), list(dict.fromkeys(order)), rule.get("unlisted", unlisted)
    return None, [], unlisted


def decide(
    catalog: Catalog,
    request: Mapping[str, Raw],
    environment: Mapping[str, Raw],
    *,
    backend: str | None = None,
    strict: bool = False,
) -> Decision:
    """Judge every candidate and rank those that accept; `backend` pins a backend or a candidate.

    Axes may be written by any of their names. ValueError for a name or a value that the vocabulary lacks.
    """
    situation = Situation(catalog.vocabulary, catalog.given(request, environment))
    judge = Judge(catalog, strict=strict)
    considered = [name for name, candidate in catalog.candidates.items() if not candidate.abstract]
    if backend is not None:
        considered = catalog.named(backend)
    verdicts = {name: judge.verdict(name, situation) for name in considered}
    accepted = [name for name in considered if not verdicts[name].reasons]
    rule, order, unlisted = policy_order(judge, situation)
    ranked = [name for name in order if name in accepted]
    rest = [name for name in accepted if name not in order]
    excluded: list[str] = []
    if unlisted == "excluded" and backend is None:
        excluded = rest
    else:
        ranked += rest
    return Decision(
        ranked=ranked,
        excluded=excluded,
        rejected={name: verdicts[name].reasons for name in considered if verdicts[name].reasons},
        policy_rule=rule,
        warnings={name: verdicts[name].warnings for name in accepted if verdicts[name].warnings},
        adjusted={name: verdicts[name].adjusted for name in accepted if verdicts[name].adjusted},
        values=dict(situation.known),
    )
