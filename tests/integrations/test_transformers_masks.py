"""Masks: structure read out of the library's mask functions means what the library's own tensors say."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AttentionMaskInterface, masking_utils

from backends import reference
from backends.call import make_call
from backends.integrations._forms import forms
from backends.integrations._recognise import _Reader, structure_of
from backends.integrations._structure import Structure, StructuredMask
from backends.integrations.transformers import NAME
from tests.integrations.models import register_all

register_all()
CPU = torch.device("cpu")


def made(**arguments: Any) -> Tensor | None:
    """The mask that our implementation gives a model."""
    registered: Any = AttentionMaskInterface
    found: Tensor | None = registered()[NAME](**arguments)
    return found


# -- the library's own examples ---------------------------------------------------------------------------------------


def drawings() -> list[tuple[str, Tensor]]:
    """The masks drawn in the documentation of `sdpa_mask`, each with the call that it says makes it."""
    text = masking_utils.sdpa_mask.__doc__ or ""
    found = []
    for part in text.split("## Creating")[1:]:
        rows = re.findall(r"^\s*\d ((?:[■⬚] ?)+)$", part, re.M)
        kept = torch.tensor([[cell == "■" for cell in row.split()] for row in rows])
        call = re.search(r">>> sdpa_mask\((.*)\)$", part, re.M)
        assert call is not None
        found.append((call[1], kept))
    return found


@pytest.mark.parametrize(("call", "kept"), drawings(), ids=lambda value: str(value)[:60])
def test_the_masks_drawn_in_the_librarys_documentation(call: str, kept: Tensor) -> None:
    arguments = eval(f"dict({call})", {**vars(masking_utils), "torch": torch, "dict": dict, "int": int})
    mask = made(**arguments)
    assert mask is not None
    assert torch.equal(mask[0, 0], kept)
    # chunks are none of the shapes that are known here
    assert isinstance(mask, StructuredMask) == ("chunked" not in call)


def test_there_are_three_drawings() -> None:
    assert [kept.shape for _, kept in drawings()] == [(5, 5)] * 3


# -- random masks -----------------------------------------------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a mask function: caches of all kinds, windows, padding."""
    queries = draw(st.integers(1, 7))
    seen = draw(st.integers(0, 9))
    window = draw(st.none() | st.integers(1, 12))
    kind = draw(st.sampled_from(["causal", "bidirectional"]))
    if kind == "bidirectional":
        seen = 0
    dropped = draw(st.integers(0, seen))  # a sliding cache has forgotten these
    spare = draw(st.integers(0, 4))  # a static cache has room for more
    keys = seen - dropped + queries + (spare if kind == "causal" else 0)
    batch = draw(st.integers(1, 3))
    padding = None
    if draw(st.booleans()):
        rows = draw(
            st.lists(
                st.lists(st.booleans(), min_size=seen + queries, max_size=seen + queries),
                min_size=batch,
                max_size=batch,
            )
        )
        padding = torch.tensor(rows)
    lib = masking_utils
    if kind == "causal":
        function = (
            lib.causal_mask_function if window is None else lib.sliding_window_causal_mask_function(window)
        )
    elif window is None:
        function = lib.bidirectional_mask_function
    else:
        function = lib.sliding_window_bidirectional_mask_function(window)
    return {
        "batch_size": batch,
        "q_length": queries,
        "kv_length": keys,
        "q_offset": seen,
        "kv_offset": dropped,
        "mask_function": function,
        "attention_mask": padding,
    }


def written_out(arguments: dict[str, Any]) -> Tensor:
    """The same mask as the library writes it."""
    mask = masking_utils.sdpa_mask(**arguments, allow_is_causal_skip=False)
    assert mask is not None
    return mask


@settings(max_examples=150, deadline=None)
@given(situations())
def test_structure_means_what_the_library_writes(arguments: dict[str, Any]) -> None:
    mask = made(**arguments, allow_is_causal_skip=True)
    assert isinstance(mask, StructuredMask)
    expected = written_out(arguments)
    assert mask.shape == expected.shape
    assert torch.equal(mask & True, expected)


def attended(call_mask: Tensor, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    out, _ = reference.attend(make_call(q, k, v, mask=call_mask, **options), torch.float64)
    return out


def inputs(batch: int, queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(queries * 100 + keys)
    shapes = ((batch, queries, 2, 4), (batch, keys, 1, 4), (batch, keys, 1, 3))
    q, k, v = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return q, k, v


@settings(max_examples=150, deadline=None)
@given(situations(), st.booleans())
def test_every_form_is_the_same_attention(arguments: dict[str, Any], biased: bool) -> None:
    """Each way to state a layer gives what the plain tensor gives, at least in the rows of tokens."""
    mask = made(**arguments, allow_is_causal_skip=True)
    assert isinstance(mask, StructuredMask)
    q, k, v = inputs(*mask.shape[:1], *mask.shape[2:])
    options = {"softcap": 1.5, "sinks": torch.tensor([0.3, -0.2], dtype=torch.float64)}
    bias = torch.randn(1, 2, *mask.shape[2:], dtype=torch.float64) if biased else None
    plain = written_out(arguments)
    expected = attended(plain if bias is None else torch.where(plain, bias, -torch.inf), q, k, v, **options)
    ways = forms(q, k, v, mask, bias, options)
    assert len({way.name for way in ways}) == len(ways) > 0
    for way in ways:
        out = way.finish(reference.attend(way.make(), torch.float64)[0])
        tokens = torch.ones(q.shape[:2], dtype=torch.bool)
        if way.name == "packed" and mask.structure.causal and mask.structure.padding is not None:
            place = torch.arange(q.shape[1]) + mask.structure.offset
            tokens = mask.structure.padding[:, place]
            assert torch.equal(out[~tokens], torch.zeros_like(out[~tokens]))
        assert torch.allclose(out[tokens], expected[tokens], rtol=0.0, atol=1e-12), way.name


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=3),
    st.none() | st.integers(1, 6),
)
def test_packed_documents(lengths: list[list[int]], window: int | None) -> None:
    """Documents in one row, as the library finds them from positions that start again."""
    longest = max(sum(row) for row in lengths)
    for row in lengths:
        row[-1] += longest - sum(row)
    positions = torch.stack([torch.cat([torch.arange(length) for length in row]) for row in lengths])
    documents = masking_utils.find_packed_sequence_indices(positions)
    if documents is None:
        assert all(len(row) == 1 for row in lengths)
        return
    lib = masking_utils
    inner = lib.causal_mask_function if window is None else lib.sliding_window_causal_mask_function(window)
    function = lib.and_masks(
        lib.remap_positions_for_packed_sequence(inner, positions),
        lib.packed_sequence_mask_function(documents),
    )
    arguments = {
        "batch_size": len(lengths),
        "q_length": longest,
        "kv_length": longest,
        "mask_function": function,
    }
    mask = made(**arguments, allow_is_causal_skip=False)
    assert isinstance(mask, StructuredMask) or longest == 1
    expected = written_out(arguments)
    assert mask is not None and torch.equal(mask & True, expected)
    if not isinstance(mask, StructuredMask):
        return
    q, k, v = inputs(len(lengths), longest, longest)
    ways = forms(q, k, v, mask, None, {})
    assert [way.name for way in ways] == ["packed", "mask"]
    for way in ways:
        out = way.finish(reference.attend(way.make(), torch.float64)[0])
        assert torch.allclose(out, attended(expected, q, k, v), rtol=0.0, atol=1e-12), way.name
    call = ways[0].make()
    assert call.cu_seqlens_q is not None
    assert call.cu_seqlens_q.diff().tolist() == [length for row in lengths for length in row]


# -- what is not recognised, and what happens to a mask on its way ----------------------------------------------------


def test_foreign_functions_become_tensors() -> None:
    lib = masking_utils

    def odd(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return (query + key) % 2 == 0

    blocks = lib.blockwise_overlay(torch.tensor([[0, 0, -1, 1, 1]]))
    for function in (
        odd,
        lib.or_masks(lib.causal_mask_function, blocks),
        lib.and_masks(lib.causal_mask_function, odd),
    ):
        assert structure_of(function, 1, 5, 5, 0, 0, None) is None
        mask = made(batch_size=1, q_length=5, kv_length=5, mask_function=function, use_vmap=True)
        assert mask is not None and type(mask) is Tensor
        expected = masking_utils.sdpa_mask(
            1, 5, 5, mask_function=function, use_vmap=True, allow_is_causal_skip=False
        )
        assert expected is not None and torch.equal(mask, expected)


def test_a_function_that_means_something_else_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A later version of the library in which a window is one token wider."""
    lib = masking_utils

    def wider(sliding_window: int) -> Any:
        def inner_mask(batch_idx: Any, head_idx: Any, q_idx: Any, kv_idx: Any) -> Any:
            return kv_idx >= q_idx - sliding_window

        return inner_mask

    monkeypatch.setattr(lib, "sliding_window_overlay", wider)
    monkeypatch.setattr(_Reader, "_one", None)
    arguments = {
        "batch_size": 1,
        "q_length": 6,
        "kv_length": 6,
        "mask_function": lib.sliding_window_causal_mask_function(2),
    }
    mask = made(**arguments)
    assert type(mask) is Tensor and mask[0, 0, 5].tolist() == [False, False, False, True, True, True]
    assert "sliding_window_overlay means something else in this version" in caplog.text


def test_positions_that_do_not_count_up_are_no_documents() -> None:
    """A window over positions is a window over places only where positions count places."""
    lib = masking_utils
    documents = torch.tensor([[0, 0, 0, 1, 1]])
    inner = lib.sliding_window_causal_mask_function(2)
    packed = lib.packed_sequence_mask_function(documents)
    for positions, known in (([0, 1, 2, 0, 1], True), ([0, 2, 4, 0, 1], False)):
        remapped = lib.remap_positions_for_packed_sequence(inner, torch.tensor([positions]))
        found = structure_of(lib.and_masks(remapped, packed), 1, 5, 5, 0, 0, None)
        assert (found is not None) == known
    backwards = lib.packed_sequence_mask_function(torch.tensor([[1, 1, 0, 0, 1]]))
    assert structure_of(lib.and_masks(lib.causal_mask_function, backwards), 1, 5, 5, 0, 0, None) is None


def test_operations_on_a_structured_mask_give_plain_tensors() -> None:
    structure = Structure(2, 3, 5, 2, True, 2, None, torch.tensor([[False] + [True] * 4, [True] * 5]), None)
    mask = StructuredMask(structure, CPU)
    dense = structure.dense(CPU)
    for found, expected in (
        (mask[:, :, :, :3], dense[:, :, :, :3]),
        (~mask, ~dense),
        (mask.expand(2, 4, 3, 5), dense.expand(2, 4, 3, 5)),
        (torch.cat([mask, mask], dim=-1), torch.cat([dense, dense], dim=-1)),
        (mask.float(), dense.float()),
        (torch.where(mask, 0.0, -1.0), torch.where(dense, 0.0, -1.0)),
        (mask.clone(), dense),
    ):
        assert type(found) is Tensor
        assert torch.equal(found, expected)
    assert mask.contiguous() is mask and mask.to("cpu") is mask
    assert "Structure(batch=2" in repr(mask)


def test_a_mask_keeps_its_structure_on_the_way_to_another_device() -> None:
    structure = Structure(1, 3, 5, 2, True, None, None, torch.ones(1, 5, dtype=torch.bool), None)
    moved = StructuredMask(structure, CPU).to("meta")
    assert isinstance(moved, StructuredMask)
    assert moved.device.type == "meta" and moved.structure.padding is not None
    assert moved.structure.padding.device.type == "meta"


def test_nothing_of_the_masks_size_is_built() -> None:
    """A window over a million tokens is a few numbers."""
    long = 1 << 20
    mask = made(
        batch_size=1,
        q_length=long,
        kv_length=long,
        mask_function=masking_utils.sliding_window_causal_mask_function(4096),
    )
    assert isinstance(mask, StructuredMask) and mask.shape == (1, 1, long, long)
    view = mask.view_of_keys()
    assert view.window == (4095, None) and view.causal and view.aligned


def test_decoding_sees_the_keys_of_its_window_only() -> None:
    mask = made(
        batch_size=1,
        q_length=1,
        kv_length=100,
        q_offset=99,
        mask_function=masking_utils.sliding_window_causal_mask_function(8),
    )
    assert isinstance(mask, StructuredMask)
    view = mask.view_of_keys()
    assert (view.start, view.end, view.window) == (92, 100, None)


def test_what_is_compiled_gets_tensors() -> None:
    """Decoding with a static cache, which the library compiles on a GPU."""
    mask = made(batch_size=1, q_length=1, kv_length=9, q_offset=torch.tensor(3), allow_is_causal_skip=False)
    assert type(mask) is Tensor
    assert mask.tolist() == [[[[True] * 4 + [False] * 5]]]
