"""Invariants: sentences that must hold of every request on every machine, proved or refuted by a counterexample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis.circuit import FALSE
from selector.analysis.smallest import Machine, Witness, machines, smallest
from selector.analysis.solver import Solver
from selector.analysis.space import Space
from selector.analysis.theory import Undecided
from selector.analysis.translate import Translation
from selector.analysis.witness import Refuted, decide
from selector.conditions import All, Condition, axes_of, parse
from selector.errors import Fault, ManifestError, Mark
from selector.vocabulary import nearest

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.report import Report
    from selector.yaml_loader import Document

__all__ = ["Invariant", "Verdict", "decode", "load", "prove"]

#: What a sentence can say, in the order in which it is looked at.
CLAIMS = ("never", "always", "implies")


class Invariant(NamedTuple):
    """One sentence, read for one catalog.

    ``never`` and ``always`` map selected and accepted to candidates' positions; ``some``: something must be selected.
    ``known``: it speaks only of machines of which every fact is known; ``strict``: of strict selection.
    """

    name: str
    doc: str
    source: str | None
    when: Condition
    never: Mapping[str, tuple[int, ...]]
    always: Mapping[str, tuple[int, ...]]
    some: bool
    implies: Condition | None
    known: bool
    strict: bool
    at: Mark


class Verdict(NamedTuple):
    """What was found: ``status`` is proved, false, vacuous (the condition never holds) or undecided."""

    pack: str
    invariant: Invariant
    status: str
    witness: Witness | None
    report: Report | None
    look: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        counter = None
        if self.witness is not None and self.report is not None:
            counter = {
                **self.witness.to_dict(),
                "selected": self.report.selected,
                "accepted": [r.id for r in self.report.ranked] + list(self.report.excluded),
                "command": self.witness.command(self.pack),
            }
        return {
            "pack": self.pack,
            "name": self.invariant.name,
            "doc": self.invariant.doc,
            "at": str(self.invariant.at),
            "status": self.status,
            "counterexample": counter,
            "look": list(self.look),
        }


# -- reading ----------------------------------------------------------------------------------------------------------


def load(path: str, catalogs: Sequence[Catalog]) -> Document:
    """A file of invariants, held against the vocabularies of all catalogs together. Raises ManifestError."""
    from selector.locations import display_name
    from selector.yaml_loader import load_file

    document = load_file(path, display_name(path, catalogs[0].root) if catalogs else path)
    faults = faults_of(document, catalogs)
    if any(f.severity == "error" for f in faults):
        raise ManifestError(faults)
    return document


def faults_of(document: Document, catalogs: Sequence[Catalog]) -> list[Fault]:
    """What the schema has against a file of invariants, where the axes of all catalogs are known."""
    from selector.schema_build import build
    from selector.validate import validate

    axes: dict[str, Any] = {}
    for catalog in catalogs:
        for name, entry in catalog.vocabulary.raw["axes"].items():
            axes.setdefault(name, entry)
    return validate(document, build({"vocabulary": 1, "axes": axes})["invariants"])


def decode(document: Document, catalog: Catalog) -> list[Invariant]:
    """The sentences of a file that speak of a catalog. Raises ManifestError with every mistake."""
    faults: list[Fault] = []
    found: list[Invariant] = []
    data: Any = document.data
    for i, raw in enumerate(data.get("invariants") or []):
        packs = raw.get("packs")
        if packs is not None and not set(packs) & {p.name for p in catalog.packs}:
            continue
        found.append(_Reader(document, catalog, ("invariants", i), faults).invariant(raw))
    if faults:
        raise ManifestError(faults)
    return found


class _Reader:
    def __init__(
        self, document: Document, catalog: Catalog, path: tuple[str | int, ...], faults: list[Fault]
    ) -> None:
        self.document, self.catalog, self.path, self.faults = document, catalog, path, faults

    def report(self, path: tuple[str | int, ...], message: str, hint: str | None) -> None:
        self.faults.append(self.document.fault(path, message, hint, key=message.startswith("unknown axis")))

    def invariant(self, raw: Mapping[str, Any]) -> Invariant:
        if not any(claim in raw for claim in CLAIMS):
            self.report(self.path, f"an invariant says {', '.join(CLAIMS[:-1])} or {CLAIMS[-1]}", None)
        never = self.names(raw.get("never") or {}, "never")
        always_raw = raw.get("always") or {}
        always = self.names({k: v for k, v in always_raw.items() if k != "some"}, "always")
        facts = raw.get("facts", "known" if always_raw else "any")
        return Invariant(
            raw["name"],
            raw.get("doc", ""),
            raw.get("source"),
            self.condition(raw.get("when"), "when") or All(()),
            never,
            always,
            "some" in always_raw,
            self.condition(raw.get("implies"), "implies"),
            facts == "known",
            bool(raw.get("strict", False)),
            self.document.mark((*self.path, "name")),
        )

    def condition(self, raw: Any, key: str) -> Condition | None:
        if raw is None:
            return None
        return parse(raw, self.catalog.vocabulary, self.report, (*self.path, key))

    def names(self, raw: Mapping[str, Any], claim: str) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        position = self.catalog.program.position
        for key, value in raw.items():
            positions: dict[int, None] = {}
            for name in value if isinstance(value, list) else [value]:
                matches = [c.id for c in self.catalog.candidates if name in (c.id, c.backend)]
                if not matches:
                    known = [*self.catalog.names(), *(c.id for c in self.catalog.candidates)]
                    near = nearest(name, known)
                    self.report(
                        (*self.path, claim, key),
                        f"pack {self.catalog.name} has no candidate or backend {name!r}",
                        f"did you mean {near}?" if near else "packs: limits the sentence to some packs",
                    )
                positions.update(dict.fromkeys(position[m] for m in matches))
            found[key] = tuple(positions)
        return found


# -- proving ----------------------------------------------------------------------------------------------------------


class Prover:
    """Sentences about one catalog, over one space and one solver."""

    def __init__(self, catalog: Catalog, invariants: Iterable[Invariant]) -> None:
        self.catalog = catalog
        self.invariants = tuple(invariants)
        conditions = [c for i in self.invariants for c in (i.when, i.implies) if c is not None]
        self.space = Space([catalog.program], [conditions])
        self.translations: dict[bool, Translation] = {}
        self.solver = Solver(self.space)
        self._machines: list[Machine] | None = None

    def verdicts(self) -> list[Verdict]:
        """One verdict for each sentence."""
        return [self.verdict(i) for i in self.invariants]

    def verdict(self, invariant: Invariant) -> Verdict:
        """Prove one sentence, or find its smallest counterexample."""
        translation, circuit = self.translation(invariant.strict), self.space.circuit
        when = translation.condition(invariant.when)
        base = [when, *(known_facts(self.space) if invariant.known else ())]
        violated = circuit.disj(self._violations(translation, invariant))
        try:
            if not self.solver.check([*base, violated]):
                status = "proved" if self.solver.check(base) else "vacuous"
                return Verdict(self.catalog.name, invariant, status, None, None, ())
            found = smallest(self.solver, [*base, violated], self.catalog, self.machines())
        except Undecided:
            return Verdict(self.catalog.name, invariant, "undecided", None, None, ())
        report = decide((found.request, found.environment), self.catalog, strict=invariant.strict)
        if not self._confirmed(invariant, report):
            raise Refuted(f"{invariant.name}: the engine does not confirm {found.text}")
        return Verdict(self.catalog.name, invariant, "false", found, report, self._look(invariant, report))

    def translation(self, strict: bool) -> Translation:
        """The catalog's translation, in strict selection or not."""
        if strict not in self.translations:
            self.translations[strict] = Translation(self.space, self.catalog.program, strict=strict)
        return self.translations[strict]

    def machines(self) -> list[Machine]:
        """The preset machines."""
        if self._machines is None:
            self._machines = machines(self.space, self.catalog)
        return self._machines

    def _violations(self, translation: Translation, invariant: Invariant) -> list[int]:
        wins, accepted = translation.wins, translation.accepted
        found = [wins[i] for i in invariant.never.get("selected", ())]
        found += [accepted(i) for i in invariant.never.get("accepted", ())]
        if invariant.some:
            found.append(-translation.some)
        if "selected" in invariant.always:
            found.append(-self.space.circuit.disj(wins[i] for i in invariant.always["selected"]))
        found += [-accepted(i) for i in invariant.always.get("accepted", ())]
        if invariant.implies is not None:
            found.append(translation.condition(invariant.implies, positive=False, strict=True))
        return [x for x in found if x != FALSE]

    def _confirmed(self, invariant: Invariant, report: Report) -> bool:
        """Whether the engine, too, finds the sentence violated. What `implies` says is its own evaluation."""
        outcome = report.outcome
        selected = outcome.ranked[0] if outcome.ranked else None
        accepted = {*outcome.ranked, *outcome.excluded}
        program = self.catalog.program
        accepted |= {
            i
            for i, c in enumerate(program.candidates)
            if c.abstract and program.accepts(i, report._raw(), strict=report.strict)
        }
        return (
            selected in invariant.never.get("selected", ())
            or bool(accepted & set(invariant.never.get("accepted", ())))
            or (invariant.some and selected is None)
            or ("selected" in invariant.always and selected not in invariant.always["selected"])
            or not accepted.issuperset(invariant.always.get("accepted", ()))
            or (invariant.implies is not None and self._fails(invariant.implies, report))
        )

    def _fails(self, condition: Condition, report: Report) -> bool:
        from selector.nodes import Accept, AtomTable, evaluate

        table = AtomTable()
        node = table.node(condition, positive=False, strict=True)
        true = 0
        for k, atom in enumerate(table.atoms):
            if isinstance(atom, Accept):
                program = self.catalog.program
                accepted = program.accepts(
                    program.position[atom.candidate], report._raw(), strict=report.strict
                )
                held = accepted != atom.negated
            else:
                held = atom.true_for(report.trace.values[atom.axis])
            true |= int(held) << k
        return evaluate(node, true)

    def _look(self, invariant: Invariant, report: Report) -> tuple[str, ...]:
        """Lines of the manifests that a false sentence is about."""
        outcome = report.outcome
        involved = {*invariant.never.get("selected", ()), *invariant.never.get("accepted", ())}
        chosen = [i for i in (*outcome.ranked, *outcome.excluded) if i in involved][:2]
        found: list[str] = []
        for i in chosen or outcome.ranked[:1]:
            candidate = self.catalog.candidates[i]
            for axis in axes_of(invariant.when):
                declared = candidate.declared.get(axis.name)
                if declared is not None:
                    found.append(
                        f"{declared.at}: {candidate.id} takes {axis.name} {declared.constraint.describe()}"
                    )
                else:
                    found.append(f"{candidate.at}: {candidate.id} says nothing of {axis.name}")
        if not outcome.ranked:
            for _name, reasons in list(report.rejected.items())[:4]:
                found += [f"{r.at}: {r.message}" for r in reasons[:1]]
        return tuple(found)


def known_facts(space: Space, *, software: bool = False) -> list[int]:
    """Literals of: every fact of the machine (``software``: that can be changed on it) is known and none is left open."""
    found: list[int] = []
    for given in space.given:
        if given.axis.of != "environment" or (software and given.hardware):
            continue
        for c, literal in zip(given.classes, given.literals):
            unsure = given.package is not None and (
                c.value.state == "unknown" or c.value == (None, "usable", None)
            )
            if c.kind in ("unknown", "null") or unsure:
                found.append(-literal)
    return found


def prove(catalog: Catalog, invariants: Iterable[Invariant]) -> list[Verdict]:
    """Prove or refute sentences about one catalog."""
    return Prover(catalog, invariants).verdicts()
