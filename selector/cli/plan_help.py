"""What a user could do about a layer that nothing runs: options of the command, packages, the machine, another pack.

What the model determines is not the user's to change, so it is left out. Everything is evaluated before it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.advice import suggestions
from selector.constraints import word
from selector.errors import SelectorError

if TYPE_CHECKING:
    from selector.advice import Suggestion
    from selector.catalog import Catalog
    from selector.cli.plan_decide import Verdict
    from selector.model_config import ModelConfig

__all__ = ["Help", "Helper", "Option", "PackFit", "of_model"]

#: Fields that an option of the command replaces, whatever the configuration says.
REPLACED = {"kv_cache_dtype": "--kv-cache-dtype", "dtype": "--dtype"}
#: Values of one option that are told.
VALUES = 3


class Option(NamedTuple):
    """An option of the command with which the layer has a backend."""

    option: str
    value: str
    selected: str

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.option} {self.value}: {self.selected} is chosen"


class PackFit(NamedTuple):
    """Another pack that has a backend for the layer on the same machine; ``selected`` in each phase."""

    pack: str
    selected: tuple[str, ...]

    @property
    def text(self) -> str:
        """In words."""
        return f"--pack {self.pack}: {' and '.join(dict.fromkeys(self.selected))}"


class Help(NamedTuple):
    """What helps one layer.

    ``lacking``: axes that the model determines and no candidate of the pack takes; ``looked``: other packs were asked.
    """

    changes: tuple[Suggestion, ...]
    options: tuple[Option, ...]
    packs: tuple[PackFit, ...]
    lacking: tuple[str, ...]
    looked: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "options": [{"option": o.option, "value": o.value, "selected": o.selected} for o in self.options],
            "packs": [{"pack": p.pack, "selected": list(p.selected)} for p in self.packs],
            "lacking": list(self.lacking),
        }


def of_model(verdict: Verdict) -> frozenset[str]:
    """The axes that the user did not give: the model's, or the phase's."""
    from selector.cli.plan_decide import YOU

    report = verdict.report
    return frozenset(a.name for a, _ in report.request.items() if report.origins.get(a.name, YOU) != YOU)


class Helper:
    """Looks for help. ``reread`` reads the configuration again with another value of an option, by the field's name."""

    def __init__(self, reread: Callable[[dict[str, str]], ModelConfig]) -> None:
        self.reread = reread
        self._packs: dict[str, Catalog | None] = {}

    def of(self, verdict: Verdict) -> Help:
        """Help for a layer for which nothing is selected."""
        report, fixed = verdict.report, of_model(verdict)
        pin = next((p for p in report.preferences if p.kind == "pin"), None)
        named = [c.id for name in pin.names for c in report.catalog.find(name)] if pin is not None else []
        found: list[Suggestion] = []
        wanted: list[str | None] = [i for i in dict.fromkeys(named) if i in report.rejected]
        for ident in wanted or [None]:
            found += suggestions(report, ident, fixed=fixed)
        refused = [{a for r in reasons for a in (r.axis, *r.axes)} for reasons in report.rejected.values()]
        lacking = sorted(set.intersection(*refused) & fixed) if refused else []
        looked = not report.preferences
        packs = self._fitting(verdict) if looked else ()
        return Help(tuple(found), self._options(verdict), packs, tuple(lacking), looked)

    def _options(self, verdict: Verdict) -> tuple[Option, ...]:
        report = verdict.report
        found: list[Option] = []
        for name, option in REPLACED.items():
            axis = report.catalog.vocabulary.find(name)
            for value in axis.values if axis is not None else ():
                if sum(o.option == option for o in found) >= VALUES:
                    break
                if axis is not None and value != report.request.get(axis.name):
                    chosen = self._with(verdict, {name: str(value)})
                    if chosen is not None:
                        found.append(Option(option, word(value), chosen))
        return tuple(found)

    def _with(self, verdict: Verdict, changes: dict[str, str]) -> str | None:
        """What is chosen for the same layer of the model read with other options."""
        from selector.cli.plan_decide import verdicts_of

        report = verdict.report
        try:
            model = self.reread(changes)
            kinds = [k for k in model.layers if k.attention and k.part == verdict.kind.part]
            same = [k for k in kinds if k.indices == verdict.kind.indices and k.kind == verdict.kind.kind]
            after = [
                v
                for kind in same
                for v in verdicts_of(
                    kind, report.catalog, report.environment, report.preferences, report.strict
                )
                if v.phase == verdict.phase
            ]
        except SelectorError:  # the configuration does not go with this value
            return None
        return after[0].chosen if len(after) == 1 else None

    def _fitting(self, verdict: Verdict) -> tuple[PackFit, ...]:
        from selector.catalog import pack_names
        from selector.cli.plan_decide import verdicts_of

        report = verdict.report
        here = {p.name for p in report.catalog.packs}
        found = []
        for name in pack_names(report.catalog.root):
            catalog = None if name in here else self._pack(name, report.catalog.root)
            if catalog is None:
                continue
            try:
                after = verdicts_of(verdict.kind, catalog, report.environment, (), report.strict)
            except SelectorError:  # a vocabulary without one of the values
                continue
            chosen = tuple(v.chosen for v in after if v.chosen is not None)
            if after and len(chosen) == len(after):
                found.append(PackFit(name, chosen))
        return tuple(found)

    def _pack(self, name: str, root: str) -> Catalog | None:
        from selector.catalog import Catalog

        if name not in self._packs:
            try:
                self._packs[name] = Catalog.load(name, manifests=root)
            except SelectorError:  # a broken pack is lint's business
                self._packs[name] = None
        return self._packs[name]
