"""Arithmetic on numbers that are not known: terms over variables, their values, and their form for z3."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from selector.derive import ARITHMETIC

__all__ = ["Key", "NumOp", "NumVar", "Term", "ToZ3", "bounds", "combine", "value_of", "variables"]

#: A number that a request or environment gives: an axis's name, and 0 or 1 for an element of a pair (-1: the axis itself).
Key = tuple[str, int]


class NumVar(NamedTuple):
    """A given number."""

    key: Key


class NumOp(NamedTuple):
    """An arithmetic operator (a name of the language) on terms."""

    op: str
    args: tuple[Term, ...]


Term = int | NumVar | NumOp


def combine(op: str, args: Sequence[Term]) -> Term:
    """An operator on terms, reduced where that is plain. Divisors are not 0; `ratio` is only asked for where it is whole."""
    if op == "ratio":
        op = "floor_div"
    if all(isinstance(a, int) for a in args):
        found = ARITHMETIC[op]([a for a in args if isinstance(a, int)])
        return 0 if found is None else found
    if op in ("max", "min"):
        distinct = tuple(dict.fromkeys(args))
        return distinct[0] if len(distinct) == 1 else NumOp(op, distinct)
    if op == "difference" and args[0] == args[1]:
        return 0
    if op == "modulo" and args[0] == args[1]:
        return 0
    if op == "floor_div" and args[0] == args[1]:
        return 1
    if op == "product" and 0 in args:
        return 0
    if op in ("sum", "product") and len(args) == 1:
        return args[0]
    if args[-1] == 1 and len(args) == 2:
        if op in ("floor_div", "round_up"):
            return args[0]
        if op == "modulo":
            return 0
    return NumOp(op, tuple(args))


def variables(term: Term) -> frozenset[Key]:
    """The numbers that a term depends on."""
    if isinstance(term, int):
        return frozenset()
    if isinstance(term, NumVar):
        return frozenset([term.key])
    return frozenset().union(*(variables(a) for a in term.args))


def value_of(term: Term, numbers: Mapping[Key, int]) -> int:
    """A term's value; 0 where it has none (a divisor of 0), which no guarded use ever sees."""
    if isinstance(term, int):
        return term
    if isinstance(term, NumVar):
        return numbers[term.key]
    found = ARITHMETIC[term.op]([value_of(a, numbers) for a in term.args])
    return 0 if found is None else found


Range = tuple["int | None", "int | None"]


def bounds(term: Term, domain: Callable[[Key], Range]) -> Range:
    """Numbers between which a term lies (None: no bound known)."""
    if isinstance(term, int):
        return term, term
    if isinstance(term, NumVar):
        return domain(term.key)
    parts = [bounds(a, domain) for a in term.args]
    lows, highs = [p[0] for p in parts], [p[1] for p in parts]
    if term.op in ("max", "min"):
        pick = max if term.op == "max" else min
        known_low, known_high = [n for n in lows if n is not None], [n for n in highs if n is not None]
        low_sure = bool(known_low) if term.op == "max" else len(known_low) == len(lows)
        high_sure = bool(known_high) if term.op == "min" else len(known_high) == len(highs)
        return pick(known_low) if low_sure else None, pick(known_high) if high_sure else None
    if term.op == "sum":
        return _total(lows), _total(highs)
    if term.op == "difference":
        return _less(lows[0], highs[1]), _less(highs[0], lows[1])
    if term.op == "gcd":
        return (1 if any(n is not None and n >= 1 for n in lows) else 0), None
    positive = [n for n in lows if n is not None and n >= 0]
    if term.op == "product":
        if len(positive) < len(lows):
            return None, None
        known = [n for n in highs if n is not None]
        return math.prod(positive), math.prod(known) if len(known) == len(highs) else None
    if lows[1] is None or lows[1] < 1:
        return None, None
    if term.op == "modulo":
        return 0, _less(highs[1], 1)
    if lows[0] is None or lows[0] < 0:
        return None, None
    if term.op == "floor_div":
        low = 0 if highs[1] is None else lows[0] // highs[1]
        return low, None if highs[0] is None else highs[0] // lows[1]
    return lows[0], _total([highs[0], _less(highs[1], 1)])


def _total(numbers: Sequence[int | None]) -> int | None:
    known = [n for n in numbers if n is not None]
    return sum(known) if len(known) == len(numbers) else None


def _less(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


class ToZ3:
    """Terms as z3 integers.

    ``define`` receives constraints that always hold: definitions of fresh variables, and for divisions by a variable and
    products what z3 is slow to find itself, for the divisors ``moduli``.
    """

    def __init__(self, z3: Any, define: Any, moduli: Iterable[int] = ()) -> None:
        self.z3, self.define, self.moduli = z3, define, tuple(moduli)
        self.known: dict[Term, Any] = {}

    def term(self, term: Term) -> Any:
        """The z3 expression of a term."""
        found = self.known.get(term)
        if found is None:
            found = self.known[term] = self._make(term)
        return found

    def _make(self, term: Term) -> Any:
        z3 = self.z3
        if isinstance(term, int):
            return z3.IntVal(term)
        if isinstance(term, NumVar):
            return z3.Int(f"{term.key[0]}.{term.key[1]}")
        if term.op == "gcd":
            return self._gcd(term)
        args = [self.term(a) for a in term.args]
        if term.op == "sum":
            return z3.Sum(args)
        if term.op == "product":
            found = z3.Product(args)
            if sum(not isinstance(a, int) for a in term.args) > 1:
                for m in self.moduli:
                    self.define(z3.Implies(z3.Or([a % m == 0 for a in args]), found % m == 0))
            return found
        if term.op == "difference":
            return args[0] - args[1]
        if term.op in ("max", "min"):
            best = args[0]
            for other in args[1:]:
                best = (
                    z3.If(best >= other, best, other)
                    if term.op == "max"
                    else z3.If(best <= other, best, other)
                )
            return best
        quotient, rest = self._divided(args[0], args[1], term.args[1])
        if term.op == "modulo":
            return rest
        if term.op == "floor_div":
            return quotient
        assert term.op == "round_up", term.op
        return z3.If(rest == 0, args[0], args[0] - rest + args[1])

    def _divided(self, a: Any, b: Any, divisor: Term) -> tuple[Any, Any]:
        """Quotient and rest as Python has them: the rest has the divisor's sign."""
        z3 = self.z3
        if isinstance(divisor, NumOp) and divisor.op == "gcd":
            constant = next((abs(x) for x in divisor.args if isinstance(x, int) and x), None)
            if constant is not None:  # one of a few divisors: no division by a variable is left
                quotient, rest = a / constant, a % constant
                for d in (d for d in range(1, constant) if constant % d == 0):
                    quotient, rest = z3.If(b == d, a / d, quotient), z3.If(b == d, a % d, rest)
                return quotient, rest
        quotient, rest = a / b, a % b
        if isinstance(divisor, int):
            if divisor > 0:
                return quotient, rest
            return z3.If(rest == 0, quotient, quotient - 1), z3.If(rest == 0, 0, rest + b)
        for m in self.moduli:  # what divides the divisor leaves the same rest of both
            self.define(z3.Implies(b % m == 0, (a - rest) % m == 0))
        self.define(z3.Implies(z3.And(a >= 0, a < b), rest == a))
        self.define(z3.Implies(z3.And(b > 0, b <= a), rest <= a - b))
        self.define(z3.Implies(z3.And(b > 0, b <= a, a < 2 * b), rest == a - b))
        negative = z3.And(b < 0, rest != 0)
        return z3.If(negative, quotient - 1, quotient), z3.If(negative, rest + b, rest)

    def _gcd(self, term: NumOp) -> Any:
        z3 = self.z3
        constant = math.gcd(*(a for a in term.args if isinstance(a, int)))
        others = [self.term(a) for a in term.args if not isinstance(a, int)]
        if constant:
            found: Any = z3.IntVal(1)
            for d in (d for d in range(2, constant + 1) if constant % d == 0):
                found = z3.If(z3.And([x % d == 0 for x in others]), z3.IntVal(d), found)
            return found
        # Bezout: the divisor that is a combination of the numbers is the greatest.
        found = z3.FreshInt("gcd")
        factors = [z3.FreshInt("of") for _ in others]
        weights = [z3.FreshInt("by") for _ in others]
        self.define(
            z3.And(
                found >= 0,
                *(x == found * f for x, f in zip(others, factors)),
                found == z3.Sum([x * w for x, w in zip(others, weights)]),
            )
        )
        return found
