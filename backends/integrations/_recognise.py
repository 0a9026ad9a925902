"""Reading the structure out of the mask functions of `transformers.masking_utils`.

The library describes a mask by a function of four indices, composed by its own combinators, and gives that to an
implementation. A function is recognised by its code object, so by being the library's own and nothing like it, and its
parameters are read from its closure. What is not recognised - a model's own function, a union of masks, chunks - is evaluated
to a tensor by the library itself.

That a recognised function means what is claimed here is not believed but tried: at the first use, each is evaluated on a few
small masks by the library and compared with :meth:`Structure.dense`. One that differs is no longer recognised.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers import masking_utils

from backends.integrations._structure import Structure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

    from torch import Tensor

__all__ = ["structure_of"]

_LOG = logging.getLogger(__name__)


class _Band(NamedTuple):
    """What a mask function says, before it is placed between queries and keys."""

    causal: bool = False
    left: int | None = None
    right: int | None = None
    documents: Tensor | None = None
    positions: Tensor | None = None
    """Indices are replaced by these: positions that start again in every document."""


def structure_of(
    function: Callable[..., Any],
    batch: int,
    queries: int,
    keys: int,
    query_offset: int,
    key_offset: int,
    padding: Tensor | None,
) -> Structure | None:
    """The mask of one kind of layer, or None where it is not one of the known shapes.

    Arguments:
        function: the library's mask function, of (batch, head, query, key) indices.
        query_offset, key_offset: the indices of the first query and the first key of the tensors.
        padding: bool ``[batch, any]`` over key indices from 0; indices past its end are padding.
    """
    band = _Reader.get().read(function)
    if band is None:
        return None
    if band.documents is not None and (
        queries != keys or query_offset or key_offset or padding is not None or not _in_order(band, batch)
    ):
        return None
    return Structure(
        batch=batch,
        queries=queries,
        keys=keys,
        offset=query_offset - key_offset,
        causal=band.causal,
        left=band.left,
        right=band.right,
        padding=_of_keys(padding, keys, key_offset),
        documents=band.documents,
    )


def _of_keys(padding: Tensor | None, keys: int, offset: int) -> Tensor | None:
    if padding is None:
        return None
    missing = offset + keys - padding.shape[-1]
    if missing > 0:
        padding = torch.nn.functional.pad(padding, (0, missing))
    return padding[:, offset : offset + keys]


def _in_order(band: _Band, batch: int) -> bool:
    """Whether documents lie one after the other, and positions inside each of them count up by one.

    Only then is a band over positions the same band over places.
    """
    documents, positions = band.documents, band.positions
    if documents is None or documents.dim() != 2 or documents.shape[0] != batch:
        return False
    step = documents[:, 1:] - documents[:, :-1]
    if positions is None:
        return bool((step >= 0).all())
    counted = positions.expand(batch, -1)
    within = (counted[:, 1:] - counted[:, :-1]) == 1
    return counted.shape == documents.shape and bool(((step >= 0) & (within | (step != 0))).all())


class _Reader:
    """The library's mask functions by their code objects. One for the process."""

    _one: _Reader | None = None

    @classmethod
    def get(cls) -> _Reader:
        if cls._one is None:
            cls._one = cls()
        return cls._one

    def __init__(self) -> None:
        ids = torch.zeros(1, 1, dtype=torch.long)
        causal = masking_utils.causal_mask_function
        self.named: dict[Any, _Band] = {causal: _Band(causal=True)}
        everything = getattr(masking_utils, "bidirectional_mask_function", None)
        if everything is not None:
            self.named[everything] = _Band()
        self.both = masking_utils.and_masks(causal).__code__
        self.remapped = _code("remap_positions_for_packed_sequence", causal, ids)
        known: dict[CodeType | None, Callable[[dict[str, Any]], _Band]] = {
            _code("sliding_window_overlay", 1): lambda cell: _Band(left=cell["sliding_window"] - 1),
            _code("sliding_window_bidirectional_overlay", 1): lambda cell: _Band(
                left=cell["sliding_window"], right=cell["sliding_window"]
            ),
            _code("packed_sequence_mask_function", ids): lambda cell: _Band(
                documents=cell["packed_sequence_mask"]
            ),
        }
        self.built = {code: build for code, build in known.items() if code is not None}
        for name, function, documents in self._samples():
            self._try(name, function, documents)

    def read(self, function: Callable[..., Any]) -> _Band | None:
        """What a function says, or None."""
        known = self.named.get(function)
        if known is not None:
            return known
        code = getattr(function, "__code__", None)
        if code is None:
            return None
        cells = _cells(function)
        if code is self.both:
            return self._both(cells["mask_functions"])
        if code is self.remapped:
            inner = self.read(cells["mask_function"])
            if inner is None or inner.documents is not None or inner.positions is not None:
                return None
            return inner._replace(positions=cells["position_ids"])
        build = self.built.get(code)
        return None if build is None else build(cells)

    def _both(self, functions: tuple[Callable[..., Any], ...]) -> _Band | None:
        found = _Band()
        for function in functions:
            band = self.read(function)
            if band is None:
                return None
            for one, other in ((found.documents, band.documents), (found.positions, band.positions)):
                if one is not None and other is not None:
                    return None
            found = _Band(
                found.causal or band.causal,
                _tighter(found.left, band.left),
                _tighter(found.right, band.right),
                found.documents if found.documents is not None else band.documents,
                found.positions if found.positions is not None else band.positions,
            )
        return found

    # -- trying -------------------------------------------------------------------------------------------------------

    def _samples(self) -> Iterator[tuple[str, Callable[..., Any], Tensor | None]]:
        """Each known function, and their combinations, that this version of the library has."""
        positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6]])
        documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]])
        for function in self.named:
            yield function.__name__, function, None
        for name, *arguments in (
            ("sliding_window_overlay", 3),
            ("sliding_window_causal_mask_function", 3),
            ("sliding_window_bidirectional_overlay", 2),
            ("sliding_window_bidirectional_mask_function", 2),
        ):
            made = _made(name, *arguments)
            if made is not None:
                yield name, made, None
        packed = _made("packed_sequence_mask_function", documents)
        if packed is None:
            return
        yield "packed_sequence_mask_function", packed, documents
        inner = masking_utils.sliding_window_causal_mask_function(2)
        remapped = _made("remap_positions_for_packed_sequence", inner, positions)
        for function in (inner, remapped):
            if function is not None:
                yield "and_masks", masking_utils.and_masks(function, packed), documents

    def _try(self, name: str, function: Callable[..., Any], documents: Tensor | None) -> None:
        """Forget a function that does not mean what is claimed."""
        shapes = [(7, 7, 0, 0)] if documents is not None else [(7, 7, 0, 0), (2, 6, 9, 5), (1, 4, 3, 0)]
        for queries, keys, query_offset, key_offset in shapes:
            band = self.read(function)
            if band is None:
                return
            claimed = Structure(
                2,
                queries,
                keys,
                query_offset - key_offset,
                band.causal,
                band.left,
                band.right,
                None,
                documents,
            )
            said = masking_utils.sdpa_mask(
                batch_size=2,
                q_length=queries,
                kv_length=keys,
                q_offset=query_offset,
                kv_offset=key_offset,
                mask_function=function,
                allow_is_causal_skip=False,
            )
            if said is None or not torch.equal(said, claimed.dense(torch.device("cpu"))):
                _LOG.warning("transformers: %s means something else in this version; masks are tensors", name)
                self.named, self.built = {}, {}
                return


def _made(name: str, *arguments: Any) -> Callable[..., Any] | None:
    """What one of the library's makers makes; None in a version without it."""
    make = getattr(masking_utils, name, None)
    return None if make is None else make(*arguments)


def _code(name: str, *arguments: Any) -> CodeType | None:
    return getattr(_made(name, *arguments), "__code__", None)


def _cells(function: Any) -> dict[str, Any]:
    """The values a closure holds, by name."""
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())
    }


def _tighter(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
