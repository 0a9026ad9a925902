"""Questions to the space: is there a request and an environment where these literals hold; and if not, which are to blame.

z3 answers for the circuit; arithmetic is checked on its solutions, and what arithmetic excludes is told to it as lemmas,
which serve all later questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from selector.analysis.circuit import FALSE, TRUE
from selector.analysis.encoder import Encoder
from selector.analysis.integers import Piece
from selector.analysis.numbers import Key, variables
from selector.analysis.solution import Point, Solution
from selector.analysis.theory import Answer, Question, Theory, groups

if TYPE_CHECKING:
    from selector.analysis.space import Predicate, Space

__all__ = ["Solver"]

#: z3's answers.
SAT, UNSAT = 1, -1


class Solver:
    """Answers questions about one space. ``always`` are literals that hold in every answer."""

    def __init__(self, space: Space, always: Iterable[int] = ()) -> None:
        self.space = space
        self.encoder = Encoder(space)
        self.theory = Theory(space, self.encoder.z3)
        self.asked = 0
        self.always = [a for a in always if a != TRUE]
        for literal in self.always:
            self.clause([literal])
        self.standing = 0
        for literal in self.always:
            self.standing |= self.encoder.reads.get(abs(literal), 0)
        self._core: tuple[int, ...] = ()
        #: Each predicate with its literal and the numbers that it is about.
        self._needs: list[tuple[Predicate, int, frozenset[Key]]] = []
        self._solution = Solution(self.encoder)

    def clause(self, literals: Iterable[int]) -> None:
        """A disjunction that holds from now on."""
        self.encoder.clause(literals)

    def at_most(self, number: int, literals: Iterable[int]) -> int:
        """A literal under which no more than so many of some literals hold."""
        return self.encoder.at_most(number, literals)

    # -- asking -------------------------------------------------------------------------------------------------------

    def check(self, literals: Iterable[int], settled: Iterable[int] = ()) -> bool:
        """Whether some place of the space has all these literals. ``core``, ``holds`` and ``point`` tell more afterwards.

        ``settled`` are literals whose truth in the solution must agree with arithmetic, too, because it will be read.
        """
        wanted = list(dict.fromkeys(literal for literal in literals if literal != TRUE))
        if FALSE in wanted:
            self._core = (FALSE,)
            return False
        encoder = self.encoder
        roots = [*wanted, *settled]
        encoder.define(roots)
        reads = self.standing
        for literal in roots:
            reads |= encoder.reads[abs(literal)]
        handles = [encoder.handle(literal) for literal in wanted]
        core = encoder.z3.z3core
        assumptions = (encoder.z3.Ast * len(handles))(*(h.ast for h in handles))
        while True:
            self.asked += 1
            verdict = core.Z3_solver_check_assumptions(
                encoder.solver.ctx.ref(), encoder.solver.solver, len(handles), assumptions
            )
            if verdict == UNSAT:
                blamed = encoder.blamed()
                self._core = tuple(x for x in wanted if encoder.ids[x] in blamed)
                return False
            if verdict != SAT:
                raise RuntimeError(f"z3 gave up: {encoder.solver.reason_unknown()}")
            self._solution = Solution(encoder)
            if self._sound(reads, roots):
                return True

    @property
    def core(self) -> tuple[int, ...]:
        """After a negative answer: literals of the question that exclude each other (not always the fewest)."""
        return self._core

    def smallest_core(self, literals: Iterable[int], keep: Iterable[int] = ()) -> tuple[int, ...]:
        """Of a question whose answer is no: literals none of which can be left out; those listed late are kept rather.

        ``keep`` are literals that stand outside: they always hold and are never in the result.
        """
        fixed = list(keep)
        self.check([*fixed, *literals])
        blamed = set(self._core)
        kept = [x for x in dict.fromkeys(literals) if x in blamed]
        k = 0
        while k < len(kept):
            trial = [*kept[:k], *kept[k + 1 :]]
            if self.check([*fixed, *trial]):
                k += 1
            else:
                blamed = set(self._core)
                kept = [x for x in trial if x in blamed]
                k = min(k, len(kept))
        return tuple(kept)

    def holds(self, literal: int) -> bool:
        """A literal's truth in the last solution (of one that was asked about, or settled)."""
        return self._solution.true(literal)

    def point(self) -> Point:
        """The place that the last positive answer found."""
        return self._solution.point()

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _sound(self, reads: int, asked: list[int]) -> bool:
        """Hold the last solution against arithmetic; a contradiction becomes a lemma.

        If numbers for all predicates are not found at once, those decide that the answer rests on.
        """
        if not reads:
            return True
        found = self._solution
        wanted = self._predicates(reads)
        answers = [self.theory.quick(self._question(members)) for members in groups(wanted)]
        if any(a is None or a.numbers is None for a in answers):
            grounds = found.grounds([*asked, *self.always])
            literals = self.space.predicate_literals
            kept = [entry for entry in wanted if literals[entry[0]] in grounds]
            answers = [self.theory.ask(self._question(members)) for members in groups(kept)]
        lemmas: list[list[int]] = []
        for answer in answers:
            assert answer is not None
            if answer.numbers is not None:
                found.numbers.update(answer.numbers)
            else:
                lemmas.append(self._lemma(answer))
        for lemma in lemmas:
            self.clause(lemma)
        return not lemmas

    def _predicates(self, reads: int) -> list[tuple[Predicate, bool]]:
        """The predicates of gates that are about numbers here, with their truth in the last solution."""
        found = self._solution
        needs = self._needs
        for predicate in self.space.predicates[len(needs) :]:
            needs.append((predicate, self.space.predicate_literals[predicate], variables(predicate.term)))
        return [
            (predicate, found.true(literal))
            for k, (predicate, literal, keys) in enumerate(needs)
            if reads >> k & 1 and all(found.piece(key) is not None for key in keys)
        ]

    def _question(self, members: list[tuple[Predicate, bool]]) -> Question:
        keys = {key for p, _ in members for key in variables(p.term)}
        keys |= {(name, 1 - e) for name, e in keys if e >= 0}  # both elements of a pair are chosen together
        pieces = [(key, self._solution.piece(key)) for key in sorted(keys)]
        return Question(tuple((k, p if isinstance(p, Piece) else None) for k, p in pieces), tuple(members))

    def _lemma(self, answer: Answer) -> list[int]:
        """What excludes each other never holds together."""
        lemma = [-self.space.piece_literal(b.key, b.test, b.number) for b in answer.bounds]
        for predicate, held in answer.predicates:
            literal = self.space.predicate_literals[predicate]
            lemma.append(-literal if held else literal)
        pairs = {key[0] for p, _ in answer.predicates for key in variables(p.term) if key[1] >= 0}
        return [
            *lemma,
            *(-self.space.unnamed(name) for name in pairs),
        ]  # it holds of pairs that nothing names
