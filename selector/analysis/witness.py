"""Places of the space as requests and environments, and the engine's word on them: nothing is shown before it is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from selector.environment import Environment
from selector.request import Request
from selector.vocabulary import MISSING, Packages, PackageState

if TYPE_CHECKING:
    from selector.analysis.solution import Point
    from selector.analysis.space import Space
    from selector.catalog import Catalog
    from selector.report import Report
    from selector.vocabulary import Axis, Vocabulary

__all__ = ["Raw", "Refuted", "decide", "located", "realised", "values_of"]


class Refuted(RuntimeError):
    """The engine does not confirm what the analysis found: a fault of this program, never of a manifest."""


class Raw(NamedTuple):
    """A request's fields and an environment's facts by axis name. A fact that is missing is unknown or at its default."""

    fields: dict[str, Any]
    facts: dict[str, Any]


def values_of(space: Space, point: Point) -> Raw:
    """What a place says of each given axis. Axes with no place in the space are left out."""
    fields: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    packages: dict[str, PackageState] = {}
    holder: str | None = None
    for given, k in zip(space.given, point.chosen):
        found = given.classes[k]
        if given.package is not None:
            packages[given.package] = found.value
            continue
        into = fields if given.axis.of == "request" else facts
        if found.kind in ("absent", "unknown"):
            continue
        if given.axis.type == "packages" and found.kind == "value":
            holder = given.name
            continue
        value = found.value
        if found.kind == "value" and given.numeric:
            value = point.numbers[given.name, -1]
        elif found.kind == "value" and given.axis.type == "pair" and not found.members:
            value = (point.numbers[given.name, 0], point.numbers[given.name, 1])
        into[given.name] = value
    if holder is not None:
        there = {n: s for n, s in packages.items() if s.state != "missing"}
        facts[holder] = Packages(there)
    return Raw(fields, facts)


def realised(raw: Raw, vocabulary: Vocabulary, *, name: str = "witness") -> tuple[Request, Environment]:
    """The request and the environment of raw values, for a catalog with that vocabulary."""
    fields = {n: v for n, v in raw.fields.items() if n in vocabulary.by_name}
    facts = {n: v for n, v in raw.facts.items() if n in vocabulary.by_name}
    request = Request(fields, vocabulary=vocabulary)
    return request, Environment(facts, name=name, vocabulary=vocabulary)


def decide(raw: Raw | tuple[Request, Environment], catalog: Catalog, *, strict: bool = False) -> Report:
    """The engine's report for a place, without any preference."""
    from selector.selection import decide as engine

    request, environment = realised(raw, catalog.vocabulary) if isinstance(raw, Raw) else raw
    return engine(request, catalog, environment, (), strict=strict)


def located(space: Space, request: Request, environment: Environment) -> Point:
    """The place of a request and an environment. Raises KeyError for values that the space leaves out."""
    from selector.analysis.solution import Point

    fields = dict(zip(request._axes, request._values))
    facts = environment.values(request.vocabulary)
    chosen: list[int] = []
    numbers: dict[tuple[str, int], int] = {}
    for given in space.given:
        axis = request.vocabulary.by_name[given.axis.name]
        raw = fields.get(axis.index, _default(axis)) if axis.of == "request" else facts[axis.index]
        if given.package is not None:
            state = raw.get(given.package) if isinstance(raw, Packages) else None
            chosen.append(given.position(state or PackageState(None, "missing")))
            continue
        if axis.type == "packages":
            raw = raw if raw is None or not isinstance(raw, Packages) else True
        chosen.append(given.position(raw))
        if isinstance(raw, int) and given.numeric:
            numbers[axis.name, -1] = raw
        elif isinstance(raw, tuple) and not given.classes[chosen[-1]].members:
            numbers.update({(axis.name, e): n for e, n in enumerate(raw)})
    return Point(tuple(chosen), numbers)


def _default(axis: Axis) -> Any:
    return MISSING if axis.same_as is not None else axis.default
