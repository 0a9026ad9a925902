"""Environments: what one machine is, as axis values. Presets say it of machines that are not there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from selector.errors import EnvironmentFileError, Problem, RequestError
from selector.vocabulary import MISSING, UNKNOWN, Packages, PackageState, Vocabulary, nearest

if TYPE_CHECKING:
    from selector.document import Document

__all__ = ["Environment", "preset_names"]

PROFILES = ("full", "bare")


class Environment:
    """One machine: facts by axis name. A fact that is not there is unknown, unless its axis has a default.

    ``name`` is how messages call it; ``origin`` says where the facts come from (preset, probe, file, call).
    """

    __slots__ = ("_bound", "_hash", "facts", "fingerprint", "live", "name", "origin", "title")

    def __init__(
        self,
        facts: Mapping[str, Any] | None = None,
        /,
        *,
        name: str = "custom",
        title: str | None = None,
        origin: str = "call",
        live: bool = False,
        vocabulary: Vocabulary | None = None,
        **more: Any,
    ) -> None:
        from selector.request import default_vocabulary

        given = more if facts is None else {**facts, **more}
        words = vocabulary if vocabulary is not None else default_vocabulary()
        self.facts: dict[str, Any] = _facts(words, given)
        self.name, self.title, self.origin, self.live = name, title or name, origin, live
        self.fingerprint = _fingerprint(self.facts)
        self._hash = hash(self.fingerprint)
        self._bound: dict[int, tuple[Vocabulary, dict[int, Any]]] = {}

    @classmethod
    def preset(
        cls,
        name: str,
        profile: str = "full",
        *,
        with_packages: Mapping[str, str] | None = None,
        without: Iterable[str] = (),
        vocabulary: Vocabulary | None = None,
        root: str | None = None,
    ) -> Environment:
        """A machine by name (`h100`), with a named software profile. Raises EnvironmentFileError for unknown names."""
        return _preset(cls, name, profile, with_packages or {}, tuple(without), vocabulary, root)

    @classmethod
    def probe(cls) -> Environment:
        """This machine. Reads the system and package metadata; imports no framework and no kernel library."""
        from selector.probe import probe

        return probe()

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, vocabulary: Vocabulary | None = None) -> Environment:
        """An environment from a file in the presets' format (YAML or JSON). Raises EnvironmentFileError."""
        return from_document(_load(os.fspath(path)), cls, vocabulary)

    def replace(self, **facts: Any) -> Environment:
        """A copy with some facts changed."""
        return Environment(
            {**self.facts, **facts}, name=self.name, title=self.title, origin=self.origin, live=self.live
        )

    def with_packages(self, changes: Mapping[str, PackageState | str | None]) -> Environment:
        """A copy with packages added, replaced or (None) removed."""
        packages: dict[str, Any] = dict(self.facts.get("packages") or {})
        for name, state in changes.items():
            if state is None:
                packages.pop(name, None)
            else:
                packages[name] = state
        return self.replace(packages=packages)

    def get(self, name: str) -> Any:
        """One fact, or UNKNOWN."""
        return self.facts.get(name, UNKNOWN)

    def values(self, vocabulary: Vocabulary) -> dict[int, Any]:
        """Every environment axis's value by position: the fact, the process variable, the default, or UNKNOWN."""
        known = self._bound.get(id(vocabulary))
        if known is not None and known[0] is vocabulary:
            return known[1]
        found: dict[int, Any] = {}
        for axis in vocabulary.axes:
            if axis.of != "environment" or axis.derive is not None:
                continue
            value: Any = UNKNOWN
            if axis.name in self.facts:
                value = _canonical(axis.canonical, self.facts[axis.name])
            elif axis.variable is not None and self.live and axis.variable in os.environ:
                value = _canonical(axis.canonical, os.environ[axis.variable])
            elif axis.same_as is not None:
                value = MISSING
            elif axis.raw.get("default") is not None:
                value = axis.default
            found[axis.index] = value
        if len(self._bound) > 16:
            self._bound.clear()
        self._bound[id(vocabulary)] = (vocabulary, found)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able facts, packages as {name: {version, state, detail}}."""
        return {k: _plain(v) for k, v in self.facts.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Environment) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Environment({self.name}: {', '.join(f'{k}={v}' for k, v in self.facts.items() if k != 'packages')})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.to_dict(), self.name, self.title, self.origin, self.live))


def _rebuild(facts: dict[str, Any], name: str, title: str, origin: str, live: bool) -> Environment:
    return Environment(facts, name=name, title=title, origin=origin, live=live)


def _canonical(canonical: Any, raw: Any) -> Any:
    """A fact in its axis's form; one that the axis cannot have counts as unknown (it was checked where it was given)."""
    try:
        return canonical(raw)
    except ValueError:
        return UNKNOWN


def _plain(value: Any) -> Any:
    if isinstance(value, Packages):
        plain = {}
        for name, state in sorted(value.items()):
            entry = {"version": state.version, "state": state.state}
            if state.detail is not None:
                entry["detail"] = state.detail
            plain[name] = entry
        return plain
    return list(value) if isinstance(value, tuple) else value


def _fingerprint(facts: Mapping[str, Any]) -> str:
    text = json.dumps({k: _plain(v) for k, v in facts.items()}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _facts(vocabulary: Vocabulary, given: Mapping[str, Any]) -> dict[str, Any]:
    """Canonical facts. A name that this vocabulary does not know is kept as it is: another pack's may."""
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, raw in given.items():
        axis = vocabulary.find(name)
        if axis is None:
            found[name] = tuple(raw) if isinstance(raw, list) else raw
        elif axis.of != "environment" or axis.derive is not None:
            problems.append(Problem(name, f"{axis.name} is no fact of an environment", None))
        else:
            try:
                found[axis.name] = axis.canonical(raw)
            except ValueError as error:
                problems.append(Problem(name, str(error), getattr(error, "hint", None)))
    if problems:
        raise RequestError(problems)
    return found


def facts_of(vocabulary: Vocabulary) -> list[str]:
    """The axes that are facts of an environment and can be given."""
    return [a.name for a in vocabulary.axes if a.of == "environment" and a.derive is None]


def check_names(vocabulary: Vocabulary, names: Iterable[str]) -> None:
    """Raise RequestError for names that are no facts of an environment."""
    problems = []
    for name in names:
        axis = vocabulary.find(name)
        if axis is None:
            known = [
                n
                for n in vocabulary.names()
                if (vocabulary.find(n) or vocabulary.axes[0]).of == "environment"
            ]
            near = nearest(name, known)
            problems.append(
                Problem(
                    name,
                    f"unknown fact {name!r} of an environment",
                    f"did you mean {near}?" if near else f"facts: {', '.join(facts_of(vocabulary))}",
                )
            )
        elif axis.of != "environment":
            problems.append(
                Problem(
                    name,
                    f"{axis.name} belongs to the request, not to an environment",
                    f"write it as {name}=... alone",
                )
            )
    if problems:
        raise RequestError(problems)


# -- files ------------------------------------------------------------------------------------------------------------


def _root(root: str | None) -> str:
    from selector.locations import manifests_root

    return manifests_root() if root is None else root


def _load(path: str) -> Document:
    from selector.errors import ManifestError
    from selector.stored import load_stored

    try:
        return load_stored(path)
    except ManifestError as error:
        raise EnvironmentFileError(f"cannot read the environment {path}", None, error.faults) from None


def from_document(
    document: Document, cls: type[Environment], vocabulary: Vocabulary | None = None
) -> Environment:
    """The environment of one file."""
    from selector.request import default_vocabulary

    data: Any = document.data
    if not isinstance(data, dict) or not isinstance(data.get("facts"), dict):
        raise EnvironmentFileError(
            f"{document.name} does not describe a machine", "it has `facts:`, a mapping of axis to value"
        )
    for key in ("name", "title"):
        if not isinstance(data.get(key, ""), str):
            fault = document.fault((key,), f"{key} is text")
            raise EnvironmentFileError(f"{document.name} does not describe a machine", None, [fault])
    words = vocabulary if vocabulary is not None else default_vocabulary()
    faults = []
    for name, raw in data["facts"].items():
        axis = words.find(name)
        if axis is None:
            continue
        try:
            axis.canonical(raw)
        except ValueError as error:
            faults.append(document.fault(("facts", name), str(error), getattr(error, "hint", None)))
    if faults:
        raise EnvironmentFileError(f"{document.name} does not describe a machine", None, faults)
    name = str(data.get("name", os.path.splitext(os.path.basename(document.name))[0]))
    return cls(
        data["facts"], name=name, title=data.get("title"), origin=f"file {document.name}", vocabulary=words
    )


def preset_names(root: str | None = None) -> dict[str, str]:
    """Every preset's name and title."""
    found: dict[str, str] = {}
    folder = os.path.join(_root(root), "environments")
    for path in _files(folder):
        data: Any = _load(path).data
        if isinstance(data, dict):
            found[str(data.get("name"))] = str(data.get("title", data.get("name")))
    return found


def _files(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, n) for n in names if n.endswith((".yaml", ".yml")) and not n.startswith(".")]


def _find(name: str, root: str) -> Document:
    folder = os.path.join(root, "environments")
    direct = os.path.join(folder, f"{name}.yaml")
    if os.sep not in name and os.path.isfile(direct):
        return _load(direct)
    known: dict[str, Document] = {}
    for path in _files(folder):
        document = _load(path)
        data: Any = document.data
        if isinstance(data, dict):
            for spelling in (data.get("name"), *(data.get("aliases") or ())):
                known[str(spelling)] = document
    found = known.get(name) or known.get(name.lower())
    if found is None:
        near = nearest(name, known)
        listed = ", ".join(
            sorted(str(d.data.get("name")) for d in set(known.values()) if isinstance(d.data, dict))
        )
        raise EnvironmentFileError(
            f"no preset environment is called {name!r}: {listed}",
            f"did you mean {near}?" if near else "or give a file",
        )
    return found


def _preset(
    cls: type[Environment],
    name: str,
    profile: str,
    added: Mapping[str, str],
    without: tuple[str, ...],
    vocabulary: Vocabulary | None,
    root: str | None,
) -> Environment:
    from selector.request import default_vocabulary

    base = _root(root)
    words = vocabulary if vocabulary is not None else default_vocabulary()
    machine = from_document(_find(name, base), cls, words)
    document = _load(os.path.join(base, "software.yaml"))
    try:
        return _with_software(machine, document, profile, added, without, words)
    except (AttributeError, KeyError, TypeError, ValueError):
        # Holding every file against its schema would cost each start more than reading it does.
        from selector.schema_build import build
        from selector.validate import validate

        faults = validate(document, build(words.raw)["software"])
        if not faults:
            raise
        raise EnvironmentFileError(f"{document.name} does not describe software", None, faults) from None


def _with_software(
    machine: Environment,
    document: Document,
    profile: str,
    added: Mapping[str, str],
    without: tuple[str, ...],
    words: Vocabulary,
) -> Environment:
    """A machine with the packages of one profile of a software file that need not be valid."""
    software: Any = document.data
    profiles = software.get("profiles") or {}
    if profile not in profiles:
        near = nearest(profile, profiles)
        raise EnvironmentFileError(
            f"no software profile is called {profile!r}: {', '.join(profiles)}",
            f"did you mean {near}?" if near else None,
        )
    chosen = profiles[profile]
    values: dict[int, Any] = {}
    for fact, value in machine.facts.items():
        axis = words.find(fact)
        if axis is not None:
            values[axis.index] = value
    facts = dict(machine.facts)
    from selector.conditions import holds, parse

    def applies(entry: Mapping[str, Any]) -> bool:
        raw = entry.get("when")
        return raw is None or holds(parse(raw, words, lambda *_: None), values)

    for entry in chosen.get("facts") or ():
        if applies(entry):
            for fact, value in (entry.get("set") or {}).items():
                facts.setdefault(fact, value)
    packages: dict[str, PackageState] = {}
    wanted = chosen.get("packages", "all")
    for package, entry in (software.get("packages") or {}).items():
        if (wanted == "all" or package in wanted) and applies(entry):
            packages[package] = PackageState(str(entry["version"]))
    for package in without:
        if package not in packages:
            near = nearest(package, packages)
            raise EnvironmentFileError(
                f"{package} is not in {machine.name}'s profile {profile}",
                f"did you mean {near}?" if near else None,
            )
        del packages[package]
    for package, version in added.items():
        packages[package] = PackageState(version)
    facts["packages"] = Packages(packages)
    changed = "".join([*(f" +{p}=={v}" for p, v in added.items()), *(f" -{p}" for p in without)])
    return type(machine)(
        facts,
        name=machine.name,
        title=machine.title,
        origin=f"preset {machine.name}, profile {profile}{changed}",
        vocabulary=words,
    )
