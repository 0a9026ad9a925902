"""The space of requests and environments: value classes of every given axis, one variable a class.

Two values are in one class if nothing in the catalogs tells them apart. An axis that nothing reads has no place here; an
integer that arithmetic reads keeps its number as well, and predicates on such numbers are variables of their own, which the
solver holds against arithmetic (`selector.analysis.theory`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis import classes
from selector.analysis.circuit import FALSE, TRUE, Circuit
from selector.analysis.classes import Class, Classes
from selector.analysis.integers import Piece
from selector.analysis.numbers import Key, NumOp, Term, bounds, value_of, variables
from selector.analysis.observe import Observed, observe
from selector.conditions import Condition

if TYPE_CHECKING:
    from selector.program import Program
    from selector.vocabulary import Axis

__all__ = ["Given", "Predicate", "Space"]


class Predicate(NamedTuple):
    """A test of a term: at least ``number`` (``kind`` is ge), or a multiple of it (multiple)."""

    kind: str
    term: Term
    number: int

    def holds(self, numbers: Mapping[Key, int]) -> bool:
        """Its truth for given numbers."""
        value = value_of(self.term, numbers)
        return value >= self.number if self.kind == "ge" else value % self.number == 0


class Given:
    """One thing that a request or an environment gives: an axis, or one package."""

    __slots__ = (
        "axis",
        "classes",
        "index",
        "literals",
        "name",
        "numeric",
        "package",
        "position",
        "specifiers",
    )

    def __init__(
        self,
        index: int,
        axis: Axis,
        package: str | None,
        found: Classes,
        literals: Sequence[int],
        numeric: bool,
    ) -> None:
        self.index, self.axis, self.package, self.numeric = index, axis, package, numeric
        self.name = axis.name if package is None else package
        self.classes: tuple[Class, ...] = tuple(found.found)
        self.literals, self.position = tuple(literals), found.position
        self.specifiers = found.specifiers

    @property
    def hardware(self) -> bool:
        """Whether it is a fact that nobody changes on a machine."""
        return self.axis.of == "environment" and self.axis.fix == "none" and self.axis.variable is None

    def where(self, kind: str) -> int | None:
        """The position of the class of that kind (null, unknown, absent), if there is one."""
        return next((k for k, c in enumerate(self.classes) if c.kind == kind), None)

    def __repr__(self) -> str:
        return f"Given({self.name}: {len(self.classes)} classes)"


class Space:
    """The value classes that some programs, conditions and single values tell apart.

    ``points`` are values (by axis name, canonical) that get a class of their own, so that "unchanged" can be said of them;
    those of packages are mappings of name to state.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        conditions: Sequence[Iterable[Condition]] = (),
        points: Mapping[str, Iterable[Any]] | None = None,
    ) -> None:
        self.circuit = Circuit()
        self.given: list[Given] = []
        self.at: dict[tuple[str, str | None], Given] = {}
        self.predicates: list[Predicate] = []
        self.predicate_literals: dict[Predicate, int] = {}
        self.singles = {name: tuple(values) for name, values in (points or {}).items()}
        more = [*conditions, *([()] * (len(programs) - len(conditions)))]
        axes: dict[str, list[Axis]] = {}
        observed: dict[str, Observed] = {}
        for program, asked in zip(programs, more):
            for axis, seen in zip(program.vocabulary.axes, observe(program, asked)):
                if axis.derive is not None:
                    continue
                axes.setdefault(axis.name, []).append(axis)
                observed.setdefault(axis.name, Observed()).absorb(seen)
        for name, same in axes.items():
            self._add(same, observed[name], len(programs))

    def _add(self, same: list[Axis], seen: Observed, programs: int) -> None:
        axis = same[0]
        extra = self.singles.get(axis.name, ())
        if axis.type == "packages":
            for name, found in classes.packages(seen, extra).items():
                self._place(axis, name, found, False)
            if seen.constraints:
                self._place(axis, None, classes.whole(same), False)
            return
        of_axis = classes.of_axis(same, seen, extra, everywhere=len(same) == programs)
        if len(of_axis.found) > 1:
            self._place(axis, None, of_axis, axis.type == "integer" and seen.arithmetic)

    def _place(self, axis: Axis, package: str | None, of_axis: Classes, numeric: bool) -> None:
        found = of_axis.found
        if len(found) == 1:
            literals = [TRUE]
        elif len(found) == 2:
            one = self.circuit.var()
            literals = [one, -one]
        else:
            literals = [self.circuit.var() for _ in found]
        given = Given(len(self.given), axis, package, of_axis, literals, numeric)
        self.given.append(given)
        self.at[axis.name, package] = given

    # -- numbers ------------------------------------------------------------------------------------------------------

    def at_least(self, term: Term, number: int) -> int:
        """The literal of ``term >= number``."""
        if isinstance(term, NumOp) and term.op in ("max", "min"):
            parts = [self.at_least(a, number) for a in term.args]
            return self.circuit.disj(parts) if term.op == "max" else self.circuit.conj(parts)
        low, high = bounds(term, self._domain)
        if low is not None and low >= number:
            return TRUE
        if high is not None and high < number:
            return FALSE
        return self._predicate(Predicate("ge", term, number))

    def multiple(self, term: Term, number: int) -> int:
        """The literal of ``number`` dividing ``term``."""
        if isinstance(term, int):
            return TRUE if term % number == 0 else FALSE
        return TRUE if number == 1 else self._predicate(Predicate("multiple", term, number))

    def equals(self, term: Term, number: int) -> int:
        """The literal of ``term == number``."""
        return self.circuit.both(self.at_least(term, number), -self.at_least(term, number + 1))

    def _domain(self, key: Key) -> tuple[int | None, int | None]:
        axis = self.number_axis(key).axis
        return axis.min, axis.max

    def _predicate(self, predicate: Predicate) -> int:
        found = self.predicate_literals.get(predicate)
        if found is None:
            found = self.predicate_literals[predicate] = self.circuit.var()
            self.predicates.append(predicate)
        return found

    def number_axis(self, key: Key) -> Given:
        """The axis that a number comes from."""
        return self.at[key[0], None]

    def piece_literal(self, key: Key, test: str, number: int) -> int:
        """Whether a numeric axis lies in the pieces that a bound or modulus of its class (see `theory`) allows."""
        given = self.number_axis(key)

        def within(piece: Piece) -> bool:
            if test == "low":
                return piece.low is not None and piece.low >= number
            if test == "high":
                return piece.high is not None and piece.high <= number
            return number in (piece.by if test == "by" else piece.no)

        return self.circuit.disj(
            literal
            for c, literal in zip(given.classes, given.literals)
            if c.members and all(isinstance(m, Piece) and within(m) for m in c.members)
        )

    def unnamed(self, name: str) -> int:
        """Whether a pair is one that nothing names."""
        given = self.at[name, None]
        return next(x for x, c in zip(given.literals, given.classes) if c.kind == "value" and not c.members)

    # -- consistency --------------------------------------------------------------------------------------------------

    def evaluate(
        self, literals: Iterable[int], chosen: Sequence[int], numbers: Mapping[Key, int]
    ) -> list[bool]:
        """The truth of literals where each given axis lies in the class of that position, with these numbers."""
        inputs: dict[int, int] = {}
        for given, position in zip(self.given, chosen):
            for k, literal in enumerate(given.literals):
                if abs(literal) != TRUE:
                    inputs[abs(literal)] = int((k == position) == (literal > 0))
        for predicate, literal in self.predicate_literals.items():
            if variables(predicate.term) <= numbers.keys():
                inputs[literal] = int(predicate.holds(numbers))
        return [bool(v) for v in self.circuit.evaluate(literals, inputs)]
