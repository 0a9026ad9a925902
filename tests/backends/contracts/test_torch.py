"""The wrappers of torch's own kernels: the calls they make bind to the signatures of every torch that they allow.

What they call is recorded while they run: the CPU variants for real, the CUDA ones on tensors without storage, whose
kernels are answered instead of run.
"""

from __future__ import annotations

import functools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.attention as attention_module
import yaml
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention as flex
from torch.overrides import TorchFunctionMode

from backends import flex_attention, torch_sdpa
from tests.backends.contracts import cases
from tests.backends.contracts.signatures import Contract, covered
from tests.backends.contracts.standin import Launch, Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backends.call import Call

MANIFESTS = Path(__file__).parents[3] / "manifests" / "core"
_WATCHED = {
    torch.nn.functional.scaled_dot_product_attention: "scaled_dot_product_attention",
    torch.ops.aten._scaled_dot_product_attention_math: "_scaled_dot_product_attention_math",
    torch.ops.aten._scaled_dot_product_flash_attention: "_scaled_dot_product_flash_attention",
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: "_scaled_dot_product_flash_attention_for_cpu",
}


class _Watch(TorchFunctionMode):
    """Keeps the calls of torch's attention functions; answers those of a CUDA tensor."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _WATCHED.get(func) if getattr(func, "__hash__", None) else None
        if name is None:
            return func(*args, **kwargs)
        self.log.append(Launch(name, {"args": args, "kwargs": kwargs}))
        q, v = args[0], args[2]
        if q.device.type != "cuda":
            return func(*args, **kwargs)
        out = q.new_empty((*q.shape[:-1], v.shape[-1]))
        return out if name == "scaled_dot_product_attention" else (out, q.new_empty(q.shape[:-1]), None)


def _kept(log: Log, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        log.append(Launch(name, {"args": args, "kwargs": kwargs}))
        return function(*args, **kwargs)

    return watched


def _versions(manifest: str) -> list[Contract]:
    """The recorded versions of torch that a core manifest allows for all its variants."""
    data = yaml.safe_load((MANIFESTS / manifest).read_text(encoding="utf-8"))
    return covered("torch", data["requires"]["packages"]["torch"])


def _bind(log: Log, versions: list[Contract]) -> None:
    assert versions
    forms = {}
    for launch in log:
        args, kwargs = launch.arguments["args"], launch.arguments["kwargs"]
        forms[launch.name, len(args), frozenset(kwargs)] = (args, kwargs)
    for contract in versions:
        for (name, *_), (args, kwargs) in forms.items():
            try:
                contract.callables[name].bind(*args, **kwargs)
            except (KeyError, TypeError) as error:
                pytest.fail(f"{contract}: {name}({len(args)} positional, {sorted(kwargs)}): {error!r}")


def _refuses_here(variant: str, call: Call) -> str | None:
    """The wrapper's refusals, and those of a torch that cannot index a CUDA tensor (the keywords stay the same)."""
    if call.mask is not None or call.causal:
        return "a mask has to be built"
    return torch_sdpa.refuses(call, variant)


@pytest.mark.parametrize("variant", torch_sdpa.HONOURED)
def test_sdpa(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    monkeypatch.setattr(
        attention_module, "sdpa_kernel", _kept(log, "sdpa_kernel", attention_module.sdpa_kernel)
    )
    if variant.startswith("cuda"):
        # without gradients: autograd asks a CUDA device that is not there for its stream, and aborts
        with torch.no_grad(), FakeTensorMode(), _Watch(log):
            for call in cases.drawn_choices(partial(_refuses_here, variant), 30, device="cuda"):
                returned = torch_sdpa.run(call, variant=variant)
                out = returned[0] if isinstance(returned, tuple) else returned
                assert out.shape == call.out_shape
    else:
        with _Watch(log):
            for call in cases.drawn_choices(partial(torch_sdpa.refuses, variant=variant), 100):
                torch_sdpa.run(call, variant=variant)
    assert len(set(log.names()) & set(_WATCHED.values())) > 0
    _bind(log, _versions("torch_sdpa.yaml"))


def _answer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **fields: Any) -> Any:
    """FlexAttention's results without its work: it traces its functions even where it does not compile."""
    out = q.new_zeros((*q.shape[:-1], v.shape[-1]))
    if fields["return_aux"] is None:
        return out
    return out, flex.AuxOutput(lse=q.new_zeros(q.shape[:-1], dtype=torch.float32))


@pytest.fixture
def flex_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    log = Log()
    monkeypatch.setattr(flex, "AuxRequest", _kept(log, "AuxRequest", flex.AuxRequest))
    monkeypatch.setattr(flex, "flex_attention", _kept(log, "flex_attention", _answer))
    made = flex.BlockMask.from_kv_blocks.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        flex.BlockMask, "from_kv_blocks", classmethod(_kept(log, "BlockMask.from_kv_blocks", made))
    )
    yield log


def test_flex_attention(flex_log: Log) -> None:
    for call in cases.drawn_choices(partial(flex_attention.refuses, variant="eager"), 100):
        flex_attention.run(call, variant="eager")
    assert set(flex_log.names()) == {"flex_attention", "AuxRequest", "BlockMask.from_kv_blocks"}
    _bind(flex_log, _versions("flex_attention.yaml"))


def test_a_version_without_the_keyword_is_found(flex_log: Log) -> None:
    # return_aux came with torch 2.9, which is why the manifest starts there
    flex_attention.run(cases.build(cases.plain()), variant="eager")
    with pytest.raises(pytest.fail.Exception, match=r"torch==2\.8.*return_aux"):
        _bind(flex_log, covered("torch", "==2.8.*"))
