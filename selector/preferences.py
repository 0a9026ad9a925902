"""Preferences and where they come from. The source decides what happens when one cannot be met."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from selector import quarantine
from selector.errors import Mark

__all__ = ["Preference", "from_call", "from_process"]

#: Sources whose pin is an error when it cannot be met; the others fall to the next candidate.
BINDING = frozenset({"call", "flag", "variable", "configuration"})

VARIABLES = {"pin": "ATTN_SELECTOR_BACKEND", "avoid": "ATTN_SELECTOR_AVOID", "prefer": "ATTN_SELECTOR_PREFER"}
CONFIG_VARIABLE = "ATTN_SELECTOR_CONFIG"


class Preference(NamedTuple):
    """``kind`` pin, avoid or prefer; ``names`` candidates or backends; ``source`` call, flag, variable, configuration, model.

    ``where`` says it for people: the parameter, the variable's name, or file:line:column.
    """

    kind: str
    names: tuple[str, ...]
    source: str
    where: str

    @property
    def binding(self) -> bool:
        """Whether a pin that cannot be met is an error."""
        return self.source in BINDING

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"kind": self.kind, "names": list(self.names), "source": self.source, "where": self.where}


def _names(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    words: Any = value.split(",") if isinstance(value, str) else value
    items = list(words) if isinstance(words, Iterable) else [words]
    if not all(isinstance(n, str) for n in items):
        raise TypeError(f"backends are named by text, not {value!r}")
    return tuple(n.strip() for n in items if n and n.strip())


def from_call(
    backend: str | None,
    avoid: str | Iterable[str] | None,
    prefer: str | Iterable[str] | None,
    source: str = "call",
) -> list[Preference]:
    """What the caller said, by keyword or by a flag of the command."""
    dash = "--" if source == "flag" else ""
    found = []
    for kind, label, value in (
        ("pin", "backend", backend),
        ("avoid", "avoid", avoid),
        ("prefer", "prefer", prefer),
    ):
        names = _names(value)
        if names:
            found.append(Preference(kind, names, source, f"{dash}{label}"))
    return found


def from_model(value: str | Iterable[str] | None, where: str) -> list[Preference]:
    """What a model's own configuration names: only a wish."""
    names = _names(value)
    return [Preference("prefer", names, "model", where)] if names else []


_PROCESS: tuple[Preference, ...] | None = None
#: Another one after each `forget`, so that what a thread began to read before is not kept.
_TURN = object()


def from_process(variables: Mapping[str, str] | None = None) -> tuple[Preference, ...]:
    """What this process's variables and the user's configuration file say; read once (see `forget`)."""
    global _PROCESS
    known = _PROCESS  # looked at once: another thread may forget it
    if variables is None and known is not None:
        return known
    turn = _TURN
    found = []
    environ = os.environ if variables is None else variables
    for kind, variable in VARIABLES.items():
        names = _names(environ.get(variable))
        if names:
            found.append(Preference(kind, names, "variable", variable))
    spoken = {p.kind for p in found}
    found.extend(p for p in _configured(environ) if p.kind not in spoken or p.kind == "avoid")
    result = tuple(found)
    if variables is None and turn is _TURN:
        _PROCESS = result
    return result


def use(wishes: tuple[Preference, ...]) -> None:
    """Go by wishes that were just read (`from_process(os.environ)`); the caller has decisions forgotten."""
    global _PROCESS, _TURN
    _PROCESS, _TURN = wishes, object()


def forget() -> None:
    """Read variables and configuration anew at the next decision; those made before are forgotten."""
    global _PROCESS, _TURN
    _PROCESS, _TURN = None, object()
    quarantine.changed()


def config_path(environ: Mapping[str, str]) -> str:
    """The user's configuration file: `ATTN_SELECTOR_CONFIG`, or `attention-selector/config.yaml` of the platform."""
    named = environ.get(CONFIG_VARIABLE)
    if named:
        return named
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "attention-selector", "config.yaml")


def _configured(environ: Mapping[str, str]) -> list[Preference]:
    path = config_path(environ)
    if not os.path.lexists(path):
        if environ.get(CONFIG_VARIABLE):
            from selector.errors import Fault, ManifestError

            raise ManifestError(
                [Fault(Mark(path, 0, 0), "", f"no such file ({CONFIG_VARIABLE} names it)", None, None)]
            )
        return []
    from selector.errors import ManifestError
    from selector.yaml_loader import load_file

    document = load_file(path)
    data = document.data if document.data is not None else {}
    keys = {"backend": "pin", "avoid": "avoid", "prefer": "prefer"}
    faults = []
    found = []
    if not isinstance(data, dict):
        raise ManifestError([document.fault((), f"a mapping with {', '.join(keys)}")])
    for key, value in data.items():
        if key not in keys:
            faults.append(document.fault((key,), f"unknown key {key!r}: one of {', '.join(keys)}", key=True))
            continue
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(v, str) for v in items):
            faults.append(document.fault((key,), f"{key} is a backend's name, or a list of them"))
            continue
        found.append(
            Preference(
                keys[key],
                _names([str(v) for v in items]),
                "configuration",
                str(document.mark((key,), key=True)),
            )
        )
    if faults:
        raise ManifestError(faults)
    return found
