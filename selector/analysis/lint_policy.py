"""Lint of what stands beside the candidates: policy rules and their orders, pairs of phases, derived axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from selector import derive
from selector.analysis.circuit import FALSE, TRUE
from selector.analysis.findings import NONE, Finding
from selector.analysis.observe import observe
from selector.constraints import _listed
from selector.errors import Mark

if TYPE_CHECKING:
    from selector.analysis.lint import Linter
    from selector.analysis.translate import Order
    from selector.program import PolicyNode

__all__ = ["axes", "pairs", "policy"]


def policy(linter: Linter) -> Iterator[Finding]:
    """Policy rules that nothing reaches, and places in their orders that can never matter."""
    program = linter.program
    before: PolicyNode | None = None
    for order in linter.translation.orders:
        if order.position < 0:
            continue
        node = program.policy[order.position]
        rule = node.rule
        if not linter.possible(order.active):
            yield Finding(
                "policy-unreachable",
                rule.at,
                f"policy rule “{rule.name}” is never reached",
                _takers(linter, order),
            )
            continue
        yield from _places(linter, order, node)
        if before is not None and rule.order and _plain(before) == _plain(node):
            yield Finding(
                "same-order",
                rule.at,
                f"policy rule “{rule.name}” has the same order as the one before it, “{before.rule.name}”",
                f"{NONE}: the two could be one",
            )
        before = node


def _plain(node: PolicyNode) -> tuple[object, ...]:
    rule = node.rule
    return (tuple((e.name, e.when, e.unless) for e in rule.order), rule.closed)


def _takers(linter: Linter, order: Order) -> str:
    """Which earlier rules leave an unreachable one nothing."""
    program, view = linter.program, linter.translation.view
    here = view.truth(program.policy[order.position].node)
    if not linter.possible(here):
        return f"{NONE}: its condition cannot hold"
    earlier = {-view.truth(p.node): p.rule.name for p in program.policy[: order.position]}
    core = linter.solver.smallest_core(list(earlier), keep=[here])
    return f"{NONE}: {_listed([f'“{earlier[x]}”' for x in core], 'and')} take all that it could"


def _places(linter: Linter, order: Order, node: PolicyNode) -> Iterator[Finding]:
    circuit, name = linter.space.circuit, node.rule.name
    free = order.active
    sure: set[int] = set()
    for j, entry in enumerate(node.rule.order):
        here = [(when, i) for when, i, at in order.places if at == j]
        takes = {i: circuit.both(when, linter.translation.accepted(i)) for when, i in here}
        when = here[0][0] if here else FALSE
        if here and {i for _, i in here} <= sure:
            yield Finding(
                "order-repeated",
                entry.at,
                f"{entry.name} stands in the order of “{name}” already",
                f"{NONE}: an earlier place has it",
            )
        elif not linter.possible(order.active, when):
            yield Finding(
                "order-impossible",
                entry.at,
                f"{entry.name}: its condition cannot hold where “{name}” does",
                NONE,
            )
        elif not any(linter.possible(order.active, x) for x in takes.values()):
            yield Finding(
                "order-impossible", entry.at, f"{entry.name} is never accepted where “{name}” holds", NONE
            )
        elif not any(linter.possible(free, x) for x in takes.values()):
            yield Finding(
                "order-never-reached",
                entry.at,
                f"{entry.name} is never selected from this place of “{name}”: others before it accept whatever it accepts",
                NONE,
            )
        if when == TRUE:
            sure.update(takes)
        free = circuit.conj([free, *(-x for x in takes.values())])


def pairs(linter: Linter) -> Iterator[Finding]:
    """Pairs of phases whose condition never holds."""
    for pack in linter.catalog.packs:
        for pair in pack.pairs:
            if pair.when is not None and not linter.possible(linter.translation.condition(pair.when)):
                yield Finding("pair-never-applies", pair.at, "this pair of phases never applies", NONE)


def axes(linter: Linter) -> Iterator[Finding]:
    """A pack's own axes: those that nothing reads, and entries of derived ones that nothing reaches."""
    program, circuit = linter.program, linter.space.circuit
    names = {p.name for p in linter.catalog.packs}
    read = _read(linter)
    for step in program.steps:
        axis = step.axis
        if axis.pack not in names:
            continue
        at = axis.at or Mark("", 1, 1)
        if axis.index not in read:
            yield Finding(
                "axis-unread",
                at,
                f"nothing reads axis {axis.name}",
                f"{NONE}: no rule, limit, order or derived axis names it",
            )
        if isinstance(step.expr, derive.Case):
            rest = TRUE
            for k, entry in enumerate(step.expr.entries):
                definite = linter.translation.view.truth(entry.definite, among_axes=True)
                if not linter.possible(rest, definite):
                    yield Finding(
                        "case-never-taken", at, f"entry {k + 1} of axis {axis.name} is never taken", NONE
                    )
                rest = circuit.both(rest, -definite)


def _read(linter: Linter) -> set[int]:
    """Axes that limits, rules, orders, adjustments or other axes speak of."""
    program = linter.program
    found = {d for deps in program.vocabulary.depends for d in deps}
    found |= {i for i, seen in enumerate(observe(program)) if seen.constraints or seen.keys}
    for candidate in program.candidates:
        for name in candidate.declared:
            axis = program.vocabulary.find(name)
            if axis is not None:
                found.add(axis.index)
    return found
