"""A reload while another thread is still deciding: what that thread found is used once and not kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from backends import attention, dispatch
from backends.call import make_call, request_fields
from backends.integrations import _choose
from backends.integrations._choose import Chooser
from backends.integrations._forms import Form
from selector import preferences, reload
from selector import selection as selections
from selector.runner import Runner

SHAPE = (1, 8, 2, 16)


@pytest.fixture(autouse=True)
def unpinned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in preferences.VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ATTN_SELECTOR_MEASURED", "")
    reload()
    yield
    monkeypatch.undo()
    reload()


def reload_during(
    decision: Callable[[], object],
    module: Any,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    anew: Callable[[], object] = reload,
) -> None:
    """Pin the reference and reload after ``module.name`` has answered ``decision`` in a thread, before it is kept."""
    real = getattr(module, name)
    decided, reloaded = threading.Event(), threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        decided.set()
        assert reloaded.wait(30)
        return found

    with monkeypatch.context() as changed:
        changed.setattr(module, name, slow)
        thread = threading.Thread(target=decision)
        thread.start()
        assert decided.wait(30)
        changed.setattr(module, name, real)
        monkeypatch.setenv("ATTN_SELECTOR_BACKEND", "reference")
        anew()
        reloaded.set()
        thread.join(30)
        assert not thread.is_alive()


def test_attention_after_a_reload_during_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(SHAPE)
    reload_during(lambda: attention(q, q, q), selections, "select", monkeypatch)
    attention(q, q, q)
    assert {runner.selection.id for runner in dispatch._RUNNERS.values()} == {"reference"}


def test_short_cut_after_a_reload_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(SHAPE)
    reload_during(lambda: attention(q, q, q), Runner, "shortcut", monkeypatch)
    assert not dispatch._PLAIN
    attention(q, q, q)
    assert {runner.selection.id for runner in dispatch._RUNNERS.values()} == {"reference"}


def test_layers_after_a_reload_during_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(SHAPE)
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    ways = [
        Form("structure", lambda: make_call(q, q, q, causal=True), lambda out: out),
        Form("mask", lambda: make_call(q, q, q, mask=mask), lambda out: out),
    ]
    chooser = Chooser("reloaded", backend=None, avoid=None, prefer=None, strict=False)
    try:
        reload_during(
            lambda: chooser.choose(ways, None, lambda: "layer"),
            _choose,
            "select",
            monkeypatch,
            preferences.forget,
        )
        assert chooser.choose(ways, None, lambda: "layer")[2].selection.id == "reference"
    finally:
        chooser.close()


def test_comparing_ways_leaves_training_as_it_is() -> None:
    """The ways are compared without autograd, and each is still asked about as the call that trains."""
    q = torch.randn(SHAPE, requires_grad=True)
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    ways = [
        Form("structure", lambda: make_call(q, q, q, causal=True, window=(3, 0)), lambda out: out),
        Form("mask", lambda: make_call(q, q, q, mask=mask), lambda out: out),
    ]
    chooser = Chooser("training", backend=None, avoid=None, prefer=None, strict=False)
    asked: list[object] = []
    real = chooser.explain

    def noting(fields: dict[str, object], wish: tuple[str, ...] | None) -> Any:
        asked.append(fields["training"])
        return real(fields, wish)

    chooser.explain = noting  # type: ignore[method-assign]
    try:
        _, call, runner = chooser.choose(ways, None, lambda: "layer")
        assert asked == [True, True]
        assert call.training and runner.selection.request.get("training") is True
        assert request_fields(call)["training"] is True
    finally:
        chooser.close()
