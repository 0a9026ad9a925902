"""What tells two environments apart, and selections that travel."""

from __future__ import annotations

import pickle

import pytest

from selector import Catalog, Environment, explain, select


def test_a_live_environment_sees_this_process_and_a_preset_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog.load("transformer_engine")
    monkeypatch.setenv("NVTE_FUSED_ATTN", "0")
    preset = Environment.preset("h100", vocabulary=catalog.vocabulary)
    live = Environment(preset.facts, live=True, name="live", vocabulary=catalog.vocabulary)
    asked = {"head_size": 64, "dtype": "bf16"}
    before = explain(asked, environment=preset, catalog=catalog)
    after = explain(asked, environment=live, catalog=catalog)
    assert before.selected != after.selected
    assert (before.environment.name, after.environment.name) == ("h100", "live")
    assert "NVTE_FUSED_ATTN" in after.to_text(verbose=True)


def test_a_selection_travels_after_it_has_run() -> None:
    selection = select({"head_size": 64, "dtype": "bf16"}, environment="h100", catalog=Catalog.load())
    selection.runner()
    again = pickle.loads(pickle.dumps(selection))
    assert again.id == selection.id
    assert again.report().to_dict() == selection.report().to_dict()


def test_the_wrong_kind_of_argument_is_named() -> None:
    with pytest.raises(TypeError, match="name of a preset"):
        select(head_size=64, environment={"device": "cuda"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Catalog\.load"):
        select(head_size=64, catalog="vllm")  # type: ignore[arg-type]
