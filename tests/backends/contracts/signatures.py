"""Recordings as ``inspect.Signature`` objects, and which recorded versions a manifest's range covers."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDED = Path(__file__).parent / "recorded"

_KINDS = {
    "positional": inspect.Parameter.POSITIONAL_ONLY,
    "either": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "rest": inspect.Parameter.VAR_POSITIONAL,
    "keyword": inspect.Parameter.KEYWORD_ONLY,
    "keywords": inspect.Parameter.VAR_KEYWORD,
}


class Contract(NamedTuple):
    """The signatures of one version of a package."""

    package: str
    version: Version
    modules: Mapping[str, tuple[str, ...]]
    callables: Mapping[str, inspect.Signature]

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


class Unread(str):
    """A default that is no literal: its source text."""

    __slots__ = ()


def load(file: Path) -> Contract:
    """One recording."""
    data = json.loads(file.read_text(encoding="utf-8"))
    return Contract(
        data["package"],
        Version(data["version"]),
        {module: tuple(names) for module, names in data["modules"].items()},
        {name: _signature(parameters) for name, parameters in data["callables"].items()},
    )


def contracts(package: str) -> list[Contract]:
    """Every recorded version of a package, oldest first."""
    return sorted(
        (load(file) for file in (RECORDED / package).glob("*.json")), key=lambda contract: contract.version
    )


def covered(package: str, specifier: str) -> list[Contract]:
    """The recorded versions in a manifest's range; pre-releases count."""
    allowed = SpecifierSet(specifier)
    return [
        contract for contract in contracts(package) if allowed.contains(contract.version, prereleases=True)
    ]


def _signature(parameters: list[list[str]]) -> inspect.Signature:
    built = []
    for name, kind, *default in parameters:
        value = _default(default[0]) if default else inspect.Parameter.empty
        built.append(inspect.Parameter(name, _KINDS[kind], default=value))
    return inspect.Signature(built)


def _default(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return Unread(text)
