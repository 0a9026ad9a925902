"""Arithmetic: whether numbers exist that lie in given value classes and satisfy given predicates.

The circuit treats predicates on numbers as free variables; a solution of it is held against arithmetic here. Numbers are
first looked for among small and critical ones; z3's integers settle what that does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis.integers import Piece
from selector.analysis.numbers import Key, NumOp, Term, ToZ3, variables

if TYPE_CHECKING:
    from selector.analysis.space import Predicate, Space

__all__ = ["Bound", "Question", "Theory", "Undecided"]

#: Combinations that are tried before z3 is asked, and milliseconds it may think about one question.
TRIES = 3000
PATIENCE = 20_000
#: Milliseconds for a question that only makes a lemma more general.
QUICK = 100


class Undecided(RuntimeError):
    """Arithmetic that could not be decided in time."""


class Bound(NamedTuple):
    """One part of "this number lies in that class": ``test`` is low, high, by or no."""

    key: Key
    test: str
    number: int


class Question(NamedTuple):
    """Numbers with their classes (None: any pair that is not listed), and predicates with the truth they must have."""

    classes: tuple[tuple[Key, Piece | None], ...]
    predicates: tuple[tuple[Predicate, bool], ...]


class Answer(NamedTuple):
    """Numbers, or the bounds and predicates that exclude each other."""

    numbers: Mapping[Key, int] | None
    bounds: tuple[Bound, ...]
    predicates: tuple[tuple[Predicate, bool], ...]


class Theory:
    """Decides questions; remembers its answers."""

    def __init__(self, space: Space, z3: Any) -> None:
        self.space, self.z3 = space, z3
        self.known: dict[Question, Answer] = {}
        self.provers: dict[frozenset[Key], _Prover] = {}

    def ask(self, question: Question) -> Answer:
        """The answer to one question. Raises Undecided."""
        found = self.known.get(question)
        if found is None:
            numbers = self.search(question)
            found = self._prove(question) if numbers is None else Answer(numbers, (), ())
            self.known[question] = found
        return found

    def quick(self, question: Question) -> Answer | None:
        """The answer if it is known or soon found, else None."""
        found = self.known.get(question)
        if found is None:
            numbers = self.search(question)
            if numbers is not None:
                found = self.known[question] = Answer(numbers, (), ())
        return found

    # -- searching ----------------------------------------------------------------------------------------------------

    def search(self, question: Question) -> dict[Key, int] | None:
        """Numbers among small and critical ones, one after the other, each checked as soon as it can be."""
        pieces = dict(question.classes)
        order = _order(list(pieces), [p for p, _ in question.predicates])
        checks: list[list[tuple[Predicate, bool]]] = [[] for _ in order]
        for entry in question.predicates:
            checks[max(order.index(k) for k in variables(entry[0].term))].append(entry)
        critical = _critical(p.term for p, _ in question.predicates)
        critical |= {n for p, _ in question.predicates if p.number < 4096 for n in (p.number, p.number - 1)}
        pools = self._pools(order, pieces, critical)
        numbers: dict[Key, int] = {}
        budget = TRIES

        def extend(depth: int) -> bool:
            nonlocal budget
            if depth == len(order):
                return self._unlisted(numbers)
            for number in pools[depth]:
                budget -= 1
                if budget < 0:
                    return False
                numbers[order[depth]] = number
                if all(p.holds(numbers) == wanted for p, wanted in checks[depth]) and extend(depth + 1):
                    return True
            return False

        return numbers if extend(0) else None

    def _pools(
        self, order: list[Key], pieces: Mapping[Key, Piece | None], critical: set[int]
    ) -> list[list[int]]:
        shared: dict[int, None] = {}
        for key in order:
            piece = pieces[key]
            if piece is not None:
                shared.update(
                    dict.fromkeys(
                        n
                        for e in (piece.low, piece.high, piece.example)
                        if e is not None
                        for n in (e - 1, e, e + 1)
                    )
                )
        shared.update(dict.fromkeys(critical))
        found: list[list[int]] = []
        for key in order:
            piece = pieces[key]
            pool: dict[int, None] = {}
            if piece is None:
                axis = self.space.number_axis(key).axis
                pool.update(
                    (n, None)
                    for n in itertools.chain(range(4), shared, range(-3, 12))
                    if (axis.min is None or n >= axis.min) and (axis.max is None or n <= axis.max)
                )
            else:
                pool[piece.example] = None
                pool.update(dict.fromkeys(n for n in shared if piece.holds(n)))
                pool.update(dict.fromkeys(piece.members(6)))
            found.append(list(pool))
        return found

    def _unlisted(self, numbers: Mapping[Key, int]) -> bool:
        """No pair of numbers is one that has a class of its own."""
        for name in {key[0] for key in numbers if key[1] >= 0}:
            pair = (numbers.get((name, 0)), numbers.get((name, 1)))
            if any(pair in c.members for c in self.space.number_axis((name, 0)).classes):
                return False
        return True

    def _prove(self, question: Question) -> Answer:
        keys = frozenset(key for key, _ in question.classes)
        prover = self.provers.get(keys)
        if prover is None:
            prover = self.provers[keys] = _Prover(self.space, self.z3)
        return prover.prove(question)


class _Prover:
    """z3's integers for questions about the same numbers."""

    def __init__(self, space: Space, z3: Any) -> None:
        self.space, self.z3 = space, z3
        self.solver = z3.Solver()
        self.solver.set("timeout", PATIENCE)
        moduli = {
            m
            for g in space.given
            for c in g.classes
            for p in c.members
            if isinstance(p, Piece)
            for m in (*p.by, *p.no)
        }
        moduli |= {p.number for p in space.predicates if p.kind == "multiple"}
        self.terms = ToZ3(z3, self.solver.add, sorted(moduli - {1}))
        self.handles: dict[Any, Any] = {}
        self.domains: set[Key] = set()

    # -- proving ------------------------------------------------------------------------------------------------------

    def prove(self, question: Question) -> Answer:
        """The answer, by proof. Raises Undecided."""
        handles: dict[Any, Any] = {}
        for key, piece in question.classes:
            self._domain(key)
            for bound in _bounds(key, piece):
                handles[bound] = self._bound(bound)
        for entry in question.predicates:
            handles[entry] = self._predicate(*entry)
        verdict = self.solver.check(*handles.values())
        if verdict == self.z3.unknown:
            raise Undecided(f"arithmetic not decided: {self.solver.reason_unknown()}")
        if verdict == self.z3.sat:
            model = self.solver.model()
            numbers = {
                key: model.eval(self.z3.Int(f"{key[0]}.{key[1]}"), model_completion=True).as_long()
                for key, _ in question.classes
            }
            return Answer(numbers, (), ())
        core = self._smaller({h.get_id() for h in self.solver.unsat_core()}, handles)
        bounds = tuple(h for h in handles if isinstance(h, Bound) and h in core)
        return Answer(None, bounds, tuple(e for e in question.predicates if e in core))

    def _smaller(self, core: set[int], handles: Mapping[Any, Any]) -> set[Any]:
        """A core without parts that are not needed: bounds are tried first, so that lemmas are general."""
        kept = [name for name, handle in handles.items() if handle.get_id() in core]
        self.solver.set("timeout", QUICK)
        for name in list(kept):
            trial = [n for n in kept if n != name]
            if self.solver.check(*(handles[n] for n in trial)) == self.z3.unsat:
                kept = trial
        self.solver.set("timeout", PATIENCE)
        return set(kept)

    def _handle(self, name: Any, formula: Any) -> Any:
        handle = self.z3.Bool(f"h{len(self.handles)}")
        self.solver.add(self.z3.Implies(handle, formula))
        self.handles[name] = handle
        return handle

    def _bound(self, bound: Bound) -> Any:
        known = self.handles.get(bound)
        if known is not None:
            return known
        number = self.z3.Int(f"{bound.key[0]}.{bound.key[1]}")
        formula = {
            "low": lambda: number >= bound.number,
            "high": lambda: number <= bound.number,
            "by": lambda: number % bound.number == 0,
            "no": lambda: number % bound.number != 0,
        }[bound.test]()
        return self._handle(bound, formula)

    def _predicate(self, predicate: Predicate, wanted: bool) -> Any:
        known = self.handles.get((predicate, wanted))
        if known is not None:
            return known
        term = self.terms.term(predicate.term)
        formula = term >= predicate.number if predicate.kind == "ge" else term % predicate.number == 0
        return self._handle((predicate, wanted), formula if wanted else self.z3.Not(formula))

    def _domain(self, key: Key) -> None:
        """What is always true of a number: its axis's domain; of a pair, that it is none of the listed ones."""
        if key in self.domains:
            return
        self.domains.add(key)
        given = self.space.number_axis(key)
        number = self.z3.Int(f"{key[0]}.{key[1]}")
        if given.axis.min is not None:
            self.solver.add(number >= given.axis.min)
        if given.axis.max is not None:
            self.solver.add(number <= given.axis.max)
        if key[1] >= 0:
            other = self.z3.Int(f"{key[0]}.{1 - key[1]}")
            first, second = (number, other) if key[1] == 0 else (other, number)
            for c in given.classes:
                for pair in c.members:
                    self.solver.add(self.z3.Or(first != pair[0], second != pair[1]))


def _bounds(key: Key, piece: Piece | None) -> Iterable[Bound]:
    if piece is None:
        return
    if piece.low is not None:
        yield Bound(key, "low", piece.low)
    if piece.high is not None:
        yield Bound(key, "high", piece.high)
    if piece.low is None or piece.low != piece.high:
        for m in sorted(piece.by):
            yield Bound(key, "by", m)
        for m in sorted(piece.no):
            yield Bound(key, "no", m)


def _order(keys: list[Key], predicates: Sequence[Predicate]) -> list[Key]:
    """Numbers so that predicates can be checked early: each next one completes as many as can be."""
    needs = [variables(p.term) for p in predicates]
    found: list[Key] = []
    while len(found) < len(keys):
        here = set(found)
        rest = [k for k in keys if k not in here]
        found.append(
            max(rest, key=lambda k: (sum(n <= here | {k} for n in needs), sum(k in n for n in needs), k[0]))
        )
    return found


def _critical(terms: Iterable[Term]) -> set[int]:
    """The constants in terms, where answers change."""
    found: set[int] = set()
    pending: list[Term] = list(terms)
    while pending:
        term = pending.pop()
        if isinstance(term, int):
            found.add(term)
        elif isinstance(term, NumOp):
            pending.extend(term.args)
    return found


def groups(questions: Sequence[tuple[Predicate, bool]]) -> list[list[tuple[Predicate, bool]]]:
    """Predicates apart by the numbers they share."""
    found: list[tuple[set[Key], list[tuple[Predicate, bool]]]] = []
    for entry in questions:
        keys = set(variables(entry[0].term))
        joined = [entry]
        rest = []
        for other_keys, members in found:
            if keys & other_keys:
                keys |= other_keys
                joined = [*members, *joined]
            else:
                rest.append((other_keys, members))
        found = [*rest, (keys, joined)]
    return [members for _, members in found]
