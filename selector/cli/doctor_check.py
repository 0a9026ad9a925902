"""Finding out the state of packages: what the packs want of them, their metadata, and whether they import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.vocabulary import PackageState

__all__ = ["Finding", "examine", "try_import"]

#: Words of an import error that tell of a build for another framework, CUDA, C library or processor.
WRONG_BUILD = (
    "undefined symbol",
    "symbol not found",
    "cannot open shared object",
    "library not loaded",
    "dll load failed",
    "wrong elf class",
    "invalid elf header",
    "incompatible architecture",
    "glibc_",
    "glibcxx_",
    "cxxabi_",
    "compiled against",
    "compiled with",
    "compiled for",
    "built against",
    "built with",
    "built for",
    "abi",
    "version mismatch",
    "no kernel image",
)

#: Words that tell of a device that is not there.
NO_DEVICE = ("no cuda", "no nvidia", "not compiled with cuda", "no gpu", "no device", "not find any device")

#: Characters of an error that are kept.
SHOWN = 200

#: What the child runs: it prints the outcome as the last line of standard output, whatever the module prints before.
CHILD = """\
import importlib, json, sys
sys.path[:] = [path for path in sys.path if path]  # nothing from the directory it was started in
try:
    importlib.import_module(sys.argv[1])
    outcome = None
except BaseException as error:
    lines = str(error).strip().splitlines()
    outcome = [type(error).__name__, lines[0] if lines else ""]
sys.stdout.write("\\n" + json.dumps(outcome) + "\\n")
sys.stdout.flush()
import os
os._exit(0)
"""


class Finding(NamedTuple):
    """One package: what was found, who wants what of it, and the wants that are not met."""

    name: str
    version: str | None
    state: str
    detail: str | None
    module: str | None
    install: str | None
    wanted: tuple[tuple[tuple[str, ...], str], ...]
    unmet: tuple[tuple[tuple[str, ...], str], ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "name": self.name,
            "version": self.version,
            "state": self.state,
            "detail": self.detail,
            "import": self.module,
            "install": self.install,
            "wanted": [{"candidates": list(ids), "versions": text} for ids, text in self.wanted],
            "unmet": [{"candidates": list(ids), "versions": text} for ids, text in self.unmet],
        }


def examine(
    catalog: Catalog, machine: Environment, *, deep: bool, timeout: float
) -> tuple[list[Finding], Environment]:
    """Every package that the catalog's candidates or the software list name, and the machine with their states."""
    from selector.vocabulary import PackageState

    software = _software(catalog.root)
    wants = _wants(catalog)
    states: dict[str, PackageState] = dict(machine.facts.get("packages") or {})
    for name in wants:
        if name not in states:
            states[name] = _metadata(name)
    for name, state in states.items():
        module = (software.get(name) or {}).get("import")
        if deep and state.state == "usable" and module:
            outcome, detail = try_import(str(module), timeout)
            states[name] = PackageState(state.version, outcome, detail)
    findings = []
    for name, state in states.items():
        entry = software.get(name) or {}
        found = wants.get(name, {})
        unmet = {
            t: ids for t, ids in found.items() if state.state == "usable" and not _meets(t, state.version)
        }
        shown = state.state
        if found and len(unmet) == len(found):
            shown = "version out of range"
        findings.append(
            Finding(
                name,
                state.version,
                shown,
                state.detail,
                entry.get("import"),
                entry.get("install"),
                _grouped(found),
                _grouped(unmet),
            )
        )
    from selector.environment import Environment

    facts = {**machine.facts, "packages": states}
    return findings, Environment(
        facts,
        name=machine.name,
        title=machine.title,
        origin=machine.origin,
        live=machine.live,
        vocabulary=catalog.vocabulary,
    )


def _software(root: str) -> Mapping[str, Any]:
    from selector.environment import _load

    data: Any = _load(os.path.join(root, "software.yaml")).data
    packages = data.get("packages") if isinstance(data, dict) else None
    return packages if isinstance(packages, dict) else {}


def _wants(catalog: Catalog) -> dict[str, dict[str, list[str]]]:
    """By package and the text of the wanted versions: the candidates that want them."""
    found: dict[str, dict[str, list[str]]] = {}
    for candidate in catalog.candidates:
        if candidate.abstract:
            continue
        for declared in candidate.declared.values():
            if declared.axis.type != "packages":
                continue
            for clause in declared.constraint.clauses:
                for test in clause:
                    name, specifiers = test.operand
                    if specifiers is not None:
                        text = " or ".join(specifiers)
                        found.setdefault(name, {}).setdefault(text, []).append(candidate.id)
    return found


def _grouped(wants: Mapping[str, Iterable[str]]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Wants by backend, so that variants of one can be named together."""
    found = []
    for text, ids in wants.items():
        families: dict[str, list[str]] = {}
        for ident in ids:
            families.setdefault(ident.partition("/")[0], []).append(ident)
        found += [(tuple(members), text) for members in families.values()]
    return tuple(found)


def _meets(text: str, version: str | None) -> bool:
    from selector.versions import contains

    return not text or version is None or any(contains(s, version) for s in text.split(" or "))


def _metadata(name: str) -> PackageState:
    from importlib import metadata

    from selector.vocabulary import PackageState

    try:
        return PackageState(metadata.version(name))
    except metadata.PackageNotFoundError:
        return PackageState(None, "missing")


def try_import(module: str, timeout: float) -> tuple[str, str | None]:
    """(state, detail) of importing a module in a child process; the detail is the error's own first line."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, module],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "broken import", f"no end after {timeout:g} s"
    except OSError as error:
        return "unknown", f"no child process: {error.strerror}"
    if done.returncode < 0:
        return "broken import", f"killed by signal {-done.returncode}"
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    try:
        outcome = json.loads(lines[-1])
    except (IndexError, ValueError):
        return "broken import", f"ended with exit code {done.returncode}"
    if outcome is None:
        return "usable", None
    return classify(str(outcome[0]), str(outcome[1]))


def classify(kind: str, text: str) -> tuple[str, str]:
    """The state that an import error speaks of, and the error in one line."""
    detail = f"{kind}: {text}" if text else kind
    detail = detail if len(detail) <= SHOWN else detail[: SHOWN - 3] + "..."
    said = text.lower()
    if any(word in said for word in WRONG_BUILD):
        return "wrong build", detail
    if any(word in said for word in NO_DEVICE):
        return "not for this device", detail
    return "broken import", detail
