"""Smallest witnesses: on a preset machine where one will do, with as few fields as can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.analysis import witness
from selector.analysis.circuit import TRUE
from selector.analysis.regions import plain
from selector.constraints import word
from selector.environment import Environment, preset_names
from selector.errors import SelectorError
from selector.request import Request
from selector.vocabulary import UNKNOWN, Packages, PackageState

if TYPE_CHECKING:
    from selector.analysis.solver import Solver
    from selector.analysis.space import Given, Space
    from selector.catalog import Catalog
    from selector.vocabulary import Axis

__all__ = ["Machine", "Witness", "hardware", "machines", "near", "smallest"]


class Witness(NamedTuple):
    """A request on an environment. ``preset`` is the machine that the environment is, or nearly is; None without presets."""

    request: Request
    environment: Environment
    preset: Environment | None

    @property
    def changes(self) -> list[tuple[str | None, str, str]]:
        """(option of the command, name, in words) for what differs from the preset machine."""
        if self.preset is None:
            return []
        return list(_changes(self.preset, self.environment))

    @property
    def text(self) -> str:
        """In words: the fields, and the machine with its changes, or its facts."""
        fields = " ".join(field_text(a, v) for a, v in self.request.items()) or "an empty request"
        if self.preset is None:
            return f"{fields} on a machine with {facts_text(self.environment)}"
        changed = ", ".join(text for _, _, text in self.changes)
        return f"{fields} on {self.preset.name}" + (f" with {changed}" if changed else "")

    def command(self, pack: str) -> str | None:
        """The command that explains it; None where the environment is near no preset."""
        if self.preset is None or any(option is None for option, _, _ in self.changes):
            return None
        packs = "".join(f" --pack {p}" for p in pack.split("+"))
        options = "".join(f" {option}" for option, _, _ in self.changes)
        fields = "".join(f" {field_text(a, v)}" for a, v in self.request.items())
        return f"attn-select explain{packs} --on {self.preset.name}{options}{fields}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; `explain --requests` reads it."""
        named = self.preset is not None and not self.changes
        return {
            "request": self.request.to_dict(),
            "environment": self.preset.name if named and self.preset else self.environment.to_dict(),
        }


def field_text(axis: Axis, value: Any) -> str:
    """A field as the command line takes it."""
    if value is True:
        return axis.name
    return f"{axis.name}={'null' if value is None else word(value).replace(' ', '')}"


def _changes(preset: Environment, environment: Environment) -> Iterator[tuple[str | None, str, str]]:
    before, after = preset.facts, environment.facts
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, UNKNOWN), after.get(name, UNKNOWN)
        if isinstance(old, Packages) and isinstance(new, Packages):
            yield from _package_changes(old, new)
        elif old != new:
            text = "null" if new is None else word(new)
            shown = f"{name}={'unknown' if new is UNKNOWN else text}"
            possible = new is not UNKNOWN and not isinstance(new, Packages)
            yield (f"--env {shown}" if possible else None), name, shown


def _package_changes(old: Packages, new: Packages) -> Iterator[tuple[str | None, str, str]]:
    missing = PackageState(None, "missing")
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, missing), new.get(name, missing)
        if before == after:
            continue
        if after.state == "missing":
            yield f"--without {name}", name, f"no {name}"
        elif after.state == "usable" and after.version is not None:
            yield f"--with {name}=={after.version}", name, f"{name} {after.version}"
        else:
            yield f"--env packages.{name}='{after.state}'", name, f"{name}: {after.state}"


def facts_text(environment: Environment) -> str:
    """Facts in words; packages one by one."""
    parts = []
    for name, value in environment.facts.items():
        if isinstance(value, Packages):
            parts += [f"{n} {s.version or s.state}" for n, s in value.items()]
        else:
            parts.append(f"{name}={word(value)}")
    return ", ".join(parts) or "no known facts"


def _usual(given: Given) -> list[int]:
    """The literal of a field not being given, a package missing, a fact unknown; empty if there is none."""
    found: int | None = None
    if given.package is not None:
        found = given.literals[0]
    elif given.axis.type != "packages":
        for kind in ("absent", "unknown"):
            k = given.where(kind)
            if k is not None and found is None:
                found = given.literals[k]
        if found is None and (given.axis.of == "request" or given.axis.raw.get("default") is not None):
            found = next(
                (x for k, x in enumerate(given.literals) if given.position(given.axis.default) == k), None
            )
    return [] if found is None or abs(found) == TRUE else [found]


def at_environment(space: Space, environment: Environment, catalog: Catalog) -> list[int] | None:
    """Literals that say an environment; None where the space does not have one of its values."""
    facts = environment.values(catalog.vocabulary)
    found: list[int] = []
    for given in space.given:
        if given.axis.of != "environment":
            continue
        axis = catalog.vocabulary.by_name.get(given.axis.name)
        if axis is None:
            k = given.where("absent")
            if k is None:
                return None
            found.append(given.literals[k])
            continue
        raw: Any = facts[axis.index]
        if given.package is not None:
            raw = raw.get(given.package) if isinstance(raw, Packages) else None
            raw = raw or PackageState(None, "missing")
        elif isinstance(raw, Packages):
            raw = True
        try:
            found.append(given.literals[given.position(raw)])
        except KeyError:
            return None
    return found


class Machine(NamedTuple):
    """A preset machine, and the literals that say it in a space."""

    environment: Environment
    literals: tuple[int, ...]


def machines(space: Space, catalog: Catalog) -> list[Machine]:
    """The preset machines of a catalog's manifests directory with all their software; of those that are alike one."""
    found: dict[tuple[int, ...], Machine] = {}
    try:
        names = preset_names(catalog.root)
        presets = [Environment.preset(n, vocabulary=catalog.vocabulary, root=catalog.root) for n in names]
    except SelectorError:  # a directory without presets, or with broken ones, has witnesses all the same
        return []
    for environment in presets:
        literals = at_environment(space, environment, catalog)
        if literals is not None:
            found.setdefault(tuple(literals), Machine(environment, tuple(literals)))
    return list(found.values())


def hardware(space: Space, catalog: Catalog) -> int | None:
    """The literal of: every fact but the packages is as on one of the preset machines. None where there are no presets."""
    free = {abs(x) for given in space.given if not given.hardware for x in given.literals} - {TRUE}
    found = [[x for x in m.literals if abs(x) not in free] for m in machines(space, catalog)]
    return space.circuit.disj(space.circuit.conj(each) for each in found) if found else None


def smallest(
    solver: Solver, literals: Iterable[int], catalog: Catalog, near_to: Sequence[Machine] = ()
) -> Witness:
    """The smallest witness of a question whose answer is yes.

    It is on a preset machine, with as few changes to the machine as can be, and then as few fields. Where there are no
    presets: as few fields and facts.
    """
    wanted = _ordinary(solver, list(literals), known=False)
    fields = _unusual(solver.space, "request")
    best: tuple[int, int, Machine, list[int]] | None = None
    for machine in near_to:
        changed = [-x for x in machine.literals if abs(x) != TRUE]
        if best is None:
            solver.check(wanted)
        changes = _fewest(solver, wanted, changed, None if best is None else best[0] + 1)
        if changes is None:
            continue
        kept = [*wanted, solver.at_most(changes, changed)]
        solver.check(kept)
        number = _fewest(solver, kept, fields, best[1] if best is not None and best[0] == changes else None)
        if number is not None:
            best = (changes, number, machine, kept)
    if best is not None:
        solver.check([*best[3], solver.at_most(best[1], fields)])
        return realised_near(solver, catalog, best[2].environment)
    wanted = _ordinary(solver, wanted, known=True)
    solver.check(wanted)
    deviations = [*fields, *_unusual(solver.space, "environment")]
    number = _fewest(solver, wanted, deviations, None)
    assert number is not None
    solver.check([*wanted, solver.at_most(number, deviations)])
    return realised_near(solver, catalog, None)


def near(solver: Solver, literals: Iterable[int], catalog: Catalog, near_to: Sequence[Machine]) -> Witness:
    """A small witness, soon found: on the first preset machine that has one, as it is or with the fewest changes."""
    wanted = _ordinary(solver, list(literals), known=False)
    fields = _unusual(solver.space, "request")
    for machine in near_to:
        here = [*wanted, *machine.literals]
        if solver.check(here):
            number = _fewest(solver, here, fields, None)
            assert number is not None
            solver.check([*here, solver.at_most(number, fields)])
            return realised_near(solver, catalog, machine.environment)
    best: tuple[int, Machine] | None = None
    solver.check(wanted)
    for machine in near_to:
        changed = [-x for x in machine.literals if abs(x) != TRUE]
        changes = _fewest(solver, wanted, changed, None if best is None else best[0])
        if changes is not None:
            best = changes, machine
            if changes == 1:
                break
    if best is None:
        return smallest(solver, wanted, catalog)
    here = [*wanted, solver.at_most(best[0], [-x for x in best[1].literals if abs(x) != TRUE])]
    solver.check(here)
    number = _fewest(solver, here, fields, None)
    assert number is not None
    solver.check([*here, solver.at_most(number, fields)])
    return realised_near(solver, catalog, best[1].environment)


def _unusual(space: Space, of: str) -> list[int]:
    """Literals of: a field is given, a fact is known, a package is there."""
    return [-x for g in space.given if g.axis.of == of for x in _usual(g)]


def _ordinary(solver: Solver, wanted: list[int], *, known: bool) -> list[int]:
    """A question narrowed to ordinary values, if its answer is still yes; to known facts, too, if that is asked for."""
    for narrower in (plain(solver.space), plain(solver.space, known=False))[0 if known else 1 :]:
        if solver.check([*wanted, *narrower]):
            return [*wanted, *narrower]
    return wanted


def realised_near(solver: Solver, catalog: Catalog, machine: Environment | None) -> Witness:
    """The solver's last solution; facts that are as on the machine are the machine's own."""
    space = solver.space
    raw = witness.values_of(space, solver.point())
    request, environment = witness.realised(raw, catalog.vocabulary)
    if machine is None:
        return Witness(request, environment, None)
    facts = dict(machine.facts)
    for given in space.given:
        axis = catalog.vocabulary.by_name.get(given.axis.name)
        if axis is None or axis.of != "environment":
            continue
        old = machine.values(catalog.vocabulary)[axis.index]
        if given.package is not None:
            new = environment.facts.get(axis.name)
            if not isinstance(old, Packages) or not isinstance(new, Packages):
                continue
            missing = PackageState(None, "missing")
            state = new.get(given.package, missing)
            before = old.get(given.package, missing)
            if given.position(before) != given.position(state):
                merged = dict(facts.get(axis.name) or {})
                merged[given.package] = state
                facts[axis.name] = Packages({n: s for n, s in merged.items() if s.state != "missing"})
            continue
        value = environment.facts.get(axis.name, UNKNOWN)
        if axis.type == "packages":
            if not isinstance(value, Packages):
                _put(facts, axis.name, value)
        elif not _same_class(given, old, environment.values(catalog.vocabulary)[axis.index]):
            _put(facts, axis.name, value)
    named = Environment(facts, name=machine.name, title=machine.title, vocabulary=catalog.vocabulary)
    return Witness(request, named, machine)


def _put(facts: dict[str, Any], name: str, value: Any) -> None:
    if value is UNKNOWN:
        facts.pop(name, None)
    else:
        facts[name] = value


def _same_class(given: Given, a: Any, b: Any) -> bool:
    try:
        return given.position(a) == given.position(b)
    except KeyError:
        return False


def _fewest(solver: Solver, wanted: list[int], deviations: list[int], below: int | None) -> int | None:
    """The least number of deviations with which a question still has the answer yes; None if not below a number.

    Without a number the solver's last solution answers the question.
    """
    if below is not None and (
        below == 0 or not solver.check([*wanted, solver.at_most(below - 1, deviations)])
    ):
        return None
    low, high = 0, sum(1 for x in deviations if solver.holds(x))
    while low < high:
        middle = (low + high) // 2
        if solver.check([*wanted, solver.at_most(middle, deviations)]):
            high = sum(1 for x in deviations if solver.holds(x))
        else:
            low = middle + 1
    return high
