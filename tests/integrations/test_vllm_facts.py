"""What the plug-in reads of a process of vLLM: its machine by its own probes, and the question of a layer."""

from __future__ import annotations

import sys

import pytest

from backends.integrations._vllm_facts import environment_of, fields_of
from selector import Catalog, Environment
from tests.integrations.vllm_standin import Standin

CATALOG = Catalog.load("vllm")
MLA = {"head_size": 576, "use_mla": True}


def machine(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> Environment:
    return environment_of(standin.install(monkeypatch), CATALOG)


def states(found: Environment) -> dict[str, str]:
    return {name: state.state for name, state in found.facts["packages"].items()}


def test_the_machine_by_vllms_own_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    standin = Standin(capability=(10, 0))
    standin.installed = {"fa2", "fa4", "flashinfer", "network"}
    found = machine(standin, monkeypatch)
    assert (found.facts["device"], found.facts["compute_capability"]) == ("cuda", "10.0")
    assert found.facts["cubins_reachable"] is True
    known = states(found)
    assert [known[f"vllm-flash-attn-{n}"] for n in (2, 3, 4)] == ["usable", "missing", "usable"]
    assert (known["vllm-flashmla"], known["flashinfer-python"], known["flashinfer-cubin"]) == (
        "missing",
        "usable",
        "missing",
    )
    assert found.facts["packages"]["vllm-flash-attn-3"].detail == "not built"
    assert found.facts["packages"]["vllm-flash-attn-2"].version == "0.32.0"


@pytest.mark.parametrize(
    ("capability", "installed", "asked"),
    [
        ((8, 0), {"fa2", "flashinfer"}, False),
        ((9, 0), {"fa2"}, False),
        ((9, 0), {"fa2", "flashinfer"}, True),
        ((9, 0), {"fa2", "flashinfer", "cubin"}, False),
    ],
)
def test_the_network_is_asked_only_where_vllm_asks(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], installed: set[str], asked: bool
) -> None:
    standin = Standin(capability=capability)
    standin.installed = installed
    platform = standin.install(monkeypatch)
    calls: list[int] = []

    def ask() -> bool:
        calls.append(1)
        return False

    sys.modules["vllm.utils.flashinfer"].has_nvidia_artifactory = ask  # type: ignore[attr-defined]
    found = environment_of(platform, CATALOG)
    assert bool(calls) is asked
    assert found.facts["cubins_reachable"] is ("cubin" in installed)


def test_no_build_of_flash_attention_is_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    standin = Standin()
    standin.installed = {"fa4"}
    known = states(machine(standin, monkeypatch))
    assert [known[f"vllm-flash-attn-{n}"] for n in (2, 3, 4)] == ["missing"] * 3


def test_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    rocm = Standin("rocm", (9, 4))
    rocm.installed = {"aiter"}
    found = machine(rocm, monkeypatch)
    assert (found.facts["device"], found.facts["gcn_arch"]) == ("rocm", "gfx942")
    assert found.facts["rocm_use_aiter"] is True and states(found)["amd-aiter"] == "usable"
    assert machine(Standin("xpu", None), monkeypatch).facts["device"] == "xpu"
    cpu = Standin("cpu", None)
    cpu.architecture = "ARM"
    found = machine(cpu, monkeypatch)
    assert (found.facts["device"], found.facts["cpu_arch"], found.facts["amx"]) == ("cpu", "aarch64", False)
    assert "compute_capability" not in found.facts


def test_the_question_with_a_model_and_settings() -> None:
    standin = Standin()
    run = standin.run(
        kv_lora_rank=512, index_topk=2048, v_head_dim=None, attn_logit_softcapping=30.0, kv_heads=1, heads=16
    )
    run.attention_config.flash_attn_version = 2
    run.attention_config.use_trtllm_attention = False
    run.cache_config.cache_dtype = "turboquant_k8v4"
    request = CATALOG.request(fields_of(standin.question(**MLA, attn_type=standin.types.ENCODER), 16, run))
    found = request.to_dict()
    assert found == {
        "head_size": 576,
        "dtype": "bfloat16",
        "mla": True,
        "attn_type": "encoder",
        "num_heads": 16,
        "model_num_heads": 16,
        "num_kv_heads": 1,
        "kv_lora_rank": 512,
        "index_topk": 2048,
        "softcap": True,
        "model_config": True,
        "flash_attn_version_override": 2,
        "use_trtllm_attention": "disabled",
        "run_kv_cache_dtype": "turboquant_k8v4",
    }
