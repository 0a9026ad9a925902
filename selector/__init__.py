"""Choose an attention kernel from YAML capability manifests, and say why.

>>> from selector import Request, select
>>> selection = select(Request(head_size=128, dtype="bfloat16"), environment="h100")
>>> selection.id
'flash_attn/fa3'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.errors import ManifestError, NoBackendError, PinError, RequestError, SelectorError
    from selector.reasons import Reason
    from selector.report import Report
    from selector.request import Request
    from selector.selection import Selection, explain, reload, select

__all__ = [
    "Catalog",
    "Environment",
    "ManifestError",
    "NoBackendError",
    "PinError",
    "Reason",
    "Report",
    "Request",
    "RequestError",
    "Selection",
    "SelectorError",
    "explain",
    "reload",
    "select",
]

_HOMES = {
    "Catalog": "catalog",
    "Environment": "environment",
    "ManifestError": "errors",
    "NoBackendError": "errors",
    "PinError": "errors",
    "Reason": "reasons",
    "Report": "report",
    "Request": "request",
    "RequestError": "errors",
    "Selection": "selection",
    "SelectorError": "errors",
    "explain": "selection",
    "reload": "selection",
    "select": "selection",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'selector' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"selector.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
