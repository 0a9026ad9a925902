"""What a failing kernel does to the call, to the selection's report, and to later decisions."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import selector
from backends import reference
from backends.call import CallError
from selector import preferences
from selector.catalog import Catalog
from selector.environment import Environment
from selector.errors import NoBackendError, PinError, RequestError
from selector.quarantine import clear_quarantine, quarantined
from selector.runner import KernelError
from tests.selector.runs import kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selector.selection import Selection

BROKEN = ["no_image", "no_build", "no_library", "no_package"]
VARIANTS = [*kernels.FAILURES, "picky", "sound"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clear_quarantine()
    kernels.ASKED.clear()
    kernels.MENDED.clear()
    for variable in preferences.VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    preferences.forget()
    yield
    clear_quarantine()
    preferences.forget()


def catalog_of(folder: Path, order: list[str], kernel: str = "tests.selector.runs.kernels") -> Catalog:
    """A pack of one backend, whose variants are tried in the given order."""
    variants = "".join(f"  - {{name: {name}}}\n" for name in VARIANTS)
    (folder / "pack.yaml").write_text(
        "pack: 1\nname: failing\ntitle: Failing kernels\nunlisted: excluded\npolicy:\n"
        f"  - name: as written\n    order: [{', '.join(order)}]\n",
        encoding="utf-8",
    )
    (folder / "failing.yaml").write_text(
        f"manifest: 1\nname: failing\ntitle: Failing\nkernel: {kernel}\n"
        "requires: {device: any}\nsupports: {dtype: any, head_size: any, softcap: true, causal: true}\n"
        f"variants:\n{variants}",
        encoding="utf-8",
    )
    (folder / "other.yaml").write_text(
        "manifest: 1\nname: other\ntitle: Other\nkernel: backends.reference\n"
        "requires: {device: any}\nsupports: {dtype: any, head_size: any, softcap: true, causal: true}\n",
        encoding="utf-8",
    )
    return Catalog.load(str(folder))


HERE = Environment({"device": "cpu"}, name="here", live=True)
q, k, v = (torch.randn(1, 5, 2, 8, generator=torch.Generator().manual_seed(s)) for s in range(3))


def choose(catalog: Catalog, **more: Any) -> Selection:
    return selector.select({"head_size": 8, "dtype": "float32"}, environment=HERE, catalog=catalog, **more)


def expected() -> torch.Tensor:
    out = reference.run(kernels.make_call(q, k, v))
    assert isinstance(out, torch.Tensor)
    return out


@pytest.mark.parametrize("variant", BROKEN)
def test_a_broken_kernel_is_replaced_and_not_tried_again(tmp_path: Path, variant: str) -> None:
    catalog = catalog_of(tmp_path, [f"failing/{variant}", "failing/sound"])
    selection = choose(catalog)
    assert selection.id == f"failing/{variant}"
    reason = f"{type(kernels.FAILURES[variant]).__name__}: {str(kernels.FAILURES[variant]).splitlines()[0]}"
    with pytest.warns(RuntimeWarning) as caught:
        assert torch.equal(selection.run(q, k, v), expected())
    assert [str(w.message) for w in caught] == [
        f"failing/{variant} failed and is not used again in this process ({reason}); failing/sound ran instead"
    ]
    assert Path(caught[0].filename) == Path(__file__), "the warning is the caller's"
    assert quarantined() == {f"failing/{variant}": reason}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selection.run(q, k, v)
    assert {variant: 1, "sound": 2} == kernels.ASKED


def test_the_report_tells_what_ran(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, ["failing/no_image", "failing/no_build", "failing/sound"])
    selection = choose(catalog)
    before = selection.report()
    assert (before.ran, before.failed) == (None, {})
    assert "ran" not in before.to_text().split("\n")[1]
    with pytest.warns(RuntimeWarning):
        selection.run(q, k, v)
    report = selection.report()
    assert report.selected == "failing/no_image"
    assert report.ran == "failing/sound"
    assert list(report.failed) == ["failing/no_image", "failing/no_build"]
    assert report.failed["failing/no_build"] == "CompilerError: at 3:4: no matching operand"
    data = json.loads(report.to_json())
    assert (data["ran"], data["failed"]) == (report.ran, report.failed)
    text = report.to_text()
    assert "failing/no_build: CompilerError: at 3:4: no matching operand" in text
    assert any(line.split() == ["ran", "failing/sound"] for line in text.splitlines())
    sound = choose(catalog, backend="failing/sound")
    sound.run(q, k, v)
    assert (sound.report().ran, sound.report().failed) == ("failing/sound", {})


def test_later_decisions_about_this_machine_know_it(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, ["failing/no_image", "failing/sound"])
    first = choose(catalog)
    with pytest.warns(RuntimeWarning):
        first.run(q, k, v)
    later = choose(catalog)
    assert later is not first
    assert later.id == "failing/sound"
    (reason,) = later.report().reasons("failing/no_image")
    assert (reason.code, reason.kind, reason.axis) == ("quarantined", "availability", "backend")
    assert reason.message == (
        "failing/no_image failed in this process and is not used again: "
        "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    )
    assert "failed in this process" in later.report().to_text()
    with pytest.raises(PinError) as caught:
        choose(catalog, backend="failing/no_image")
    assert "failed in this process" in str(caught.value)
    elsewhere = selector.select(
        {"head_size": 8, "dtype": "float32"}, environment=Environment.preset("cpu"), catalog=catalog
    )
    assert elsewhere.id == "failing/no_image", "another machine is another process"
    clear_quarantine("failing/no_image")
    kernels.MENDED.add("no_image")
    again = choose(catalog)
    assert again.id == "failing/no_image"
    again.run(q, k, v)
    assert again.report().ran == "failing/no_image"


def test_the_kernel_is_what_is_broken(tmp_path: Path) -> None:
    """Another pack's candidate with the same kernel and variant shares its fate; one with the same name does not."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    one = catalog_of(tmp_path / "a", ["failing/no_image", "failing/sound"])
    same = catalog_of(tmp_path / "b", ["failing/no_image", "failing/sound"])
    with pytest.warns(RuntimeWarning):
        choose(one).run(q, k, v)
    assert choose(same).id == "failing/sound"
    other = catalog_of(tmp_path / "c", ["failing/no_image", "failing/sound"], kernel="tests.no_such")
    assert choose(other).id == "failing/no_image"


def test_a_module_that_does_not_import(tmp_path: Path) -> None:
    for kernel, why in {
        "tests.selector.runs.broken_module": "RuntimeError: built for another torch",
        "tests.selector.runs.no_such_module": "ModuleNotFoundError: No module named 'tests.selector.runs.no_such_module'"
        " on Python's path (the kernel of the manifest is looked for there; PYTHONPATH adds directories)",
    }.items():
        clear_quarantine()
        catalog = catalog_of(tmp_path, ["failing/sound", "other"], kernel=kernel)
        selection = choose(catalog)
        with pytest.warns(RuntimeWarning, match="other ran instead"):
            assert torch.equal(selection.run(q, k, v), expected())
        assert selection.report().failed == {"failing/sound": why}


@pytest.mark.parametrize("source", ["call", "variable", "configuration"])
def test_a_pin_fails(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_of(tmp_path, ["failing/no_image", "failing/sound", "other"])
    more = {}
    where = "backend"
    if source == "call":
        more = {"backend": "failing/no_image"}
    elif source == "variable":
        monkeypatch.setenv("ATTN_SELECTOR_BACKEND", "failing/no_image")
        where = "ATTN_SELECTOR_BACKEND"
    else:
        config = tmp_path / "config.txt"
        config.write_text("backend: failing/no_image\n", encoding="utf-8")
        monkeypatch.setenv("ATTN_SELECTOR_CONFIG", str(config))
        where = f"{config}:1:1"
    preferences.forget()
    selection = choose(catalog, **more)
    with pytest.raises(PinError) as caught:
        selection.run(q, k, v)
    assert str(caught.value) == (
        f"{where} asks for failing/no_image, which cannot run: failing/no_image: "
        "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    )
    assert caught.value.__cause__ is kernels.FAILURES["no_image"]
    assert kernels.ASKED == {"no_image": 1}
    report = caught.value.report
    assert isinstance(report, selector.Report)
    assert report.ran is None
    assert list(report.failed) == ["failing/no_image"]


def test_a_pin_of_a_backend_leaves_its_other_variants(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, ["failing/no_image", "other", "failing/sound"])
    with pytest.warns(RuntimeWarning, match="failing/sound ran instead"):
        choose(catalog, backend="failing").run(q, k, v)


@pytest.mark.parametrize("how", ["prefer", "model_prefers"])
def test_a_wish_falls_to_the_next(tmp_path: Path, how: str) -> None:
    catalog = catalog_of(tmp_path, ["failing/sound", "failing/no_image"])
    selection = choose(catalog, **{how: ["failing/no_image"]})
    assert selection.id == "failing/no_image"
    with pytest.warns(RuntimeWarning, match="failing/sound ran instead"):
        selection.run(q, k, v)


@pytest.mark.parametrize("variant", ["no_memory", "lost_device", "mistaken"])
def test_what_is_not_the_kernels_fault(tmp_path: Path, variant: str) -> None:
    catalog = catalog_of(tmp_path, [f"failing/{variant}", "failing/sound"])
    selection = choose(catalog)
    for _ in range(2):
        with pytest.raises(type(kernels.FAILURES[variant])) as caught:
            selection.run(q, k, v)
        assert caught.value is kernels.FAILURES[variant]
    assert quarantined() == {}
    assert {variant: 2} == kernels.ASKED


def test_a_callers_mistake(tmp_path: Path) -> None:
    selection = choose(catalog_of(tmp_path, ["failing/sound", "other"]))
    with pytest.raises(CallError, match="head size 16"):
        selection.run(q, torch.randn(1, 5, 2, 16), v)
    with pytest.raises(RequestError, match="softcap"):
        selection.run(q, k, v, softcap=2.0)
    with pytest.raises(TypeError, match="no_such_field"):
        selection.run(q, k, v, no_such_field=1)
    assert quarantined() == {}


def test_a_refusal_is_this_calls_alone(tmp_path: Path) -> None:
    """The manifest forgot a limit: the next candidate runs this call, and the first one the next call."""
    catalog = catalog_of(tmp_path, ["failing/picky", "failing/sound"])
    selection = choose(catalog, softcap=True)
    with pytest.warns(RuntimeWarning) as caught:
        selection.run(q, k, v, softcap=2.0)
        selection.run(q, k, v, softcap=3.0)
    assert [str(w.message) for w in caught] == [
        "failing/picky cannot run this call (softcap: not honoured); failing/sound ran instead"
    ]
    assert selection.report().ran == "failing/sound"
    assert selection.report().failed == {"failing/picky": "softcap: not honoured"}
    assert quarantined() == {}
    selection.run(q, k, v)
    assert (selection.report().ran, selection.report().failed) == ("failing/picky", {})
    pinned = choose(catalog, softcap=True, backend="failing/picky")
    with pytest.raises(
        PinError, match=r"backend asks for failing/picky, which cannot run: .*softcap: not honoured"
    ):
        pinned.run(q, k, v, softcap=2.0)
    assert choose(catalog, softcap=True).id == "failing/picky"


def test_a_refusal_that_only_running_shows(tmp_path: Path) -> None:
    selection = choose(catalog_of(tmp_path, ["failing/this_version", "other"]))
    with pytest.warns(RuntimeWarning, match="this_version cannot run this call .*other ran instead"):
        selection.run(q, k, v)
    assert quarantined() == {}


def test_nobody_is_left(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, ["failing/no_image", "failing/picky"])
    selection = choose(catalog, softcap=True)
    with pytest.raises(NoBackendError) as caught:
        selection.run(q, k, v, softcap=1.0)
    assert str(caught.value) == (
        "no candidate can run this call: "
        "failing/no_image: RuntimeError: CUDA error: no kernel image is available for execution on the device; "
        "failing/picky: softcap: not honoured"
    )
    assert caught.value.__cause__ is kernels.FAILURES["no_image"]
    assert selection.report().ran is None


def test_a_pack_for_selection_only() -> None:
    selection = selector.select(
        {"head_size": 128, "dtype": "bf16"}, environment="h100", catalog=Catalog.load("vllm")
    )
    with pytest.raises(KernelError, match="for selection only"):
        selection.run(q, k, v)


def test_attention_goes_on_without_a_broken_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: tensors, core pack, and torch's own kernel gone in the middle of a process."""
    from backends import attention, torch_sdpa
    from backends.dispatch import report_of

    def gone(*_: object, **__: object) -> None:
        raise RuntimeError("no such operator")

    attention(q, k, v)
    assert report_of(q, k, v).ran == "torch_sdpa/cpu_flash"
    monkeypatch.setitem(torch_sdpa._KERNELS, "cpu_flash", gone)
    with pytest.warns(RuntimeWarning, match="cpu_flash failed .*torch_sdpa/cpu_math ran instead"):
        out = attention(q, k, v)
    assert isinstance(out, torch.Tensor)
    torch.testing.assert_close(out, expected())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention(q, k, v)
    report = report_of(q, k, v)
    assert (report.selected, report.ran) == ("torch_sdpa/cpu_math", "torch_sdpa/cpu_math")
    assert report.reasons("torch_sdpa/cpu_flash")[0].code == "quarantined"
