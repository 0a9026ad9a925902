"""The file of architectures: what it refers to exists, and mistakes in it are told with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.catalog import base_vocabulary
from selector.errors import ManifestError
from selector.model_config import Architectures, load_architectures, read_config
from selector.model_config.architectures import Fact, default_path
from selector.yaml_loader import load_file
from tests.selector.model_config.samples import CONFIGS, llama, only

HEADS = {"num_heads", "num_kv_heads"}


@pytest.fixture(scope="module")
def data() -> Architectures:
    return load_architectures()


def facts(data: Architectures) -> list[Fact]:
    return [*data.facts, *(fact for model in data.models.values() for fact in model.facts)]


def test_every_axis_exists_and_takes_the_value(data: Architectures) -> None:
    vocabulary = base_vocabulary().by_name
    sets = [fact.axes for fact in facts(data)]
    sets += [component.axes for component in data.components]
    sets += [word.axes for word in data.words.values()]
    for axes in sets:
        for axis, value in axes.items():
            if axis not in data.pack_axes:
                assert vocabulary[axis].canonical(value) == value, axis


def test_kv_cache_and_activation_formats_exist(data: Architectures) -> None:
    vocabulary = base_vocabulary().by_name
    formats = [*data.kv_cache.algorithms.values(), *(scheme.dtype for scheme in data.kv_cache.schemes)]
    for name in formats:
        assert vocabulary["kv_cache_dtype"].canonical(name) == name
    for name in data.dtypes.values():
        assert vocabulary["dtype"].canonical(name) == name


def test_every_request_is_one_of_the_vocabulary() -> None:
    vocabulary = base_vocabulary().by_name
    for path in CONFIGS.glob("*/config.json"):
        for kind in read_config(path, dtype="bfloat16").layers:
            for axis, value in kind.request.items():
                assert vocabulary[axis].canonical(value) == value, (path, axis)


def test_facts_name_kinds_of_layers(data: Architectures) -> None:
    kinds = {word.name for word in data.words.values()} | {component.kind for component in data.components}
    for fact in facts(data):
        assert set(fact.layers) <= kinds


def test_facts_have_a_source() -> None:
    document = load_file(default_path()).data
    assert isinstance(document, dict)
    models = document["models"]
    assert isinstance(models, dict)
    for name, entry in models.items():
        assert isinstance(entry, dict)
        if {"facts", "schedules", "latent", "times"} & entry.keys() and entry.get("facts") != [
            {"set": {"attn_type": "encoder_only", "causal": False}}
        ]:
            assert str(entry.get("source", "")).startswith("https://"), name


def test_the_last_schedule_always_answers(data: Architectures) -> None:
    assert data.schedules[-1].operator == "all"
    assert not data.schedules[-1].when


def own(tmp_path: Path, old: str, new: str) -> Path:
    text = Path(default_path()).read_text()
    assert old in text
    path = tmp_path / "architectures.yaml"
    path.write_text(text.replace(old, new))
    return path


def test_a_new_architecture_is_an_entry(tmp_path: Path) -> None:
    entry = "models:\n  wombat: {facts: [{set: {sinks: true}}], schedules: [{period: 2, offset: 0, then: mamba, else: full_attention}]}\n"
    data = load_architectures(own(tmp_path, "models:\n", entry))
    config = read_config(llama(model_type="wombat"), architectures=data)
    assert config.known
    assert [(kind.kind, kind.count) for kind in config.layers] == [("mamba", 2), ("full attention", 2)]
    assert config.layers[1].request["sinks"] is True
    assert config.layers[1].origin["sinks"] == "architecture wombat"


def test_a_new_field_name_and_kind_of_layer_are_entries(tmp_path: Path) -> None:
    path = own(
        tmp_path, "words:\n", "words:\n  burrow: {kind: burrow attention, set: {sliding_window: true}}\n"
    )
    path.write_text(
        path.read_text().replace("num_heads: [num_attention_heads,", "num_heads: [paws, num_attention_heads,")
    )
    kind = only(
        read_config(llama(paws=16, layer_types=["burrow"] * 4), architectures=load_architectures(path))
    )
    assert (kind.kind, kind.request["num_heads"], kind.request["sliding_window"]) == (
        "burrow attention",
        16,
        True,
    )


def test_an_edit_is_seen(tmp_path: Path) -> None:
    path = own(tmp_path, "models:\n", "models:\n  wombat: {}\n")
    assert "wombat" in load_architectures(path).models
    path.write_text(path.read_text().replace("  wombat: {}\n", "  wombat: {}\n  quokka: {}\n"))
    assert "quokka" in load_architectures(path).models


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "architectures.yaml"
    path.write_text(
        "architectures: 1\n"
        "colour: blue\n"
        "fields: {text: {layers: [num_layers]}}\n"
        "components:\n"
        "  - {name: text, in: [], fields: txt, set: {causal: true}}\n"
        "  - {name: other}\n"
        "words:\n"
        "  full_attention: {kind: full attention, also: [full, full]}\n"
        "  sliding: {kind: sliding, without_window: fulll}\n"
        "schedules:\n"
        "  - {words: layer_types, codes: x}\n"
        "  - {period: n, then: full_attention}\n"
        "  - {all: nothing}\n"
        "facts:\n"
        "  - {when: {a: {over: 3}}, set: {sinks: true}}\n"
        "models:\n"
        "  llama: {latent: perhaps, times: -1, also: llama}\n"
        "  other: {also: [llama]}\n"
    )
    with pytest.raises(ManifestError) as caught:
        load_architectures(path)
    told = [(fault.at.line, fault.message) for fault in caught.value.faults]
    for expected in [
        (2, "no such key: colour"),
        (5, "no such table of fields: txt"),
        (6, "in is missing"),
        (8, "full is a spelling of full_attention already"),
        (9, "no such kind of layer: fulll"),
        (11, "needs exactly one of words, letters, codes, numbers, period, from, blocks, all"),
        (12, "else is missing"),
        (12, "offset is missing"),
        (13, "no such kind of layer: nothing"),
        (15, "no such operator: over"),
        (17, "is expected to be true or false"),
        (17, "is expected to be a whole number"),
        (17, "is expected to be a list"),
        (18, "llama is described already, with llama"),
    ]:
        assert expected in told, expected


def test_no_python_knows_an_architecture(data: Architectures) -> None:
    folder = Path(__file__).parents[3] / "selector" / "model_config"
    text = "\n".join(path.read_text() for path in folder.glob("*.py")).lower()
    families = {name for name in data.models if len(name) > 3} - {"opt", "phi", "new", "glm", "bert"}
    examples = {"llama", "llamaattention"}  # in docstrings
    assert [name for name in families if name.lower() in text and name not in examples] == []
