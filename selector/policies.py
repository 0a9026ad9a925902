"""One policy of several packs: each pack's first rule that holds gives the order of what it lists, pack by pack.

Rules of several packs are combined when a catalog is made, so that deciding knows one list of rules only: (a1, b1), (a1, b2),
..., where a pack whose rules may all fail has an empty last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from selector.conditions import All, Condition
from selector.errors import Fault
from selector.pack import Pack, PolicyRule

__all__ = ["COMBINATIONS", "combined", "too_many"]

#: Combinations of rules that one catalog may have. All shipped packs together have 4,608.
COMBINATIONS = 10_000


def combined(packs: Sequence[Pack]) -> list[PolicyRule]:
    """The rules of a catalog, of which the first that holds counts. Those of one pack are its own."""
    if len(packs) == 1:
        return list(packs[0].policy)
    rows = [_rules(pack) for pack in packs]
    return [rule for rule in map(_together, product(*rows)) if rule.name]


def too_many(packs: Sequence[Pack]) -> list[Fault]:
    """The mistake of naming packs whose rules have too many combinations."""
    if len(packs) == 1 or prod(len(_rules(pack)) for pack in packs) <= COMBINATIONS:
        return []
    names = ", ".join(p.name for p in packs)
    message = f"the policies of {names} have more than {COMBINATIONS:,} combinations of rules"
    return [Fault(packs[-1].at, "", message, "name fewer packs at a time")]


def _rules(pack: Pack) -> list[PolicyRule]:
    """A pack's rules up to one that always holds, which may be an empty one for what the pack leaves open."""
    found: list[PolicyRule] = []
    for rule in pack.policy:
        found.append(rule)
        if rule.when is None:
            return found
    closed = (pack.name,) if pack.unlisted == "excluded" else ()
    return [*found, PolicyRule("", None, (), pack.unlisted, None, None, pack.at, pack.name, closed)]


def _together(rules: tuple[PolicyRule, ...]) -> PolicyRule:
    """One rule of several packs; without a name where no pack has an order."""
    speaking = [r for r in rules if r.name]
    whens: list[Condition] = [r.when for r in rules if r.when is not None]
    first = (speaking or rules)[0]
    return PolicyRule(
        "; ".join(r.name for r in speaking),
        None if not whens else whens[0] if len(whens) == 1 else All(tuple(whens)),
        tuple(entry for r in rules for entry in r.order),
        first.unlisted,
        "; ".join(r.note for r in speaking if r.note) or None,
        first.source,
        first.at,
        first.pack,
        tuple(name for r in rules for name in r.closed),
    )
