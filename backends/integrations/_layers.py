"""What every layer of a model ran on, and what is to be expected of those that did not run yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from backends.integrations._choose import REGISTERED
from backends.integrations._expected import Expectations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.integrations._choose import Chooser
    from selector.report import Report
    from selector.runner import Runner

__all__ = ["LayerReport", "ModelReport", "Use", "record", "report_of"]

#: Kinds of calls remembered for one layer.
KEPT = 64


class Use(NamedTuple):
    """One kind of call that a layer made, or is expected to make.

    ``phase`` is prefill, decode or training; ``form`` how the layer is stated: structure, packed or mask. ``backend`` is
    None where nothing fits: the layer will raise the error that ``report`` explains.
    """

    phase: str
    backend: str | None
    form: str
    implementation: str
    report: Report
    ran: bool


class LayerReport(NamedTuple):
    """One attention layer: its name in the model, its kind, the library's name of its implementation, and its calls."""

    name: str
    kind: str
    implementation: str
    uses: tuple[Use, ...]

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends of this layer, each once, in the order of their first use."""
        return tuple(dict.fromkeys(use.backend for use in self.uses if use.backend is not None))

    @property
    def ran(self) -> bool:
        """Whether the layer ran; its backends are expectations otherwise."""
        return any(use.ran for use in self.uses)


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
                            "ran": use.ran,
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
            text = "; ".join(_said(layer)) or f"{layer.implementation}, not chosen here"
            row = f"{layer.kind}: {text if layer.ran or not layer.uses else f'expected {text}'}"
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
        text = f"{phase} {backend or 'nothing fits'}"
        yield text if form == "structure" else f"{text} ({form})"


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"


# -- recording --------------------------------------------------------------------------------------------------------

_USED: WeakKeyDictionary[torch.nn.Module, dict[tuple[Chooser, str, int], Runner]] = WeakKeyDictionary()


def record(module: torch.nn.Module, chooser: Chooser, form: str, runner: Runner) -> None:
    """Remember what a layer ran on."""
    used = _USED.get(module)
    if used is None:
        used = _USED[module] = {}
    key = (chooser, form, id(runner))
    if key not in used and len(used) < KEPT:
        used[key] = runner


def report_of(model: torch.nn.Module) -> ModelReport:
    """The report of a model, from what its layers ran on under their present implementation."""
    layers = []
    expectations = Expectations()
    for name, module in model.named_modules():
        config = getattr(module, "config", None)
        implementation = getattr(config, "_attn_implementation", None)
        chooser = REGISTERED.get(str(implementation))
        used = {key: runner for key, runner in _USED.get(module, {}).items() if key[0] is chooser}
        if not used and not _is_attention(module, implementation):
            continue
        uses = tuple(
            Use(
                _phase(runner),
                runner.ran or runner.selection.id,
                key[1],
                key[0].name,
                runner.selection.report(),
                True,
            )
            for key, runner in used.items()
        ) or tuple(
            Use(said.phase, said.report.selected, said.form, str(implementation), said.report, False)
            for said in expectations.of(module)
        )
        layers.append(LayerReport(name, _kind(module), str(implementation), uses))
    return ModelReport(type(model).__name__, tuple(layers))


def _is_attention(module: torch.nn.Module, implementation: object) -> bool:
    """Whether a module is one of the library's attention layers: it has its number and its scale."""
    return implementation is not None and hasattr(module, "layer_idx") and hasattr(module, "scaling")


def _kind(module: torch.nn.Module) -> str:
    """What people call the layer: the library's word for it, and the width of its window."""
    config, index = getattr(module, "config", None), getattr(module, "layer_idx", None)
    words = getattr(config, "layer_types", None)
    # where layers differ each has its own width, where all slide only the configuration has it
    owner = module if hasattr(module, "sliding_window") or words is not None else config
    width = getattr(owner, "sliding_window", None)
    if words is not None and isinstance(index, int) and index < len(words):
        kind = str(words[index]).replace("_", " ")
    else:
        kind = "full attention" if width is None else "sliding attention"
    return f"{kind}, {width} tokens" if width is not None and "sliding" in kind else kind


def _phase(runner: Runner) -> str:
    request = runner.selection.request
    if request.get("training"):
        return "training"
    return "decode" if request.get("query_length") == "one" else "prefill"
