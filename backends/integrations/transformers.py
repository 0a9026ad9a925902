"""The selector as an attention implementation of transformers.

>>> from backends.integrations.transformers import register
>>> register()  # doctest: +SKIP
>>> model = AutoModelForCausalLM.from_config(config, attn_implementation="attention_selector")  # doctest: +SKIP

Every layer asks for itself: head sizes and counts, window, soft cap, sinks, dtype and the mask of the call at hand decide which
kernel runs it. What is decided is kept for each kind of call, and :func:`report` names it for every layer.

What a layer's arguments mean: the mask says which pairs are kept, and where there is none, ``is_causal`` (or the module's own)
and ``sliding_window`` do. ``softcap``, ``s_aux`` (sinks), ``position_bias``, ``dropout``, ``scaling`` and FlashAttention's
``cu_seq_lens_*`` are honoured; what selects keys beside the mask is refused. Rows of padding come out as zeros, where the
padding was left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from backends.call import CallError, make_call, request_fields
from backends.integrations._choose import REGISTERED, Chooser, wish_of
from backends.integrations._forms import forms
from backends.integrations._layers import ModelReport, record, report_of
from backends.integrations._recognise import structure_of
from backends.integrations._structure import Structure, StructuredMask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

__all__ = ["NAME", "LayerError", "ModelReport", "register", "report"]

#: The implementation's name where `register` is given none.
NAME = "attention_selector"

#: Arguments that choose keys beside the mask: a layer that gives one means something no call here can say.
SELECTING = ("indices", "block_indices", "block_mask", "score_mod")

Names = str | Iterable[str]


class LayerError(ValueError):
    """A layer asks for something that is no attention call, or contradicts itself; says which layer."""


def register(
    name: str = NAME,
    *,
    backend: str | None = None,
    avoid: Names | None = None,
    prefer: Names | None = None,
    strict: bool = False,
    tensor_masks: bool = False,
) -> None:
    """Add an implementation for ``attn_implementation=`` and ``set_attn_implementation``; a second call replaces it.

    Arguments:
        name: what models call it. Several names may stand beside each other, each with its own arguments.
        backend: insist on one backend or candidate: a layer that it cannot run is an error.
        avoid, prefer: backends or candidates to leave out, or to put first.
        strict: refuse candidates that would change the request, and those with a serious warning.
        tensor_masks: hand masks to the model as plain tensors. For a model whose layers are compiled one by one with
            ``fullgraph=True``; under ``torch.compile`` of the whole model they are tensors anyway.

    Raises:
        RuntimeError: a transformers whose interface of masks is another one.
        ValueError: a name that the library reads a meaning into.
    """
    if "q_length" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        raise RuntimeError(
            "transformers 5.4 or newer is needed: its masks are described by q_length and q_offset"
        )
    taken = next((word for word in ("flash", "sdpa", "eager", "flex", "paged|", "/") if word in name), None)
    if taken is not None:
        raise ValueError(f"name {name!r}: the library reads a meaning into {taken!r}")
    chooser = Chooser(
        name,
        backend=backend,
        avoid=_names(avoid),
        prefer=_names(prefer),
        strict=strict,
    )

    def attention_forward(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        **arguments: Any,
    ) -> tuple[Tensor, None]:
        return _attend(chooser, module, query, key, value, attention_mask, dropout, scaling, arguments), None

    def attention_mask(**arguments: Any) -> Tensor | None:
        return _mask(tensor_masks, arguments)

    forgotten = REGISTERED.get(name)
    if forgotten is not None:
        forgotten.close()
    REGISTERED[name] = chooser
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)


def report(model: torch.nn.Module) -> ModelReport:
    """What every attention layer of a model ran on; for layers that have not run, what their configuration lets expect."""
    return report_of(model)


def _names(value: Names | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)


# -- masks ------------------------------------------------------------------------------------------------------------


def _mask(tensor_masks: bool, arguments: dict[str, Any]) -> Tensor | None:
    """The mask of one kind of layer, made once a forward pass; arguments as `transformers.masking_utils` gives them."""
    queries, keys = arguments["q_length"], arguments["kv_length"]
    skip = arguments.get("allow_is_causal_skip", True)
    # The library compiles decoding with a static cache, and says so by not allowing this skip; what goes into
    # compiled code is a plain tensor.
    decoding = queries == 1 and not skip and not arguments.get("allow_is_bidirectional_skip", False)
    if tensor_masks or decoding or torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        # without a mask a layer is taken for causal, so only that mask may be left out
        return _tensor_mask(arguments, skip and queries == keys and not tensor_masks)
    offset = arguments.get("q_offset", 0)
    structure = structure_of(
        arguments.get("mask_function", masking_utils.causal_mask_function),
        arguments["batch_size"],
        queries,
        keys,
        int(offset),
        arguments.get("kv_offset", 0),
        arguments.get("attention_mask"),
    )
    if structure is None:
        return _tensor_mask(arguments, False)
    return StructuredMask(structure, torch.device(arguments.get("device", "cpu")))


def _tensor_mask(arguments: dict[str, Any], may_skip: bool) -> Tensor | None:
    skips = {"allow_is_causal_skip": may_skip, "allow_is_bidirectional_skip": False}
    made: Tensor | None = masking_utils.sdpa_mask(**{**arguments, **skips})
    return made


# -- layers -----------------------------------------------------------------------------------------------------------


def _attend(
    chooser: Chooser,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scaling: float | None,
    arguments: Mapping[str, Any],
) -> Tensor:
    """Attention of one layer: ``[batch, heads, length, size]`` in, ``[batch, queries, heads, head_size_v]`` out."""
    for name in SELECTING:
        if arguments.get(name) is not None:
            raise LayerError(
                f"{layer_of(module)}: {name} chooses keys beside the mask, which no kernel here can do"
            )
    if arguments.get("output_attentions"):
        raise LayerError(
            f"{layer_of(module)}: kernels give no attention weights; attn_implementation='eager' does"
        )
    options = {
        "scale": scaling,
        "softcap": arguments.get("softcap"),
        "sinks": _sinks(module, arguments, query.shape[1]),
        "dropout_p": float(dropout),
        "deterministic": bool(arguments.get("deterministic")) or torch.are_deterministic_algorithms_enabled(),
    }
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    bias = arguments.get("position_bias")
    if mask is not None and mask.dim() != 4:
        raise LayerError(
            f"{layer_of(module)}: attention_mask of shape {list(mask.shape)}, expected [batch, heads, queries, keys]"
        )
    wish = wish_of(getattr(module, "config", None))
    try:
        if torch.compiler.is_compiling():
            return _traced(chooser, module, q, k, v, mask, bias, options, arguments, wish)
        if mask is None:
            mask = _implied(module, q, k, arguments)
        if isinstance(mask, StructuredMask) and arguments.get("cu_seq_lens_q") is not None:
            mask = _documented(module, mask, arguments)
        ways = forms(q, k, v, mask, bias, options)
        form, call, runner = chooser.choose(ways, wish, lambda: layer_of(module))
    except CallError as error:
        raise LayerError(f"{layer_of(module)}: {error}") from error
    out = form.finish(runner.execute(call))
    record(module, chooser, form.name, runner)
    return out.contiguous()


def layer_of(module: torch.nn.Module) -> str:
    """A layer's name for people: its number and its class."""
    index = getattr(module, "layer_idx", None)
    return type(module).__name__ if index is None else f"layer {index} ({type(module).__name__})"


def _band(
    module: torch.nn.Module, q: Tensor, k: Tensor, arguments: Mapping[str, Any]
) -> tuple[bool, tuple[int | None, int | None] | None]:
    """(causal, window) where no mask says more. Raises LayerError where the two would have two meanings."""
    given = arguments.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if given is None else given)
    width = arguments.get("sliding_window")
    queries, keys = q.shape[1], k.shape[1]
    if causal and 1 < queries != keys:
        raise LayerError(
            f"{layer_of(module)}: {queries} queries, {keys} keys and no attention_mask: causal has two meanings here, "
            "so a mask has to say which"
        )
    if width is None:
        return causal, None
    return causal, (width - 1, None if causal else width - 1)


def _implied(module: torch.nn.Module, q: Tensor, k: Tensor, arguments: Mapping[str, Any]) -> StructuredMask:
    """The mask of a layer that is given none."""
    causal, window = _band(module, q, k, arguments)
    left, right = window if window is not None else (None, None)
    queries, keys = q.shape[1], k.shape[1]
    offset = keys - queries if causal else 0
    return StructuredMask(
        Structure(q.shape[0], queries, keys, offset, causal, left, right, None, None), q.device
    )


def _sinks(module: torch.nn.Module, arguments: Mapping[str, Any], heads: int) -> Tensor | None:
    """One logit a query head, ``[heads]``."""
    if arguments.get("sinks") is not None:
        raise LayerError(f"{layer_of(module)}: sinks of single tokens, and a call has one sink a head")
    sinks = arguments.get("s_aux")
    if sinks is None:
        return None
    if sinks.numel() != heads:
        raise LayerError(
            f"{layer_of(module)}: s_aux of shape {list(sinks.shape)}, expected [{heads}]: one a head"
        )
    flat: Tensor = sinks.reshape(heads)
    return flat


def _documented(
    module: torch.nn.Module, mask: StructuredMask, arguments: Mapping[str, Any]
) -> StructuredMask:
    """The mask with FlashAttention's boundaries of documents in one row; padding, and boundaries of its own, come first."""
    view = mask.view_of_keys()
    if view.padding is not None or view.documents is not None:
        return mask
    made: StructuredMask = mask.once(
        "documented", lambda: _bounded(module, mask.structure, arguments, mask.device)
    )
    return made


def _bounded(
    module: torch.nn.Module, plain: Structure, arguments: Mapping[str, Any], device: torch.device
) -> StructuredMask:
    starts, other = arguments["cu_seq_lens_q"], arguments.get("cu_seq_lens_k")
    if plain.batch != 1 or plain.queries != plain.keys or plain.offset != 0:
        raise LayerError(
            f"{layer_of(module)}: cu_seq_lens_q with {plain.batch} rows of {plain.queries} queries and {plain.keys} keys, "
            "expected one row of as many queries as keys"
        )
    if other is not None and other is not starts and not torch.equal(starts, other):
        raise LayerError(f"{layer_of(module)}: cu_seq_lens_k differs from cu_seq_lens_q")
    lengths = starts.to(device).diff()
    documents = torch.repeat_interleave(torch.arange(lengths.shape[0], device=device), lengths)
    if documents.shape[0] != plain.queries:
        raise LayerError(
            f"{layer_of(module)}: cu_seq_lens_q ends at {documents.shape[0]}, expected {plain.queries}, the tokens given"
        )
    return StructuredMask(plain._replace(padding=None, documents=documents[None]), device)


def _traced(
    chooser: Chooser,
    module: torch.nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    options: Mapping[str, Any],
    arguments: Mapping[str, Any],
    wish: tuple[str, ...] | None,
) -> Tensor:
    """The layer inside a graph: the winner is chosen while tracing, and masks are tensors."""
    if mask is None:
        causal, window = _band(module, q, k, arguments)
        call = make_call(q, k, v, causal=causal, window=window, mask=bias, **options)
    else:
        if bias is not None:
            mask = torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else mask + bias
        call = make_call(q, k, v, mask=mask, **options)
    kernel, variant = chooser.constant(request_fields(call), wish, layer_of(module))
    out: Tensor = kernel.run(call, variant=variant)
    return out.contiguous()
