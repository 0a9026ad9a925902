"""Questions to the space: is there a request and an environment where these literals hold; and if not, which are to blame.

The circuit goes to z3's propositional solver; arithmetic is checked on its solutions, and what arithmetic excludes is told
to it as lemmas, which serve all later questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis.circuit import FALSE, TRUE
from selector.analysis.integers import Piece
from selector.analysis.numbers import Key, variables
from selector.analysis.theory import Answer, Question, Theory, groups
from selector.errors import SelectorError

if TYPE_CHECKING:
    from selector.analysis.space import Given, Predicate, Space

__all__ = ["EXTRA", "AnalysisMissing", "Point", "Solver", "z3_module"]

#: z3's answers.
SAT, UNSAT = 1, -1

EXTRA = "pip install 'attention-selector[analysis]'"


class AnalysisMissing(SelectorError):
    """The solver is not installed."""

    def __str__(self) -> str:
        return f"this needs z3, which is not installed\n  {EXTRA}"


def z3_module() -> Any:
    """The z3 module. Raises AnalysisMissing, which says what to install."""
    try:
        import z3
    except ImportError:
        raise AnalysisMissing() from None
    return z3


class Point(NamedTuple):
    """One place of the space: the position of each axis's class, and numbers where arithmetic needs them."""

    chosen: tuple[int, ...]
    numbers: Mapping[Key, int]


class Solver:
    """Answers questions about one space. ``always`` are literals that hold in every answer."""

    def __init__(self, space: Space, always: Iterable[int] = ()) -> None:
        self.z3 = z3_module()
        self.space = space
        self.theory = Theory(space, self.z3)
        self.solver = self.z3.Solver()
        self.asked = 0
        self.handles: dict[int, Any] = {}
        self._declared: dict[int, Any] = {}
        self._values: dict[int, bool] = {TRUE: True}
        self._pieces: dict[Key, Piece | bool | None] = {}
        self._limits: dict[tuple[int, tuple[int, ...]], int] = {}
        self._found: Any = None
        self._reads: dict[int, int] = {}
        self._known_predicates: dict[int, int] = {}
        self._core: tuple[int, ...] = ()
        self._numbers: dict[Key, int] = {}
        self.always = [a for a in always if a != TRUE]
        for given in space.given:
            self._exactly_one(given)
        self.add(self.always)
        self.standing = 0
        for literal in self.always:
            self.standing |= self._reads.get(abs(literal), 0)

    # -- telling ------------------------------------------------------------------------------------------------------

    def add(self, clause_of_each: Iterable[int]) -> None:
        """Literals that hold from now on."""
        for literal in clause_of_each:
            self.clause([literal])

    def clause(self, literals: Iterable[int]) -> None:
        """A disjunction that holds from now on."""
        kept = [literal for literal in literals if literal != FALSE]
        if TRUE in kept:
            return
        self._define(kept)
        self._tell([f"(assert (or false {' '.join(self._name(literal) for literal in kept)}))"])

    def _exactly_one(self, given: Given) -> None:
        literals = given.literals
        self._define(literals)
        if len(literals) < 3:
            return
        names = " ".join(self._name(literal) for literal in literals)
        self._tell([f"(assert (or {names}))", f"(assert ((_ at-most 1) {names}))"])

    def _name(self, literal: int) -> str:
        """A literal in SMT-LIB: variables are constants (n), and-gates abbreviations (g), which cost a solution nothing."""
        gate = abs(literal)
        if gate == TRUE:
            return "true" if literal > 0 else "false"
        name = f"n{gate}" if self.space.circuit.gates[gate] is None else f"g{gate}"
        return name if literal > 0 else f"(not {name})"

    def _tell(self, lines: list[str]) -> None:
        """Declarations and assertions in SMT-LIB."""
        self.solver.from_string("\n".join(lines))

    def _define(self, literals: Iterable[int]) -> None:
        """Make gates known to z3, each after its inputs."""
        gates = self.space.circuit.gates
        new: set[int] = set()
        pending = [abs(literal) for literal in literals]
        while pending:
            gate = pending.pop()
            if gate in new or gate in self._reads or gate == TRUE:
                continue
            new.add(gate)
            pending.extend(abs(p) for p in gates[gate] or ())
        if not new:
            return
        numbers = self._numbered_predicates()
        lines: list[str] = []
        for gate in sorted(new):
            parts = gates[gate]
            if parts is None:
                known = numbers.get(gate)
                self._reads[gate] = 0 if known is None else 1 << known
                lines.append(f"(declare-const n{gate} Bool)")
                continue
            reads = 0
            for part in parts:
                reads |= self._reads[abs(part)]
            self._reads[gate] = reads
            lines.append(f"(define-fun g{gate} () Bool (and {' '.join(self._name(p) for p in parts)}))")
        self._tell(lines)

    def _numbered_predicates(self) -> dict[int, int]:
        found = self._known_predicates
        for k in range(len(found), len(self.space.predicates)):
            found[self.space.predicate_literals[self.space.predicates[k]]] = k
        return found

    # -- asking -------------------------------------------------------------------------------------------------------

    def check(self, literals: Iterable[int], settled: Iterable[int] = ()) -> bool:
        """Whether some place of the space has all these literals. ``core`` and ``point`` tell more afterwards.

        ``settled`` are literals whose truth in the solution must agree with arithmetic, too, because it will be read.
        """
        wanted = list(dict.fromkeys(literal for literal in literals if literal != TRUE))
        if FALSE in wanted:
            self._core = (FALSE,)
            return False
        roots = [*wanted, *(x for x in settled if abs(x) != TRUE)]
        self._define(roots)
        reads = self.standing
        for literal in roots:
            reads |= self._reads[abs(literal)]
        handles = [self._handle(literal) for literal in wanted]
        core = self.z3.z3core
        assumptions = (self.z3.Ast * len(handles))(*(h.ast for h in handles))
        context = self.solver.ctx.ref()
        while True:
            self.asked += 1
            verdict = core.Z3_solver_check_assumptions(context, self.solver.solver, len(handles), assumptions)
            if verdict == UNSAT:
                blamed = {h.get_id() for h in self.solver.unsat_core()}
                self._core = tuple(x for x, h in zip(wanted, handles) if h.get_id() in blamed)
                return False
            if verdict != SAT:
                raise RuntimeError(f"z3 gave up: {self.solver.reason_unknown()}")
            self._found = None
            self._values = {TRUE: True}
            self._pieces = {}
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

    def _handle(self, literal: int) -> Any:
        """A literal as an assumption, which has to be a constant or its negation."""
        handle = self.handles.get(literal)
        if handle is None:
            gate = abs(literal)
            if self.space.circuit.gates[gate] is None:
                name = f"n{gate}"
            else:
                name = f"h{gate}"
                if -literal not in self.handles:
                    self._tell([f"(declare-const {name} Bool)", f"(assert (= {name} g{gate}))"])
            constant = self.z3.Bool(name)
            handle = self.handles[literal] = constant if literal > 0 else self.z3.Not(constant)
        return handle

    def _true(self, literal: int) -> bool:
        """A literal's truth in the last solution. Variables that z3 does not care about are false."""
        gate = abs(literal)
        known = self._values.get(gate)
        if known is None:
            known = self._value(gate)
        return known == (literal > 0)

    def _value(self, root: int) -> bool:
        gates, values = self.space.circuit.gates, self._values
        pending = [root]
        while pending:
            gate = pending[-1]
            parts = gates[gate]
            if gate in values:
                pending.pop()
            elif parts is None:
                values[gate] = self._variable(gate)
                pending.pop()
            else:
                missing = [abs(p) for p in parts if abs(p) not in values]
                if missing:
                    pending += missing
                else:
                    values[gate] = all(values[abs(p)] == (p > 0) for p in parts)
                    pending.pop()
        return values[root]

    def _variable(self, gate: int) -> bool:
        core, context = self.z3.z3core, self.solver.ctx.ref()
        if self._found is None:
            self._found = self.solver.model()
        declared = self._declared.get(gate)
        if declared is None:
            declared = self._declared[gate] = self.z3.Bool(f"n{gate}").decl()
        value = core.Z3_model_get_const_interp(context, self._found.model, declared.ast)
        return bool(value) and core.Z3_get_bool_value(context, value) == 1

    def _class_of(self, given: Given) -> int:
        """The position of an axis's class in the last solution."""
        literals = given.literals
        if len(literals) == 2:
            return 0 if self._true(literals[0]) else 1
        return next((k for k, literal in enumerate(literals) if self._true(literal)), 0)

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _sound(self, reads: int, asked: list[int]) -> bool:
        """Hold the last solution against arithmetic; a contradiction becomes a lemma.

        If numbers for all predicates are not found at once, those decide that the answer needs.
        """
        self._numbers = {}
        if not reads:
            return True
        wanted = self._predicates(reads)
        answers = [self.theory.quick(self._question(members)) for members in groups(wanted)]
        if any(a is None or a.numbers is None for a in answers):
            needed = self._needed([*asked, *self.always])
            answers = [
                self.theory.ask(self._question(members))
                for members in groups([e for e in wanted if self.space.predicate_literals[e[0]] in needed])
            ]
        sound = True
        for answer in answers:
            assert answer is not None
            if answer.numbers is not None:
                self._numbers.update(answer.numbers)
            else:
                sound = False
                self._learn(answer)
        return sound

    def _predicates(self, reads: int) -> list[tuple[Predicate, bool]]:
        """The predicates of gates that are about numbers here, with their truth in the last solution."""
        return [
            (predicate, self._true(self.space.predicate_literals[predicate]))
            for k, predicate in enumerate(self.space.predicates)
            if reads >> k & 1 and all(self._number(key) is not None for key in variables(predicate.term))
        ]

    def _question(self, members: list[tuple[Predicate, bool]]) -> Question:
        keys = {key for p, _ in members for key in variables(p.term)}
        keys |= {(name, 1 - e) for name, e in keys if e >= 0}  # both elements of a pair are chosen together
        found = []
        for key in sorted(keys):
            piece = self._number(key)
            found.append((key, piece if isinstance(piece, Piece) else None))
        return Question(tuple(found), tuple(members))

    def _learn(self, answer: Answer) -> None:
        """What excludes each other never holds together."""
        lemma = [-self.space.piece_literal(b.key, b.test, b.number) for b in answer.bounds]
        for predicate, held in answer.predicates:
            literal = self.space.predicate_literals[predicate]
            lemma.append(-literal if held else literal)
        pairs = {key[0] for p, _ in answer.predicates for key in variables(p.term) if key[1] >= 0}
        lemma += [-self._unnamed(name) for name in pairs]  # found out of pairs that nothing names
        self.clause(lemma)

    def _needed(self, roots: Iterable[int]) -> set[int]:
        """Variables that the truth of some literals rests on in the last solution; of several grounds one without numbers."""
        gates = self.space.circuit.gates
        found: set[int] = set()
        seen: set[int] = set()
        pending = [abs(x) for x in roots]
        while pending:
            gate = pending.pop()
            if gate in seen or gate == TRUE:
                continue
            seen.add(gate)
            parts = gates[gate]
            if parts is None:
                found.add(gate)
            elif self._true(gate):
                pending += [abs(p) for p in parts]
            else:
                false = [abs(p) for p in parts if not self._true(p)]
                pending.append(min(false, key=lambda g: self._reads[g].bit_count()))
        return found

    def _unnamed(self, name: str) -> int:
        given = self.space.at[name, None]
        return next(x for x, c in zip(given.literals, given.classes) if c.kind == "value" and not c.members)

    def _number(self, key: Key) -> Piece | bool | None:
        """The class that a number lies in (true: any pair that nothing names); None if there is no number here."""
        if key not in self._pieces:
            self._pieces[key] = self._piece(key)
        return self._pieces[key]

    def _piece(self, key: Key) -> Piece | bool | None:
        given = self.space.at.get((key[0], None))
        if given is None:
            return None
        found = given.classes[self._class_of(given)]
        if found.kind != "value":
            return None
        if key[1] >= 0:
            return None if found.members else True
        piece: Piece = found.members[0]
        return piece

    def holds(self, literal: int) -> bool:
        """A literal's truth in the last solution (of one that was asked about, or settled)."""
        return self._true(literal)

    def at_most(self, number: int, literals: Iterable[int]) -> int:
        """A literal under which no more than so many of some literals hold; the same for the same question."""
        wanted = tuple(literals)
        if len(wanted) <= number:
            return TRUE
        switch = self._limits.get((number, wanted))
        if switch is None:
            switch = self._limits[number, wanted] = self.space.circuit.var()
            self._define([switch, *wanted])
            names = " ".join(self._name(x) for x in wanted)
            self._tell([f"(assert (=> n{switch} ((_ at-most {number}) {names})))"])
        return switch

    # -- answers ------------------------------------------------------------------------------------------------------

    def point(self) -> Point:
        """The place that the last positive answer found, with a number for every numeric axis."""
        chosen = tuple(self._class_of(given) for given in self.space.given)
        numbers = dict(self._numbers)
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
