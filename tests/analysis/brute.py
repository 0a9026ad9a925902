"""Two catalogs compared by asking both engines about very many requests on many machines; the analysis takes no part in it.

By hand, for each of the ten edits: `python -m tests.analysis.brute --points 1000000`.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from selector.analysis.changed import Diff
from selector.analysis.circuit import TRUE
from selector.analysis.classes import Class
from selector.analysis.numbers import variables
from selector.analysis.space import Given
from selector.bound import Bound
from selector.catalog import Catalog
from selector.environment import Environment, preset_names
from selector.locations import manifests_root
from selector.nodes import evaluate
from selector.program import Program
from selector.request import Request
from selector.vocabulary import MISSING, Axis, Packages, PackageState, Vocabulary

__all__ = ["Asked", "Key", "Pool", "Regions", "Sides", "Tally", "compared"]

#: (kind, candidate or candidates, before, after), in the words of a comparison.
Key = tuple[str, str, str, str]


class Pool:
    """Values to draw from: everything that the files of a pack name, with its neighbours."""

    def __init__(self, vocabulary: Vocabulary, files: Iterable[Path], seed: int) -> None:
        self.vocabulary = vocabulary
        self.random = random.Random(seed)
        text = "\n".join(path.read_text(encoding="utf-8") for path in files)
        named = {int(n) for n in re.findall(r"(?<![\w.])\d{1,5}(?![\w.])", text)}
        self.numbers = sorted({n + step for n in (*named, 1, 48, 96) for step in (-1, 0, 1) if n + step > 0})
        found = set(re.findall(r"[<>=!~]=?\s*(\d+(?:\.\d+)*(?:[ab]\d+|rc\d+)?)", text))
        self.versions = sorted({near for v in found for near in _beside(v)})
        self.packages = sorted(set(re.findall(r"packages: \{([\w.-]+):", text)))
        self.fields = [a for a in vocabulary.axes if a.of == "request" and a.derive is None]
        self.facts = [a for a in vocabulary.axes if a.of == "environment" and a.derive is None]

    def value(self, axis: Axis) -> Any:
        """A value of an axis, null now and then."""
        draw = self.random
        if draw.random() < 0.06:
            return None
        if axis.type in ("flag", "mode"):
            return draw.random() < 0.6
        if axis.type == "choice":
            return draw.choice([*axis.values, "something else"] if axis.open else list(axis.values))
        if axis.type == "integer":
            allowed = [
                n for n in self.numbers if (axis.min or 0) <= n <= (n if axis.max is None else axis.max)
            ]
            return draw.choice(allowed)
        if axis.type == "version":
            return draw.choice(self.versions)
        return (draw.choice(self.numbers), draw.choice(self.numbers))

    def request(self, near: Mapping[str, Any] | None = None) -> Request:
        """A request with a few fields; or one like another but for a field or two."""
        draw = self.random
        fields = dict(near or {})
        most = 7 if near is None else 2
        for axis in draw.sample(self.fields, draw.randint(0, most)):
            if near is None and axis.type in ("flag", "mode") and draw.random() < 0.4:
                continue
            if near is not None and axis.name in fields and draw.random() < 0.4:
                del fields[axis.name]
            else:
                fields[axis.name] = self.value(axis)
        return Request(fields, vocabulary=self.vocabulary)

    def environment(self, base: Environment) -> Environment:
        """A machine like another but for a fact or two."""
        draw = self.random
        facts = dict(base.facts)
        for _ in range(draw.choice([0, 1, 1, 2])):
            axis = draw.choice(self.facts)
            if axis.type == "packages" or draw.random() < 0.4:
                facts["packages"] = self._packages(facts.get("packages"))
            elif draw.random() < 0.1:
                facts.pop(axis.name, None)
            else:
                facts[axis.name] = self.value(axis)
        return Environment(facts, name=base.name, vocabulary=self.vocabulary)

    def _packages(self, before: Any) -> Packages:
        draw = self.random
        found = dict(before) if isinstance(before, Packages) else {}
        name = draw.choice(self.packages)
        state = draw.choice(["usable", "usable", "missing", "unknown", "broken import", "no version"])
        if state == "missing":
            found.pop(name, None)
        elif state == "usable":
            found[name] = PackageState(draw.choice(self.versions))
        else:
            found[name] = PackageState(None, "usable" if state == "no version" else state)
        return Packages(found)


def _beside(version: str) -> Iterator[str]:
    yield version
    head = re.match(r"(.*?)(\d+)$", version)
    assert head is not None
    yield f"{head[1]}{int(head[2]) + 1}"
    if int(head[2]):
        yield f"{head[1]}{int(head[2]) - 1}"
    if "rc" not in version and "b" not in version:
        yield f"{version}.1"
        yield f"{version}rc1"


class Asked:
    """One catalog on one machine: what it says of a request, in words, by candidate."""

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self.program: Program = catalog.program
        self.bound = Bound(catalog.tables, environment, lambda: catalog.program)
        self.names = [c.id for c in catalog.candidates]
        self.listed = [i for i, c in enumerate(catalog.candidates) if not c.abstract]
        self._said: dict[tuple[int, Any], list[tuple[int, str]]] = {}

    def places(self, request: Request) -> tuple[list[str], list[str]]:
        """(candidates that accept in order, those that only an explicit choice reaches)."""
        found = self.bound.decide(request)
        return [self.names[i] for i in found.ranked], [self.names[i] for i in found.excluded]

    def texts(self, request: Request) -> dict[str, tuple[frozenset[str], frozenset[str], frozenset[str]]]:
        """By candidate what refuses, what warns, and what is adjusted."""
        program = self.program
        raw = program.template(self.bound.facts, dict(zip(request._axes, request._values)))
        trace = program.trace(raw)
        refused: dict[int, set[str]] = {}
        for axis, value in enumerate(trace.values):
            for mask, text in self._declared(axis, value):
                for i in self.listed:
                    if mask >> i & 1:
                        refused.setdefault(i, set()).add(text)
        found = {}
        for i in self.listed:
            reasons: set[str] = refused.get(i, set())
            warnings: set[str] = set()
            for rule, node in program.rules[i]:
                if evaluate(node, trace.atoms):
                    (warnings if rule.kind == "warn" else reasons).add(rule.text)
            assert not program.adjust[i], "packs with adjustments need another view here"
            found[self.names[i]] = (frozenset(reasons), frozenset(warnings), frozenset[str]())
        return found

    def _declared(self, axis: int, value: Any) -> list[tuple[int, str]]:
        known = self._said.get((axis, value))
        if known is None:
            name = self.program.vocabulary.axes[axis].name
            known = self._said[axis, value] = [
                (check.mask, f"{name}: takes {check.atom.constraint.describe()}")
                for check in self.program.checks[axis]
                if check.atom.true_for(value)
            ]
        return known


class Sides(NamedTuple):
    """Two catalogs on one machine."""

    old: Asked
    new: Asked

    def changes(self, before: Request, after: Request, *, texts: bool) -> set[Key]:
        """What the engines say differently about a request. ``texts``: reasons and warnings, too."""
        found: set[Key] = set()
        ranked, excluded = self.old.places(before)
        ranked_now, excluded_now = self.new.places(after)
        if (ranked, excluded) != (ranked_now, excluded_now):
            found |= _placed(ranked, excluded, ranked_now, excluded_now)
        if not texts:
            return found
        accepted = {*ranked, *excluded}
        accepted_now = {*ranked_now, *excluded_now}
        said, said_now = self.old.texts(before), self.new.texts(after)
        for name in said.keys() & said_now.keys():
            if said[name] == said_now[name]:
                continue
            kinds = []
            if name in accepted and name in accepted_now:
                kinds = [("warnings", 1, "none"), ("adjustments", 2, "none")]
            elif name not in accepted and name not in accepted_now:
                kinds = [("reasons", 0, "not said")]
            for kind, k, none in kinds:
                found |= {(kind, name, text, none) for text in said[name][k] - said_now[name][k]}
                found |= {(kind, name, none, text) for text in said_now[name][k] - said[name][k]}
        return found


def _placed(
    ranked: Sequence[str], excluded: Sequence[str], ranked_now: Sequence[str], excluded_now: Sequence[str]
) -> set[Key]:
    found: set[Key] = set()
    winner, winner_now = (r[0] if r else "nothing" for r in (ranked, ranked_now))
    if winner != winner_now:
        found.add(("winner", winner, winner, winner_now))
    accepted, accepted_now = {*ranked, *excluded}, {*ranked_now, *excluded_now}
    found |= {("accepted", n, "accepted", "refused") for n in accepted - accepted_now}
    found |= {("accepted", n, "refused", "accepted") for n in accepted_now - accepted}
    found |= {("reach", n, "in the order", "only by name") for n in set(ranked) & set(excluded_now)}
    found |= {("reach", n, "only by name", "in the order") for n in set(excluded) & set(ranked_now)}
    place = {n: k for k, n in enumerate(ranked_now)}
    both = [n for n in ranked if n in place]
    for k, a in enumerate(both):
        for b in both[k + 1 :]:
            if place[b] < place[a]:
                found.add(("order", f"{a}, {b}", f"{a} before {b}", f"{b} before {a}"))
    return found


class Regions:
    """What a comparison says of very many requests at once: a bit for each, by change, and by region."""

    def __init__(self, diff: Diff) -> None:
        self.diff, self.space = diff, diff.space
        self._positions: dict[tuple[int, Any], int] = {}

    def of(
        self, requests: Sequence[Request], environment: Environment
    ) -> tuple[dict[Key, int], list[list[int]]]:
        """(by change the requests on a machine that its regions cover, by change and region the same)."""
        space = self.space
        everywhere = (1 << len(requests)) - 1
        inputs, numbers = self._inputs(requests, environment, everywhere)
        for predicate, literal in space.predicate_literals.items():
            inputs[literal] = sum(
                1 << k for k, own in enumerate(numbers) if _has(predicate, own) and predicate.holds(own)
            )
        wanted: list[int] = []
        circuit = space.circuit
        for change in self.diff.changes:
            for region in change.regions:
                wanted.append(circuit.conj((*change.within, *region.literals)))
        values = iter(circuit.evaluate(wanted, inputs, everywhere))
        covered: dict[Key, int] = {}
        parts: list[list[int]] = []
        for change in self.diff.changes:
            mine = [next(values) for _ in change.regions]
            parts.append(mine)
            bits = 0
            for part in mine:
                bits |= part
            covered[change.kind, change.subject, change.old, change.new] = bits
        return covered, parts

    def _inputs(
        self, requests: Sequence[Request], environment: Environment, everywhere: int
    ) -> tuple[dict[int, int], list[dict[tuple[str, int], int]]]:
        """The space's variables as bit sets, and each request's numbers."""
        vocabulary = requests[0].vocabulary
        facts = environment.values(vocabulary)
        fields = [dict(zip(r._axes, r._values)) for r in requests]
        inputs: dict[int, int] = {}
        numbers: list[dict[tuple[str, int], int]] = [{} for _ in requests]
        for given in self.space.given:
            axis = vocabulary.by_name[given.axis.name]
            if axis.of == "request":
                usual = MISSING if axis.same_as is not None else axis.default
                raws = [own.get(axis.index, usual) for own in fields]
            else:
                raws = [_fact(given, facts[axis.index])] * len(requests)
            by_class: dict[int, int] = {}
            for k, raw in enumerate(raws):
                position = self._position(given, raw)
                by_class[position] = by_class.get(position, 0) | 1 << k
                found: Class = given.classes[position]
                if given.numeric and isinstance(raw, int):
                    numbers[k][given.name, -1] = raw
                elif isinstance(raw, tuple) and axis.type == "pair" and not found.members:
                    numbers[k].update({(given.name, e): n for e, n in enumerate(raw)})
            for position, literal in enumerate(given.literals):
                if abs(literal) != TRUE:
                    bits = by_class.get(position, 0)
                    inputs[abs(literal)] = bits if literal > 0 else everywhere & ~bits
        return inputs, numbers

    def _position(self, given: Given, raw: Any) -> int:
        key = (given.index, raw)
        known = self._positions.get(key)
        if known is None:
            known = self._positions[key] = given.position(raw)
        return known


def _fact(given: Given, raw: Any) -> Any:
    if given.package is not None:
        state = raw.get(given.package) if isinstance(raw, Packages) else None
        return state or PackageState(None, "missing")
    return True if isinstance(raw, Packages) else raw


def _has(predicate: Any, numbers: Mapping[tuple[str, int], int]) -> bool:
    return variables(predicate.term) <= numbers.keys()


class Tally:
    """How many points were asked about, where something changed, and what the analysis said otherwise."""

    def __init__(self, diff: Diff) -> None:
        self.diff = diff
        self.points = self.changed = 0
        self.hit = [[0] * len(c.regions) for c in diff.changes]
        self.wrong: list[tuple[Key, Request, Environment, str]] = []

    @property
    def missed(self) -> int:
        """Regions that no point lay in."""
        return sum(not n for mine in self.hit for n in mine)

    def add(
        self,
        requests: Sequence[Request],
        environment: Environment,
        engines: Sequence[set[Key]],
        found: tuple[dict[Key, int], list[list[int]]],
        texts: Sequence[bool],
    ) -> None:
        """The engines' word and the analysis's on some requests on one machine."""
        covered, parts = found
        self.points += len(requests)
        self.changed += sum(bool(e) for e in engines)
        said: dict[Key, int] = {}
        for k, keys in enumerate(engines):
            for key in keys:
                said[key] = said.get(key, 0) | 1 << k
        looked = sum(1 << k for k, t in enumerate(texts) if t)
        for key in {**said, **covered}:
            about = looked if key[0] in ("reasons", "warnings", "adjustments") else -1
            mine, theirs = covered.get(key, 0) & about, said.get(key, 0) & about
            differ = mine ^ theirs
            while differ:
                k = (differ & -differ).bit_length() - 1
                differ &= differ - 1
                which = "not covered" if theirs >> k & 1 else "covered, not changed"
                self.wrong.append((key, requests[k], environment, which))
        for counts, bits in zip(self.hit, parts):
            for r, part in enumerate(bits):
                counts[r] += part.bit_count()


def compared(
    old: Catalog, new: Catalog, diff: Diff, points: int, *, seed: int, batch: int = 500, every: int = 1
) -> Tally:
    """Ask both engines about random requests on random machines, half of them like a region's example.

    ``every``: reasons and warnings are looked at for one request in so many.
    """
    root = Path(manifests_root())
    files = [root / "vocabulary.yaml", *sorted((root / "vllm").glob("*.yaml"))]
    files += [p for p in Path(str(new.root)).glob("vllm/*.yaml") if p.is_file()]
    pool = Pool(old.vocabulary, files, seed)
    draw = pool.random
    presets = [Environment.preset(n, vocabulary=old.vocabulary) for n in preset_names(None)]
    witnesses = [r.witness for c in diff.changes for r in c.regions]
    regions, tally = Regions(diff), Tally(diff)
    turn = 0
    while tally.points < points:
        near = witnesses[turn // 2 % len(witnesses)] if witnesses and turn % 2 == 0 else None
        again = turn // 2 < len(witnesses)  # each example itself is asked about, too
        turn += 1
        base = draw.choice(presets) if near is None else near.environment
        environment = base if near is not None and again else pool.environment(base)
        fields = None if near is None else near.request.to_dict()
        requests = [pool.request(fields) for _ in range(min(batch, points - tally.points))]
        if near is not None and fields is not None:
            requests[0] = Request(fields, vocabulary=old.vocabulary)
        after = [r.within(new.vocabulary) for r in requests]
        sides = Sides(Asked(old, environment), Asked(new, environment))
        texts = [k % every == 0 for k in range(len(requests))]
        engines = [sides.changes(a, b, texts=t) for a, b, t in zip(requests, after, texts)]
        tally.add(requests, environment, engines, regions.of(requests, environment), texts)
    return tally


def main() -> int:
    """Every edit, at length. The exit code says whether the engines and the analysis differ anywhere."""
    from tempfile import TemporaryDirectory

    from selector.analysis.diff import compare

    from .edits import EDITS, applied

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1000, help="requests for each machine")
    parser.add_argument("--every", type=int, default=20, help="reasons and warnings of one in so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--edit", choices=list(EDITS), action="append")
    arguments = parser.parse_args()
    old = Catalog.load("vllm")
    wrong = 0
    for name in arguments.edit or EDITS:
        with TemporaryDirectory() as folder:
            new = applied(name, Path(folder))
            _ = old.program, new.program
            start = time.process_time()
            diff = compare(old, new)
            seconds = time.process_time() - start
            tally = compared(
                old,
                new,
                diff,
                arguments.points,
                seed=arguments.seed,
                batch=arguments.batch,
                every=arguments.every,
            )
        wrong += len(tally.wrong)
        regions = sum(map(len, tally.hit))
        print(
            f"{name}: {len(diff.changes)} changes, {regions} regions in {seconds:.1f} s of CPU; {tally.points:,} points, "
            f"{tally.changed:,} changed, {tally.missed} regions not hit, {len(tally.wrong)} points where they differ",
            flush=True,
        )
        for key, request, environment, which in tally.wrong[:5]:
            print(f"  {which}: {key}: {request} on {environment.to_dict()}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
