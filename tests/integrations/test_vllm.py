"""The plug-in of vLLM: what it sees, says and returns, against stand-ins made from the recorded interface."""

from __future__ import annotations

import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from backends.integrations import vllm as plugin
from selector import Catalog
from tests.integrations.vllm_standin import SELECTOR, Standin

CATALOG = Catalog.load("vllm")
MLA = {"head_size": 576, "use_mla": True}
#: Fits nothing on any GPU.
IMPOSSIBLE = {
    "head_size": 128,
    "use_per_head_quant_scales": True,
    "has_sink": True,
    "use_mm_prefix": True,
    "use_rswa": True,
}


class World:
    """A vLLM with the plug-in in it."""

    def __init__(self, standin: Standin, platform: Any, log: pytest.LogCaptureFixture) -> None:
        self.standin, self.platform, self.log = standin, platform, log

    def path(self, name: str) -> str:
        return str(self.standin.backends[name].get_path())

    def ask(self, selected: str | None = None, heads: int | None = 32, **fields: Any) -> Any:
        self.log.clear()
        return self.standin.choice(self.platform, self.standin.question(**fields), selected, heads)

    def said(self, level: int = logging.WARNING) -> list[str]:
        return [
            r.getMessage() for r in self.log.records if r.levelno >= level and r.name == plugin.logger.name
        ]

    @property
    def active(self) -> bool:
        return hasattr(vars(type(self.platform)).get(plugin.METHOD), plugin.KEPT)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """Makes a vLLM on some machine, and registers the plug-in in it."""

    load = Catalog.load  # the same pack every time; a test of broken files has its own directory
    monkeypatch.setattr(
        Catalog, "load", lambda *n: load(*n) if os.environ.get("ATTN_SELECTOR_MANIFESTS") else CATALOG
    )

    def make(mode: str | None = None, standin: Standin | None = None) -> World:
        monkeypatch.delenv(plugin.VARIABLE, raising=False)
        if mode is not None:
            monkeypatch.setenv(plugin.VARIABLE, mode)
        caplog.set_level(logging.INFO, logger=plugin.logger.name)
        made = standin or Standin()
        platform = made.install(monkeypatch)
        plugin.register()
        return World(made, platform, caplog)

    return make


# -- loading ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "active"), [(None, True), ("", True), ("advise", True), ("DECIDE", True), ("off", False)]
)
def test_modes(world: Any, mode: str | None, active: bool) -> None:
    here = world(mode)
    assert here.active is active
    assert not here.said()


def test_a_mode_that_is_none_keeps_it_off_and_is_told_once(world: Any) -> None:
    here = world("decde")
    assert not here.active
    assert here.said() == [
        "attention-selector stays off: ATTN_SELECTOR_VLLM='decde' is none of off, advise, decide"
    ]


def test_loading_again_and_again_changes_nothing(world: Any) -> None:
    here = world("advise")
    method = vars(type(here.platform))[plugin.METHOD]
    for _ in range(3):
        plugin.register()
    assert vars(type(here.platform))[plugin.METHOD] is method
    here.ask()
    assert len(here.standin.asked) == 1


def test_it_can_be_taken_out(world: Any) -> None:
    here = world("advise")
    plugin.unregister()
    assert not here.active
    here.ask()
    assert here.standin.asked
    plugin.unregister()  # nothing to do
    plugin.register()
    assert here.active


def test_a_platform_that_inherits_its_choice_gets_it_back(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world("off")
    heir = type("Heir", (type(here.platform),), {})()
    sys.modules["vllm.platforms"].current_platform = heir  # type: ignore[attr-defined]
    monkeypatch.setenv(plugin.VARIABLE, "decide")
    plugin.register()
    assert plugin.METHOD in vars(type(heir)) and not here.active
    plugin.unregister()
    assert plugin.METHOD not in vars(type(heir))


def _renamed(standin: Standin) -> None:
    parameters = standin.recorded["callables"]["vllm.platforms.cuda:CudaPlatformBase.get_attn_backend_cls"]
    parameters[2][0] = "selector_config"


def _more(standin: Standin) -> None:
    parameters = standin.recorded["callables"]["vllm.platforms.cuda:CudaPlatformBase.get_attn_backend_cls"]
    parameters.append(["use_v2", "either", "False"])


def _field(standin: Standin) -> None:
    standin.recorded["fields"][f"{SELECTOR}:AttentionSelectorConfig"].append(
        ["use_warp_drive", "either", "False"]
    )


def _other(standin: Standin) -> None:
    standin.version = "0.33.1"


def _tpu(standin: Standin) -> None:
    standin.device = "tpu"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_renamed, "get_attn_backend_cls takes selected_backend, selector_config, num_heads"),
        (_more, "num_heads, use_v2, and not"),
        (_field, "fields that the pack does not know: use_warp_drive"),
        (_other, "this is vLLM 0.33.1, and the pack describes 0.32.0"),
        (_tpu, "the pack knows no platform like SomePlatform"),
    ],
)
def test_another_vllm_is_left_alone_with_one_warning(world: Any, change: Any, told: str) -> None:
    standin = Standin()
    change(standin)
    here = world("decide", standin)
    assert not here.active
    (line,) = here.said()
    assert line.startswith("attention-selector stays off: ") and told in line


def test_without_vllm_or_with_half_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [n for n in sys.modules if n == "vllm" or n.startswith("vllm.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    plugin.register()
    assert "attention-selector stays off: ModuleNotFoundError" in caplog.text


def test_a_patch_release_and_a_build_without_a_version_count_as_the_same(world: Any) -> None:
    for version in ("0.32.1.dev3+g12ab", "dev"):
        assert world("advise", Standin(version=version)).active


# -- advise -------------------------------------------------------------------------------------------------------------


def test_agreement_is_silent(world: Any) -> None:
    here = world("advise")
    assert here.ask() == here.path("FLASH_ATTN")
    assert not here.said()


def test_a_difference_is_logged_with_the_report_once_a_question(world: Any) -> None:
    here = world("advise")
    here.standin.choose = lambda *_: here.path("TRITON_ATTN")
    assert here.ask() == here.path("TRITON_ATTN")  # vLLM's answer stands
    (text,) = here.said()
    first, _, report = text.partition("\n")
    assert first == (
        "attention-selector: vLLM takes TRITON_ATTN, and the pack would take FLASH_ATTN/fa3: TRITON_ATTN fits too, in place 2"
    )
    assert "FLASH_ATTN/fa3 is selected" in report and "head_size=128" in report
    assert here.log.records[-1].selected == "FLASH_ATTN/fa3"
    here.ask()
    assert not here.said()
    here.ask(head_size=64)
    assert len(here.said()) == 1


def test_what_the_pack_refuses_is_told_with_the_reason(world: Any) -> None:
    here = world("advise")
    here.standin.choose = lambda *_: here.path("FLASHMLA")
    here.ask()
    assert "FLASHMLA is refused, head_size 128: FLASHMLA takes 320, 512 or 576" in here.said()[0]


def test_vllms_own_error_comes_through_and_is_explained(world: Any) -> None:
    here = world("advise")

    def nothing(*_: Any) -> Any:
        raise ValueError("No valid attention backend found")

    here.standin.choose = nothing
    with pytest.raises(ValueError, match="No valid attention backend found"):
        here.ask(**IMPOSSIBLE)
    (text,) = here.said()
    assert text.startswith("attention-selector: vLLM has no attention backend here (ValueError)\n")
    assert "What would help" in text
    with pytest.raises(ValueError, match="No valid"):
        here.ask()
    assert "and FLASH_ATTN/fa3 fits by the pack" in here.said()[0]


def test_only_the_first_process_of_a_machine_speaks(world: Any) -> None:
    here = world("advise")
    here.standin.choose = lambda *_: here.path("TRITON_ATTN")
    here.standin.rank_first = False
    here.ask()
    assert not here.said()


def test_a_choice_by_name_that_vllm_replaces_is_told(world: Any) -> None:
    here = world("advise")
    here.standin.choose = lambda *_: here.path("FLASH_ATTN")
    here.ask("FLASHMLA")
    assert (
        "FLASHMLA was asked for, and vLLM takes FLASH_ATTN in its place: FLASHMLA is refused"
        in here.said()[0]
    )


def test_a_backend_of_somebody_else_is_not_judged(world: Any) -> None:
    here = world("advise")
    question = here.standin.question()
    asked = SimpleNamespace(name="THEIRS")
    here.standin.choose = lambda *_: "their.Backend"
    assert (
        here.platform.get_attn_backend_cls(asked, attn_selector_config=question, num_heads=1)
        == "their.Backend"
    )
    assert not here.said()


# -- decide -------------------------------------------------------------------------------------------------------------


def test_the_packs_choice_is_returned_as_the_registry_has_it(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world("decide")
    assert here.ask(**MLA) == here.path("FLASH_ATTN_MLA")
    assert here.standin.asked == []  # vLLM was not asked
    (text,) = here.said(logging.INFO)
    assert text.startswith("attention-selector: FLASH_ATTN_MLA/cuda is taken for this layer\n")
    here.ask(**MLA)
    assert not here.said(logging.INFO)
    backends = here.standin.backends
    monkeypatch.setattr(backends, "get_path", lambda self, include_classname=True: f"override.{self.name}")
    assert here.ask(**MLA) == "override.FLASH_ATTN_MLA"


def test_the_machine_counts(world: Any) -> None:
    for capability, installed, name in (
        ((9, 0), {"fa2", "fa3"}, "FLASH_ATTN"),
        ((10, 0), {"fa2", "fa4", "flashinfer"}, "FLASHINFER"),
        ((7, 5), {"fa2"}, "TRITON_ATTN"),
        ((9, 0), set(), "TRITON_ATTN"),
    ):
        standin = Standin(capability=capability)
        standin.installed = installed
        here = world("decide", standin)
        assert here.ask() == here.path(name)


def test_where_nothing_fits_the_error_is_the_report(world: Any) -> None:
    here = world("decide")
    with pytest.raises(ValueError, match="no attention backend fits") as caught:
        here.ask(**IMPOSSIBLE)
    text = str(caught.value)
    assert "per_head_scales" in text and "What would help" in text
    assert here.standin.asked == []


def test_a_choice_by_name_stays_vllms(world: Any) -> None:
    here = world("decide")
    here.standin.choose = lambda selected, *_: here.path(selected.name)
    assert here.ask("TRITON_ATTN") == here.path("TRITON_ATTN")
    assert here.standin.asked[0][0] is here.standin.backends["TRITON_ATTN"]
    assert not here.said()  # the pack accepts it

    def refuse(*_: Any) -> Any:
        raise ValueError("Selected backend FLASHMLA is not valid for this configuration")

    here.standin.choose = refuse
    with pytest.raises(ValueError, match="Selected backend FLASHMLA"):
        here.ask("FLASHMLA")
    assert "FLASHMLA cannot be used" in here.said()[0]


def test_a_class_without_a_name_of_its_own(world: Any) -> None:
    here = world("decide", Standin("xpu", None))
    assert here.ask(**MLA, block_size=64) == next(iter(plugin.PATHS))
    here = world("advise", Standin("xpu", None))
    here.standin.choose = lambda *_: next(iter(plugin.PATHS))
    here.ask(**MLA, block_size=64)
    assert not here.said()


# -- what goes wrong here ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["advise", "decide"])
def test_a_question_that_cannot_be_asked_leaves_it_to_vllm(world: Any, mode: str) -> None:
    here = world(mode)
    assert here.ask(kv_cache_dtype="fp3_new") == here.path("FLASH_ATTN")
    (text,) = here.said()
    assert (
        "cannot answer, and vLLM decides alone: RequestError: 'fp3_new' is no value of kv_cache_dtype" in text
    )
    assert here.ask(kv_cache_dtype="fp3_new") == here.path("FLASH_ATTN")
    assert not here.said()


def test_a_probe_that_fails_leaves_it_to_vllm(world: Any) -> None:
    here = world("decide")

    def broken() -> bool:
        raise RuntimeError("the driver is gone")

    sys.modules["vllm.utils.flashinfer"].has_flashinfer_cubin = broken  # type: ignore[attr-defined]
    assert here.ask() == here.path("FLASH_ATTN")
    assert "RuntimeError: the driver is gone" in here.said()[0]


def test_broken_manifests_keep_it_off(
    world: Any, manifests_with_a_fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTN_SELECTOR_MANIFESTS", manifests_with_a_fault)
    here = world("decide")
    assert not here.active
    (line,) = here.said()
    assert "stays off" in line and "triton_attn.yaml" in line


@pytest.fixture
def manifests_with_a_fault(tmp_path: Any) -> str:
    import shutil

    from selector.locations import manifests_root

    copy = tmp_path / "manifests"
    shutil.copytree(manifests_root(), copy)
    path = copy / "vllm" / "triton_attn.yaml"
    path.write_text(path.read_text().replace("title:", "titel:", 1))
    return str(copy)
