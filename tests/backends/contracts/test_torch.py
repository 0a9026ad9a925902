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
import torch.nn.attention.varlen as varlen_module
import yaml
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention as flex
from torch.overrides import TorchFunctionMode

from backends import _flash_impl, flex_attention, torch_sdpa
from backends._flash_impl import LOCK, use
from tests.backends.contracts import cases
from tests.backends.contracts.signatures import Contract, covered
from tests.backends.contracts.standin import Launch, Log
from tests.backends.contracts.standin_torch import implementations

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


def _versions(manifest: str, variant: str | None = None) -> list[Contract]:
    """The recorded versions of torch that a core manifest allows for all its variants, or for one."""
    data = yaml.safe_load((MANIFESTS / manifest).read_text(encoding="utf-8"))
    allowed: str = data["requires"]["packages"]["torch"]
    for part in data.get("variants", ()):
        if part["name"] == variant:
            allowed = part["requires"].get("packages", {}).get("torch", allowed)
    return covered("torch", allowed)


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
    if variant != "cuda_varlen" and (call.mask is not None or call.causal):
        return "a mask has to be built"
    return torch_sdpa.refuses(call, variant)


_REGISTRY = (
    "activate_flash_attention_impl",
    "restore_flash_attention_impl",
    "list_flash_attention_impls",
    "current_flash_attention_impl",
)


@pytest.fixture
def sdpa_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """The calls of everything in torch.nn.attention that the wrapper uses; FA3 and FA4 change nothing."""
    log = Log()
    for module, names in (
        (attention_module, ("sdpa_kernel", *_REGISTRY)),
        (varlen_module, ("varlen_attn", "AuxRequest")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, _kept(log, name, getattr(module, name)))
    with implementations("FA3", "FA4"):
        yield log
    _flash_impl._OURS.clear()


@pytest.mark.parametrize("variant", ["cuda_flash", "cuda_flash_fa3", "cuda_flash_fa4"])
def test_what_is_asked_of_the_registry(variant: str, sdpa_log: Log) -> None:
    with LOCK:
        use("FA4" if variant == "cuda_flash_fa3" else "FA3", "torch_sdpa/test")
        use(torch_sdpa._IMPLEMENTATION[variant], "torch_sdpa/test")
    made = set(sdpa_log.names())
    assert {"activate_flash_attention_impl", "current_flash_attention_impl"} <= made
    assert ("restore_flash_attention_impl" in made) == (variant == "cuda_flash")
    _bind(sdpa_log, _versions("torch_sdpa.yaml", "cuda_flash_fa3"))
    with pytest.raises(pytest.fail.Exception, match="flash_attention_impl"):
        _bind(sdpa_log, covered("torch", "<2.10"))


def test_varlen(sdpa_log: Log) -> None:
    refuses = partial(_refuses_here, "cuda_varlen")
    with torch.no_grad(), FakeTensorMode():
        for call in cases.drawn_choices(refuses, 60, device="cuda", block_size=256):
            returned = torch_sdpa.run(call, variant="cuda_varlen")
            out, lse = returned if isinstance(returned, tuple) else (returned, None)
            assert out.shape == call.out_shape
            rows = (call.batch, call.num_heads, call.max_seqlen_q)
            assert lse is None or lse.shape == (
                rows if not call.packed_q else (call.num_heads, call.q.shape[0])
            )
    made = [launch for launch in sdpa_log if launch.name == "varlen_attn"]
    assert {"block_table" in launch.arguments["kwargs"] for launch in made} == {True, False}
    assert len(made) == 60
    named = Log(launch for launch in sdpa_log if launch.name in ("varlen_attn", "AuxRequest"))
    _bind(named, _versions("torch_sdpa.yaml", "cuda_varlen"))
    with pytest.raises(pytest.fail.Exception, match=r"torch==2\.11.*enable_gqa"):
        _bind(named, covered("torch", "==2.11.*"))


@pytest.mark.parametrize("variant", [name for name in torch_sdpa.HONOURED if name != "cuda_varlen"])
def test_sdpa(variant: str, sdpa_log: Log) -> None:
    log = sdpa_log
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
    # where torch has no registry, the wrapper asks nothing of it
    asked = Log(launch for launch in log if launch.name not in _REGISTRY)
    _bind(asked, _versions("torch_sdpa.yaml", variant))


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
