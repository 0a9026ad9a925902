"""`run`: real tensors, the winner's own kernel, and an error inside its bound."""

from __future__ import annotations

import pytest
from torch import Tensor

from backends import torch_sdpa, trial
from tests.selector.cli.command import Command

SMALL = ("--seq", "48", "--repeat", "1")


@pytest.mark.parametrize(
    ("words", "ran_as"),
    [
        (("head_size=64", "num_heads=8", "num_kv_heads=2", "dtype=bf16", "causal"), "torch_sdpa/cpu_flash"),
        (("head_size=32", "dtype=float16", "layout=varlen", "causal"), "torch_sdpa/cpu_flash"),
        (("head_size=32", "head_size_v=16", "num_heads=2"), "torch_sdpa/cpu_math"),
        (("head_size=32", "training", "causal"), "torch_sdpa/cpu_flash"),
        (("head_size=32", "custom_mask", "mask_bias", "num_heads=2"), "torch_sdpa/cpu_flash"),
        (
            (
                "head_size=32",
                "num_heads=4",
                "num_kv_heads=2",
                "kv_cache_dtype=fp8_e4m3",
                "per_head_scales",
                "dtype=bf16",
            ),
            "reference",
        ),
        (("head_size=32", "dtype=fp8_e4m3", "num_heads=2"), "reference"),
    ],
)
def test_the_winner_runs_and_is_right(command: Command, words: tuple[str, ...], ran_as: str) -> None:
    ran = command("run", *words, *SMALL, "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["ran"] == found["selected"] == ran_as
    assert 0 < found["max_error"] <= found["bound"]
    assert found["within_bound"] is True
    assert (found["max_error_unquantized"] is not None) == ("fp8" in " ".join(words))


@pytest.mark.parametrize("flag", ["sliding_window", "softcap", "alibi", "sinks", "lse"])
def test_every_feature_of_the_reference_has_tensors(command: Command, flag: str) -> None:
    ran = command(
        "run", "head_size=16", "num_heads=2", flag, "causal", *SMALL, "--backend", "reference", "--json"
    )
    assert ran.code == 0, ran.err
    assert ran.json["request"][flag] is True
    assert ran.json["max_error"] <= ran.json["bound"]


def test_a_paged_cache_with_one_query(command: Command) -> None:
    asked = (
        "run",
        "head_size=16",
        "num_heads=2",
        "block_size=8",
        "query_length=one",
        "--backend",
        "reference",
    )
    ran = command(*asked, "--seq", "29", "--repeat", "1", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["request"]["layout"] == "paged"
    assert ran.json["request"]["query_length"] == "one"


def test_text(command: Command) -> None:
    ran = command("run", "head_size=16", "num_heads=2", *SMALL)
    assert ran.code == 0
    assert ran.out.startswith("torch_sdpa/cpu_flash ran: ")
    assert "within it" in ran.out
    assert "2 sequences, 48 queries and 48 keys each; seed 0" in ran.out


def test_the_seed_decides_the_values(command: Command) -> None:
    asked = ("run", "head_size=16", "num_heads=2", "dtype=bf16", *SMALL, "--json")
    first, again, other = (command(*asked, "--seed", seed).json["max_error"] for seed in ("1", "1", "2"))
    assert first == again != other


def test_a_wrong_kernel_is_found_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch_sdpa.run

    def wrong(call: object, *, variant: str) -> Tensor:
        out = right(call, variant=variant)  # type: ignore[arg-type]
        assert isinstance(out, Tensor)
        return out * 1.5

    monkeypatch.setattr(torch_sdpa, "run", wrong)
    ran = command("run", "head_size=16", "num_heads=2", *SMALL)
    assert ran.code == 1
    assert "OUTSIDE it" in ran.out


def test_nothing_fits(command: Command) -> None:
    ran = command("run", "head_size=16", "num_heads=2", "--backend", "flash_attn", *SMALL)
    assert ran.code == 3
    assert "flash_attn cannot be used" in ran.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mla",), "run makes no tensors for mla"),
        (("kv_cache_dtype=nvfp4",), "kv_cache_dtype nvfp4: torch has no such format"),
        (("num_heads=3", "num_kv_heads=2"), "cannot make tensors for this request"),
        (("--seq", "0"), "--seq 0: at least 1"),
        (("dropout",), "dropout"),
    ],
)
def test_what_no_tensors_can_be_made_for(command: Command, words: tuple[str, ...], told: str) -> None:
    ran = command("run", *words)
    assert ran.code == 2
    assert told in ran.err


def test_bound_and_error_are_measured_against_the_same_call() -> None:
    shapes = trial.Shapes(batch=1, keys=16, queries=16, seed=3)
    made = trial.make_trial({"head_size": 8, "num_heads": 2}, "cpu", shapes)

    def exactly(*tensors: Tensor, **fields: object) -> Tensor:
        from backends import reference
        from backends.call import make_call

        out = reference.run(make_call(*tensors, **fields))  # type: ignore[arg-type]
        assert isinstance(out, Tensor)
        return out

    found = trial.measure(made, exactly, 1)
    assert found.largest < 1e-6
    assert found.unquantized is None
