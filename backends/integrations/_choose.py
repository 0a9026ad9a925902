"""Which way to state a layer, and which kernel runs it.

Each way is a request of its own. The first way's winner is taken, unless another way is accepted by a better kernel: one that
the other way's own order puts before that winner. So the machine's policy decides between a window and a tensor, and where it
cannot compare the two winners, structure goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from backends.call import request_fields
from backends.dispatch import _constant as settled
from backends.dispatch import _environment
from selector.errors import NoBackendError
from selector.quarantine import LISTENERS
from selector.runner import load_kernel
from selector.selection import default_state, select

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backends.call import Call
    from backends.integrations._forms import Form
    from selector.runner import Runner
    from selector.selection import Selection

__all__ = ["REGISTERED", "Chooser", "best", "wish_of"]

#: Kinds of calls remembered for one name.
KEPT = 4096

Wish = tuple[str, ...] | None

#: Kernels that graphs use: what is traced cannot import.
_MODULES: dict[str, Any] = {}

#: The implementations by name.
REGISTERED: dict[str, Chooser] = {}


def wish_of(config: Any) -> Wish:
    """What a model's configuration prefers: `attention_selector`, a name or a list of names."""
    said = getattr(config, "attention_selector", None)
    if said is None:
        return None
    return (said,) if isinstance(said, str) else tuple(str(name) for name in said)


class Chooser:
    """The decisions under one registered name."""

    def __init__(self, name: str, *, backend: str | None, avoid: Wish, prefer: Wish, strict: bool) -> None:
        self.name = name
        self._said = {"backend": backend, "avoid": avoid, "prefer": prefer, "strict": strict}
        self._ways: dict[tuple[Any, ...], int] = {}
        self._runners: dict[tuple[Any, ...], Runner] = {}
        self._state: object = None
        LISTENERS.append(self._forget)

    def close(self) -> None:
        """Listen no more: another takes the name."""
        LISTENERS.remove(self._forget)

    def _forget(self) -> None:
        self._ways.clear()
        self._runners.clear()

    def choose(self, ways: Sequence[Form], wish: Wish, layer: Callable[[], str]) -> tuple[Form, Call, Runner]:
        """The way to go, its call, and what runs it.

        Raises:
            NoBackendError: no way is accepted; or PinError, where something was insisted on. It names the layer.
        """
        state = default_state()
        if state is not self._state:
            self._forget()
            self._state = state
        call = ways[0].make()
        fields = request_fields(call)
        key = (wish, *fields.values())
        if len(ways) > 1:
            names = (*(way.name for way in ways), *key)
            index = self._ways.get(names)
            if index is None:
                index = self._compare(ways, wish, layer)
                if len(self._ways) >= KEPT:
                    self._ways.clear()
                self._ways[names] = index
            if index:
                call = ways[index].make()
                fields = request_fields(call)
                key = (wish, *fields.values())
        else:
            index = 0
        runner = self._runners.get(key)
        if runner is None:
            try:
                runner = self.select(fields, wish).runner()
            except NoBackendError as error:
                raise named(layer(), ways[index].name, error) from error
            if len(self._runners) >= KEPT:
                self._runners.clear()
            self._runners[key] = runner
        return ways[index], call, runner

    def select(self, fields: dict[str, object], wish: Wish) -> Selection:
        """The selection for what a call needs."""
        request = {name: value for name, value in fields.items() if name != "device"}
        return select(
            default_state().catalog.request(request),
            environment=_environment(str(fields["device"])),
            model_prefers=wish,
            **self._said,  # type: ignore[arg-type]  # as `__init__` takes them
        )

    def _compare(self, ways: Sequence[Form], wish: Wish, layer: Callable[[], str]) -> int:
        found: list[tuple[int, Selection]] = []
        refused: list[tuple[str, NoBackendError]] = []
        for index, way in enumerate(ways):
            try:
                found.append((index, self.select(request_fields(way.make()), wish)))
            except NoBackendError as error:
                refused.append((way.name, error))
        if not found:
            name, nearest = min(refused, key=lambda entry: _objections(entry[1]))
            raise named(layer(), name, nearest) from nearest
        return found[best([selection for _, selection in found])][0]

    def constant(self, fields: dict[str, object], wish: Wish, layer: str) -> tuple[Any, str | None]:
        """(module, variant) of the winner, folded into the graph that is being traced."""
        values = tuple(settled(value) for value in fields.values())
        kernel, variant = _constant(self, tuple(fields), values, wish, layer)
        return _MODULES[kernel], variant


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _constant(
    chooser: Chooser, names: tuple[str, ...], values: tuple[object, ...], wish: Wish, layer: str
) -> tuple[str, str | None]:
    try:
        candidate = chooser.select(dict(zip(names, values)), wish).candidate
    except NoBackendError as error:
        raise named(layer, "mask", error) from error
    module = load_kernel(candidate)
    _MODULES[module.__name__] = module
    return module.__name__, candidate.variant


def best(selections: Sequence[Selection]) -> int:
    """The place of the selection to go by: the first, unless a later one's order puts its winner before the first's."""
    chosen = 0
    for index, selection in enumerate(selections):
        holder = selections[chosen].id
        if selection.id != holder and holder in selection.candidates:
            chosen = index
    return chosen


def named(layer: str, way: str, error: NoBackendError) -> NoBackendError:
    """The error of a selection, with the layer that asked and how it was stated."""
    stated = {"mask": "with its mask as a tensor", "packed": "with its sequences packed"}.get(way)
    where = layer if stated is None else f"{layer}, {stated}"
    return type(error)(f"{where}: {error.message}", error.report)


def _objections(error: NoBackendError) -> int:
    """How many reasons stand in the way of the candidate that is nearest to accepting."""
    rejected = getattr(error.report, "rejected", {})
    pinned = [p.names for p in getattr(error.report, "preferences", ()) if p.kind == "pin"]
    names = {name for group in pinned for name in group}
    counts = [
        len(reasons)
        for ident, reasons in rejected.items()
        if not names or ident in names or ident.partition("/")[0] in names
    ]
    return min(counts, default=0)
