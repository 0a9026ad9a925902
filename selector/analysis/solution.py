"""One solution that z3 found: truth values, classes and numbers, fetched when they are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis.circuit import TRUE
from selector.analysis.integers import Piece
from selector.analysis.numbers import Key

if TYPE_CHECKING:
    from selector.analysis.encoder import Encoder
    from selector.analysis.space import Given

__all__ = ["Point", "Solution"]


class Point(NamedTuple):
    """One place of the space: the position of each axis's class, and numbers where arithmetic needs them."""

    chosen: tuple[int, ...]
    numbers: Mapping[Key, int]


class Solution:
    """What z3 chose. It is only to be read until z3 is asked again; ``numbers`` are arithmetic's, set by the solver."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.space = encoder, encoder.space
        self.numbers: dict[Key, int] = {}
        self._values: dict[int, bool] = {TRUE: True}
        self._pieces: dict[Key, Piece | bool | None] = {}
        self._model: Any = None

    def true(self, literal: int) -> bool:
        """A literal's truth. Variables that z3 does not care about are false."""
        gate = abs(literal)
        known = self._values.get(gate)
        if known is None:
            known = self._value(gate)
        return known == (literal > 0)

    def _value(self, root: int) -> bool:
        """The value of a gate; of its inputs no more are looked at than settle it."""
        gates, values = self.space.circuit.gates, self._values
        stack = [(root, iter(gates[root] or ()))]
        while stack:
            gate, rest = stack[-1]
            if gates[gate] is None:
                values[gate] = self._variable(gate)
                stack.pop()
                continue
            for part in rest:
                inner = part if part > 0 else -part
                known = values.get(inner)
                if known is None:
                    # looked at again when it is known
                    stack[-1] = (gate, itertools.chain((part,), rest))
                    stack.append((inner, iter(gates[inner] or ())))
                    break
                if known != (part > 0):
                    values[gate] = False
                    stack.pop()
                    break
            else:
                values[gate] = True
                stack.pop()
        return values[root]

    def _variable(self, gate: int) -> bool:
        encoder = self.encoder
        core, context = encoder.z3.z3core, encoder.solver.ctx.ref()
        if self._model is None:
            self._model = encoder.solver.model()
        value = core.Z3_model_get_const_interp(context, self._model.model, encoder.declared(gate))
        return bool(value) and core.Z3_get_bool_value(context, value) == 1

    def class_of(self, given: Given) -> int:
        """The position of an axis's class."""
        literals = given.literals
        if len(literals) == 2:
            return 0 if self.true(literals[0]) else 1
        return next((k for k, literal in enumerate(literals) if self.true(literal)), 0)

    def piece(self, key: Key) -> Piece | bool | None:
        """The class that a number lies in (true: any pair that nothing names); None if there is no number here."""
        if key not in self._pieces:
            self._pieces[key] = self._piece(key)
        return self._pieces[key]

    def _piece(self, key: Key) -> Piece | bool | None:
        given = self.space.at.get((key[0], None))
        if given is None:
            return None
        found = given.classes[self.class_of(given)]
        if found.kind != "value":
            return None
        if key[1] >= 0:
            return None if found.members else True
        piece: Piece = found.members[0]
        return piece

    def grounds(self, roots: Iterable[int]) -> set[int]:
        """Variables that the truth of some literals rests on; of several grounds one that is not about numbers."""
        gates, reads = self.space.circuit.gates, self.encoder.reads
        found: set[int] = set()
        seen: set[int] = {TRUE}
        pending = [abs(x) for x in roots]
        while pending:
            gate = pending.pop()
            if gate in seen:
                continue
            seen.add(gate)
            parts = gates[gate]
            if parts is None:
                found.add(gate)
            elif self.true(gate):
                pending += [abs(p) for p in parts]
            else:
                inputs = sorted(parts, key=lambda p: reads[abs(p)].bit_count())
                pending.append(next(abs(p) for p in inputs if not self.true(p)))
        return found

    def point(self) -> Point:
        """The place, with a number for every numeric axis."""
        chosen = tuple(self.class_of(given) for given in self.space.given)
        numbers = dict(self.numbers)
        for given, k in zip(self.space.given, chosen):
            found = given.classes[k]
            if found.kind != "value":
                continue
            if given.numeric:
                numbers.setdefault((given.name, -1), found.value)
            elif given.axis.type == "pair" and not found.members:
                for e in (0, 1):
                    numbers.setdefault((given.name, e), found.value[e])
        return Point(chosen, numbers)
