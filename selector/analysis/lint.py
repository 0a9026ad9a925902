"""Lint by proof: candidates, rules and orders that can never matter, each shown to be so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from selector.analysis.circuit import FALSE
from selector.analysis.findings import NONE, Finding
from selector.analysis.smallest import machines, near
from selector.analysis.solver import Solver
from selector.analysis.space import Space
from selector.analysis.theory import Undecided
from selector.analysis.translate import Translation
from selector.constraints import _listed

if TYPE_CHECKING:
    from selector.analysis.smallest import Machine, Witness
    from selector.analysis.translate import Refusal, View
    from selector.catalog import Catalog
    from selector.errors import Mark
    from selector.manifest import Rule

__all__ = ["Linter", "lint"]


class Linter:
    """One catalog under the analysis."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog, self.program = catalog, catalog.program
        pairs = [p.when for pack in catalog.packs for p in pack.pairs if p.when is not None]
        self.space = Space([catalog.program], [pairs])
        self.translation = Translation(self.space, catalog.program)
        #: A fact of a machine may be unknown, but nobody leaves one open: it would satisfy every limit.
        self.solver = Solver(self.space, _machines(self.space))
        self.ids = [c.id for c in catalog.candidates]
        self._views: dict[int, View] = {}
        self._refusals: dict[int, list[Refusal]] = {}
        self._presets: list[Machine] | None = None

    def possible(self, *literals: int) -> bool:
        """Whether some request on some machine has all these literals."""
        return FALSE not in literals and self.solver.check(literals)

    def view(self, i: int) -> View:
        """What a candidate is judged on: the request after its adjustments."""
        if i not in self._views:
            self._views[i] = (
                self.translation.view.adjusted(i)[0] if self.program.adjust[i] else self.translation.view
            )
        return self._views[i]

    def refusals(self, i: int) -> list[Refusal]:
        """Every limit and rule of a candidate that can refuse."""
        if i not in self._refusals:
            self._refusals[i] = self.view(i).refusals(i)
        return self._refusals[i]

    def refusal_text(self, i: int, refusal: Refusal) -> str:
        """A limit or rule, with its place."""
        if refusal.kind == "declared":
            axis = self.program.vocabulary.axes[refusal.what]
            declared = self.catalog.candidates[i].declared.get(axis.name)
            if declared is None:
                return f"{axis.name} (not declared)"
            return f"{axis.name} {declared.constraint.describe()} ({place(declared.at)})"
        return rule_text(self.catalog.candidates[i].rules[refusal.what])

    # -- candidates ---------------------------------------------------------------------------------------------------

    def candidates(self) -> Iterator[Finding]:
        """Candidates that never accept, or are never selected."""
        for i, candidate in enumerate(self.catalog.candidates):
            accepted = self.translation.accepted(i)
            if not self.possible(accepted):
                meant = next((r for r in candidate.rules if _unconditional(r)), None)
                if meant is not None:
                    yield Finding(
                        "never-by-rule",
                        candidate.at,
                        f"{candidate.id} is refused by {rule_text(meant)}",
                        f"{NONE}: the rule has no condition",
                    )
                    continue
                yield Finding(
                    "never-accepts", candidate.at, f"{candidate.id} can never be accepted", self._conflict(i)
                )
                continue
            if candidate.abstract or self.possible(self.translation.wins[i]):
                continue
            ranked = self.translation.ranked(i)
            if not self.possible(ranked):
                yield Finding(
                    "only-by-name",
                    candidate.at,
                    f"{candidate.id} is selected only where it is asked for by name",
                    f"{NONE}: no order names it where it accepts",
                )
                continue
            others = {-w: k for k, w in enumerate(self.translation.wins) if k != i and w != FALSE}
            core = self.solver.smallest_core(list(others), keep=[ranked])
            names = _listed([self.ids[others[x]] for x in core], "and")
            shadowed, command = self._example(ranked)
            yield Finding(
                "never-selected",
                candidate.at,
                f"{candidate.id} is never selected: where it accepts, {names} {_verb(core, 'comes', 'come')} before it",
                NONE,
                shadowed,
                command,
            )

    def _example(self, literal: int) -> tuple[Witness, str | None]:
        """A place where a literal holds, and the command that explains it."""
        if self._presets is None:
            self._presets = machines(self.space, self.catalog)
        found = near(self.solver, [literal], self.catalog, self._presets)
        return found, found.command(self.catalog.name)

    def _conflict(self, i: int) -> str:
        """Which limits and rules of a candidate exclude each other."""
        refusals = {-r.literal: r for r in self.refusals(i)}
        if self.solver.check(refusals):
            return f"{NONE}: what would run in its place refuses"
        core = self.solver.smallest_core(list(refusals))
        return (
            f"{NONE}: {_listed([self.refusal_text(i, refusals[x]) for x in core], 'and')} exclude each other"
        )

    # -- rules --------------------------------------------------------------------------------------------------------

    def rules(self) -> Iterator[Finding]:
        """Rules that never apply, repeat what is said elsewhere, or contradict it. Inherited rules are judged as one."""
        places: dict[Mark, list[tuple[int, int]]] = {}
        for i, candidate in enumerate(self.catalog.candidates):
            for k, rule in enumerate(candidate.rules):
                places.setdefault(rule.at, []).append((i, k))
        for at, users in places.items():
            rule = self.catalog.candidates[users[0][0]].rules[users[0][1]]
            yield from self._rule(at, rule, users)

    def _rule(self, at: Mark, rule: Rule, users: list[tuple[int, int]]) -> Iterator[Finding]:
        name = rule_text(rule, at=False)
        literal = {(i, k): self.view(i).truth(self.program.rules[i][k].node) for i, k in users}
        alive = [user for user in users if self.possible(literal[user])]
        if not alive:
            yield Finding("rule-never-applies", at, f"{name} never applies", NONE)
            return
        if rule.kind == "warn":
            if not any(self.possible(literal[u], self.translation.accepted(u[0])) for u in alive):
                yield Finding("never-shown", at, f"{name}: where it applies, the candidate is refused", NONE)
            return
        if rule.require is not None:
            yield from self._contradiction(at, rule, users)
        yield from self._repeated(at, rule, alive, literal)

    def _contradiction(self, at: Mark, rule: Rule, users: list[tuple[int, int]]) -> Iterator[Finding]:
        """A `require` that no request which the declared limits let through can meet."""
        for i, _ in users:
            view = self.view(i)
            applies = self.space.circuit.conj(
                [
                    self._condition(view, rule.when, True),
                    -self._condition(view, rule.unless, True) if rule.unless is not None else 1,
                    -self._condition(view, rule.until, True) if rule.until is not None else 1,
                ]
            )
            met = self._condition(view, rule.require, True)
            declared = [-r.literal for r in self.refusals(i) if r.kind == "declared"]
            if not self.possible(applies, *declared) or self.possible(applies, met, *declared):
                return
        i = users[0][0]
        refusals = {-r.literal: r for r in self.refusals(i) if r.kind == "declared"}
        core = self.solver.smallest_core(list(refusals), keep=[applies, met])
        names = _listed([self.refusal_text(i, refusals[x]) for x in core], "and")
        yield Finding(
            "contradiction",
            at,
            f"{rule_text(rule, at=False)} requires what is declared impossible: {names or 'its own condition'}",
            f"{NONE}: no request that the declared limits take meets the requirement",
        )

    def _condition(self, view: View, condition: object, positive: bool) -> int:
        from selector.nodes import AtomTable

        table = AtomTable()
        return view.truth(table.node(condition, positive=positive, strict=False), table)  # type: ignore[arg-type]

    def _repeated(
        self, at: Mark, rule: Rule, users: list[tuple[int, int]], literal: dict[tuple[int, int], int]
    ) -> Iterator[Finding]:
        texts: dict[str, None] = {}
        twins: list[set[Mark]] = []
        declared_only = True
        for i, k in users:
            here = literal[i, k]
            others = [r for r in self.refusals(i) if (r.kind, r.what) != (rule.kind, k)]
            if self.possible(here, *(-r.literal for r in others)):
                return
            by_literal = {-r.literal: r for r in reversed(others)}
            declared = [x for x, r in by_literal.items() if r.kind == "declared"]
            if self.possible(here, *declared):
                declared_only = False
                declared += [x for x in by_literal if x not in declared]
            core = [by_literal[x] for x in self.solver.smallest_core(declared, keep=[here])]
            texts.update(dict.fromkeys(self.refusal_text(i, r) for r in core))
            twins.append({self._rule_at(i, r) for r in core if self._same(here, core, r)})
        name = rule_text(rule, at=False)
        common = set.intersection(*twins)
        if common:
            yield Finding(
                "same-effect",
                at,
                f"{name} applies to the same requests as the rule at {place(min(common))}",
                NONE,
            )
            return
        code = "rule-repeats-limit" if declared_only else "rule-repeats-rule"
        said = _listed(list(texts), "and")
        yield Finding(code, at, f"{name} refuses nothing that is not refused already: {said}", NONE)

    def _same(self, here: int, core: list[Refusal], other: Refusal) -> bool:
        """Whether a rule that alone makes another one needless applies to the same requests."""
        return len(core) == 1 and other.kind != "declared" and not self.possible(other.literal, -here)

    def _rule_at(self, i: int, refusal: Refusal) -> Mark:
        return self.catalog.candidates[i].rules[refusal.what].at

    def adjustments(self) -> Iterator[Finding]:
        """Adjustments that never apply."""
        places: dict[Mark, list[int]] = {}
        for i, entries in enumerate(self.program.adjust):
            if not entries:
                continue
            for entry, literal in zip(entries, self.translation.view.adjusted(i)[2]):
                places.setdefault(entry.adjustment.at, []).append(literal)
        for at, literals in places.items():
            if not any(self.possible(x) for x in literals):
                yield Finding("adjustment-never-applies", at, "this adjustment never applies", NONE)


def _machines(space: Space) -> list[int]:
    return [
        -literal
        for given in space.given
        if given.axis.of == "environment"
        for c, literal in zip(given.classes, given.literals)
        if c.kind == "null"
    ]


def _unconditional(rule: Rule) -> bool:
    parts = (rule.when, rule.unless, rule.require, rule.until)
    return rule.kind != "warn" and all(p is None for p in parts)


def place(at: Mark) -> str:
    """File and line."""
    return f"{at.file}:{at.line}"


def rule_text(rule: Rule, *, at: bool = True) -> str:
    """A rule by its name or its words."""
    text = rule.name or (rule.text if len(rule.text) <= 60 else rule.text[:57] + "...")
    return f"rule “{text}”" + (f" ({place(rule.at)})" if at else "")


def _verb(items: Sequence[object], one: str, many: str) -> str:
    return one if len(items) == 1 else many


def lint(catalog: Catalog) -> list[Finding]:
    """Everything there is to find in a catalog, in file order."""
    from selector.analysis.lint_policy import axes, pairs, policy

    linter = Linter(catalog)
    found: dict[Finding, None] = {}
    parts: list[Iterable[Finding]] = [
        linter.candidates(),
        linter.rules(),
        linter.adjustments(),
        policy(linter),
        pairs(linter),
        axes(linter),
    ]
    for part in parts:
        try:
            found.update(dict.fromkeys(part))
        except Undecided as error:
            found[Finding("undecided", catalog.packs[0].at, str(error), "the other findings stand")] = None
    return sorted(found, key=lambda f: (f.at, f.code))
