"""FlashInfer's workspaces and wrappers: kept for some streams, not for every stream there ever was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from backends import _flashinfer_plan as plans
from backends._flashinfer_plan import Shared

HERE = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plans, "WORKSPACE_BYTES", 64)
    plans.clear()
    yield
    plans.clear()


class Wrapper:
    """Holds the workspace that it was built with, as FlashInfer's wrappers do."""

    def __init__(self, stream: int) -> None:
        self.workspace = plans.workspace(HERE, stream)


def shared(stream: int) -> Shared:
    return Shared("ragged", HERE, stream, "NHD", "fa2", False, ())


def use(stream: int) -> Wrapper:
    with plans.planned(shared(stream), (), (), lambda: Wrapper(stream), lambda _: None) as wrapper:
        assert isinstance(wrapper, Wrapper)
        return wrapper


def test_a_stream_keeps_its_workspace_and_wrapper() -> None:
    first = use(1)
    assert use(1) is first
    assert plans.workspace(HERE, 1) is first.workspace


def test_ever_new_streams_keep_a_bounded_number() -> None:
    for stream in range(10 * plans.STREAMS):
        use(stream)
        assert len(plans._POOL.workspaces) <= plans.STREAMS
        assert len(plans._POOL.free) <= plans.STREAMS
    newest = 10 * plans.STREAMS - 1
    assert use(newest) is use(newest)


def test_a_wrapper_in_use_outlives_its_workspaces_place() -> None:
    with plans.planned(shared(0), (), (), lambda: Wrapper(0), lambda _: None) as wrapper:
        for stream in range(1, 2 * plans.STREAMS):
            use(stream)
        wrapper.workspace.fill_(1)
    assert use(0).workspace is plans.workspace(HERE, 0)
