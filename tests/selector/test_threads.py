"""Many threads that select while another reloads the manifests, and processes that fork after selecting."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from selector import Catalog, Environment, NoBackendError, Request, measured, preferences, reload, select
from selector import engine as engines
from selector import selection as selections
from selector.locations import VARIABLE, manifests_root

THREADS = 16

#: Newer Pythons warn of what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the manifests that this process uses by default."""
    folder = tmp_path / "manifests"
    shutil.copytree(manifests_root(), folder)
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setenv("ATTN_SELECTOR_MEASURED", "")
    for name in preferences.VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    reload()
    yield folder
    monkeypatch.undo()
    reload()


def requests() -> list[dict[str, Any]]:
    """What there is to ask: with and without an answer, some that the edit below decides."""
    return [
        {"head_size": size, "dtype": dtype, **more}
        for size in (8, 64, 128, 256, 300)
        for dtype in ("float32", "bfloat16")
        for more in (
            {},
            {"causal": True},
            {"softcap": True},
            {"kv_cache_dtype": "fp8", "per_head_scales": True},
        )
    ]


def answer(asked: Request | dict[str, Any], **options: Any) -> str | None:
    try:
        return select(asked, **options).id
    except NoBackendError:
        return None


def by_name(fields: dict[str, Any]) -> str | None:
    try:
        return select(**fields).id
    except NoBackendError:
        return None


def edits(root: Path) -> Callable[[int], None]:
    """Switches between two versions of a manifest: with the flash kernel on CPUs, and without."""
    path = root / "core" / "torch_sdpa.yaml"
    whole = path.read_text(encoding="utf-8")
    rule = "  - {variants: [cpu_flash], when: {device: cpu}, reject: not in this version}"
    less = whole.replace("\nrules:\n", f"\nrules:\n{rule}\n")
    assert less != whole

    def switch(version: int) -> None:
        scratch = path.with_suffix(".new")
        scratch.write_text(less if version % 2 else whole, encoding="utf-8")
        os.replace(scratch, path)

    return switch


def run(root: Path, seconds: float) -> tuple[int, int]:
    """(selections, reloads) of ``THREADS`` threads; every answer is one that one of the two versions gives."""
    switch = edits(root)
    asked = requests()
    h100 = Environment.preset("h100")
    allowed: list[set[str | None]] = [set() for _ in asked]
    for version in (0, 1):
        switch(version)
        reload()
        for found, fields in zip(allowed, asked, strict=True):
            found.add(by_name(fields))
    shipped = Catalog.load()
    fixed = [answer(f, catalog=shipped, environment=h100) for f in asked]
    assert any(len(found) == 2 for found in allowed), "the edit changes no answer"
    assert len(set(fixed)) > 2

    stop = threading.Event()
    wrong: list[object] = []
    counts = [0] * THREADS

    def work(number: int) -> None:
        k = number
        try:
            while not stop.is_set():
                i = k % len(asked)
                fields = asked[i]
                way = k // len(asked) % 4
                if way == 0:  # a request of the vocabulary that is current
                    found = answer(Request(fields))
                elif way == 1:
                    found = by_name(fields)
                elif way == 2:
                    found = answer(fields, environment=h100)
                else:
                    found = answer(fields, catalog=shipped, environment=h100)
                right = {fixed[i]} if way >= 2 else allowed[i]
                if found not in right:
                    wrong.append((way, fields, found, right))
                    return
                counts[number] += 1
                k += 1
                if k % 16 == 0:
                    time.sleep(0.02)  # or the thread that reloads had a seventeenth of the time
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    reloads = 0
    while time.monotonic() < began + seconds and not wrong:
        switch(reloads)
        reload()
        preferences.forget()
        measured.forget()
        reloads += 1
        time.sleep(max(0.0, began + reloads * 0.1 - time.monotonic()))
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not wrong, wrong[0]
    assert all(counts), "a thread never got its turn"
    switch(reloads - 1)
    fresh, here = Catalog.load(), selections.default_state().environment
    for fields in asked:  # once nothing moves, everybody sees the last version
        current = answer(Request(fields))
        assert current == answer(fields, catalog=fresh, environment=here)
    return sum(counts), reloads


def test_threads_select_while_manifests_are_reloaded(root: Path) -> None:
    counted, reloads = run(root, 3)
    assert counted > 1000
    assert reloads > 3


@pytest.mark.slow
def test_threads_select_while_manifests_are_reloaded_for_half_a_minute(root: Path) -> None:
    counted, reloads = run(root, 30)
    print(f"{counted} selections, {reloads} reloads")
    assert reloads > 50


class Loud:
    """A lock that says who takes it."""

    def __init__(self, taken: list[str]) -> None:
        self.taken = taken

    def __enter__(self) -> None:
        self.taken.append("taken")

    def __exit__(self, *_: object) -> None:
        return None


def test_no_lock_is_taken_where_a_decision_is_remembered_or_made(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, h100 = Catalog.load(), Environment.preset("h100")
    select(REQUEST, catalog=catalog, environment=h100)
    select(Request(REQUEST))
    taken: list[str] = []
    monkeypatch.setattr(engines, "_LOCK", Loud(taken))
    monkeypatch.setattr(selections, "_LOCK", Loud(taken))
    for heads in range(1, 50):
        fields = {**REQUEST, "num_heads": heads}
        for _ in range(2):
            select(fields, catalog=catalog, environment=h100)
            select(Request(fields))
    assert taken == []
    preferences.forget()
    assert taken


REQUEST = {"head_size": 64, "dtype": "float32"}


# -- processes ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_forks_after_selecting() -> None:
    request = Request(REQUEST)
    here = select(request).id
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            again = select(request).id  # remembered
            fresh = select(head_size=72, dtype="float32").id  # decided
            preferences.forget()
            reload()
            os.write(writer, f"{again} {fresh} {select(request).id}".encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read().split()
    assert os.waitpid(child, 0)[1] == 0
    assert said == [here, select(head_size=72, dtype="float32").id, here]


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(how: str) -> None:
    if how not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {how} here")
    asked = requests()[::5]
    here = [by_name(fields) for fields in asked]
    with multiprocessing.get_context(how).Pool(2) as pool:
        assert pool.map(by_name, asked) == here


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forking_while_other_threads_select() -> None:
    """The child has one thread; no lock that another held is in its way."""
    stop = threading.Event()

    def work() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            by_name({**REQUEST, "num_heads": n % 4096 + 1})
            if n % 50 == 0:
                preferences.forget()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(0 if by_name(REQUEST) is not None else 1)
            until = time.monotonic() + 20
            while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
                time.sleep(0.005)
            if ended == (0, 0):
                os.kill(child, 9)
                os.waitpid(child, 0)
            assert ended[1] == 0, "the child hung, or failed"
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
