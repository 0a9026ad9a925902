"""The circuit as z3 knows it: variables are constants, and-gates abbreviations, literals that are asked about handles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from selector.analysis.circuit import FALSE, TRUE
from selector.errors import SelectorError

if TYPE_CHECKING:
    from selector.analysis.space import Given, Space

__all__ = ["EXTRA", "AnalysisMissing", "Encoder", "z3_module"]

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


class Encoder:
    """One z3 solver that is told a circuit piece by piece, in SMT-LIB, which z3 reads far quicker than Python calls it.

    Gates are abbreviations (`define-fun`) rather than constants, because a solution lists every constant.
    """

    def __init__(self, space: Space) -> None:
        self.z3 = z3_module()
        self.space = space
        self.solver = self.z3.Solver()
        #: For each gate that z3 knows the predicates that it depends on, as bits.
        self.reads: dict[int, int] = {TRUE: 0}
        self._handles: dict[int, Any] = {}
        #: z3's numbers of the handles, by literal.
        self.ids: dict[int, int] = {}
        self._limits: dict[tuple[int, tuple[int, ...]], int] = {}
        self._predicates: dict[int, int] = {}
        self._names: dict[int, Any] = {}
        for given in space.given:
            self._exactly_one(given)

    def define(self, literals: Iterable[int]) -> None:
        """Make gates known to z3, each after its inputs."""
        gates = self.space.circuit.gates
        new: set[int] = set()
        pending = [abs(literal) for literal in literals]
        while pending:
            gate = pending.pop()
            if gate not in new and gate not in self.reads:
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
                self.reads[gate] = 0 if known is None else 1 << known
                lines.append(f"(declare-const n{gate} Bool)")
                continue
            reads = 0
            for part in parts:
                reads |= self.reads[abs(part)]
            self.reads[gate] = reads
            lines.append(f"(define-fun g{gate} () Bool (and {' '.join(self._name(p) for p in parts)}))")
        self._tell(lines)

    def clause(self, literals: Iterable[int]) -> None:
        """A disjunction that holds from now on."""
        kept = [literal for literal in literals if literal != FALSE]
        if TRUE not in kept:
            self.define(kept)
            self._tell([f"(assert (or false {' '.join(self._name(literal) for literal in kept)}))"])

    def at_most(self, number: int, literals: Iterable[int]) -> int:
        """A literal under which no more than so many of some literals hold; the same for the same question."""
        wanted = tuple(literals)
        if len(wanted) <= number:
            return TRUE
        switch = self._limits.get((number, wanted))
        if switch is None:
            switch = self._limits[number, wanted] = self.space.circuit.var()
            self.define([switch, *wanted])
            names = " ".join(self._name(x) for x in wanted)
            self._tell([f"(assert (=> n{switch} ((_ at-most {number}) {names})))"])
        return switch

    def handle(self, literal: int) -> Any:
        """A literal as an assumption, which has to be a constant or its negation."""
        handle = self._handles.get(literal)
        if handle is None:
            gate = abs(literal)
            name = f"n{gate}"
            if self.space.circuit.gates[gate] is not None:
                name = f"h{gate}"
                if -literal not in self._handles:
                    self._tell([f"(declare-const {name} Bool)", f"(assert (= {name} g{gate}))"])
            constant = self.z3.Bool(name)
            handle = self._handles[literal] = constant if literal > 0 else self.z3.Not(constant)
            self.ids[literal] = handle.get_id()
        return handle

    def declared(self, gate: int) -> Any:
        """The declaration of a variable, as z3's C functions take it."""
        found = self._names.get(gate)
        if found is None:
            found = self._names[gate] = self.z3.Bool(f"n{gate}").decl()
        return found.ast

    def blamed(self) -> set[int]:
        """After a negative answer: the ids of the handles that exclude each other."""
        core, context = self.z3.z3core, self.solver.ctx.ref()
        vector = core.Z3_solver_get_unsat_core(context, self.solver.solver)
        core.Z3_ast_vector_inc_ref(context, vector)
        size = core.Z3_ast_vector_size(context, vector)
        found = {core.Z3_get_ast_id(context, core.Z3_ast_vector_get(context, vector, k)) for k in range(size)}
        core.Z3_ast_vector_dec_ref(context, vector)
        return found

    def _exactly_one(self, given: Given) -> None:
        self.define(given.literals)
        if len(given.literals) > 2:  # with two classes one is the other's negation
            names = " ".join(self._name(literal) for literal in given.literals)
            self._tell([f"(assert (or {names}))", f"(assert ((_ at-most 1) {names}))"])

    def _name(self, literal: int) -> str:
        gate = abs(literal)
        if gate == TRUE:
            return "true" if literal > 0 else "false"
        name = f"n{gate}" if self.space.circuit.gates[gate] is None else f"g{gate}"
        return name if literal > 0 else f"(not {name})"

    def _tell(self, lines: list[str]) -> None:
        self.solver.from_string("\n".join(lines))

    def _numbered_predicates(self) -> dict[int, int]:
        found = self._predicates
        for k in range(len(found), len(self.space.predicates)):
            found[self.space.predicate_literals[self.space.predicates[k]]] = k
        return found
