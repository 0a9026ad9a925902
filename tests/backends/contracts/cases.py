"""Calls for the wrappers: every field of the call description as an axis, small tensors, fixed seeds."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import torch

from backends.call import CallError, make_call
from tests.backends.contracts.standin_flash import spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from backends.call import Call

    Choice = Mapping[str, str]

AXES: Mapping[str, tuple[str, ...]] = {
    "layout": ("dense", "one", "varlen", "paged", "decode", "paged_varlen"),
    "band": ("none", "causal", "left", "causal_left", "right", "left_right"),
    "softcap": ("no", "yes"),
    "slopes": ("no", "heads", "batch"),
    "sinks": ("no", "yes", "half"),
    "mask": ("no", "plane", "heads", "bias"),
    "scale": ("no", "yes"),
    "groups": ("1", "2"),
    "size_v": ("same", "other"),
    "lse": ("no", "yes"),
    "format": ("bfloat16", "float16", "fp8_kv", "fp8"),
    "scales": ("no", "number", "element", "heads"),
    "dropout": ("no", "yes"),
    "training": ("no", "yes"),
    "deterministic": ("no", "yes"),
}
"""Every axis with its spellings; the first is what is off."""

_BANDS: Mapping[str, dict[str, object]] = {
    "none": {},
    "causal": {"causal": True},
    "left": {"window": (1, None)},
    "causal_left": {"causal": True, "window": (1, None)},
    "right": {"window": (None, 1)},
    "left_right": {"window": (2, 1)},
}
_KV_HEADS = 2


def plain() -> dict[str, str]:
    """Every axis off."""
    return {axis: options[0] for axis, options in AXES.items()}


def build(
    choice: Choice, *, head_size: int = 16, block_size: int = 4, device: str = "cpu", seed: int = 0
) -> Call:
    """The call of one choice.

    Raises:
        CallError: the choice contradicts itself.
    """
    make = torch.Generator().manual_seed(seed)
    dtype = torch.float16 if choice["format"] == "float16" else torch.bfloat16
    heads = _KV_HEADS * int(choice["groups"])
    size_v = head_size if choice["size_v"] == "same" else head_size // 2
    where, fields = _sequences(choice["layout"], block_size)
    fields |= _BANDS[choice["band"]]

    def filled(*shape: int) -> Tensor:
        return torch.randn(shape, generator=make, dtype=torch.float32).to(dtype)

    q = filled(*where["q"], heads, head_size)
    k = filled(*where["k"], _KV_HEADS, head_size)
    v = filled(*where["k"], _KV_HEADS, size_v)
    if choice["format"] in ("fp8_kv", "fp8"):
        k, v = k.to(torch.float8_e4m3fn), v.to(torch.float8_e4m3fn)
        q = q.to(torch.float8_e4m3fn) if choice["format"] == "fp8" else q
    elif choice["training"] == "yes":
        q, k, v = (tensor.requires_grad_() for tensor in (q, k, v))
    if choice["format"] == "fp8_kv" and choice["training"] == "yes":
        q = q.requires_grad_()
    rows, columns = where["rows"][0], where["columns"][0]
    fields |= {
        "softcap": 3.0 if choice["softcap"] == "yes" else None,
        "scale": 0.3 if choice["scale"] == "yes" else None,
        "return_lse": choice["lse"] == "yes",
        "dropout_p": 0.5 if choice["dropout"] == "yes" else 0.0,
        "deterministic": choice["deterministic"] == "yes",
        "alibi_slopes": _slopes(choice["slopes"], heads, where["batch"][0]),
        "sinks": _sinks(choice["sinks"], heads, dtype),
        "mask": _mask(choice["mask"], (where["batch"][0], heads, rows, columns), make),
        **_scales(choice["scales"], heads),
    }
    return make_call(*(_on(tensor, device) for tensor in (q, k, v)), **_moved(fields, device))


def _moved(fields: dict[str, Any], device: str) -> dict[str, Any]:
    return {
        name: _on(value, device) if isinstance(value, torch.Tensor) else value
        for name, value in fields.items()
    }


def _on(tensor: Tensor, device: str) -> Tensor:
    """The tensor on a device; on a CUDA device that is not there, without values (a fake tensor mode is on)."""
    if device != "cuda":
        return tensor.to(device)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device, requires_grad=tensor.requires_grad)


def _sequences(layout: str, block_size: int) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """Leading dimensions of q and k, the batch and the longest lengths; and the fields that say them."""
    if layout in ("dense", "one"):
        batch = 2 if layout == "dense" else 1
        where: dict[str, tuple[int, ...]]
        where = {"q": (batch, 3), "k": (batch, 5), "batch": (batch,), "rows": (3,), "columns": (5,)}
        return where, {}
    if layout == "varlen":
        queries, keys = [3, 1, 0, 2], [5, 4, 2, 2]
        fields: dict[str, Any] = {
            "cu_seqlens_q": spans(queries),
            "cu_seqlens_k": spans(keys),
            "max_seqlen_q": max(queries),
            "max_seqlen_k": max(keys),
        }
        where = {"q": (sum(queries),), "k": (sum(keys),), "batch": (4,), "rows": (3,), "columns": (5,)}
        return where, fields
    lengths = [5, 9, 1]
    queries = [3, 2, 1] if layout == "paged_varlen" else [1] * 3 if layout == "decode" else [3] * 3
    blocks = -(-max(lengths) // block_size)
    order = [[7, 2, 5], [1, 6, 3], [4, 0, 8]] if blocks > 1 else [[2], [0], [1]]
    table = torch.tensor(order, dtype=torch.int32)[:, :blocks]
    fields = {"block_table": table, "seq_lens": torch.tensor(lengths, dtype=torch.int32)}
    if layout == "paged_varlen":
        fields |= {"cu_seqlens_q": spans(queries), "max_seqlen_q": max(queries)}
    leading = (sum(queries),) if layout == "paged_varlen" else (3, queries[0])
    columns = (table.shape[1] * block_size,)
    return {
        "q": leading,
        "k": (3 * len(order[0]), block_size),
        "batch": (3,),
        "rows": (max(queries),),
        "columns": columns,
    }, fields


def _slopes(which: str, heads: int, batch: int) -> Tensor | None:
    slopes = torch.linspace(0.1, 0.9, heads)
    if which == "batch":
        return slopes * torch.linspace(1.0, 2.0, batch)[:, None]
    return slopes if which == "heads" else None


def _sinks(which: str, heads: int, dtype: torch.dtype) -> Tensor | None:
    if which == "no":
        return None
    return torch.linspace(-1.0, 1.0, heads).to(dtype if which == "half" else torch.float32)


def _mask(which: str, shape: tuple[int, int, int, int], make: torch.Generator) -> Tensor | None:
    batch, heads, rows, columns = shape
    if which == "no":
        return None
    if which == "bias":
        return torch.randn((1, 1, rows, columns), generator=make)
    planes = 1 if which == "plane" else heads
    return torch.rand((batch, planes, rows, columns), generator=make) > 0.3


def _scales(which: str, heads: int) -> dict[str, float | Tensor | None]:
    if which == "no":
        return {}
    if which == "number":
        return {"q_scale": 0.5, "k_scale": 1.5, "v_scale": 0.75}
    if which == "element":
        return {
            name: torch.tensor([0.5 + index]) for index, name in enumerate(("q_scale", "k_scale", "v_scale"))
        }
    return {
        "q_scale": torch.linspace(0.5, 1.5, heads),
        "k_scale": torch.linspace(1.25, 0.5, _KV_HEADS),
        "v_scale": torch.linspace(0.75, 2.0, _KV_HEADS),
    }


_IN_ROTATION = ("softcap", "scale", "groups", "size_v", "dropout", "deterministic")
"""Axes that change values handed over, not which function gets which arguments: not crossed with the rest."""


def honoured_choices(refuses: Callable[[Call], str | None], **options: Any) -> Iterator[tuple[Choice, Call]]:
    """Calls that the wrapper does not refuse: the product of all axes, but those in rotation vary along.

    Spellings that are refused on their own are left out first.
    """
    turn = random.Random(0)
    alone = {axis: _accepted(axis, refuses, options) for axis in AXES}
    if all(spelling in ("fp8_kv", "fp8") for spelling in alone["format"]):
        alone["training"] = ("no",)
    crossed = {axis: spellings for axis, spellings in alone.items() if axis not in _IN_ROTATION}
    for values in itertools.product(*crossed.values()):
        for _ in range(8):  # a refused rotation is turned on
            choice = dict(zip(crossed, values, strict=True))
            choice |= {axis: turn.choice(alone[axis]) for axis in _IN_ROTATION}
            call = _built(choice, options)
            if call is not None and refuses(call) is None:
                if call.training == (choice["training"] == "yes"):  # an fp8 tensor takes no gradient
                    yield choice, call
                break


def drawn_choices(refuses: Callable[[Call], str | None], count: int, **options: Any) -> list[Call]:
    """``count`` calls that the wrapper does not refuse, drawn from all choices; the same ones every time."""
    draw = random.Random(0)
    alone = {axis: _accepted(axis, refuses, options) for axis in AXES}
    found: list[Call] = []
    while len(found) < count:
        call = _built({axis: draw.choice(spellings) for axis, spellings in alone.items()}, options)
        if call is not None and refuses(call) is None:
            found.append(call)
    return found


def _built(choice: Choice, options: dict[str, Any]) -> Call | None:
    try:
        return build(choice, **options)
    except CallError:
        return None


def _accepted(axis: str, refuses: Callable[[Call], str | None], options: dict[str, Any]) -> Sequence[str]:
    """The spellings of one axis that some otherwise plain call may use."""
    kept = []
    for option in AXES[axis]:
        for helper in ({}, {"format": "fp8_kv"}, {"format": "fp8"}, {"layout": "one"}, {"layout": "varlen"}):
            choice = {**plain(), **helper, axis: option}
            if option != "no" and axis == "mask" and choice["layout"] not in ("dense", "one"):
                continue
            if refuses(build(choice, **options)) is None:
                kept.append(option)
                break
    return kept


def sampled(pairs: Iterator[tuple[Choice, Call]], count: int, seed: int = 0) -> list[tuple[Choice, Call]]:
    """``count`` of the pairs, the same ones every time; all where there are fewer."""
    everything = list(pairs)
    return everything if len(everything) <= count else random.Random(seed).sample(everything, count)
