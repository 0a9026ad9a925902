"""Decide rows with an installed vLLM: one process for one platform with one set of packages.

`python -m tests.parity.vllm_decide` reads one JSON object {"platform", "installed", "arch", "rows"} and writes the rows,
one a line, each with vLLM's decision. `vllm_draw` runs it.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

from . import vllm_stubs
from .vllm_texts import axes_of

RAISED: Final = "raised"
"""Field of a row whose decision ended in another exception than a refusal."""


class Decider:
    """An installed vLLM that takes this process for one of a platform with certain packages."""

    def __init__(self, platform: str, installed: list[str], arch: str) -> None:
        """Start vLLM; once a process."""
        self.name = platform
        self.platform = vllm_stubs.start(platform, installed, arch)
        self.torch: Any = importlib.import_module("torch")
        self.backends: Any = importlib.import_module(
            "vllm.v1.attention.backends.registry"
        ).AttentionBackendEnum
        self.selector: Any = importlib.import_module("vllm.v1.attention.selector").AttentionSelectorConfig
        self.config: Any = importlib.import_module("vllm.config.vllm")
        self.capability: Any = importlib.import_module("vllm.platforms.interface").DeviceCapability
        self.paths = {backend.value: backend.name for backend in self.backends if backend.value}

    def decide(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with vLLM's decision."""
        request, env, model = row["request"], row["env"], row["model"]
        self.prepare(env, request)
        self.config._current_vllm_config = vllm_stubs.configuration(request, env, model)
        wanted = self.selector(**{**request, "dtype": getattr(self.torch, request["dtype"])})
        explicit = row.get("explicit")
        decided: dict[str, Any] = {"env": env, "model": model, "request": request}
        if "explicit" in row:
            decided["explicit"] = explicit
        try:
            if self.name in ("cuda", "rocm") and (explicit is None or self.name == "rocm"):
                decided.update(self.lists(wanted, env.get("num_heads")))
                if explicit is None:
                    decided["winner"] = decided["valid"][0] if decided["valid"] else None
                    return decided
            decided.update(self.choice(wanted, explicit, env.get("num_heads")))
        except Exception as error:
            decided.update(winner=None, refused=[["other"]])
            decided[RAISED] = f"{type(error).__name__}: {error}"
        return decided

    def prepare(self, env: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        """Set what the platform is asked for, and forget what it answered before."""
        os.environ["VLLM_BATCH_INVARIANT"] = "1" if request["use_batch_invariant"] else "0"
        if self.name == "cuda":
            self.platform.__class__.capability = self.capability(*map(int, env["capability"].split(".")))
        if self.name == "cpu":
            interface: Any = importlib.import_module("vllm.platforms.interface")
            self.platform.__class__.architecture = interface.CpuArchEnum[env["arch"].upper()]
            self.torch.cpu._is_amx_tile_supported = lambda: env["amx"]
        if self.name == "rocm":
            self.switch_aiter(env["aiter"])
        vllm_stubs.clear_caches()

    def switch_aiter(self, state: str) -> None:
        """AITER `none` (not installed), `off` or `on`."""
        os.environ["VLLM_ROCM_USE_AITER"] = "1" if state == "on" else "0"
        ops: Any = importlib.import_module("vllm._aiter_ops")
        ops.IS_AITER_FOUND = state != "none"
        ops.rocm_aiter_ops.refresh_env_variables()
        importlib.import_module("aiter.mla").__dict__["mla_decode_fwd"] = takes_causal

    def lists(self, wanted: Any, num_heads: int | None) -> dict[str, Any]:
        """The priority list, the valid backends in it and the reasons against the others."""
        valid, invalid = self.platform.get_valid_backends(
            device_capability=self.platform.get_device_capability(),
            attn_selector_config=wanted,
            num_heads=num_heads,
        )
        places: dict[str, int] = {}
        if self.name == "cuda":
            places.update({candidate.backend.name: candidate.priority for candidate in valid})
            places.update({backend.name: priority for backend, (priority, _) in invalid.items()})
            texts = {backend.name: reasons for backend, (_, reasons) in invalid.items()}
        else:
            places.update({backend.name: priority for backend, priority in valid})
            free = (place for place in range(len(valid) + len(invalid)) if place not in places.values())
            places.update({backend.name: place for backend, place in zip(invalid, list(free), strict=True)})
            texts = {backend.name: reasons for backend, reasons in invalid.items()}
        order = sorted(places, key=lambda name: places[name])
        return {
            "order": order,
            "valid": [name for name in order if name not in texts],
            "reasons": {name: [axes_of(text) for text in reasons] for name, reasons in texts.items()},
        }

    def choice(self, wanted: Any, explicit: str | None, num_heads: int | None) -> dict[str, Any]:
        """The winner of the whole selection, or the reasons of the refusal."""
        asked = None if explicit is None else self.backends[explicit]
        try:
            path = self.platform.get_attn_backend_cls(asked, attn_selector_config=wanted, num_heads=num_heads)
        except (ValueError, NotImplementedError) as error:
            return {"winner": None, "refused": refusal(str(error))}
        return {"winner": self.paths.get(path, path)}


def takes_causal(*args: object, causal: bool = True) -> None:
    """Has the keyword by which vLLM recognises an AITER that is new enough."""


def refusal(message: str) -> list[list[str]]:
    """The reasons in the message of a refused explicit choice."""
    _, found, rest = message.partition("is not valid for this configuration. Reason: ")
    if not found:
        return [["other"]]
    try:
        texts = ast.literal_eval(rest)
    except (SyntaxError, ValueError):
        texts = [rest.strip("[]")]
    return [axes_of(str(text)) for text in texts]


def main() -> int:
    """Decide the rows of standard input."""
    task = SimpleNamespace(**json.load(sys.stdin))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what vLLM prints is no row
    decider = Decider(task.platform, task.installed, task.arch)
    for row in task.rows:
        print(json.dumps(decider.decide(row), sort_keys=True), file=out)
    out.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
