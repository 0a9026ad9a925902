"""One call: run it, compare it with the float64 reference, say what came out."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from backends.bounds import bounds_of, gradient_bounds_of
from backends.call import Call, make_call
from backends.reference import attend
from backends.verify.calls import Made, make
from backends.verify.draws import Draw, request_of

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Verdict", "judge", "refusal_elsewhere"]


class Verdict(NamedTuple):
    """What became of one call.

    ``outcome``: ok, refused (by the wrapper), error, wrong, or memory (there was not enough). The parent of the process adds
    crash and timeout.
    """

    outcome: str
    message: str = ""
    seconds: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether a call that a manifest declares may not end so."""
        return self.outcome not in ("ok", "memory")


class _WrongError(Exception):
    """A result outside its bound."""


def judge(kernel: str, variant: str | None, draw: Draw, device: str) -> Verdict:
    """Run a draw's call on a kernel module's variant and compare."""
    began = time.perf_counter()
    try:
        outcome, message = _judge(import_module(kernel), variant, draw, device)
    except torch.OutOfMemoryError as error:
        outcome, message = "memory", _first(error)
    except _WrongError as error:
        outcome, message = "wrong", str(error)
    except Exception as error:
        outcome, message = "error", f"{type(error).__name__}: {_first(error)}"
    return Verdict(outcome, message, time.perf_counter() - began)


def refusal_elsewhere(kernel: str, variant: str | None, draw: Draw, device: str) -> Verdict:
    """What the wrapper says to the call on a device that is not here: the tensors have shapes and no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    began = time.perf_counter()
    made = make(draw, "cpu")
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = [_fake(x, device) for x in made.tensors]
        fields = {n: _fake(x, device) if isinstance(x, Tensor) else x for n, x in made.fields.items()}
        module = import_module(kernel)
        call = module.make_call(*tensors, **fields)
        _check_request(module, call, draw)
        reason = module.refuses(call, variant)
    outcome = "ok" if reason is None else "refused"
    return Verdict(outcome, reason or "", time.perf_counter() - began)


def _fake(x: Tensor, device: str) -> Tensor:
    fake = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
    return fake.requires_grad_() if x.requires_grad else fake


def _check_request(module: ModuleType, call: Call, draw: Draw) -> None:
    """The tensors say what was planned: or else the manifest would be asked about another call."""
    got = {name: value for name, value in module.request_fields(call).items() if name != "device"}
    planned = request_of(draw)
    assert got == planned, f"planned {planned}, made {got}"


def _judge(module: ModuleType, variant: str | None, draw: Draw, device: str) -> tuple[str, str]:
    made = make(draw, device)
    call: Call = module.make_call(*made.tensors, **made.fields)
    _check_request(module, call, draw)
    reason = module.refuses(call, variant)
    if reason is not None:
        return "refused", str(reason)
    from selector.errors import RefusedCall

    try:
        out, lse = _run(module, variant, call)
    except RefusedCall as error:
        return "refused", error.reason
    _shapes(call, out, lse)
    if call.dropout_p > 0.0:
        _dropout(module, variant, call, made)
        return "ok", ""
    expected, expected_lse = attend(call)
    bounds = bounds_of(call)
    _within("output", out.double(), expected, bounds.out)
    if lse is not None:
        _within("log-sum-exp", lse.double(), expected_lse, bounds.lse)
    gradients = _gradients(call, out, made) if made.leaves else {}
    if call.deterministic:
        _again(module, variant, call, made, out, gradients)
    return "ok", ""


def _run(module: ModuleType, variant: str | None, call: Call) -> tuple[Tensor, Tensor | None]:
    returned = module.run(call, variant=variant)
    if call.q.device.type != "cpu":
        torch.accelerator.synchronize(call.q.device)
    return returned if isinstance(returned, tuple) else (returned, None)


def _shapes(call: Call, out: Tensor, lse: Tensor | None) -> None:
    if out.shape != torch.Size(call.out_shape) or out.dtype != call.out_dtype:
        got, wanted = f"{out.dtype}{list(out.shape)}", f"{call.out_dtype}{list(call.out_shape)}"
        raise _WrongError(f"output: {got} in place of {wanted}")
    if (lse is not None) != call.return_lse:
        raise _WrongError(f"log-sum-exp: {'not asked for' if lse is not None else 'missing'}")
    if lse is not None:
        tokens = (call.num_heads, call.q.shape[0]) if call.packed_q else None
        shape = tokens or (call.q.shape[0], call.num_heads, call.q.shape[1])
        if lse.shape != torch.Size(shape) or lse.dtype != torch.float32:
            raise _WrongError(
                f"log-sum-exp: {lse.dtype}{list(lse.shape)} in place of torch.float32{list(shape)}"
            )


def _within(what: str, got: Tensor, expected: Tensor, bound: float) -> None:
    """Infinities have to be equal, everything else within ``bound``."""
    if not got.numel():
        return
    got, expected = got.detach(), expected.detach()
    same = got == expected
    error = torch.where(same, 0.0, got - expected).abs().nan_to_num(math.inf, math.inf)
    largest = float(error.max())
    if largest > bound:
        share = float((error > bound).double().mean())
        raise _WrongError(f"{what}: off by {largest:.3g}, at most {bound:.3g} ({share:.0%} of the values)")


def _gradients(call: Call, out: Tensor, made: Made) -> dict[str, Tensor]:
    """The gradients of the leaves, compared with those of the reference in float64."""
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(out.shape, generator=generator).to(out.dtype).to(out.device)
    got = _backward(out, grad, made.leaves)
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in made.leaves.items()}
    expected_out, _ = attend(_with(made, exact))
    expected = _backward(expected_out, grad.double(), exact)
    limits = gradient_bounds_of(call, grad)
    for name, value in got.items():
        if name == "mask":
            limit = limits.score * call.batch * call.num_heads * call.max_seqlen_q / max(_planes(value), 1)
        else:
            limit = float(getattr(limits, name))
        _within(f"gradient of {name}", value.double(), expected[name], limit)
    return got


def _planes(mask: Tensor) -> int:
    """How many of (batch, head, query) a mask tells apart: a gradient sums over the others."""
    return math.prod(mask.shape[:-1])


def _with(made: Made, exact: Mapping[str, Tensor]) -> Call:
    """The same call on other leaves; keys and values that are no leaves but have to be of the query's dtype follow."""
    q, k, v = made.tensors
    fields = {**made.fields, **{n: x for n, x in exact.items() if n == "mask"}}
    return make_call(exact.get("q", q), exact.get("k", k), exact.get("v", v), **fields)


def _backward(out: Tensor, grad: Tensor, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = torch.autograd.grad(out, list(leaves.values()), grad, retain_graph=True, allow_unused=True)
    zero = {n: torch.zeros_like(x) for n, x in leaves.items()}
    return {n: zero[n] if g is None else g.detach() for n, g in zip(leaves, found, strict=True)}


def _again(
    module: ModuleType,
    variant: str | None,
    call: Call,
    made: Made,
    out: Tensor,
    gradients: Mapping[str, Tensor],
) -> None:
    """Deterministic: a second run gives the same bits."""
    other, _ = _run(module, variant, call)
    if not torch.equal(out, other):
        raise _WrongError("deterministic: a second run gave other bits")
    if gradients:
        generator = torch.Generator().manual_seed(1)
        grad = torch.randn(out.shape, generator=generator).to(out.dtype).to(out.device)
        for name, value in _backward(other, grad, made.leaves).items():
            if not torch.equal(value, gradients[name]):
                raise _WrongError(f"deterministic: a second run gave other bits in the gradient of {name}")


def _dropout(module: ModuleType, variant: str | None, call: Call, made: Made) -> None:
    """Statistics in place of a comparison: with values of 1, a row is the sum of the weights that were kept, doubled.

    Its expectation is the sum of all weights. The variance of a row is at most ``p / (1 - p)`` times that, so the mean of
    all rows is within 6 standard deviations, and some row is off, because something was dropped.
    """
    q, k, v = made.tensors
    ones = torch.ones_like(v.detach().float()).to(v.dtype)
    fields = {**made.fields, "v_scale": None}
    kept, _ = _run(module, variant, make_call(q, k, ones, **fields))
    plain, _ = attend(make_call(q, k, ones, **{**fields, "dropout_p": 0.0}))
    got, expected = kept.detach().double()[..., 0], plain.detach()[..., 0]
    rows = int((expected > 0).sum())
    if not bool(torch.isfinite(got).all()) or bool((got[expected == 0] != 0).any()):
        raise _WrongError("dropout: rows that see nothing are not 0, or values are not finite")
    if not rows:
        return
    p = call.dropout_p
    limit = 6.0 * math.sqrt(p / (1.0 - p) * float(expected.sum())) / rows + 0.02
    off = abs(float(got.sum()) - float(expected.sum())) / rows
    if off > limit:
        raise _WrongError(f"dropout: the mean weight is off by {off:.3g}, at most {limit:.3g}")
    if rows > 8 and bool(((got - expected).abs() < 0.02).all()):
        raise _WrongError("dropout: nothing was dropped")
    if made.leaves:
        out, _ = _run(module, variant, call)
        grad = torch.ones_like(out)
        for name, value in _backward(out, grad, made.leaves).items():
            if not bool(torch.isfinite(value).all()):
                raise _WrongError(f"dropout: the gradient of {name} is not finite")


def _first(error: Exception) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else ""
