"""What an attention mask of transformers says, as structure: a band, padding and documents instead of a tensor.

A mask of ``queries x keys`` booleans is what most kernels cannot take, and the fast ones least of all. Nearly every mask of a
language model is one of a few shapes; :class:`Structure` holds those exactly, and :class:`StructuredMask` is the tensor that
the library passes from a model to its layers: built only when somebody looks at it.

Query ``i`` of a sequence stands at key ``offset + i``. The pair ``(i, j)`` is kept where all of these hold:

* ``causal``: ``j <= offset + i``; ``left``: ``j >= offset + i - left``; ``right``: ``j <= offset + i + right``;
* ``padding[b, j]``;
* ``documents[b, i] == documents[b, j]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

__all__ = ["Structure", "StructuredMask", "View"]


class Structure(NamedTuple):
    """A mask ``[batch, 1, queries, keys]`` as the module's text says."""

    batch: int
    queries: int
    keys: int
    offset: int
    """Where the first query stands among the keys; it may be negative, or past the last key."""
    causal: bool
    left: int | None
    right: int | None
    padding: Tensor | None
    """bool ``[batch, keys]``, True for a token."""
    documents: Tensor | None
    """integer ``[batch, queries]``, only where ``queries == keys`` and ``offset == 0``; equal neighbours are one document."""

    def dense(self, device: torch.device) -> Tensor:
        """The mask written out: bool ``[batch, 1, queries, keys]``, True where a query may attend."""
        key = torch.arange(self.keys, device=device)[None, :]
        place = torch.arange(self.queries, device=device)[:, None] + self.offset
        kept = torch.ones(self.queries, self.keys, dtype=torch.bool, device=device)
        if self.causal:
            kept = kept & (key <= place)
        if self.left is not None:
            kept = kept & (key >= place - self.left)
        if self.right is not None:
            kept = kept & (key <= place + self.right)
        kept = kept[None, None]
        if self.padding is not None:
            kept = kept & self.padding.to(device)[:, None, None, :]
        if self.documents is not None:
            own = self.documents.to(device)
            kept = kept & (own[:, None, :, None] == own[:, None, None, :])
        return kept.expand(self.batch, 1, self.queries, self.keys)

    def view(self) -> View:
        """The same, on the keys that any query can see. Waits for the device where there is padding."""
        return _view(self)


class View(NamedTuple):
    """A structure without what changes nothing: keys nobody sees, a band that keeps everything, padding without padding.

    Keys ``start`` to ``end`` of the tensors remain. ``offset`` is None where the queries stand somewhere else than at the
    end of these keys: a call cannot say that, so such a mask has to be a tensor.
    """

    start: int
    end: int
    aligned: bool
    causal: bool
    window: tuple[int | None, int | None] | None
    padding: Tensor | None
    """bool ``[batch, end - start]``, at least one False."""
    documents: Tensor | None


def _view(mask: Structure) -> View:
    first, last = mask.offset, mask.offset + mask.queries - 1
    start, end = 0, mask.keys
    if mask.left is not None:
        start = min(max(first - mask.left, 0), mask.keys)
    furthest = last if mask.causal else None if mask.right is None else last + mask.right
    if furthest is not None:
        end = max(min(furthest + 1, mask.keys), start)
    left = mask.left if mask.left is not None and last - mask.left > start else None
    right = mask.right if mask.right is not None and first + mask.right < end - 1 else None
    if mask.causal:
        right = None
    padding = mask.padding
    if padding is not None:
        padding = padding[:, start:end]
        if bool(padding.all()):
            padding = None
    documents = mask.documents
    if documents is not None and bool((documents[:, 1:] == documents[:, :-1]).all()):
        documents = None
    banded = mask.causal or left is not None or right is not None
    return View(
        start=start,
        end=end,
        aligned=not banded or last == end - 1,
        causal=mask.causal,
        window=None if left is None and right is None else (left, right),
        padding=padding,
        documents=documents,
    )


class StructuredMask(torch.Tensor):
    """A boolean mask ``[batch, 1, queries, keys]`` that knows its structure, and is built when something reads it.

    Every operation gives a plain tensor, without the structure: a model that changes the mask gets a correct one.
    """

    structure: Structure
    _view: View | None
    _kept: dict[str, Any]

    @staticmethod
    def __new__(cls, structure: Structure, device: torch.device) -> StructuredMask:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            (structure.batch, 1, structure.queries, structure.keys),
            dtype=torch.bool,
            device=device,
        )
        assert isinstance(made, StructuredMask)
        return made

    def __init__(self, structure: Structure, device: torch.device) -> None:
        self.structure = structure
        self._view = None
        self._kept = {}

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # operations are plain

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """The structure; printing builds nothing."""
        return f"StructuredMask({self.structure})"

    def view_of_keys(self) -> View:
        """`Structure.view`, made once for all layers that share the mask."""
        if self._view is None:
            self._view = self.structure.view()
        return self._view

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """A value that the layers sharing this mask share too."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def dense(self) -> Tensor:
        """The mask as a plain tensor."""
        made: Tensor = self.once("dense", lambda: self.structure.dense(self.device))
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[Any, Any] | None = None,
    ) -> Any:
        from torch.utils._pytree import tree_map

        kwargs = kwargs or {}
        if func is torch.ops.aten.detach.default:
            return args[0]
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype", torch.bool) in (None, torch.bool):
            # a model spread over devices moves the mask along
            device = kwargs.get("device") or args[0].device
            return StructuredMask(_moved(args[0].structure, device), device)
        plain = tree_map(lambda x: x.dense() if isinstance(x, StructuredMask) else x, (args, kwargs))
        return func(*plain[0], **plain[1])


def _moved(structure: Structure, device: torch.device) -> Structure:
    return structure._replace(
        padding=None if structure.padding is None else structure.padding.to(device),
        documents=None if structure.documents is None else structure.documents.to(device),
    )
