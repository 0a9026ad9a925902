"""What layers that have not run are to be expected to run on, read from the model's configuration.

The configuration does not tell everything that a call will: masks, lengths, training. What is expected is inference on a
batch without padding. Latent attention is left out: which heads the model's code makes of it is not in its configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backends.call import DTYPE_NAMES
from backends.integrations._choose import REGISTERED, best, wish_of
from selector.errors import RequestError
from selector.model_config import ConfigError, LayerKind, read_config
from selector.selection import default_state

if TYPE_CHECKING:
    import torch

    from backends.integrations._choose import Chooser
    from selector.report import Report

__all__ = ["Expectations", "Expected"]


class Expected(NamedTuple):
    """A phase, how the layer would be stated, and the report of the selection."""

    phase: str
    form: str
    report: Report


class Expectations:
    """What is expected of the layers of one model; a configuration is read once."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[int, str], tuple[LayerKind, ...]] = {}

    def of(self, module: torch.nn.Module) -> tuple[Expected, ...]:
        """The phases of one layer; empty where its configuration says too little, or its implementation is another."""
        config: Any = getattr(module, "config", None)
        chooser = REGISTERED.get(str(getattr(config, "_attn_implementation", None)))
        parameter = next(module.parameters(), None)
        if chooser is None or parameter is None or parameter.dtype not in DTYPE_NAMES:
            return ()
        dtype = DTYPE_NAMES[parameter.dtype]
        kind = self._kind(config, dtype, getattr(module, "layer_idx", None))
        if kind is None or kind.request.get("mla"):
            return ()
        device = parameter.device.type
        if device == "meta":
            device = str(default_state().environment.get("device"))
        base = {**kind.request, "device": device, "layout": "dense", "kv_length": "many"}
        prefill = {**base, "query_length": "same"}
        # a decoding layer sees the keys of its window only, so nothing is left of the window
        decode = {**base, "query_length": "one", "sliding_window": False}
        found = [_best(chooser, config, "prefill", prefill)]
        if base.get("causal", True):
            found.append(_best(chooser, config, "decode", decode))
        return tuple(entry for entry in found if entry is not None)

    def _kind(self, config: Any, dtype: str, layer: int | None) -> LayerKind | None:
        key = (id(config), dtype)
        if key not in self._kinds:
            said = {name: value for name, value in config.to_dict().items() if not name.startswith("_")}
            try:
                self._kinds[key] = read_config(said, dtype=dtype).layers
            except ConfigError:
                self._kinds[key] = ()
        return next((kind for kind in self._kinds[key] if kind.attention and layer in kind.indices), None)


def _best(chooser: Chooser, config: Any, phase: str, fields: dict[str, Any]) -> Expected | None:
    """The way that would be gone, as `Chooser.choose` finds it."""
    ways = [("structure", fields)]
    if fields.get("sliding_window"):
        ways.append(("mask", {**fields, "sliding_window": False, "causal": False, "custom_mask": True}))
    try:
        reports = [chooser.explain(needed, wish_of(config)) for _, needed in ways]
    except RequestError:
        return None
    index = best(reports) or 0
    return Expected(phase, ways[index][0], reports[index])
