"""Packed inputs: several documents in one row, each on its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from backends.integrations.transformers import LayerError, report
from tests.integrations.models import ALL, assert_close, logits, pair, register_all, tokens, tolerance

register_all()

LENGTHS = (3, 9, 1, 7)
IDS = tokens(1, sum(LENGTHS))
POSITIONS = torch.cat([torch.arange(length) for length in LENGTHS])[None]
STARTS = torch.tensor([0, 3, 12, 13, 20], dtype=torch.int32)


def apart(model: Any) -> Tensor:
    """Every document in a call of its own."""
    return torch.cat([logits(model, part) for part in torch.split(IDS, list(LENGTHS), dim=1)], dim=1)


@pytest.mark.parametrize("kind", ALL)
def test_positions_that_start_again(kind: str) -> None:
    eager, ours = pair(kind)
    assert_close(eager, ours, lambda model: logits(model, IDS, position_ids=POSITIONS, use_cache=False))
    bound = tolerance(eager, lambda model: logits(model, IDS))
    found = logits(ours, IDS, position_ids=POSITIONS, use_cache=False)
    assert (found - logits(ours, IDS)).abs().max().item() > 100.0 * bound
    if kind == "gpt_oss":
        return  # the library's model does not look at positions when it makes its masks
    assert (found - apart(eager)).abs().max().item() <= bound
    # where a kernel that compiles comes before one that takes a tensor, the policy takes the tensor
    forms = {layer.kind.split()[0]: layer.uses[0].form for layer in report(ours).layers}
    assert forms.get("full", "packed") == "packed"
    assert forms.get("sliding", "mask") == ("packed" if kind == "gemma2" else "mask")


def test_rows_packed_differently() -> None:
    ids = torch.cat([IDS, IDS])
    positions = torch.cat([POSITIONS, torch.arange(20)[None]])
    eager, ours = pair("gemma3")
    assert_close(eager, ours, lambda model: logits(model, ids, position_ids=positions, use_cache=False))


@pytest.mark.parametrize("more", [{}, {"use_cache": False}], ids=str)
@pytest.mark.parametrize("kind", ["gemma3", "gpt_oss"])
def test_boundaries_as_flash_attention_takes_them(kind: str, more: dict[str, Any]) -> None:
    """`cu_seq_lens_q` and its kin, as the library's collator for flattened batches makes them."""
    eager, ours = pair(kind)
    boundaries = {
        "cu_seq_lens_q": STARTS,
        "cu_seq_lens_k": STARTS,
        "max_length_q": max(LENGTHS),
        "max_length_k": max(LENGTHS),
    }
    bound = tolerance(eager, lambda model: logits(model, IDS))
    found = logits(ours, IDS, position_ids=POSITIONS, **boundaries, **more)
    assert (found - apart(eager)).abs().max().item() <= bound


def test_the_librarys_collator() -> None:
    from transformers import DataCollatorWithFlattening

    documents = [{"input_ids": part[0].tolist()} for part in torch.split(IDS, list(LENGTHS), dim=1)]
    build: Any = DataCollatorWithFlattening
    batch = build(return_flash_attn_kwargs=True, return_tensors="pt")(documents)
    batch.pop("labels")
    assert "cu_seq_lens_q" in batch
    eager, ours = pair("gpt_oss")
    bound = tolerance(eager, lambda model: logits(model, IDS))
    found = logits(ours, batch.pop("input_ids"), **batch)
    assert (found - apart(eager)).abs().max().item() <= bound


def test_boundaries_that_do_not_fit_are_refused() -> None:
    _, ours = pair("llama")
    for ids, starts, other, message in (
        (torch.cat([IDS, IDS]), STARTS, STARTS, "with 2 rows of 20 queries and 20 keys, expected one row"),
        (IDS[:, :15], STARTS, STARTS, "ends at 20, expected 15, the tokens given"),
        (IDS, STARTS, STARTS[:-1], "cu_seq_lens_k differs from cu_seq_lens_q"),
    ):
        with pytest.raises(LayerError) as caught:
            logits(ours, ids, cu_seq_lens_q=starts, cu_seq_lens_k=other, max_length_q=9, max_length_k=9)
        assert str(caught.value).startswith("layer 0 (LlamaAttention): ") and message in str(caught.value)
