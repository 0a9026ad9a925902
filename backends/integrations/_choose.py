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
from selector.selection import default_state, explain, select

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backends.call import Call
    from backends.integrations._forms import Form
    from selector.report import Report
    from selector.request import Request
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
        """Replaced, not emptied: a thread that began before stores its answer where nobody reads any more."""
        self._ways, self._runners = {}, {}

    def choose(self, ways: Sequence[Form], wish: Wish, layer: Callable[[], str]) -> tuple[Form, Call, Runner]:
        """The way to go, its call, and what runs it.

        Raises:
            NoBackendError: no way is accepted; or PinError, where something was insisted on. It names the layer.
        """
        state = default_state()
        if state is not self._state:
            self._forget()
            self._state = state
        chosen, runners = self._ways, self._runners  # as they are before anything is decided
        call = ways[0].make()
        fields = request_fields(call)
        key = (wish, *fields.values())
        if len(ways) > 1:
            names = (*(way.name for way in ways), *key)
            index = chosen.get(names)
            if index is None:
                index = self._compare(ways, fields, wish)
                if len(chosen) >= KEPT:
                    chosen.clear()
                chosen[names] = index
            if index:
                call = ways[index].make()
                fields = request_fields(call)
                key = (wish, *fields.values())
        else:
            index = 0
        runner = runners.get(key)
        if runner is None:
            try:
                runner = self.select(fields, wish).runner()
            except NoBackendError as error:
                raise named(layer(), ways[index].name, error) from error
            if len(runners) >= KEPT:
                runners.clear()
            runners[key] = runner
        return ways[index], call, runner

    def select(self, fields: dict[str, object], wish: Wish) -> Selection:
        """The selection for what a call needs."""
        return select(self._request(fields), **self._context(fields, wish))

    def explain(self, fields: dict[str, object], wish: Wish) -> Report:
        """The report of the same selection, which decides nothing and is not logged."""
        return explain(self._request(fields), **self._context(fields, wish))

    @staticmethod
    def _request(fields: dict[str, object]) -> Request:
        needed = {name: value for name, value in fields.items() if name != "device"}
        return default_state().catalog.request(needed)

    def _context(self, fields: dict[str, object], wish: Wish) -> dict[str, Any]:
        return {"environment": _environment(str(fields["device"])), "model_prefers": wish, **self._said}

    def _compare(self, ways: Sequence[Form], first: dict[str, object], wish: Wish) -> int:
        """The place of the way to go; ``first`` is what the first one needs.

        The others are made without autograd: a checkpointed layer compares them in its first forward pass only, and may
        save no other tensors than when it runs again. All differentiate the same tensors: a bias leaves one way only.
        """
        with torch.no_grad():
            others = [request_fields(way.make()) for way in ways[1:]]
        needs = [first, *({**fields, "training": first["training"]} for fields in others)]
        reports = [self.explain(fields, wish) for fields in needs]
        index = best(reports)
        # where nothing fits, the error is about the way that lacks least
        return min(range(len(ways)), key=lambda i: _objections(reports[i])) if index is None else index

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


def best(reports: Sequence[Report]) -> int | None:
    """The place of the report to go by, or None where nothing fits any of them.

    It is the first that something fits, unless a later one's order puts its winner before the first's.
    """
    chosen: int | None = None
    for index, report in enumerate(reports):
        order = [report.catalog.candidates[i].id for i in report.outcome.ranked]
        holder = None if chosen is None else reports[chosen].selected
        if order and (holder is None or (order[0] != holder and holder in order)):
            chosen = index
    return chosen


def named(layer: str, way: str, error: NoBackendError) -> NoBackendError:
    """The error of a selection, with the layer that asked and how it was stated."""
    stated = {"mask": "with its mask as a tensor", "packed": "with its sequences packed"}.get(way)
    where = layer if stated is None else f"{layer}, {stated}"
    return type(error)(f"{where}: {error.message}", error.report)


def _objections(report: Report) -> int:
    """How many reasons stand in the way of the candidate that is nearest to accepting; of those insisted on, if any are."""
    names = {
        name for preference in report.preferences if preference.kind == "pin" for name in preference.names
    }
    counts = [
        len(reasons)
        for ident, reasons in report.rejected.items()
        if not names or ident in names or ident.partition("/")[0] in names
    ]
    return min(counts, default=0)
