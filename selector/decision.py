"""The outcome of a decision, and the orders of the policy rules that outcomes are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from selector.closures import Test, compile_node
from selector.nodes import TRUE, Node

if TYPE_CHECKING:
    from selector.reasons import Reason

__all__ = ["Decision", "Order", "members"]

#: Decisions, and orders, remembered for one policy rule.
KEPT = 4096

_NOTHING: Mapping[int, tuple[Reason, ...]] = {}


class Decision:
    """The outcome for requests that the same candidates accept under the same order. Orders are made when they are read."""

    __slots__ = (
        "_excluded",
        "_ranked",
        "accepted",
        "best",
        "exclusive",
        "named",
        "order",
        "policy",
        "written",
    )

    def __init__(self, accepted: int, order: tuple[int, ...], exclusive: int, policy: int) -> None:
        #: Masks: candidates that accept; candidates that count only where the order lists them.
        self.accepted, self.exclusive = accepted, exclusive
        self.order, self.policy = order, policy
        self._ranked: tuple[int, ...] | None = None
        self._excluded: tuple[int, ...] | None = None
        #: Head and tail of the short answer, once it was written (see `selector.answers`).
        self.written: tuple[str, str] | None = None
        #: What the short answer says before a refused candidate's reasons, by position, once it was written.
        self.named: tuple[tuple[int, str], ...] | None = None
        #: The winner's position, or -1.
        self.best = -1
        for i in order:
            if accepted >> i & 1:
                self.best = i
                return
        rest = accepted & ~exclusive
        if rest:
            self.best = (rest & -rest).bit_length() - 1

    @property
    def ranked(self) -> tuple[int, ...]:
        """Accepted candidates in order: those of the policy rule's order, then the others in catalog order."""
        if self._ranked is None:
            first = tuple(i for i in self.order if self.accepted >> i & 1)
            self._ranked = (*first, *members(self.accepted & ~_mask(first) & ~self.exclusive))
        return self._ranked

    @property
    def excluded(self) -> tuple[int, ...]:
        """Accepted candidates that only an explicit choice reaches."""
        if self._excluded is None:
            self._excluded = members(self.accepted & ~_mask(self.order) & self.exclusive)
        return self._excluded

    @property
    def listed(self) -> tuple[int, ...]:
        """The ranked candidates before any preference; there is none here."""
        return self.ranked

    @property
    def removed(self) -> Mapping[int, tuple[Reason, ...]]:
        """What preferences removed: nothing."""
        return _NOTHING


def _mask(members: Sequence[int]) -> int:
    found = 0
    for i in members:
        found |= 1 << i
    return found


def members(mask: int) -> tuple[int, ...]:
    """The positions of a mask's bits, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


class Order:
    """A policy rule that can still speak: when, and its order by which of the conditional entries hold."""

    __slots__ = ("always", "conditional", "decisions", "entries", "exclusive", "orders", "position", "test")

    def __init__(
        self, node: Node, position: int, entries: Sequence[tuple[Node, tuple[int, ...]]], exclusive: int
    ) -> None:
        self.test = None if node == TRUE else compile_node(node)
        self.position, self.exclusive = position, exclusive
        self.entries = tuple(entries)
        self.always = 0
        conditional: list[tuple[int, Test]] = []
        for j, (inner, _) in enumerate(self.entries):
            if inner == TRUE:
                self.always |= 1 << j
            else:
                conditional.append((1 << j, compile_node(inner)))
        self.conditional = tuple(conditional)
        self.orders: dict[int, tuple[int, ...]] = {}
        self.decisions: dict[Any, Decision] = {}

    def decision(self, key: Any, chosen: int, accepted: int) -> Decision:
        """A decision that was not met before; ``key`` is what it is remembered under."""
        order = self.orders.get(chosen)
        if order is None:
            if len(self.orders) >= KEPT:
                self.orders.clear()
            members = (m for j, (_, entry) in enumerate(self.entries) if chosen >> j & 1 for m in entry)
            order = self.orders[chosen] = tuple(dict.fromkeys(members))
        if len(self.decisions) >= KEPT:
            self.decisions.clear()
        found = self.decisions[key] = Decision(accepted, order, self.exclusive, self.position)
        return found
