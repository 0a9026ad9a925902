"""Boolean circuits: and-gates over variables, with negation for free.

A literal is a whole number: a gate's number, or its negative for the negation. Equal gates are one gate, so formulas that
are built alike are the same literal, and a comparison of two numbers often answers a question before any solver is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["FALSE", "TRUE", "Circuit"]

TRUE = 1
FALSE = -1


class Circuit:
    """A growing set of gates. Gate 1 is the constant true; the others are variables or and-gates of earlier literals."""

    def __init__(self) -> None:
        self.gates: list[tuple[int, ...] | None] = [None, ()]
        self._known: dict[tuple[int, ...], int] = {}

    def var(self) -> int:
        """A new variable."""
        self.gates.append(None)
        return len(self.gates) - 1

    def conj(self, literals: Iterable[int]) -> int:
        """The conjunction of literals."""
        kept: set[int] = set()
        for literal in literals:
            if literal == FALSE or -literal in kept:
                return FALSE
            if literal != TRUE:
                kept.add(literal)
        if len(kept) <= 1:
            return kept.pop() if kept else TRUE
        key = tuple(sorted(kept))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.gates)
            self.gates.append(key)
        return found

    def disj(self, literals: Iterable[int]) -> int:
        """The disjunction of literals."""
        return -self.conj(-literal for literal in literals)

    def both(self, a: int, b: int) -> int:
        """``a and b``."""
        return self.conj((a, b))

    def either(self, a: int, b: int) -> int:
        """``a or b``."""
        return -self.conj((-a, -b))

    def choose(self, condition: int, then: int, otherwise: int) -> int:
        """``then`` where the condition holds, else ``otherwise``."""
        if condition == TRUE or then == otherwise:
            return then
        if condition == FALSE:
            return otherwise
        return self.either(self.both(condition, then), self.both(-condition, otherwise))

    def differ(self, a: int, b: int) -> int:
        """Exactly one of two literals."""
        if a == b:
            return FALSE
        if a == -b:
            return TRUE
        return self.either(self.both(a, -b), self.both(-a, b))

    def cone(self, literals: Iterable[int]) -> list[int]:
        """Every gate that literals depend on, each after those it depends on itself."""
        seen: set[int] = set()
        pending = [abs(literal) for literal in literals]
        while pending:
            gate = pending.pop()
            if gate in seen:
                continue
            seen.add(gate)
            inputs = self.gates[gate]
            if inputs:
                pending.extend(abs(i) for i in inputs if abs(i) not in seen)
        return sorted(seen)

    def evaluate(self, literals: Iterable[int], inputs: Mapping[int, int], everywhere: int = 1) -> list[int]:
        """The values of literals for many assignments at once.

        Each value is a bit set over the assignments; ``everywhere`` has the bits of all of them, ``inputs`` gives the
        variables' values (one that is missing is false).
        """
        wanted = list(literals)
        values: dict[int, int] = {}
        for gate in self.cone(wanted):
            parts = self.gates[gate]
            if parts is None:
                values[gate] = inputs.get(gate, 0)
                continue
            value = everywhere
            for part in parts:
                value &= values[part] if part > 0 else everywhere & ~values[-part]
                if not value:
                    break
            values[gate] = value
        return [values[w] if w > 0 else everywhere & ~values[-w] for w in wanted]
