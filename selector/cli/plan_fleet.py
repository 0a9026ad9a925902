"""`plan --fleet FILE`: a model on many machines: what each kind of them gets, one backend for all, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.plan_decide import Plan, Verdict, key_of, make_plan, serving
from selector.errors import EXIT_NOTHING_FITS

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.catalog import Catalog
    from selector.cli.plan_help import Helper
    from selector.fleet import Fleet, Machines
    from selector.model_config import LayerKind, ModelConfig
    from selector.preferences import Preference

__all__ = ["Divergence", "FleetPlan", "FleetUniform", "Place", "make_fleet_plan", "run_fleet"]

#: Options that say what the machine is, which a fleet's file says.
ELSEWHERE = (
    ("on", "--on"),
    ("profile", "--profile"),
    ("added", "--with"),
    ("without", "--without"),
    ("env", "--env"),
)


class Place(NamedTuple):
    """A kind of layer on one kind of machine."""

    machines: Machines
    verdict: Verdict

    @property
    def weight(self) -> int:
        """Layers of this kind on all these machines."""
        return self.machines.count * self.verdict.kind.count


class Cost(NamedTuple):
    """A place that gets something else than its own best candidate when one backend serves the whole fleet."""

    machines: str
    number: int
    layer: str
    gets: str
    instead_of: str


class FleetUniform(NamedTuple):
    """The best single backend for the fleet, its candidates by machine, and what it costs. Or the nearest to one.

    What a machine's order does not have is not considered there; ``--backend`` asks about that.
    """

    backend: str | None
    candidates: Mapping[str, tuple[str, ...]]
    costs: tuple[Cost, ...]
    nearest: str | None
    lacking: tuple[tuple[str, str], ...]


class Divergence(NamedTuple):
    """A kind of layer that gets different candidates: candidate (None: no backend) to the machines' names.

    ``variants`` is whether they are variants of one backend.
    """

    layer: str
    answers: Mapping[str | None, tuple[str, ...]]
    variants: bool


class FleetPlan(NamedTuple):
    """A plan a kind of machine, and what they have in common. ``rows`` are the kinds of layers, by name."""

    fleet: Fleet
    plans: tuple[Plan, ...]
    rows: Mapping[str, tuple[Place, ...]]
    uniform: FleetUniform
    diverging: tuple[Divergence, ...]
    sizes: tuple[int, ...] | None

    @property
    def lacking(self) -> list[Place]:
        """Where nothing fits."""
        return [p for row in self.rows.values() for p in row if p.verdict.chosen is None]


def run_fleet(arguments: Namespace, catalog: Catalog, model: ModelConfig, helper: Helper) -> int:
    """Plan and print. Exit code 3 if a layer has no backend on some machine."""
    from selector.cli.plan_fleet_text import fleet_dict, fleet_text
    from selector.fleet import load_fleet

    for name, option in ELSEWHERE:
        if getattr(arguments, name):
            raise UsageError(
                f"{option} says what the machine is, and so does --fleet", f"write it into {arguments.fleet}"
            )
    fleet = load_fleet(arguments.fleet, catalog)
    plan = make_fleet_plan(
        model.layers,
        catalog,
        fleet,
        options.preferences_of(arguments),
        strict=arguments.strict,
        helper=helper,
    )
    if arguments.json:
        output.write_json(fleet_dict(plan, model))
    else:
        text = fleet_text(plan, model, color=output.colors(), width=output.width(), verbose=arguments.verbose)
        output.write(text)
    return EXIT_NOTHING_FITS if plan.lacking else 0


def make_fleet_plan(
    kinds: tuple[LayerKind, ...],
    catalog: Catalog,
    fleet: Fleet,
    preferences: tuple[Preference, ...],
    *,
    strict: bool,
    helper: Helper | None = None,
) -> FleetPlan:
    """Decide every kind of layer on every kind of machine."""
    plans = tuple(
        make_plan(kinds, catalog, m.environment, preferences, strict=strict, helper=helper)
        for m in fleet.machines
    )
    rows: dict[str, list[Place]] = {}
    for machines, plan in zip(fleet.machines, plans, strict=True):
        for verdict in plan.verdicts:
            rows.setdefault(key_of(verdict), []).append(Place(machines, verdict))
    named = {name: tuple(rows[key]) for key, name in _names(rows).items()}
    return FleetPlan(fleet, plans, named, _uniform(fleet, plans), tuple(_diverging(named)), _sizes(plans))


def _names(rows: Mapping[str, list[Place]]) -> dict[str, str]:
    """Names of kinds of layers for people; those of the same name are told apart by their first layer."""
    told: dict[str, str] = {}
    for key, places in rows.items():
        verdict = places[0].verdict
        name = verdict.name
        if name in told.values():
            name = f"{name} from layer {verdict.kind.indices[0]}" if verdict.kind.indices else key
        told[key] = name
    return told


def _uniform(fleet: Fleet, plans: tuple[Plan, ...]) -> FleetUniform:
    """The backend that serves every layer on every machine and stands best, weighed by machines and layers."""
    served = [serving(plan.verdicts) for plan in plans]
    known = list(dict.fromkeys(backend for places in served for backend in places))
    everywhere = [
        (m, verdict, places)
        for m, plan, places in zip(fleet.machines, plans, served, strict=True)
        for verdict in plan.verdicts
    ]

    def cost(backend: str) -> tuple[int, int, int]:
        lacking = ranks = chosen = 0
        for machines, verdict, places in everywhere:
            weight = machines.count * verdict.kind.count
            entry = places.get(backend, {}).get(key_of(verdict))
            lacking += weight if entry is None else 0
            ranks += 0 if entry is None else entry[0] * weight
            chosen += weight if verdict.backend == backend else 0
        return lacking, ranks, -chosen

    if not known:
        return FleetUniform(None, {}, (), None, ())
    best = min(known, key=cost)
    lacking = tuple((m.name, v.name) for m, v, places in everywhere if key_of(v) not in places.get(best, {}))
    if lacking:
        return FleetUniform(None, {}, (), best, lacking)
    candidates: dict[str, dict[str, None]] = {}
    costs = []
    for machines, verdict, places in everywhere:
        gets = places[best][key_of(verdict)][1]
        candidates.setdefault(machines.name, {})[gets] = None
        if verdict.chosen is not None and verdict.backend != best:
            costs.append(Cost(machines.name, machines.count, verdict.name, gets, verdict.chosen))
    return FleetUniform(best, {m: tuple(c) for m, c in candidates.items()}, tuple(costs), None, ())


def _diverging(rows: Mapping[str, tuple[Place, ...]]) -> list[Divergence]:
    found = []
    for layer, places in rows.items():
        answers: dict[str | None, list[str]] = {}
        for place in places:
            answers.setdefault(place.verdict.runs, []).append(place.machines.name)
        if len(answers) > 1:
            backends = {None if a is None else a.partition("/")[0] for a in answers}
            found.append(Divergence(layer, {a: tuple(m) for a, m in answers.items()}, len(backends) == 1))
    return found


def _sizes(plans: tuple[Plan, ...]) -> tuple[int, ...] | None:
    """The block sizes that every machine's choices accept; None where no machine leaves them open."""
    said = [set(plan.sizes) for plan in plans if plan.sizes is not None]
    return tuple(sorted(set.intersection(*said))) if said else None


def most_refused(verdict: Verdict) -> list[str]:
    """The axes on which candidates are refused, the one of most candidates first."""
    counts: dict[str, int] = {}
    for reasons in verdict.report.rejected.values():
        for axis in dict.fromkeys(r.axis for r in reasons):
            counts[axis] = counts.get(axis, 0) + 1
    return sorted(counts, key=lambda axis: -counts[axis])
