"""What every layer of a model ran on, and what is to be expected of those that did not run yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selector.report import Report
    from selector.runner import Runner

__all__ = ["LayerReport", "ModelReport", "Use", "record", "report_of"]

#: Kinds of calls remembered for one layer.
KEPT = 64


class Use(NamedTuple):
    """One kind of call that a layer made.

    ``phase`` is prefill, decode or training; ``form`` how the layer was stated: structure, packed or mask.
    """

    phase: str
    backend: str
    form: str
    implementation: str
    report: Report


class LayerReport(NamedTuple):
    """One attention layer: its name in the model, its kind, the library's name of its implementation, and its calls."""

    name: str
    kind: str
    implementation: str
    uses: tuple[Use, ...]

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that ran this layer, each once, in the order of their first use."""
        return tuple(dict.fromkeys(use.backend for use in self.uses))


class ModelReport:
    """The backend of every attention layer of a model."""

    def __init__(self, model: str, layers: tuple[LayerReport, ...]) -> None:
        self.model = model
        self.layers = layers

    def __getitem__(self, name: str) -> LayerReport:
        """The layer of that name. Raises KeyError."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    @property
    def backends(self) -> dict[str, tuple[str, ...]]:
        """The backends of every layer, by the layer's name."""
        return {layer.name: layer.backends for layer in self.layers}

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "model": self.model,
            "layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "implementation": layer.implementation,
                    "uses": [
                        {
                            "phase": use.phase,
                            "backend": use.backend,
                            "form": use.form,
                            "request": use.report.request.to_dict(),
                            "policy_rule": use.report.policy_rule,
                        }
                        for use in layer.uses
                    ],
                }
                for layer in self.layers
            ],
        }

    def to_text(self) -> str:
        """One line a layer and phase; neighbours that say the same are one line."""
        rows: list[tuple[list[str], str]] = []
        for layer in self.layers:
            text = "; ".join(_said(layer)) or f"{layer.implementation}: not run here"
            row = f"{layer.kind}: {text}"
            if rows and rows[-1][1] == row:
                rows[-1][0].append(layer.name)
            else:
                rows.append(([layer.name], row))
        if not rows:
            return f"{self.model}: no attention layers"
        return "\n".join([self.model, *(f"  {_span(names)}  {row}" for names, row in rows)])

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"ModelReport({self.model}, {len(self.layers)} layers)"


def _said(layer: LayerReport) -> Iterator[str]:
    seen = dict.fromkeys((use.phase, use.backend, use.form) for use in layer.uses)
    for phase, backend, form in seen:
        yield f"{phase} {backend}" + ("" if form == "structure" else f" ({form})")


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"


# -- recording --------------------------------------------------------------------------------------------------------

_USED: WeakKeyDictionary[torch.nn.Module, dict[tuple[str, str, int], Runner]] = WeakKeyDictionary()


def record(module: torch.nn.Module, implementation: str, form: str, runner: Runner) -> None:
    """Remember what a layer ran on."""
    used = _USED.get(module)
    if used is None:
        used = _USED[module] = {}
    key = (implementation, form, id(runner))
    if key not in used and len(used) < KEPT:
        used[key] = runner


def report_of(model: torch.nn.Module) -> ModelReport:
    """The report of a model, from what its layers ran on since they were made."""
    layers = []
    for name, module in model.named_modules():
        used = _USED.get(module, {})
        implementation = getattr(getattr(module, "config", None), "_attn_implementation", None)
        if not used and not _is_attention(module, implementation):
            continue
        uses = tuple(
            Use(
                _phase(runner),
                runner.ran or runner.selection.id,
                form,
                registered,
                runner.selection.report(),
            )
            for (registered, form, _), runner in used.items()
        )
        layers.append(LayerReport(name, _kind(module), str(implementation), uses))
    return ModelReport(type(model).__name__, tuple(layers))


def _is_attention(module: torch.nn.Module, implementation: object) -> bool:
    """Whether a module is one of the library's attention layers: it has its number and its scale."""
    return implementation is not None and hasattr(module, "layer_idx") and hasattr(module, "scaling")


def _kind(module: torch.nn.Module) -> str:
    width = getattr(module, "sliding_window", None)
    return "full attention" if width is None else f"sliding attention, {width} tokens"


def _phase(runner: Runner) -> str:
    request = runner.selection.request
    if request.get("training"):
        return "training"
    return "decode" if request.get("query_length") == "one" else "prefill"
