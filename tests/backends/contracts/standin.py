"""Stand-ins for kernel packages: functions that have recorded signatures and compute with plain torch.

A call that the recorded version would not accept raises ``TypeError``, as the package would. Every call is
kept with its arguments. What the functions do with them is what the packages' sources do, traps included.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.backends.contracts.signatures import Contract


class Launch(NamedTuple):
    """One call of a stand-in: the function's name and its arguments, defaults filled in."""

    name: str
    arguments: dict[str, Any]


class Log(list[Launch]):
    """The calls made, in order."""

    def names(self) -> list[str]:
        return [launch.name for launch in self]


def bind(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, defaults filled in; TypeError where they do not fit."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def function(
    contract: Contract, name: str, body: Callable[[SimpleNamespace], object], log: Log
) -> Callable[..., object]:
    """A function with the recorded signature of ``name``."""
    signature = contract.callables[name]

    def standin(*args: object, **kwargs: object) -> object:
        arguments = bind(signature, args, kwargs)
        log.append(Launch(name, arguments))
        return body(SimpleNamespace(**arguments))

    standin.__name__ = name.rpartition(".")[2]
    standin.__signature__ = signature  # type: ignore[attr-defined]
    return standin


def install(patch: pytest.MonkeyPatch, contract: Contract, members: dict[str, object]) -> None:
    """Put the package's modules into ``sys.modules``, with the members that the recorded version exports."""
    for module, names in contract.modules.items():
        package, _, _ = module.partition(".")
        made = ModuleType(module)
        for name in names:
            if name in members:
                setattr(made, name, members[name])
        if package != module and package not in sys.modules:
            patch.setitem(sys.modules, package, ModuleType(package))
        patch.setitem(sys.modules, module, made)
