"""Options that several subcommands share, and what they stand for: catalog, environment, request, preferences."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from selector.cli.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.catalog import Catalog
    from selector.cli.parser import Parser
    from selector.environment import Environment
    from selector.preferences import Preference
    from selector.request import Request
    from selector.vocabulary import Axis, PackageState, Vocabulary

__all__ = [
    "add_catalog",
    "add_environment",
    "add_output",
    "add_preferences",
    "catalog_of",
    "environment_of",
    "preferences_of",
    "request_of",
]

#: How a value that is left open is written on the command line.
OPEN = "null"


def add_catalog(parser: Parser) -> None:
    """--pack and --manifests."""
    group = parser.add_argument_group("what can be chosen")
    group.add_argument(
        "--pack",
        action="append",
        metavar="PACK",
        help="a pack's name or directory; repeatable (default: core)",
    )
    group.add_argument(
        "--manifests", metavar="DIR", help="another manifests directory (also: ATTN_SELECTOR_MANIFESTS)"
    )


def add_environment(parser: Parser) -> None:
    """--on, --profile, --with, --without and --env."""
    group = parser.add_argument_group("the machine")
    group.add_argument(
        "--on", metavar="PRESET|FILE", help="a machine by name or file (default: this machine)"
    )
    group.add_argument(
        "--profile", metavar="NAME", help="what a preset has installed: full (default) or bare"
    )
    group.add_argument(
        "--with", action="append", default=[], dest="added", metavar="NAME==VERSION", help="with this package"
    )
    group.add_argument("--without", action="append", default=[], metavar="NAME", help="without this package")
    group.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="AXIS=VALUE",
        help="another fact of the machine; packages.NAME=VERSION too",
    )


def add_preferences(parser: Parser) -> None:
    """--backend, --avoid, --prefer and --strict."""
    group = parser.add_argument_group("preferences")
    group.add_argument("--backend", metavar="NAME", help="only this backend or candidate will do")
    group.add_argument("--avoid", action="append", metavar="NAME", help="not this one; repeatable")
    group.add_argument("--prefer", action="append", metavar="NAME", help="this one first; repeatable")
    group.add_argument(
        "--strict", action="store_true", help="refuse what would change the request or has a serious warning"
    )


def add_output(parser: Parser, *, verbose: str | None = None) -> None:
    """--json, and --verbose with what it shows."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="JSON on standard output")
    if verbose is not None:
        group.add_argument("-v", "--verbose", action="store_true", help=verbose)


def catalog_of(arguments: Namespace) -> Catalog:
    """The catalog that --pack and --manifests name. Raises ManifestError with every fault of every file."""
    from selector.catalog import Catalog

    return Catalog.load(*(arguments.pack or ()), manifests=root_of(arguments))


def root_of(arguments: Namespace) -> str | None:
    """The directory of --manifests as it was given; None for the usual one."""
    folder: str | None = arguments.manifests
    if folder is None:
        return None
    if not os.path.isdir(folder):
        raise UsageError(f"--manifests {folder}: no such directory")
    return folder


def split(word: str, option: str) -> tuple[str, str]:
    """`NAME=VALUE` in two."""
    name, sign, value = word.partition("=")
    if not sign or not name.strip():
        raise UsageError(f"{option} takes NAME=VALUE, not {word!r}")
    return name.strip(), value.strip()


# -- the request ------------------------------------------------------------------------------------------------------


def request_of(words: Iterable[str], vocabulary: Vocabulary, parser: Parser | None = None) -> Request:
    """The request of `AXIS=VALUE` words; a flag alone is true, `null` leaves a field open.

    Raises RequestError with every mistake, UsageError for a field that is given twice, and for a word that names an option
    of ``parser`` or a fact of the machine that ``parser`` takes no machine for.
    """
    from selector.request import Request

    return Request(fields_of(words, vocabulary, parser), vocabulary=vocabulary)


def fields_of(words: Iterable[str], vocabulary: Vocabulary, parser: Parser | None = None) -> dict[str, Any]:
    """The fields of `AXIS=VALUE` words, values still as text."""
    fields: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        name, text = name.strip(), text.strip()
        if not name:
            raise UsageError(f"{word!r} names no field", "write AXIS=VALUE, or a flag alone")
        if name in fields:
            raise UsageError(f"{name} is given twice")
        axis = vocabulary.find(name)
        if axis is None and not sign and (os.sep in word or os.path.isfile(word)):
            raise UsageError(
                f"{word} names a file, and a field AXIS=VALUE was expected here", "one file at a time"
            )
        if parser is not None:
            _check_word(parser, axis, name, text)
        fields[name] = _value(axis, name, sign, text)
    return fields


def _check_word(parser: Parser, axis: Axis | None, name: str, text: str) -> None:
    """Raise UsageError for a word that is an option of the command, or a fact of a machine where it takes none."""
    known = parser._option_string_actions
    option = f"--{name.replace('_', '-')}"
    if axis is None and option in known:
        value = f" {text}" if text and known[option].nargs != 0 else ""
        raise UsageError(f"{name!r} is no field of a request", f"did you mean {option}{value}?")
    if axis is not None and axis.of == "environment" and axis.derive is None and "--env" not in known:
        raise UsageError(
            f"{axis.name} belongs to the machine, and {parser.prog} works on this one",
            f"explain --env {axis.name}=... asks about another",
        )


def _value(axis: Axis | None, name: str, sign: str, text: str) -> Any:
    if not sign:
        if axis is not None and axis.derive is None and axis.type not in ("flag", "mode"):
            raise UsageError(f"{name} needs a value: {name}=...", axis.allowed())
        return True
    if not text:
        raise UsageError(f"{name}= has no value", f"{name}={OPEN} leaves it open")
    return None if text == OPEN else text


# -- the environment --------------------------------------------------------------------------------------------------


def environment_of(arguments: Namespace, catalog: Catalog) -> Environment:
    """The machine that the options describe; this one by default.

    Raises EnvironmentFileError for an unknown preset or a broken file, RequestError for facts that cannot be.
    """
    from selector.environment import Environment

    packages = {}
    for word in arguments.added:
        name, sign, version = word.partition("==")
        if not sign or not name or not version:
            raise UsageError(f"--with takes NAME==VERSION, not {word!r}")
        packages[name] = version
    without = list(arguments.without)
    for name in (n for n in without if n in packages):
        raise UsageError(f"{name} cannot be both --with and --without")
    if packages:
        from selector.software import unknown_packages

        for name, hint in unknown_packages(packages, catalog).items():
            raise UsageError(f"--with {name}=={packages[name]}: nothing here asks for {name}", hint)
    where: str | None = arguments.on
    if where is not None and not _is_file(where):
        machine = Environment.preset(
            where,
            arguments.profile or "full",
            with_packages=packages,
            without=without,
            vocabulary=catalog.vocabulary,
            root=catalog.root,
        )
        return _with_facts(machine, catalog, arguments.env, {}, ())
    if arguments.profile is not None:
        raise UsageError("--profile is for presets (--on NAME)")
    if where is None:
        from selector.probe import probe

        machine = probe(catalog.root)
    else:
        machine = Environment.load(where, vocabulary=catalog.vocabulary)
    return _with_facts(machine, catalog, arguments.env, packages, without)


def _is_file(where: str) -> bool:
    return os.sep in where or where.endswith((".yaml", ".yml", ".json")) or os.path.isfile(where)


def _with_facts(
    machine: Environment, catalog: Catalog, words: list[str], added: dict[str, str], without: Iterable[str]
) -> Environment:
    """``machine`` with --env, --with and --without applied."""
    from selector.environment import Environment, check_names
    from selector.vocabulary import PackageState

    packages: dict[str, PackageState] = dict(machine.facts.get("packages") or {})
    changes: dict[str, Any] = {}
    for word in words:
        name, text = split(word, "--env")
        head, dot, package = name.partition(".")
        axis = catalog.vocabulary.find(head)
        if dot and not package:
            raise UsageError(f"--env {word}: which package?", f"--env {head}.NAME=VERSION")
        if dot and axis is not None and axis.type == "packages":
            packages[package] = _package(text)
        else:
            changes[name] = None if text == OPEN else text
    check_names(catalog.vocabulary, changes)
    for name in without:
        if name not in packages:
            from selector.vocabulary import nearest

            near = nearest(name, packages)
            raise UsageError(
                f"--without {name}: it is not installed here", f"did you mean {near}?" if near else None
            )
        packages[name] = PackageState(None, "missing")
    packages.update({name: PackageState(version) for name, version in added.items()})
    if not words and not added and not without:
        return machine
    for name, value in changes.items():
        axis = catalog.vocabulary.find(name)
        if axis is not None and axis.type == "packages":
            raise UsageError(
                f"--env {name}={value}: packages are given one by one", f"--env {name}.NAME=VERSION"
            )
    facts = {k: v for k, v in machine.facts.items() if k != "packages"}
    for name, value in changes.items():
        axis = catalog.vocabulary.find(name)
        facts[axis.name if axis is not None else name] = value
    shown = "".join(
        f" {w}" for w in [*words, *(f"+{n}=={v}" for n, v in added.items()), *(f"-{n}" for n in without)]
    )
    return Environment(
        {**facts, "packages": packages},
        name=machine.name,
        title=machine.title,
        origin=f"{machine.origin},{shown}",
        live=machine.live,
        vocabulary=catalog.vocabulary,
    )


def _package(text: str) -> PackageState:
    """A version, a state, or `missing`."""
    from selector.vocabulary import STATES, PackageState

    if text in STATES:
        return PackageState(None, text)
    return PackageState(None, "missing") if text in (OPEN, "absent", "none") else PackageState(text)


def preferences_of(arguments: Namespace) -> tuple[Preference, ...]:
    """What the flags, the process's variables and the user's configuration say."""
    from selector import preferences as prefs

    flags = prefs.from_call(
        arguments.backend, _names(arguments.avoid), _names(arguments.prefer), source="flag"
    )
    process = prefs.from_process()
    if any(p.kind == "pin" for p in flags):
        process = tuple(p for p in process if p.kind != "pin")
    return (*flags, *process)


def _names(words: list[str] | None) -> list[str] | None:
    return [n for w in words for n in w.split(",")] if words else None
