"""A fleet's plan as text, and as JSON-able data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.cli.plan_text import plan_dict, plan_text
from selector.errors import printable
from selector.render.cells import Paint, cells, cut, pad
from selector.render.screen import Screen

if TYPE_CHECKING:
    from selector.cli.plan_fleet import Divergence, FleetPlan, Place
    from selector.model_config import ModelConfig

__all__ = ["fleet_dict", "fleet_text"]

#: Cells of a machine's name in the table, and at least of a column.
NAME, COLUMN = 30, 12

#: Axes named where nothing fits.
AXES = 3


def fleet_text(plan: FleetPlan, model: ModelConfig, *, color: bool, width: int, verbose: bool) -> str:
    """One screen for people; with ``verbose`` the plan of each kind of machine follows."""
    screen = _Fleet(plan, model, Paint(color), width, verbose)
    screen.everything()
    text = screen.text()
    if verbose:
        parts = [
            f"\n══ {m.count} × {m.name}\n" + plan_text(p, model, color=color, width=width, verbose=False)
            for m, p in zip(plan.fleet.machines, plan.plans, strict=True)
        ]
        text += "".join(parts)
    return text


class _Fleet(Screen):
    def __init__(self, plan: FleetPlan, model: ModelConfig, paint: Paint, width: int, verbose: bool) -> None:
        super().__init__(paint, width, verbose)
        self.plan, self.model = plan, model

    def everything(self) -> None:
        self.head()
        self.table_of_machines()
        self.together()
        self.diverging()
        self.sizes()
        self.lacking()

    def head(self) -> None:
        plan, model = self.plan, self.model
        name = model.architecture or model.model_type or "model"
        without = {p.machines.name: p.machines.count for p in plan.lacking}
        total = plan.fleet.total
        said = f"{total} machine{'s' if total != 1 else ''}"
        if without:
            lacks = f"{sum(without.values())} of {said} lack a backend for some layer"
            self.put(printable(f"{name}: {lacks}"), 0, 2, "bold", "red")
        else:
            self.put(printable(f"{name}: every layer has a backend on all {said}"), 0, 2, "bold", "green")
        self.field("config", printable(model.source))
        title = f": {plan.fleet.title}" if plan.fleet.title else ""
        self.field("fleet", printable(plan.fleet.source + title))
        report = plan.plans[0].verdicts[0].report
        self.field("pack", report.catalog.name)
        for preference in report.preferences:
            self.field(preference.kind, printable(f"{', '.join(preference.names)} ({preference.where})"))

    def table_of_machines(self) -> None:
        """Machines down, kinds of layers across; where that is too wide, a block for each kind of layer."""
        rows = self.plan.rows
        labels = [printable(f"{m.count} × {m.name}") for m in self.plan.fleet.machines]
        wide = min(max(cells(label) for label in labels), NAME)
        heads = {
            layer: printable(f"{places[0].verdict.kind.count} × {layer}") for layer, places in rows.items()
        }
        columns = {
            layer: max(cells(heads[layer]), *(cells(_answer(p)) for p in places), COLUMN)
            for layer, places in rows.items()
        }
        self.title("Machines and layers")
        if 2 + wide + sum(c + 2 for c in columns.values()) <= self.width:
            head = "  ".join(pad(heads[layer], columns[layer]) for layer in rows)
            self.out.append(self.paint(f"  {' ' * wide}  {head}", "dim"))
            for i, label in enumerate(labels):
                answers = [self.answer(places[i], columns[layer]) for layer, places in rows.items()]
                self.out.append(f"  {pad(cut(label, wide), wide)}  {'  '.join(answers)}")
            return
        for layer, places in rows.items():
            self.put(heads[layer], 2, 4, "dim")
            for label, place in zip(labels, places, strict=True):
                room = max(self.width - wide - 6, COLUMN)
                self.out.append(f"    {pad(cut(label, wide), wide)}  {self.answer(place, room)}")

    def answer(self, place: Place, wide: int) -> str:
        style = ("red",) if place.verdict.chosen is None else ("green",)
        return self.paint(pad(cut(printable(_answer(place)), wide), wide), *style)

    def together(self) -> None:
        found = self.plan.uniform
        self.title("One backend for the whole fleet")
        if found.backend is not None:
            self.put(f"{found.backend} serves every layer on every machine", 2, 6, "green")
            variants = dict.fromkeys(c for each in found.candidates.values() for c in each)
            if list(variants) != [found.backend]:
                for name, each in found.candidates.items():
                    self.put(printable(f"{', '.join(each)} on {name}"), 4, 6)
            for cost in found.costs:
                text = f"it costs {cost.number} × {cost.machines}: {cost.layer} gets {cost.gets}, not {cost.instead_of}"
                self.put(printable(text), 2, 6)
            return
        if found.nearest is None:
            self.put("none", 2, 6)
            return
        where: dict[str, list[str]] = {}
        for machines, layer in found.lacking:
            where.setdefault(layer, []).append(machines)
        lacks = "; ".join(f"{layer} on {', '.join(names)}" for layer, names in where.items())
        self.put(printable(f"none; {found.nearest} serves all but {lacks}"), 2, 6, "yellow")

    def diverging(self) -> None:
        self.title("Where the fleet diverges")
        if not self.plan.diverging:
            runs = any(p.verdict.chosen is not None for places in self.plan.rows.values() for p in places)
            same = "every layer runs on the same candidate on all machines"
            self.put(f"nowhere: {same}" if runs else "nowhere: nothing runs on any machine", 2, 6)
            return
        counts = {m.name: m.count for m in self.plan.fleet.machines}
        for entry in self.plan.diverging:
            kind = " (variants of one backend)" if entry.variants else ""
            self.put(printable(f"{entry.layer}{kind}:"), 2, 6)
            for answer, names in entry.answers.items():
                number = sum(counts[n] for n in names)
                text = f"{answer or 'no backend'} on {number}: {', '.join(names)}"
                self.put(printable(text), 4, 6, *(() if answer else ("red",)))
        if any(len([a for a in entry.answers if a is not None]) > 1 for entry in self.plan.diverging):
            told = "different kernels sum in another order: the same request gives other last digits"
            self.put(told, 2, 6, "dim")

    def sizes(self) -> None:
        sizes = self.plan.sizes
        if sizes is None:
            return
        self.title("Block size")
        if sizes:
            shown = ", ".join(str(s) for s in sizes)
            self.put(f"left open; {shown} tokens are accepted by what is chosen on every machine", 2, 6)
        else:
            self.put("left open; no size is accepted by what is chosen on every machine", 2, 6, "yellow")

    def lacking(self) -> None:
        from selector.cli.plan_fleet import most_refused

        told: dict[tuple[str, str], list[str]] = {}
        for place in self.plan.lacking:
            because = place.verdict.because or f"refused on {', '.join(most_refused(place.verdict)[:AXES])}"
            told.setdefault((place.verdict.name, because), []).append(place.machines.name)
        if told:
            self.title("What is missing")
        for (layer, because), names in told.items():
            self.put(printable(f"{layer} on {', '.join(names)}: {because}"), 2, 6, "red")
        if told and not self.verbose:
            self.put("--verbose shows the plan of each kind of machine, with what would help", 2, 6, "dim")


def _answer(place: Place) -> str:
    verdict = place.verdict
    if verdict.chosen is None:
        return "no backend"
    if verdict.runs == verdict.chosen:
        return verdict.chosen
    return f"{verdict.chosen}, as {verdict.runs}"


def fleet_dict(plan: FleetPlan, model: ModelConfig) -> dict[str, Any]:
    """The plan as JSON-able data; each kind of machine has what `plan --json` has for it."""
    uniform = plan.uniform
    counts = {m.name: m.count for m in plan.fleet.machines}
    machines = []
    for m, each in zip(plan.fleet.machines, plan.plans, strict=True):
        whole = plan_dict(each, model)
        common = {k: whole.pop(k) for k in ("model", "catalog", "without_attention")}
        machines.append({"name": m.name, "count": m.count, **whole})
    return {
        "model": common["model"],
        "catalog": common["catalog"],
        "fleet": {"source": plan.fleet.source, "title": plan.fleet.title, "machines": plan.fleet.total},
        "layers": [
            {
                "name": layer,
                "count": places[0].verdict.kind.count,
                "phase": places[0].verdict.phase,
                "selected": {p.machines.name: p.verdict.chosen for p in places},
                "runs": {p.machines.name: p.verdict.runs for p in places},
            }
            for layer, places in plan.rows.items()
        ],
        "without_attention": common["without_attention"],
        "uniform": {
            "selected": uniform.backend,
            "candidates": {m: list(c) for m, c in uniform.candidates.items()},
            "costs": [c._asdict() for c in uniform.costs],
            "nearest": uniform.nearest,
            "lacking": [{"machines": m, "layer": layer} for m, layer in uniform.lacking],
        },
        "diverging": [_divergence(entry, counts) for entry in plan.diverging],
        "block_sizes": None if plan.sizes is None else list(plan.sizes),
        "machines": machines,
    }


def _divergence(entry: Divergence, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "layer": entry.layer,
        "variants_of_one_backend": entry.variants,
        "answers": [
            {"runs": answer, "machines": list(names), "count": sum(counts[n] for n in names)}
            for answer, names in entry.answers.items()
        ],
    }
