"""`plan`: real configurations, one verdict for each kind of layer, and what one backend for all costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.selector.cli.command import ROOT, SMALL, Command

CONFIGS = ROOT / "tests" / "data" / "configs"
PER_HEAD = str(CONFIGS / "llama-3.1-8b-fp8-per-head")


def config(tmp_path: Path, **fields: Any) -> str:
    """A model with the standard fields."""
    data = {
        "architectures": ["NobodyForCausalLM"],
        "model_type": "nobody",
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "num_hidden_layers": 4,
        "torch_dtype": "bfloat16",
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**data, **fields}))
    return str(path)


def test_per_head_scales_are_accepted_on_one_machine_and_refused_on_another(command: Command) -> None:
    good = command("plan", PER_HEAD, "--on", "h100")
    assert good.code == 0
    assert "all 32 attention layers have a backend" in good.out
    assert "flash_attn/fa3" in good.out
    bad = command("plan", PER_HEAD, "--on", "a100")
    assert bad.code == 3
    assert "32 of 32 attention layers have no backend" in bad.out
    assert "per_head_scales: does not support per-head" in bad.out


def test_json_has_the_form_of_the_design(command: Command) -> None:
    found = command("plan", PER_HEAD, "--on", "h100", "--json").json
    layer = found["layers"][0]
    assert (layer["kind"], layer["count"], layer["selected"]) == ("full attention", 32, "flash_attn/fa3")
    assert layer["request"]["per_head_scales"] is True
    assert layer["candidates"][0] == "flash_attn/fa3"
    assert "flash_attn/fa2" in layer["rejected"]
    assert found["uniform"]["selected"] == "flash_attn"


def test_values_of_the_configuration_are_marked_and_those_of_the_user_are_not(command: Command) -> None:
    ran = command("plan", PER_HEAD, "--on", "h100", "--block-size", "64")
    assert "head_size=128*" in ran.out
    assert "block_size=64 " in ran.out
    layer = command("plan", PER_HEAD, "--on", "h100", "--block-size", "64", "--json").json["layers"][0]
    assert layer["origins"]["block_size"] == "you"
    assert (
        "config.json" in layer["origins"]["num_heads"]
        or "num_attention_heads" in layer["origins"]["num_heads"]
    )


def test_tensor_parallelism_divides_heads(command: Command) -> None:
    found = command("plan", PER_HEAD, "--on", "h100", "--tp", "4", "--json").json
    assert found["layers"][0]["request"]["num_heads"] == 8
    assert found["layers"][0]["request"]["num_kv_heads"] == 2


def test_the_user_may_replace_what_the_configuration_says(command: Command) -> None:
    found = command("plan", PER_HEAD, "--on", "a100", "--kv-cache-dtype", "bfloat16", "--json").json
    layer = found["layers"][0]
    assert layer["selected"] == "flash_attn/fa2"
    assert "per_head_scales" not in layer["request"]
    assert any("you decided otherwise" in note for note in layer["notes"])


def test_further_axes_hold_for_every_layer(command: Command) -> None:
    found = command("plan", str(CONFIGS / "gpt-oss-20b"), "--on", "h100", "sinks=false", "lse", "--json").json
    for layer in found["layers"]:
        assert layer["request"]["lse"] is True
        assert "sinks" not in layer["request"]
        assert layer["origins"]["lse"] == "you"


@pytest.mark.parametrize("name", sorted(p.name for p in CONFIGS.iterdir() if p.is_dir()))
def test_every_configuration_is_planned(command: Command, name: str) -> None:
    dtype = ("--dtype", "float16") if name == "gpt2" else ()  # it names none
    ran = command("plan", str(CONFIGS / name), "--on", "h100", "--json", *dtype)
    assert ran.code in (0, 3), ran.err
    layers = ran.json["layers"]
    assert layers
    assert ran.code == (0 if all(layer["selected"] for layer in layers) else 3)
    for layer in layers:
        if layer["selected"] is None:
            assert layer["rejected"]


def test_a_hybrid_model_on_the_pack_of_a_peer_names_its_option(command: Command) -> None:
    ran = command("plan", str(CONFIGS / "gpt-oss-20b"), "--pack", "vllm", "--on", "b200", "--tp", "8")
    assert ran.code == 0, ran.out
    assert "12 × sliding attention" in ran.out
    assert "ask for it with --attention-backend " in ran.out


def test_phases_are_answered_apart_where_the_pack_does(command: Command) -> None:
    found = command(
        "plan", str(CONFIGS / "deepseek-v3"), "--pack", "sglang", "--on", "b200", "--tp", "8", "--json"
    ).json
    assert [layer["phase"] for layer in found["layers"]] == ["prefill", "decode"]
    for layer in found["layers"]:
        assert layer["request"]["phase"] == layer["phase"]


def test_adjustments_are_told(command: Command) -> None:
    asked = (
        "plan",
        str(CONFIGS / "deepseek-v3"),
        "--pack",
        "sglang",
        "--on",
        "b200",
        "--backend",
        "cutedsl_mla",
    )
    ran = command(*asked)
    assert "runs as trtllm_mla" in ran.out
    layers = command(*asked, "--json").json["layers"]
    assert layers[0]["adjusted"]["use"] == "trtllm_mla"


def test_block_sizes_that_all_chosen_backends_accept(command: Command, tmp_path: Path) -> None:
    path = config(tmp_path)
    asked = ("plan", path, "--manifests", str(SMALL), "--pack", "small", "--on", "new")
    found = command(*asked, "--json").json
    assert found["layers"][0]["selected"] == "swift/three"
    assert found["block_sizes"] == [64, 128, 256, 512, 1024]
    assert "all chosen backends accept 64, 128, 256, 512, 1024 tokens" in command(*asked).out
    assert command(*asked, "--block-size", "64", "--json").json["block_sizes"] is None


def test_a_block_size_that_costs_a_better_backend_is_warned_of(command: Command, tmp_path: Path) -> None:
    ran = command(
        "plan",
        config(tmp_path),
        "--manifests",
        str(SMALL),
        "--pack",
        "small",
        "--on",
        "new",
        "--block-size",
        "32",
    )
    assert ran.code == 0
    told = ran.out.partition("What your choices cost")[2]
    assert "full attention: block_size=32 costs you swift/three; without it: swift/three" in told


def test_one_backend_for_all_and_its_price(command: Command, tmp_path: Path) -> None:
    """Half of the layers are too wide for the best backend, so that serving all with one costs the others theirs."""
    path = config(
        tmp_path,
        model_type="gemma4_text",
        head_dim=128,
        global_head_dim=512,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=512,
    )
    asked = ("plan", path, "--on", "new", "--manifests", str(SMALL), "--pack", "small")
    ran = command(*asked, "--json")
    if ran.code == 2:
        pytest.skip(f"the architecture reads otherwise: {ran.err}")
    found = ran.json
    assert [(layer["request"]["head_size"], layer["selected"]) for layer in found["layers"]] == [
        (128, "swift/three"),
        (512, "broad"),
    ]
    assert found["uniform"]["selected"] == "broad"
    assert found["uniform"]["costs"] == [
        {"name": "sliding attention", "count": 2, "gets": "broad", "instead_of": "swift/three"}
    ]
    assert "it costs 2 × sliding attention: broad instead of swift/three" in command(*asked).out


def test_no_single_backend_says_which_comes_nearest(command: Command) -> None:
    found = command("plan", str(CONFIGS / "gemma-3-27b"), "--on", "h100", "--json").json["uniform"]
    assert found["selected"] is None
    assert found["nearest"] is not None
    assert found["lacking"] == ["sliding attention", "full attention"]


def test_layers_without_attention_are_counted(command: Command) -> None:
    asked = ("plan", str(CONFIGS / "jamba-1.5-mini"), "--on", "h100")
    assert command(*asked, "--json").json["without_attention"][0]["count"] > 0
    assert ": no attention" in command(*asked).out


def test_an_unknown_architecture_is_marked(command: Command, tmp_path: Path) -> None:
    ran = command("plan", config(tmp_path), "--on", "h100")
    assert ran.code == 0
    assert "nobody is not known here: read by its standard fields alone" in ran.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "plan needs a model's config.json"),
        (("/nothing/config.json",), "/nothing/config.json: cannot be read"),
        ((str(CONFIGS / "qwen3-8b"), "--tp", "0"), "tp"),
        ((str(CONFIGS / "qwen3-8b"), "--dtype", "bf61"), "bf61"),
        ((str(CONFIGS / "qwen3-8b"), "--kv-cache-dtype", "fp9"), "fp9"),
        ((str(CONFIGS / "qwen3-8b"), "--block-size", "0"), "block_size"),
        ((str(CONFIGS / "qwen3-8b"), "siinks"), "unknown field 'siinks' (did you mean sinks?)"),
    ],
)
def test_wrong_usage(command: Command, arguments: tuple[str, ...], told: str) -> None:
    ran = command("plan", "--on", "h100", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


def test_a_configuration_that_determines_nothing_names_the_field(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"model_type": "nobody", "num_hidden_layers": 2, "hidden_size": 64, "torch_dtype": "bfloat16"}'
    )
    ran = command("plan", str(path), "--on", "h100")
    assert ran.code == 2
    assert "num_attention_heads" in ran.err


def test_verbose_is_a_report_for_each_kind_of_layer(command: Command) -> None:
    ran = command("plan", str(CONFIGS / "gemma-2-9b"), "--on", "h100", "--verbose")
    assert ran.out.count("Accepted (") == 2
    assert "* head_size: " in ran.out


def test_what_the_model_determines_is_not_advice(command: Command) -> None:
    """Nobody can drop MLA of a model; what helps is another pack, which is evaluated."""
    words = ("plan", str(CONFIGS / "deepseek-v3"), "--on", "h100")
    ran, found = command(*words), command(*words, "--json").json
    assert ran.code == 3
    assert "drop" not in ran.out
    assert "No candidate of pack core takes mla" in ran.out
    (layer,) = found["layers"]
    assert layer["suggestions"] == []
    assert "mla" in layer["help"]["lacking"]
    packs = {p["pack"]: p["selected"] for p in layer["help"]["packs"]}
    assert "vllm" in packs and "core" not in packs
    for pack, selected in packs.items():
        assert f"--pack {pack}: {selected[0]}" in ran.out
        there = command(*words, "--pack", pack, "--json")
        assert there.code == 0
        assert [v["selected"] for v in there.json["layers"]] == selected


def test_no_pack_is_named_where_none_fits(command: Command, tmp_path: Path) -> None:
    ran = command("plan", config(tmp_path, head_dim=5000), "--on", "v100")
    assert ran.code in (0, 3)
    if ran.code == 3:
        assert "drop head_size" not in ran.out
    odd = command("plan", config(tmp_path), "--on", "h100", "rswa", "--backend", "flash_attn")
    assert odd.code == 3
    assert "drop rswa" in odd.out  # the user gave it, and can take it back
    assert "--pack" not in odd.out  # somebody who insists on a backend has no use for another pack


def test_options_that_help_are_tried_on_the_configuration(command: Command) -> None:
    words = ("plan", PER_HEAD, "--on", "a100")
    (layer,) = command(*words, "--json").json["layers"]
    assert layer["help"]["options"]
    for option in layer["help"]["options"]:
        after = command(*words, option["option"], option["value"], "--json")
        assert after.code == 0
        assert after.json["layers"][0]["selected"] == option["selected"]
    assert "--kv-cache-dtype bfloat16: flash_attn/fa2 is chosen" in command(*words).out
    fixed = {a for a, origin in layer["origins"].items() if origin != "you"}
    assert not fixed & {c["axis"] for s in layer["suggestions"] for c in s["changes"]}


def test_the_nearest_backend_for_all_says_what_it_serves(command: Command) -> None:
    out = command("plan", str(CONFIGS / "gemma-3-27b"), "--on", "a100").out
    told = (
        "flash_attn serves 27 of 89 layers (27 × vision), not 52 × sliding attention or 10 × full attention"
    )
    assert told in " ".join(out.split())
