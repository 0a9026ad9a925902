"""A plan as text, and as JSON-able data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.cli.plan_decide import YOU, unheard
from selector.constraints import word
from selector.errors import printable
from selector.phases import PHASE
from selector.render.cells import Paint, cells, pad
from selector.render.text import _Report

if TYPE_CHECKING:
    from selector.cli.plan_decide import Plan, Verdict
    from selector.cli.plan_help import Helper
    from selector.model_config import LayerKind, ModelConfig

__all__ = ["plan_dict", "plan_text"]


def plan_text(plan: Plan, model: ModelConfig, *, color: bool, width: int, verbose: bool) -> str:
    """One screen for people; with ``verbose`` the whole report of each kind of layer."""
    return _Plan(plan, model, Paint(color), width, verbose).everything()


class _Plan(_Report):
    def __init__(self, plan: Plan, model: ModelConfig, paint: Paint, width: int, verbose: bool) -> None:
        super().__init__(plan.verdicts[0].report, paint, width, verbose)
        self.plan, self.model = plan, model

    def everything(self) -> str:
        self.head()
        self.table_of_layers()
        for verdict in self.plan.verdicts:
            if self.verbose or verdict.chosen is None:
                self.one(verdict)
        self.together()
        self.sizes()
        self.warn()
        self.notes()
        return self.text()

    def head(self) -> None:
        model, report = self.model, self.report
        name = model.architecture or model.model_type or "model"
        layers = [v.kind for v in self.plan.verdicts]
        missing = [v for v in self.plan.verdicts if v.chosen is None]
        total = sum(k.count for k in _once(layers))
        said = f"{total} attention layers" if total != 1 else "1 attention layer"
        if not missing:
            self.put(printable(f"{name}: all {said} have a backend"), 0, 2, "bold", "green")
        else:
            lacking = sum(k.count for k in _once([v.kind for v in missing]))
            self.put(printable(f"{name}: {lacking} of {said} have no backend"), 0, 2, "bold", "red")
        self.field("config", printable(model.source))
        machine = report.environment
        title = (
            machine.title if machine.title.startswith(machine.name) else f"{machine.name}: {machine.title}"
        )
        self.field("environment", printable(f"{title} ({machine.origin})"))
        self.field("pack", report.catalog.name)
        for preference in report.preferences:
            self.field(preference.kind, printable(self.preference(preference)))

    def table_of_layers(self) -> None:
        self.title("Layers (* from the model's configuration)")
        verdicts = self.plan.verdicts
        names = [f"{v.kind.count} × {v.name}" for v in verdicts]
        wide = min(max(cells(n) for n in names), 34)
        told = ""
        later = (*verdicts[1:], None)
        for name, verdict, following in zip(names, verdicts, later, strict=True):
            style = ("green",) if verdict.chosen is not None else ("red",)
            chosen = verdict.chosen or "no backend"
            instead = verdict.report.selected
            label = pad(printable(name), wide)
            self.out.append(f"  {label}  {self.paint(chosen, 'bold', *style)}")
            if verdict.because and verdict.chosen:
                self.put(printable(f"instead of {instead}: {verdict.because}"), wide + 4, None, "yellow")
            fields = self.fields(verdict)
            if fields != told:
                self.put(fields, wide + 4, None, "dim")
            told = fields
            if verdict.chosen is not None:
                entry = next((r for r in verdict.report.ranked if r.id == verdict.chosen), None)
                if entry is not None:
                    self.remarks(entry._replace(rank=1))
            if following is None or following.together is not verdict.together:
                self.phases(verdict)
        for kind in self.model.layers:
            if not kind.attention:
                self.put(printable(f"{kind.count} × {kind.kind}: no attention"), 2, 6, "dim")

    def phases(self, verdict: Verdict) -> None:
        """What ties the two phases of a kind of layer to each other, after the second one."""
        together = verdict.together
        if together is None:
            return
        for note in together.paired():
            self.put(printable(f"they go together: {note}"), 6, 8, "dim")
        for axis, values in together.differing().items():
            each = ", ".join(f"{phase} {word(value)}" for phase, value in values.items())
            self.put(
                printable(f"the phases do not agree on {axis}: {each}; one cache serves both"), 6, 8, "yellow"
            )

    def fields(self, verdict: Verdict) -> str:
        shown = []
        for axis, value in verdict.report.request.items():
            if axis.name == PHASE and verdict.phase is not None:
                continue  # the layer's name says it
            text = axis.name if value is True else f"{axis.name}={word(value)}"
            mine = verdict.report.origins.get(axis.name, YOU) == YOU
            shown.append(printable(text) + ("" if mine else "*"))
        return " ".join(shown)

    def one(self, verdict: Verdict) -> None:
        """The report of one kind of layer: its reasons if nothing fits, everything with `verbose`."""
        self.out.append("")
        self.report = verdict.report
        self.put(printable(f"── {verdict.kind.count} × {verdict.name}"), 0, 2, "bold")
        if verdict.report.selected is None:
            self.headline()
            if self.verbose:
                self.context()
            self.nearest()
            self.helped(verdict)
        elif verdict.chosen is None:
            self.put(printable(verdict.because or ""), 2, 4, "red")
        else:
            self.context()
            self.accepted()
            self.rejected()
            self.lost()

    def helped(self, verdict: Verdict) -> None:
        """What the user can change, each tried; never what the model determines."""
        if self.plan.helper is None:
            self.changes()
            return
        found = self.plan.helper.of(verdict)
        lines = [o.text for o in found.options] + [s.text for s in found.changes]
        lines += [p.text for p in found.packs]
        if found.lacking:
            pack = self.report.catalog.name
            self.title(printable(f"No candidate of pack {pack} takes {', '.join(found.lacking)}"))
        if lines:
            self.title("What would help (each tried)")
        elif not found.looked:
            self.title("No option, package or variable helps")
        else:
            self.title("No option, package, variable or other pack helps on this machine")
        for line in lines:
            self.put(printable(line), 2, 6, "cyan")
        if not found.options and not found.changes:
            self.elsewhere()

    def together(self) -> None:
        plan = self.plan
        if len({v.name for v in plan.verdicts}) < 2 and len(plan.verdicts) < 2:
            return
        self.title("One backend for all")
        found = plan.uniform
        if found.backend is not None:
            variants = list(dict.fromkeys(found.chosen.values()))
            shown = (
                found.backend if variants == [found.backend] else f"{found.backend} ({', '.join(variants)})"
            )
            self.put(
                f"{shown} serves every layer" + ("" if found.costs else ", each with its best"), 2, 6, "green"
            )
            for cost in found.costs:
                self.put(
                    printable(
                        f"it costs {cost.count} × {cost.name}: {cost.gets} instead of {cost.instead_of}"
                    ),
                    2,
                    6,
                )
        elif found.nearest is not None:
            self.put(printable(f"none; {self.nearest_to_all(found.nearest)}"), 2, 6)
        else:
            self.put("none", 2, 6)

    def nearest_to_all(self, backend: str) -> str:
        """What the backend that comes nearest serves, and what it does not."""
        from selector.cli.plan_decide import key_of, serving

        verdicts = self.plan.verdicts
        here = serving(verdicts).get(backend, {})
        without = [v for v in verdicts if key_of(v) not in here]
        lost = {id(v.kind) for v in without}
        total = sum(k.count for k in _once([v.kind for v in verdicts]))
        served = sum(k.count for k in _once([v.kind for v in verdicts if id(v.kind) not in lost]))
        named = [f"{v.kind.count} × {v.name}" for v in verdicts if key_of(v) in here]
        lacking = " or ".join(f"{v.kind.count} × {v.name}" for v in without)
        return f"{backend} serves {served} of {total} layers ({', '.join(named)}), not {lacking}"

    def sizes(self) -> None:
        sizes = self.plan.sizes
        if sizes is None:
            return
        self.title("Block size")
        if sizes:
            self.put(f"left open; all chosen backends accept {', '.join(str(s) for s in sizes)} tokens", 2, 6)
        else:
            self.put("left open; no size is accepted by all chosen backends", 2, 6, "yellow")

    def warn(self) -> None:
        lines = []
        for verdict in self.plan.verdicts:
            for loss in verdict.losses() if verdict.chosen is not None else ():
                lines.append(f"{verdict.name}: {loss.text}")
        if lines:
            self.title("What your choices cost")
            for line in lines:
                self.put(printable(line), 2, 6, "yellow")

    def notes(self) -> None:
        notes = list(self.model.notes)
        for kind in self.model.layers:
            notes += [f"{kind.kind}: {note}" for note in kind.notes]
        notes += [f"{part} is not planned: {why}" for part, why in self.model.unread]
        missing = unheard(self.model.layers, self.report.catalog)
        if missing:
            notes.append(f"the vocabulary has no axis for {', '.join(missing)}: nobody is judged on it")
        if notes:
            self.title("Notes")
            for note in dict.fromkeys(notes):
                self.put(printable(note), 2, 6, "dim")


def _once(kinds: list[LayerKind]) -> list[LayerKind]:
    """Kinds that stand for several phases, once each."""
    return list({id(k): k for k in kinds}.values())


def plan_dict(plan: Plan, model: ModelConfig) -> dict[str, Any]:
    """The plan as JSON-able data: `layers` and `uniform`, and what else the text says."""
    uniform = plan.uniform
    report = plan.verdicts[0].report
    return {
        "model": {
            "source": model.source,
            "architecture": model.architecture,
            "model_type": model.model_type,
            "known": model.known,
            "notes": list(model.notes),
            "unread": [{"part": part, "why": why} for part, why in model.unread],
        },
        "environment": {"name": report.environment.name, "origin": report.environment.origin},
        "catalog": {"packs": [p.name for p in report.catalog.packs], "hash": report.catalog.hash},
        "layers": [_layer(v, plan.helper) for v in plan.verdicts],
        "without_attention": [{"kind": k.kind, "count": k.count} for k in model.layers if not k.attention],
        "uniform": {
            "selected": uniform.backend,
            "candidates": list(dict.fromkeys(uniform.chosen.values())),
            "costs": [c._asdict() for c in uniform.costs],
            "nearest": uniform.nearest,
            "lacking": list(uniform.lacking),
        },
        "block_sizes": None if plan.sizes is None else list(plan.sizes),
    }


def _layer(verdict: Verdict, helper: Helper | None) -> dict[str, Any]:
    from selector.advice import losses, suggestions
    from selector.cli.plan_help import of_model

    report, kind = verdict.report, verdict.kind
    entry = next((r for r in report.ranked if r.id == verdict.chosen), None)
    found = helper.of(verdict) if helper is not None and report.selected is None else None
    mine = found.changes if found is not None else ()
    if found is None and report.selected is None:
        mine = suggestions(report, fixed=of_model(verdict))
    return {
        "kind": kind.kind,
        "part": kind.part,
        "count": kind.count,
        "layers": list(kind.indices),
        "phase": verdict.phase,
        "request": report.request.to_dict(),
        "origins": report.origins,
        "window": kind.window,
        "selected": verdict.chosen,
        "runs": verdict.runs,
        "instead_of": report.selected if verdict.because else None,
        "because": verdict.because,
        "pairs": [] if verdict.together is None else list(verdict.together.paired()),
        "differing": {} if verdict.together is None else verdict.together.differing(),
        "option": None if entry is None else entry.option,
        "candidates": [r.id for r in report.ranked],
        "adjusted": None if entry is None or entry.adjusted is None else entry.adjusted.to_dict(),
        "warnings": [] if entry is None else [w.to_dict() for w in entry.warnings],
        "rejected": {ident: [r.to_dict() for r in rs] for ident, rs in report.rejected.items()},
        "policy_rule": report.policy_rule,
        "losses": [x.to_dict() for x in losses(report)],
        "suggestions": [s.to_dict() for s in mine],
        "help": None if found is None else found.to_dict(),
        "notes": list(kind.notes),
    }
