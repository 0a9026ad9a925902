"""What was decided under other preferences or measurements is not remembered once these are read anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from selector import (
    Catalog,
    Environment,
    ManifestError,
    PinError,
    Request,
    measured,
    preferences,
    reload,
    select,
)
from selector.measured import Entry, Measurements, Timing

ASKED = {"head_size": 64, "dtype": "float32"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in (*preferences.VARIABLES.values(), preferences.CONFIG_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv(measured.VARIABLE, "")
    reload()
    yield
    monkeypatch.undo()
    reload()


def test_preferences_that_are_read_anew_change_a_remembered_selection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = Request(ASKED)
    usual = select(request)
    assert select(request) is usual
    monkeypatch.setenv("ATTN_SELECTOR_AVOID", usual.backend)
    assert select(request) is usual  # read once
    preferences.forget()
    other = select(request)
    assert other.backend != usual.backend
    assert select(Request(ASKED)).id == select(**ASKED).id == other.id  # type: ignore[arg-type]
    monkeypatch.delenv("ATTN_SELECTOR_AVOID")
    preferences.forget()
    assert select(request).id == usual.id


def test_measurements_that_are_read_anew_change_a_remembered_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(ASKED)
    usual = select(request)
    chosen = {"environment": Environment.probe(), "catalog": Catalog.load()}
    kept = select(request, **chosen, avoid="reference")  # type: ignore[arg-type]
    assert kept.id == usual.id
    slow, fast = usual.candidates[:2]
    timings = [Timing(slow, 2e-3, 1.9e-3, 2.1e-3, 21), Timing(fast, 1e-3, 0.9e-3, 1.1e-3, 21)]
    here = Environment.probe()
    found = Measurements("here", here.fingerprint, here.to_dict(), [Entry(ASKED, "batch 1", tuple(timings))])
    (tmp_path / "m.yaml").write_text(found.to_text(), encoding="utf-8")
    monkeypatch.setenv(measured.VARIABLE, str(tmp_path / "m.yaml"))
    measured.forget()
    assert select(request).id == fast
    assert select(request, **chosen, avoid="reference").id == fast  # type: ignore[arg-type]
    measured.switch_off()
    assert select(request).id == usual.id


def test_a_thread_that_began_before_remembers_nothing_for_those_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The preferences are read anew while a decision is being made: its answer may be the old one, but only this once."""
    from selector import selection

    request = Request(ASKED)
    usual = select(request)
    preferences.forget()
    real = selection._selected

    def slow(*args: object) -> object:
        found = real(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(selection, "_selected", real)
        monkeypatch.setenv("ATTN_SELECTOR_AVOID", usual.backend)
        preferences.forget()
        return found

    monkeypatch.setattr(selection, "_selected", slow)
    assert select(request).id == usual.id
    assert select(request).backend != usual.backend


def test_what_a_thread_began_to_read_before_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    real = preferences._configured

    def slow(environ: object) -> object:
        monkeypatch.setattr(preferences, "_configured", real)
        monkeypatch.setenv("ATTN_SELECTOR_AVOID", "reference")
        preferences.forget()
        return []

    preferences.forget()
    monkeypatch.setattr(preferences, "_configured", slow)
    assert preferences.from_process() == ()
    assert [p.names for p in preferences.from_process()] == [("reference",)]


def test_a_name_in_the_configuration_that_nobody_has_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c2.yaml"
    path.write_text("backend: nonsense\n", encoding="utf-8")
    monkeypatch.setenv(preferences.CONFIG_VARIABLE, str(path))
    preferences.forget()
    with pytest.raises(PinError) as caught:
        select(Request(ASKED))
    assert str(caught.value).startswith(f"{path}:1:1: nonsense: no backend of pack core is called 'nonsense'")
    monkeypatch.delenv(preferences.CONFIG_VARIABLE)
    monkeypatch.setenv("ATTN_SELECTOR_BACKEND", "nonsense")
    preferences.forget()
    with pytest.raises(PinError, match=r"^ATTN_SELECTOR_BACKEND=nonsense: no backend"):
        select(Request(ASKED))


@pytest.mark.parametrize("variable", [preferences.CONFIG_VARIABLE, measured.VARIABLE])
@pytest.mark.parametrize("text", [None, "surprise: 1\n"])
def test_a_reload_with_a_broken_file_of_the_user_leaves_the_state_in_use(
    variable: str, text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTN_SELECTOR_AVOID", "reference")
    catalog = reload()
    usual = select(ASKED)
    file = tmp_path / "file.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    monkeypatch.setenv(variable, str(file))
    monkeypatch.setenv("ATTN_SELECTOR_AVOID", usual.backend)
    with pytest.raises(ManifestError, match=r"file\.yaml"):
        reload()
    other = {**ASKED, "head_size": 72}  # not asked before
    assert select(ASKED).id == usual.id
    assert select(other).catalog is catalog
    assert select(other).backend == usual.backend
    monkeypatch.setenv(variable, "")
    reload()
    assert select(ASKED).backend != usual.backend
