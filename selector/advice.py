"""What to change: every suggestion is re-evaluated by the engine before anybody sees it.

`losses` says what a field of the request costs; `suggestions` finds the smallest changes of request or environment that
make a candidate valid. The search is exact within its edits: a solution must mend the first reason of the candidate, so
only edits that can mend it are tried, depth first with growing depth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.aims import Aim, aims_of, options
from selector.constraints import Constraint, word
from selector.vocabulary import UNKNOWN, Axis, PackageState

if TYPE_CHECKING:
    from selector.environment import Environment
    from selector.manifest import Candidate
    from selector.report import Report
    from selector.request import Request

__all__ = ["Change", "Loss", "Suggestion", "losses", "near_misses", "suggestions"]

#: Changes that one suggestion may have, and engine calls that one search may make.
DEPTH = 3
CALLS = 400


class Change(NamedTuple):
    """One change. ``kind``: drop, set, install, upgrade, remove, choose; ``value`` what it becomes."""

    kind: str
    axis: str
    before: Any
    value: Any
    text: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        before = self.before if isinstance(self.before, (str, int, bool, type(None))) else word(self.before)
        value = self.value if isinstance(self.value, (str, int, bool, type(None))) else word(self.value)
        return {"kind": self.kind, "axis": self.axis, "from": before, "to": value, "text": self.text}


class Suggestion(NamedTuple):
    """Changes that together make ``candidate`` valid; ``selected`` is what is chosen then."""

    candidate: str
    changes: tuple[Change, ...]
    selected: str

    @property
    def text(self) -> str:
        """In words."""
        joined = " and ".join(c.text for c in self.changes)
        return f"{joined}: {self.candidate} works" + (
            "" if self.selected == self.candidate else f" ({self.selected} is chosen)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "candidate": self.candidate,
            "changes": [c.to_dict() for c in self.changes],
            "selected": self.selected,
            "text": self.text,
        }


class Loss(NamedTuple):
    """What one field of the request costs: without it, ``instead`` would be chosen."""

    axis: str
    value: Any
    lost: tuple[str, ...]
    instead: str

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.axis}={word(self.value)} costs you {', '.join(self.lost)}; without it: {self.instead}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {
            "axis": self.axis,
            "value": value,
            "lost": list(self.lost),
            "instead": self.instead,
            "text": self.text,
        }


def _decide(report: Report, request: Request, environment: Environment) -> Report:
    from selector.selection import decide

    return decide(request, report.catalog, environment, report.preferences, strict=report.strict)


def losses(report: Report) -> tuple[Loss, ...]:
    """For each field of the request: the better-ranked candidates that only this field refuses."""
    accepted = {*(r for r in report.outcome.ranked), *report.outcome.excluded}
    ids = report.catalog.program.candidates
    found = []
    for axis, value in report.request.items():
        if axis.identity:
            continue
        other = _decide(report, report.request.without(axis.name), report.environment)
        winner = other.outcome.ranked[0] if other.outcome.ranked else None
        if winner is None or winner in accepted:
            continue
        lost = []
        for i in other.outcome.ranked:
            if i in accepted:
                break
            lost.append(ids[i].backend if _all_lost(report, ids[i].backend, accepted) else ids[i].id)
        found.append(Loss(axis.name, value, tuple(dict.fromkeys(lost))[:4], ids[winner].id))
    return tuple(found)


def _all_lost(report: Report, backend: str, accepted: set[int]) -> bool:
    return all(
        i not in accepted for i, c in enumerate(report.catalog.program.candidates) if c.backend == backend
    )


def near_misses(report: Report) -> list[str]:
    """Refused candidates, those that lack least first: in the policy's order at all, fewest reasons, what the request can mend."""
    candidates = report.catalog.candidates
    listed = {candidates[i].id for i in report.order}

    def key(item: tuple[int, str]) -> tuple[int, bool, int, int, int]:
        n, ident = item
        reasons = report.rejected[ident]
        hopeless = sum(1 for r in reasons if r.fix == "none")
        outside = sum(1 for r in reasons if r.fix == "environment")
        return (hopeless, ident not in listed, len({r.axis for r in reasons}), outside, n)

    return [ident for _, ident in sorted(enumerate(report.rejected), key=key)]


# -- searching --------------------------------------------------------------------------------------------------------


class _Search:
    def __init__(self, report: Report, fixed: frozenset[str]) -> None:
        self.report, self.fixed = report, fixed
        self.calls = 0
        self.catalog = report.catalog
        self.known: dict[Any, Report] = {}

    def decide(self, request: Request, environment: Environment) -> Report | None:
        key = (request, environment.fingerprint)
        found = self.known.get(key)
        if found is None:
            if self.calls >= CALLS:
                return None
            self.calls += 1
            found = self.known[key] = _decide(self.report, request, environment)
        return found

    def solve(
        self, ident: str, request: Request, environment: Environment, depth: int, done: tuple[Change, ...]
    ) -> Iterator[tuple[tuple[Change, ...], Report]]:
        """Change lists of at most ``depth`` more changes after which ``ident`` is accepted."""
        report = self.decide(request, environment)
        if report is None:
            return
        if report.fits(ident):
            yield done, report
            return
        if depth == 0:
            return
        touched = {c.axis for c in done if c.axis != "packages"}
        for change, next_request, next_environment in self.edits(report, ident, request, environment):
            if change.axis in touched or change.axis in self.fixed:
                continue
            yield from self.solve(ident, next_request, next_environment, depth - 1, (*done, change))

    def edits(
        self, report: Report, ident: str, request: Request, environment: Environment
    ) -> Iterator[tuple[Change, Request, Environment]]:
        """The single changes that might mend the first mendable reason of a candidate."""
        program = self.catalog.program
        i = program.position[ident]
        candidate = program.candidates[i]
        trace, _, _ = report._view(i)
        for axis in self.catalog.vocabulary.axes:
            atom, _ = program.check_of(candidate, axis)
            if (atom.constraint.is_any and not atom.constraint.required) or not atom.true_for(
                trace.values[axis.index]
            ):
                continue
            yield from self.all_edits(
                [Aim(axis, atom.constraint, True)], candidate, trace.values, request, environment
            )
            return
        from selector.nodes import evaluate

        for rule, node in program.rules[i]:
            if rule.kind == "warn" and not (report.strict and rule.strict):
                continue
            if evaluate(node, trace.atoms):
                found = [
                    aim
                    for condition, truth in (
                        (rule.require, True),
                        (rule.unless, True),
                        (rule.until, True),
                        (rule.when, False),
                    )
                    for aim in aims_of(condition, truth)
                ]
                yield from self.all_edits(found, candidate, trace.values, request, environment)
                return

    def all_edits(
        self,
        aims: Iterable[Aim],
        candidate: Candidate,
        values: Sequence[Any],
        request: Request,
        environment: Environment,
    ) -> Iterator[tuple[Change, Request, Environment]]:
        """Changes of what can be given that serve any of the aims, within what the candidate declares."""
        wanted: dict[Axis, list[Aim]] = {}
        for aim in aims:
            for source in self.given([aim.axis]):
                here = wanted.setdefault(source, [])
                # What a derived number is to be is tried of the numbers that it comes from.
                if source is aim.axis or source.type == aim.axis.type == "integer":
                    here.append(aim)
        for axis, here in wanted.items():
            declared = self.catalog.program.check_of(candidate, axis)[0].constraint
            yield from self.axis_edits(axis, here, declared, values[axis.index], request, environment)

    def given(self, axes: Iterable[Axis]) -> list[Axis]:
        """Axes that can be given: derived ones are replaced by what they come from."""
        found: dict[Axis, None] = {}
        pending = list(axes)
        while pending:
            axis = pending.pop(0)
            if axis.derive is None:
                found[axis] = None
            else:
                pending.extend(
                    self.catalog.vocabulary.axes[d] for d in self.catalog.vocabulary.depends[axis.index]
                )
        return list(found)

    def axis_edits(
        self,
        axis: Axis,
        aims: list[Aim],
        declared: Constraint,
        value: Any,
        request: Request,
        environment: Environment,
    ) -> Iterator[tuple[Change, Request, Environment]]:
        if axis.type == "packages":
            for change, packages in self.package_edits(aims, value):
                yield change, request, environment.with_packages(packages)
            return
        if axis.of != "request":
            if axis.fix == "environment" or axis.variable is not None:
                yield from self.fact_edits(
                    axis, options(axis, aims, declared, value), value, request, environment
                )
            return
        given = dict(zip(request._axes, request._values))
        dropped = axis.index in given and not axis.declare_required
        if dropped:
            before = given[axis.index]
            if axis.default != before:
                shown = axis.name if before is True else f"{axis.name}={word(before)}"
                yield (
                    Change("drop", axis.name, before, axis.default, f"drop {shown}"),
                    request.without(axis.name),
                    environment,
                )
        for option in options(axis, aims, declared, value):
            if option == value or (dropped and option == axis.default):
                continue
            yield (
                Change("set", axis.name, value, option, f"use {axis.name}={word(option)}"),
                request.replace(**{axis.name: option}),
                environment,
            )

    def fact_edits(
        self, axis: Axis, tried: list[Any], value: Any, request: Request, environment: Environment
    ) -> Iterator[tuple[Change, Request, Environment]]:
        for option in tried:
            if option != value:
                name = axis.variable or axis.name
                yield (
                    Change(
                        "set",
                        axis.name,
                        None if value is UNKNOWN else value,
                        option,
                        f"set {name}={word(option)}",
                    ),
                    request,
                    environment.replace(**{axis.name: option}),
                )

    def package_edits(
        self, aims: list[Aim], packages: Any
    ) -> Iterator[tuple[Change, Mapping[str, PackageState | str | None]]]:
        """Install, upgrade or remove what one failing constraint names: all of it is one change."""
        if packages is UNKNOWN or packages is None:
            return
        known = _software(self.catalog.root)
        for aim in aims:
            if not aim.truth:
                yield from self.away_edits(aim.constraint, packages, known)
        for constraint in (aim.constraint for aim in aims if aim.truth):
            texts = []
            changes: dict[str, PackageState | str | None] = {}
            kind = "install"
            for test in constraint.failing(packages):
                name, specifiers = test.operand
                found = packages.get(name)
                if specifiers is None:
                    changes[name] = None
                    texts.append(f"remove {name}")
                    kind = "remove"
                    continue
                version = _version_for(name, specifiers, known)
                if version is None:
                    break
                changes[name] = PackageState(version)
                need = f" to {' or '.join(specifiers)}" if specifiers else ""
                if found is not None and found.state == "usable":
                    kind = "upgrade"
                    texts.append(f"change {name} {found.version}{need}")
                elif found is not None and found.state not in ("missing", "unknown"):
                    texts.append(f"repair {name} ({found.state})")
                else:
                    shown = f"{name} {' or '.join(specifiers)}".rstrip()
                    texts.append(f"install {shown}")
            else:
                if changes:
                    text = " and ".join(texts)
                    after = ", ".join(
                        f"{n} {v.version if isinstance(v, PackageState) else v}" for n, v in changes.items()
                    )
                    yield Change(kind, "packages", None, after, text), changes

    def away_edits(
        self, constraint: Constraint, packages: Mapping[str, PackageState], known: Mapping[str, str]
    ) -> Iterator[tuple[Change, Mapping[str, PackageState | str | None]]]:
        """Out of what a rule refuses: a package that it names in the version that is listed, or without it."""
        for name in dict.fromkeys(t.operand[0] for clause in constraint.clauses for t in clause):
            found, listed = packages.get(name), known.get(name)
            if listed is not None and (found is None or found.version != listed):
                there = found is not None and found.state == "usable"
                text = (
                    f"change {name} {found.version} to {listed}"
                    if found and there
                    else f"install {name} {listed}"
                )
                kind = "upgrade" if there else "install"
                yield Change(kind, "packages", None, f"{name} {listed}", text), {name: PackageState(listed)}
            if found is not None and found.state != "missing":
                yield Change("remove", "packages", None, f"{name} None", f"remove {name}"), {name: None}


def _version_for(name: str, specifiers: tuple[str, ...], known: Mapping[str, str]) -> str | None:
    """A version that satisfies one of the specifiers: the listed one, or a bound that a specifier names."""
    from packaging.specifiers import SpecifierSet

    listed = known.get(name)
    if not specifiers:
        return listed or "1.0"
    for text in specifiers:
        spec = SpecifierSet(text)
        tries = [listed] if listed else []
        tries += [s.version.removesuffix(".*") for s in spec if s.operator in ("==", ">=", "~=", "<=")]
        tries += [f"{s.version}.1" for s in spec if s.operator == ">"]
        for version in tries:
            if spec.contains(version, prereleases=True):
                return version
    return None


def _software(root: str) -> dict[str, str]:
    """The versions that the software profiles list."""
    import os

    from selector.errors import ManifestError
    from selector.stored import load_stored

    try:
        data: Any = load_stored(os.path.join(root, "software.yaml")).data
    except ManifestError:
        return {}
    packages = data.get("packages") if isinstance(data, dict) else None
    return {
        n: str(e["version"]) for n, e in (packages or {}).items() if isinstance(e, dict) and "version" in e
    }


def suggestions(
    report: Report, ident: str | None = None, limit: int = 4, fixed: Collection[str] = ()
) -> tuple[Suggestion, ...]:
    """The smallest verified changes that make a candidate valid (``ident``), or any candidate when nothing fits.

    ``fixed``: axes that nobody can change, such as those that a model determines.
    """
    search = _Search(report, frozenset(fixed))
    wanted = [ident] if ident is not None else [
        i for i in near_misses(report) if all(r.fix != "none" for r in report.rejected[i])
    ]  # fmt: skip
    best: dict[tuple[str, frozenset[str]], Suggestion] = {}
    for depth in range(1, DEPTH + 1):
        for candidate in wanted[:12]:
            for found, after in search.solve(candidate, report.request, report.environment, depth, ()):
                changes = _reached(candidate, found, after)
                key = (candidate, frozenset(c.text for c in changes))
                if len(changes) != depth or key in best or _has_smaller(best, candidate, changes):
                    continue
                chosen = candidate if candidate in after.excluded else after.selected
                best[key] = Suggestion(candidate, changes, chosen or candidate)
        if best and (ident is None or depth >= 2):
            break
    ordered = sorted(
        best.values(),
        key=lambda s: (len(s.changes), _effort(s), _shapes(s, report), wanted.index(s.candidate)),
    )
    kept: dict[tuple[str, ...], Suggestion] = {}
    for suggestion in ordered:
        kept.setdefault(tuple(sorted(c.text for c in suggestion.changes)), suggestion)
    return tuple(kept.values())[:limit]


def _reached(candidate: str, changes: tuple[Change, ...], after: Report) -> tuple[Change, ...]:
    """The changes after which a candidate runs: one that only an explicit choice reaches has to be chosen as well."""
    if candidate not in after.excluded:
        return changes
    text = f"choose {candidate} explicitly (backend={candidate})"
    return (*changes, Change("choose", "backend", None, candidate, text))


def _has_smaller(
    best: Mapping[tuple[str, frozenset[str]], Suggestion], candidate: str, changes: tuple[Change, ...]
) -> bool:
    texts = {c.text for c in changes}
    return any(c == candidate and key < texts for c, key in best)


def _effort(suggestion: Suggestion) -> int:
    weight = {"drop": 0, "set": 1, "choose": 1, "upgrade": 2, "install": 2, "remove": 3}
    return sum(weight[c.kind] for c in suggestion.changes)


def _shapes(suggestion: Suggestion, report: Report) -> int:
    """Changes of the layer's numbers: they are the model's, so another value of a choice comes before them."""
    axes = report.catalog.vocabulary.by_name
    return sum(
        1 for c in suggestion.changes if c.kind == "set" and c.axis in axes and axes[c.axis].type == "integer"
    )
