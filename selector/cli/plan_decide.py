"""The verdicts of `attn-select plan`: one for each kind of layer, phases that go together, one backend for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.phases import PHASE
from selector.request import Request

if TYPE_CHECKING:
    from selector.advice import Loss
    from selector.catalog import Catalog
    from selector.cli.plan_help import Helper
    from selector.environment import Environment
    from selector.manifest import Candidate
    from selector.model_config import LayerKind
    from selector.phases import PhasePlan
    from selector.preferences import Preference
    from selector.report import Report

__all__ = [
    "Plan",
    "Uniform",
    "Verdict",
    "block_sizes",
    "key_of",
    "make_plan",
    "serving",
    "unheard",
    "verdicts_of",
]

#: The axis of the tokens of a cache block.
BLOCK_SIZE = "block_size"

#: Sizes of cache blocks that are tried where a request leaves it open, in tokens.
SIZES = tuple(1 << n for n in range(11))

YOU = "you"


class Verdict(NamedTuple):
    """One kind of layer, in one phase where the pack answers these apart.

    ``chosen`` is the candidate to use; it differs from the report's winner where the other phase's choice rules that out, and
    ``because`` is the pair's note then. ``together`` is what both phases get.
    """

    kind: LayerKind
    phase: str | None
    report: Report
    chosen: str | None
    because: str | None
    together: PhasePlan | None = None

    @property
    def backend(self) -> str | None:
        """The backend of the chosen candidate."""
        return None if self.chosen is None else self.chosen.partition("/")[0]

    @property
    def name(self) -> str:
        """The kind of layer, with its phase."""
        return self.kind.kind if self.phase is None else f"{self.kind.kind}, {self.phase}"

    @property
    def runs(self) -> str | None:
        """What runs: the chosen candidate, or what its adjustment puts in its place."""
        entry = next((r for r in self.report.ranked if r.id == self.chosen), None)
        if entry is None:
            return None
        return entry.id if entry.adjusted is None or entry.adjusted.use is None else entry.adjusted.use

    def losses(self) -> tuple[Loss, ...]:
        """What fields cost that the user gave, and not the model."""
        from selector.advice import losses

        return tuple(x for x in losses(self.report) if self.report.origins.get(x.axis, YOU) == YOU)


class Cost(NamedTuple):
    """A kind of layer that gets something else than its own best candidate when one backend serves all."""

    name: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    gets: str
    instead_of: str


class Uniform(NamedTuple):
    """The best single backend for some layers: its candidate for each, and what that costs. Or the nearest to one."""

    backend: str | None
    chosen: Mapping[str, str]
    costs: tuple[Cost, ...]
    nearest: str | None
    lacking: tuple[str, ...]


class Plan(NamedTuple):
    """All verdicts, and the best single backend for all attention layers; ``helper`` knows what helps a layer without one."""

    verdicts: tuple[Verdict, ...]
    uniform: Uniform
    sizes: tuple[int, ...] | None
    helper: Helper | None = None


def make_plan(
    kinds: Sequence[LayerKind],
    catalog: Catalog,
    environment: Environment,
    preferences: tuple[Preference, ...],
    *,
    strict: bool,
    helper: Helper | None = None,
) -> Plan:
    """Decide every kind of attention layer. Raises RequestError for a value that the pack's vocabulary does not have."""
    verdicts = tuple(
        v
        for kind in kinds
        if kind.attention
        for v in verdicts_of(kind, catalog, environment, preferences, strict)
    )
    return Plan(verdicts, uniform(verdicts), block_sizes(verdicts), helper)


def verdicts_of(
    kind: LayerKind,
    catalog: Catalog,
    environment: Environment,
    preferences: tuple[Preference, ...],
    strict: bool,
) -> list[Verdict]:
    """The verdicts of one kind of layer: one, or one for each phase."""
    from selector.phases import phases_of, select_phases
    from selector.selection import decide

    known = catalog.vocabulary.find
    # An axis that this vocabulary does not have is one that none of its candidates can limit.
    fields = {k: v for k, v in {**kind.request, **kind.extra}.items() if known(k) is not None}
    request = Request(fields, vocabulary=catalog.vocabulary)
    origins = {a.name: _origin(kind, a.name) for a, _ in request.items()}
    if not phases_of(catalog) or fields.get(PHASE) is not None:
        report = decide(request, catalog, environment, preferences, strict=strict, origins=origins)
        return [Verdict(kind, None, report, report.selected, None)]
    origins[PHASE] = "the pack's phases"
    plan = select_phases(request, catalog, environment, preferences, strict=strict, origins=origins)
    because = "; ".join(plan.notes) or None
    return [
        Verdict(kind, phase, report, chosen, because if chosen != report.selected else None, plan)
        for phase, report in plan.reports.items()
        for chosen in (plan.chosen[phase],)
    ]


def _origin(kind: LayerKind, axis: str) -> str:
    """Where the value of an axis comes from: what the reader of the configuration says, else the pack, else the user."""
    if axis in kind.origin:
        return kind.origin[axis]
    if axis in kind.extra:
        return "the model's configuration"
    return YOU


def unheard(kinds: Sequence[LayerKind], catalog: Catalog) -> list[str]:
    """What the layers need and the vocabulary has no axis for, leaving out what is false or open anyway."""
    found = {k for kind in kinds for k, v in kind.request.items() if v not in (None, False)}
    return sorted(k for k in found if catalog.vocabulary.find(k) is None)


# -- one backend for all ----------------------------------------------------------------------------------------------


def serving(verdicts: Sequence[Verdict]) -> dict[str, dict[str, tuple[int, str]]]:
    """What each backend is for each verdict it can serve: rank and candidate, by `key_of`. Its phases go together."""
    places: dict[str, dict[str, tuple[int, str]]] = {}
    for verdict in verdicts:
        for entry in verdict.report.ranked:
            backend = entry.id.partition("/")[0]
            places.setdefault(backend, {}).setdefault(key_of(verdict), (entry.rank, entry.id))
    for prefill, decode in _pairs(verdicts):
        together = prefill.together
        assert together is not None
        for backend, serves in places.items():
            both = [
                (p, d)
                for p in _of(backend, prefill)
                for d in _of(backend, decode)
                if together.allows(p[1], d[1])
            ]
            for verdict in (prefill, decode):
                serves.pop(key_of(verdict), None)
            if both:
                serves[key_of(prefill)], serves[key_of(decode)] = min(both, key=lambda e: e[0][0] + e[1][0])
    return places


def _pairs(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, Verdict]]:
    """The verdicts of the two phases of one kind of layer, where pair rules stand between them."""
    found: dict[int, dict[str | None, Verdict]] = {}
    for verdict in verdicts:
        if verdict.together is not None and verdict.together.rules:
            found.setdefault(id(verdict.together), {})[verdict.phase] = verdict
    return [(v["prefill"], v["decode"]) for v in found.values() if {"prefill", "decode"} <= set(v)]


def _of(backend: str, verdict: Verdict) -> list[tuple[int, str]]:
    """The accepted candidates of a backend: rank and name."""
    return [(r.rank, r.id) for r in verdict.report.ranked if r.id.partition("/")[0] == backend]


def uniform(verdicts: Sequence[Verdict]) -> Uniform:
    """The backend that serves every layer and stands best in their orders, weighed by the number of layers."""
    places = serving(verdicts)
    wanted = [key_of(v) for v in verdicts]

    def cost(backend: str) -> tuple[int, int, int]:
        serves = places[backend]
        lacking = sum(v.kind.count for v in verdicts if key_of(v) not in serves)
        ranks = sum(serves[key_of(v)][0] * v.kind.count for v in verdicts if key_of(v) in serves)
        return lacking, ranks, -sum(v.kind.count for v in verdicts if v.backend == backend)

    ordered = sorted(places, key=cost)
    if not ordered or not wanted:
        return Uniform(None, {}, (), None, ())
    best = ordered[0]
    serves = places[best]
    lacking = tuple(v.name for v in verdicts if key_of(v) not in serves)
    if lacking:
        return Uniform(None, {}, (), best, lacking)
    costs = tuple(
        Cost(v.name, v.kind.count, serves[key_of(v)][1], v.chosen)
        for v in verdicts
        if v.chosen is not None and v.backend != best
    )
    return Uniform(best, {k: serves[k][1] for k in wanted}, costs, None, ())


def key_of(verdict: Verdict) -> str:
    """What tells verdicts apart: kinds of the same name may differ in their requests."""
    return f"{verdict.kind.part}/{verdict.name}/{verdict.kind.indices[:1]}"


# -- block sizes ------------------------------------------------------------------------------------------------------


def block_sizes(verdicts: Sequence[Verdict]) -> tuple[int, ...] | None:
    """The sizes of cache blocks that every chosen candidate accepts as they are, each tried.

    None where no layer leaves the size open, or no chosen candidate says anything of it.
    """
    open_ones = [v for v in verdicts if v.chosen is not None and _open(v)]
    if not any(_declares(v) for v in open_ones):
        return None
    tried = sorted({*SIZES, *(s for v in open_ones for s in _listed(v))})
    return tuple(s for s in tried if all(_accepts(v, s) for v in open_ones))


def _open(verdict: Verdict) -> bool:
    axis = verdict.report.catalog.vocabulary.find(BLOCK_SIZE)
    return axis is not None and verdict.report.request.get(axis.name) is None


def _candidate(verdict: Verdict) -> Candidate:
    program = verdict.report.catalog.program
    return program.candidates[program.position[verdict.chosen or ""]]


def _declares(verdict: Verdict) -> bool:
    candidate = _candidate(verdict)
    declared = candidate.declared.get(BLOCK_SIZE)
    if declared is not None and not declared.constraint.is_any:
        return True
    return any(axis.name == BLOCK_SIZE for rule in candidate.rules for axis in rule.axes) or any(
        axis.name == BLOCK_SIZE for change in candidate.adjust for axis, _ in change.changes
    )


def _listed(verdict: Verdict) -> Iterator[int]:
    """Sizes that a constraint of the candidate names."""
    declared = _candidate(verdict).declared.get(BLOCK_SIZE)
    for clause in declared.constraint.clauses if declared is not None else ():
        for test in clause:
            if test.op == "in":
                yield from (v for v in test.operand if isinstance(v, int))
            elif test.op in ("multiple_of", "min") and isinstance(test.operand, int):
                yield test.operand


def _accepts(verdict: Verdict, size: int) -> bool:
    from selector.selection import decide

    report = verdict.report
    try:
        request = report.request.replace(**{BLOCK_SIZE: size})
    except ValueError:
        return False
    after = decide(request, report.catalog, report.environment, report.preferences, strict=report.strict)
    if verdict.chosen in after.excluded:
        return True
    entry: Any = next((r for r in after.ranked if r.id == verdict.chosen), None)
    return entry is not None and (
        entry.adjusted is None or all(a != BLOCK_SIZE for a, _, _ in entry.adjusted.changes)
    )
