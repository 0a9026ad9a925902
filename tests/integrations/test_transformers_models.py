"""Whole models: logits and generated tokens equal those of the library's eager attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache
from transformers.utils import DUMMY_INPUTS, DUMMY_MASK

from backends.integrations.transformers import NAME, report
from tests.integrations.models import (
    ALL,
    UNCOMPILED,
    assert_close,
    config_of,
    logits,
    model_of,
    name_of,
    pair,
    register_all,
    tokens,
    tolerance,
)

register_all()

#: Longer than every window.
PROMPT = tokens(2, 19)


def generated(model: Any, ids: torch.Tensor, new: int = 32, **options: Any) -> list[list[int]]:
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=new, do_sample=False, **options)
    found: list[list[int]] = out[:, ids.shape[1] :].tolist()
    assert len(found[0]) == new
    return found


@pytest.mark.parametrize("kind", ALL)
def test_prefill(kind: str) -> None:
    eager, ours = pair(kind)
    assert_close(eager, ours, lambda model: logits(model, PROMPT))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["gemma3", "gpt_oss"])
def test_prefill_in_other_formats(kind: str, dtype: torch.dtype) -> None:
    eager, ours = pair(kind, dtype)
    if dtype is torch.float64:
        # eager's softmax is in float32 whatever the model's dtype
        single, _ = pair(kind)
        bound = tolerance(single, lambda model: logits(model, PROMPT))
        assert (logits(eager, PROMPT) - logits(ours, PROMPT)).abs().max().item() <= bound
    else:
        assert_close(eager, ours, lambda model: logits(model, PROMPT))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("gemma3", {"sliding_window": 200}),
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 7}),
        ("gemma2", {"attn_logit_softcapping": None}),
        ("gpt_oss", {"sliding_window": 200}),
    ],
)
def test_a_lost_feature_would_be_seen(kind: str, change: dict[str, Any]) -> None:
    """The comparison can fail: eager without the feature is further away than any rounding."""
    eager, ours = pair(kind)
    bound = tolerance(eager, lambda model: logits(model, PROMPT))
    other = model_of(config_of(kind, **change), "eager")
    assert (logits(other, PROMPT) - logits(ours, PROMPT)).abs().max().item() > 100.0 * bound


def test_lost_sinks_would_be_seen() -> None:
    eager, ours = pair("gpt_oss")
    bound = tolerance(eager, lambda model: logits(model, PROMPT))
    for name, parameter in eager.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.constant_(parameter, -1e4)
    assert (logits(eager, PROMPT) - logits(ours, PROMPT)).abs().max().item() > 100.0 * bound


@pytest.mark.parametrize("kind", ALL)
def test_generated_tokens_and_the_logits_of_each(kind: str) -> None:
    eager, ours = pair(kind)
    sequences = []

    def steps(model: Any) -> torch.Tensor:
        with torch.no_grad():
            out = model.generate(
                PROMPT,
                max_new_tokens=32,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        sequences.append(out.sequences)
        return torch.stack(out.logits)

    assert_close(eager, ours, steps)
    assert all(torch.equal(found, sequences[0]) for found in sequences[1:])
    assert sequences[0].shape == (2, PROMPT.shape[1] + 32)


@pytest.mark.parametrize("kind", ALL)
def test_static_cache(kind: str) -> None:
    eager, ours = pair(kind)
    expected = generated(eager, PROMPT)
    assert generated(ours, PROMPT, cache_implementation="static") == expected


@pytest.mark.parametrize("kind", ["gemma3", "gpt_oss", "mistral"])
def test_cache_that_keeps_everything(kind: str) -> None:
    """A cache that does not know of windows: the layers see more keys than their window has."""
    eager, ours = pair(kind)
    cache = DynamicCache()
    assert generated(ours, PROMPT, cache=cache) == generated(eager, PROMPT)
    # the last token is never fed back
    assert cache.get_seq_length() == PROMPT.shape[1] + 31


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_prefill_in_chunks(kind: str) -> None:
    """Several queries against more keys: the mask is aligned bottom-right."""
    eager, ours = pair(kind)
    assert generated(ours, PROMPT, prefill_chunk_size=5) == generated(eager, PROMPT)


def test_no_cache() -> None:
    eager, ours = pair("gemma3")
    assert generated(ours, PROMPT, new=4, use_cache=False) == generated(eager, PROMPT, new=4)


@pytest.mark.parametrize("kind", ALL)
def test_padding_of_the_librarys_own_inputs(kind: str) -> None:
    """Its dummy inputs have a full row, one padded on the right and one padded on the left."""
    ids, mask = torch.tensor(DUMMY_INPUTS), torch.tensor(DUMMY_MASK)
    eager, ours = pair(kind)
    assert_close(
        eager,
        ours,
        lambda model: logits(model, ids, attention_mask=mask)[mask.bool()],
        lambda model: logits(model, ids),
    )


@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize("kind", ALL)
def test_padding(kind: str, side: str) -> None:
    """Padding that is longer than the window, and a row without any."""
    ids = tokens(3, 17)
    mask = torch.ones_like(ids)
    for row, count in enumerate((0, 3, 9)):
        if side in ("left", "both"):
            mask[row, :count] = 0
        if side in ("right", "both"):
            mask[row, 17 - count // (2 if side == "both" else 1) :] = 0
    eager, ours = pair(kind)
    assert_close(
        eager,
        ours,
        lambda model: logits(model, ids, attention_mask=mask)[mask.bool()],
        lambda model: logits(model, ids),
    )


def test_padding_with_holes() -> None:
    """Masked tokens between others: a window counts places, so they must stay where they are."""
    ids = tokens(2, 17)
    mask = torch.ones_like(ids)
    mask[0, 4:9] = 0
    mask[1, [2, 3, 10]] = 0
    for kind in ("llama", "mistral"):
        eager, ours = pair(kind)
        assert_close(
            eager,
            ours,
            lambda model: logits(model, ids, attention_mask=mask)[mask.bool()],
            lambda model: logits(model, ids),
        )


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("kind", ALL)
def test_greedy_tokens_of_a_padded_batch(kind: str, cache: str | None) -> None:
    ids = tokens(3, 17)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    mask[2, :11] = 0
    eager, ours = pair(kind)
    expected = generated(eager, ids, attention_mask=mask)
    assert generated(ours, ids, attention_mask=mask, cache_implementation=cache) == expected


def test_four_dimensional_masks_are_taken_as_they_are() -> None:
    """A mask that the caller made: booleans, or numbers to add."""
    kept = torch.rand(2, 1, 19, 19, generator=torch.Generator().manual_seed(3)) > 0.4
    kept |= torch.eye(19, dtype=torch.bool)
    added = torch.zeros(2, 1, 19, 19).masked_fill(~kept, torch.finfo(torch.float32).min)
    eager, ours = pair("llama")
    expected = logits(eager, PROMPT, attention_mask=added)
    bound = tolerance(eager, lambda model: logits(model, PROMPT))
    for mask in (added, kept):
        assert (logits(ours, PROMPT, attention_mask=mask) - expected).abs().max().item() <= bound


def test_set_attn_implementation() -> None:
    eager, _ = pair("gemma3")
    expected = logits(eager, PROMPT)
    eager.set_attn_implementation(NAME)
    found = logits(eager, PROMPT)
    assert report(eager).layers[0].ran
    eager.set_attn_implementation("eager")
    assert torch.equal(logits(eager, PROMPT), expected)
    assert not torch.equal(found, expected), "the same bits: the implementation did not change"
    assert (found - expected).abs().max().item() <= tolerance(eager, lambda model: logits(model, PROMPT))


def test_beam_search() -> None:
    eager, ours = pair("mistral")
    assert generated(ours, PROMPT, new=12, num_beams=3) == generated(eager, PROMPT, new=12, num_beams=3)


def test_bidirectional_attention_of_a_decoder() -> None:
    """The library's own switch from causal to bidirectional masks, with padding and a window to both sides."""
    mask = torch.ones_like(PROMPT)
    mask[1, 15:] = 0
    for kind in ("llama", "mistral"):
        eager, ours = pair(kind, is_causal=False)
        assert_close(
            eager,
            ours,
            lambda model: logits(model, PROMPT, attention_mask=mask)[mask.bool()],
            lambda model: logits(model, PROMPT),
        )


@pytest.mark.parametrize("kind", ALL)
def test_the_report_names_every_layer(kind: str) -> None:
    _, ours = pair(kind)
    expected = report(ours)
    assert not any(layer.ran for layer in expected.layers)
    generated(ours, PROMPT, new=3)
    found = report(ours)
    assert [layer.name for layer in found.layers] == [f"model.layers.{i}.self_attn" for i in range(3)]
    assert all(layer.ran and layer.implementation == name_of(kind) for layer in found.layers)
    # what was expected of the configuration is what ran
    for before, after in zip(expected.layers, found.layers, strict=True):
        assert [use[:4] for use in before.uses] == [use[:4] for use in after.uses]
        assert {use.phase for use in after.uses} == {"prefill", "decode"}


def test_the_report_says_what_differs_between_layers() -> None:
    _, ours = pair("gemma2")
    assert ours.config._attn_implementation == UNCOMPILED
    generated(ours, PROMPT, new=2)
    assert str(report(ours)) == (
        "Gemma2ForCausalLM\n"
        "  model.layers.0.self_attn  sliding attention, 6 tokens: prefill reference; decode reference\n"
        "  model.layers.1.self_attn  full attention: prefill reference; decode reference\n"
        "  model.layers.2.self_attn  sliding attention, 6 tokens: prefill reference; decode reference"
    )
    uses = report(ours)["model.layers.0.self_attn"].uses
    assert uses[0].report.request.get("softcap") is True
    assert uses[0].report.request.get("sliding_window") is True
    assert uses[1].report.request.get("sliding_window") is False
    assert report(ours).to_dict()["layers"][1]["uses"][0]["request"].get("sliding_window") is None
