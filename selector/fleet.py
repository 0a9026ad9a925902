"""Fleets: many machines, a few kinds of them, from one file.

fleet: 1
machines:
  - {on: h100, count: 64}
  - {on: machines/lab.json, count: 8, name: lab}
  - {on: a100, count: 16, profile: bare, with: {flash-attn: "2.8.3"}}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.environment import Environment
from selector.errors import EnvironmentFileError, Fault, ManifestError, RequestError

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.vocabulary import Vocabulary
    from selector.yaml_loader import Document, Path

__all__ = ["Fleet", "Machines", "fleet_of", "load_fleet"]


class Machines(NamedTuple):
    """Some machines that are alike."""

    name: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    environment: Environment


class Fleet(NamedTuple):
    """All machines, in the order of the file."""

    source: str
    title: str | None
    machines: tuple[Machines, ...]

    @property
    def total(self) -> int:
        """How many machines there are."""
        return sum(m.count for m in self.machines)


def load_fleet(path: str | os.PathLike[str], catalog: Catalog) -> Fleet:
    """The fleet of a file, its facts in the catalog's vocabulary.

    Raises:
        ManifestError: with every mistake, those in the files of machines included.
        EnvironmentFileError: no such file.
    """
    from selector.errors import EnvironmentFileError
    from selector.schema_build import build
    from selector.validate import load_valid

    if not os.path.lexists(path):
        raise EnvironmentFileError(
            f"{os.fspath(path)}: no such file",
            "a fleet is a file that lists machines: `attn-select schema fleet`",
        )
    document = load_valid(path, build(catalog.vocabulary.raw)["fleet"])
    fleet, faults = fleet_of(
        document, catalog.vocabulary, catalog.root, os.path.dirname(os.path.abspath(os.fspath(path)))
    )
    faults += _unknown(document, catalog)
    if faults:
        raise ManifestError(faults)
    return fleet


def _unknown(document: Document, catalog: Catalog) -> list[Fault]:
    """Packages that nothing of the catalog knows: they would change nothing."""
    from selector.software import unknown_packages

    machines: Any = document.data
    return [
        document.fault(
            ("machines", i, "with", name), f"nothing here asks for a package called {name}", hint, key=True
        )
        for i, entry in enumerate(machines["machines"])
        for name, hint in unknown_packages(entry.get("with") or (), catalog).items()
    ]


def fleet_of(document: Document, vocabulary: Vocabulary, root: str, folder: str) -> tuple[Fleet, list[Fault]]:
    """The fleet of a schema-valid document, and what is wrong with it beyond its schema.

    ``root`` has the presets; the files of machines are relative to ``folder``.
    """
    data: Any = document.data
    reader = _Reader(document, vocabulary, root, folder)
    machines = []
    names: dict[str, int] = {}
    for i, entry in enumerate(data["machines"]):
        environment = reader.machine(entry, ("machines", i))
        if environment is None:
            continue
        name = _name(entry, reader.called(entry, environment), names)
        if name in names:
            reader.fault(
                ("machines", i, "name"),
                f"{name} is there already",
                "give each kind of machine a name of its own",
            )
        names[name] = i
        machines.append(Machines(name, entry.get("count", 1), environment))
    return Fleet(document.name, data.get("title"), tuple(machines)), reader.faults


def _name(entry: Mapping[str, Any], machine: str, taken: Mapping[str, int]) -> str:
    """The given name; else the machine's, with what makes it another one than its namesakes."""
    if "name" in entry:
        return str(entry["name"])
    name = machine
    changes = [str(entry["profile"])] if "profile" in entry else []
    changes += [f"+{p}" for p in entry.get("with") or {}] + [f"-{p}" for p in entry.get("without") or ()]
    changes += [str(fact) for fact in entry.get("facts") or {}]
    if changes:
        name += f" ({', '.join(changes)})"
    same, number = name, 1
    while name in taken:
        number += 1
        name = f"{same} #{number}"
    return name


class _Reader:
    def __init__(self, document: Document, vocabulary: Vocabulary, root: str, folder: str) -> None:
        self.document, self.vocabulary, self.root = document, vocabulary, root
        self.folder = folder
        self.faults: list[Fault] = []

    def fault(self, path: Path, message: str, hint: str | None = None) -> None:
        self.faults.append(self.document.fault(path, message, hint))

    def machine(self, entry: Mapping[str, Any], path: Path) -> Environment | None:
        """The environment of one entry; None where it has a fault."""
        where: str = entry["on"]
        file = self.file(where)
        environment = self.preset(entry, path) if file is None else self.load(file, entry, path)
        facts = entry.get("facts")
        if environment is None or not facts:
            return environment
        try:
            return Environment(
                {**environment.facts, **_canonical(facts, self.vocabulary)},
                name=environment.name,
                title=environment.title,
                origin=f"{environment.origin}, {' '.join(facts)} as in {self.document.name}",
                vocabulary=self.vocabulary,
            )
        except RequestError as error:
            for problem in error.problems:
                self.fault((*path, "facts", problem.field), problem.message, problem.hint)
            return None

    def called(self, entry: Mapping[str, Any], environment: Environment) -> str:
        """The name of a preset; of a file its own, because saved machines all have the same one inside."""
        file = self.file(entry["on"])
        return environment.name if file is None else os.path.splitext(os.path.basename(file))[0]

    def file(self, where: str) -> str | None:
        """The file that `on` names, beside the fleet's; None for a preset's name."""
        path = os.path.join(self.folder, where)
        looks = "/" in where or os.sep in where or where.endswith((".yaml", ".yml", ".json"))
        return path if looks or os.path.isfile(path) else None

    def preset(self, entry: Mapping[str, Any], path: Path) -> Environment | None:
        where, profile = entry["on"], entry.get("profile", "full")
        words, root = self.vocabulary, self.root
        at: Path = (*path, "on")
        try:
            Environment.preset(where, vocabulary=words, root=root)
            at = (*path, "profile")
            Environment.preset(where, profile, vocabulary=words, root=root)
            at = (*path, "without")
            return Environment.preset(
                where,
                profile,
                with_packages=entry.get("with") or {},
                without=entry.get("without") or (),
                vocabulary=words,
                root=root,
            )
        except EnvironmentFileError as error:
            self.fault(at, error.message, error.hint)
            self.faults.extend(error.faults)
            return None

    def load(self, file: str, entry: Mapping[str, Any], path: Path) -> Environment | None:
        if "profile" in entry:
            self.fault((*path, "profile"), "a profile is for presets; a file says what is installed")
            return None
        try:
            environment = Environment.load(file, vocabulary=self.vocabulary)
        except EnvironmentFileError as error:
            self.fault((*path, "on"), error.message, error.hint)
            self.faults.extend(error.faults)
            return None
        installed = environment.facts.get("packages") or {}
        absent = [n for n in entry.get("without") or () if n not in installed]
        for name in absent:
            self.fault((*path, "without"), f"{name} is not installed on {entry['on']}")
        if absent:
            return None
        changes: dict[str, str | None] = {
            **dict.fromkeys(entry.get("without") or ()),
            **(entry.get("with") or {}),
        }
        return environment.with_packages(changes) if changes else environment


def _canonical(facts: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """Facts by their canonical names, so that they replace others."""
    named = {name: vocabulary.find(name) for name in facts}
    return {axis.name if axis is not None else name: facts[name] for name, axis in named.items()}
