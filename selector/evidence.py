"""Every reason of every candidate, made once for each value that gives it.

A declared limit refuses a value whatever else is asked, so its reason is kept by axis and value; a rule's reason depends on
the values of the axes it names and is kept by those. An explanation then mostly collects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from selector.nodes import evaluate
from selector.reasons import Reason, involved_axes, limit_reasons, rule_reason

if TYPE_CHECKING:
    from selector.nodes import Node
    from selector.program import Program, Trace

__all__ = ["Evidence"]

#: Values of one axis, and combinations of values for all rules, that are kept.
KEPT, COMBINATIONS = 256, 4096

#: By candidate (position), its reasons, in order.
Told = dict[int, tuple[Reason, ...]]


class Evidence:
    """The reasons of one program."""

    __slots__ = ("_declared", "_picks", "_rules", "_texts", "clauses", "names", "program")

    def __init__(self, program: Program) -> None:
        self.program = program
        #: The candidates' names as JSON.
        self.names = [json.dumps(c.id, ensure_ascii=False) for c in program.candidates]
        self._declared: list[dict[Any, Told]] = [{} for _ in program.vocabulary.axes]
        self._texts: list[dict[Any, dict[int, str]]] = [{} for _ in program.vocabulary.axes]
        self._rules: dict[tuple[Any, ...], tuple[Reason, str]] = {}
        #: By (candidate, place among its rules), what takes the values that the rule is about, and whom it asks about.
        self._picks: dict[tuple[int, int], tuple[Callable[[Sequence[Any]], Any], tuple[str, ...]]] = {}
        found: dict[tuple[Node, bool], list[tuple[int, int]]] = {}
        for i, rules in enumerate(program.rules):
            for k, (rule, node) in enumerate(rules):
                if rule.kind != "warn" or rule.strict:
                    found.setdefault((node, rule.kind == "warn"), []).append((i, k))
        #: Refusing trees, whether they count under strict selection only, and the rules that they stand for.
        self.clauses = [(node, strict, tuple(where)) for (node, strict), where in found.items()]

    def declared(self, axis: int, value: Any) -> Told:
        """Who refuses a value of an axis by its declaration, and why."""
        memo = self._declared[axis]
        found = memo.get(value)
        if found is None:
            if len(memo) >= KEPT:
                memo.clear()
            program = self.program
            found = {}
            for atom, mask in program.checks[axis]:
                if atom.true_for(value):
                    for i in range(mask.bit_length()):
                        if mask >> i & 1:
                            found[i] = limit_reasons(program, i, program.vocabulary.axes[axis], value)
            memo[value] = found
        return found

    def applying(self, trace: Trace, *, strict: bool) -> list[tuple[int, int]]:
        """The rules that refuse, as (candidate, place among its rules), in order."""
        atoms = trace.atoms
        found: list[tuple[int, int]] = []
        for node, only_strict, where in self.clauses:
            if (strict or not only_strict) and evaluate(node, atoms):
                found += where
        found.sort()
        return found

    def of(self, i: int, trace: Trace, *, strict: bool) -> tuple[Reason, ...]:
        """Every reason of one candidate; empty if it accepts."""
        return self._of(i, trace.values, trace.atoms, strict)

    def _of(self, i: int, values: Sequence[Any], atoms: int, strict: bool) -> tuple[Reason, ...]:
        found: list[Reason] = []
        for axis, value in enumerate(values):
            found += self.declared(axis, value).get(i, ())
        for k, (rule, node) in enumerate(self.program.rules[i]):
            if (rule.kind != "warn" or (strict and rule.strict)) and evaluate(node, atoms):
                found.append(self._rule(i, k, values, atoms, strict)[0])
        return tuple(found)

    def everyone(self, trace: Trace, *, strict: bool) -> dict[int, list[Reason]]:
        """The reasons of all candidates that have some."""
        found: dict[int, list[Reason]] = {}
        for axis, value in enumerate(trace.values):
            for i, reasons in self.declared(axis, value).items():
                if i in found:
                    found[i] += reasons
                else:
                    found[i] = [*reasons]
        for i, k in self.applying(trace, strict=strict):
            found.setdefault(i, []).append(self._rule(i, k, trace.values, trace.atoms, strict)[0])
        return found

    def declared_texts(self, axis: int, value: Any) -> dict[int, str]:
        """Who refuses a value of an axis by its declaration, and the reasons as JSON: axis, code, message and place."""
        memo = self._texts[axis]
        found = memo.get(value)
        if found is None:
            if len(memo) >= KEPT:
                memo.clear()
            told = self.declared(axis, value)
            found = memo[value] = {i: ", ".join(map(as_json, reasons)) for i, reasons in told.items()}
        return found

    def written(self, i: int, k: int, values: Sequence[Any], atoms: int, *, strict: bool) -> str:
        """The reason of one rule that applies, as JSON."""
        return self._rule(i, k, values, atoms, strict)[1]

    def _rule(self, i: int, k: int, values: Sequence[Any], atoms: int, strict: bool) -> tuple[Reason, str]:
        """The reason of one rule, and its JSON."""
        rule = self.program.rules[i][k].rule
        picked = self._picks.get((i, k))
        if picked is None:
            axes = [a.index for a in involved_axes(rule)]
            picked = self._picks[i, k] = (itemgetter(*axes) if axes else _nothing, rule.accepts())
        pick, names = picked
        inner = self._refusals(names, values, atoms, strict) if names else ""
        key = (i, k, pick(values), inner)
        found = self._rules.get(key)
        if found is None:
            if len(self._rules) >= COMBINATIONS:
                self._rules.clear()
            reason = rule_reason(self.program.candidates[i], rule, values, inner)
            found = self._rules[key] = (reason, as_json(reason))
        return found

    def _refusals(self, names: Sequence[str], values: Sequence[Any], atoms: int, strict: bool) -> str:
        """Why those refuse that a rule asks about, each with its first reason; empty where all accept.

        One that adjusts requests is judged on another request than this, so nothing is said of it.
        """
        program, said = self.program, []
        for name in names:
            j = program.position.get(name)
            if j is not None and not program.adjust[j] and atoms & program.accept_bit(j, False):
                reasons = self._of(j, values, atoms, strict)
                if reasons:
                    more = f" and {len(reasons) - 1} more" if len(reasons) > 1 else ""
                    said.append(f"{name} refuses: {reasons[0].message}{more}")
        return "; ".join(said)


def _nothing(values: Sequence[Any]) -> None:
    """What a rule without axes reads."""


def as_json(reason: Reason) -> str:
    """A reason in the short form."""
    place = None if reason.at is None else str(reason.at)
    short = {"axis": reason.axis, "code": reason.code, "message": reason.message, "at": place}
    return json.dumps(short, ensure_ascii=False)
