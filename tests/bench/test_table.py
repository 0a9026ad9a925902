"""The benchmark runs and its table is whole. No time is asserted here: other tests run beside this one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.bench.__main__ import main
from tests.bench.harness import Figure, interleaved, ratios, spread
from tests.bench.rows import ROWS, figures
from tests.bench.scale import write_pack
from tests.bench.table import PAGE, beside, markdown, number, text, written

#: Figures with a target, by row.
TARGETS = {
    "known": {"ratio", "time"},
    "equal": {"ratio"},
    "new": {"median", "p99", "plain"},
    "scale": {"ratio"},
    "small": {"attention", "run"},
    "long": {"attention"},
    "explain": {"object", "text"},
    "requests": {"reasons", "reasons-memory", "winners", "winners-memory"},
    "start": {"warm", "preset", "cold"},
    "command": {"cold", "warm"},
    "memory": {"cold", "warm"},
    "peers": set(),
}
FIGURE = Figure("row/one", "what it is", 2.0, "µs", 4.0, low=1.5, high=2.5, note="a note")


def test_every_row_has_targets() -> None:
    assert list(ROWS) == list(TARGETS)


def test_rows_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    assert main(["--quick", "--only", "known", "--only", "new", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    found = figures(json.loads(file.read_text(encoding="utf-8"))["figures"])
    for row in ("known", "new"):
        assert {f.key.partition("/")[2] for f in found if f.row == row and f.limit is not None} == TARGETS[
            row
        ]
    for figure in found:
        assert math.isfinite(figure.value)
        assert figure.value > 0
        assert figure.key in printed
    for word in ("processor", "cores", "python", "torch", "commit"):
        assert f"\n{word}: " in f"\n{printed}"
    assert main(["--quick", "--only", "known", "--compare", str(file)]) == 0
    assert "change" in capsys.readouterr().out


def test_the_page_has_every_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for row, names in TARGETS.items():
        for name in names or {"choice"}:
            assert f"| `{row}/{name}` |" in page


def test_the_table_says_what_is_met() -> None:
    missed = FIGURE._replace(key="row/two", value=5.0)
    fast = FIGURE._replace(key="row/three", unit="lines/s", value=9.0, limit=10.0, at_least=True)
    shown = FIGURE._replace(key="row/four", limit=None)
    assert [f.met for f in (FIGURE, missed, fast, shown)] == [True, False, False, None]
    for table in (text([FIGURE, missed, fast]), markdown([FIGURE, missed, fast], {"cores": "2"})):
        assert table.count("NOT MET") == 2
        assert "what it is (a note)" in table
    assert number(float("nan"), "µs") == "–"


def test_what_got_worse_is_marked() -> None:
    faster = FIGURE._replace(key="row/rate", value=100.0, at_least=True)
    old = {f.key: f for f in (FIGURE, faster)}
    lines = beside([FIGURE._replace(value=2.3), faster._replace(value=120.0)], old).splitlines()
    assert lines[1].split() == ["row/one", "2.00", "µs", "2.30", "µs", "+15%", "worse"]
    assert "worse" not in lines[2]
    assert beside([FIGURE._replace(key="row/new")], old).splitlines()[1].split()[1] == "–"


def test_only_the_table_of_a_page_is_replaced() -> None:
    page = "before\n<!-- measured: `make bench` -->\nold\n<!-- end -->\nafter\n"
    assert written(page, "new") == "before\n<!-- measured: `make bench` -->\n\nnew\n\n<!-- end -->\nafter\n"
    with pytest.raises(ValueError, match="has no"):
        written("nothing here", "new")


def test_samples_are_taken_in_turns() -> None:
    order: list[str] = []

    def subject(name: str, value: float) -> float:
        order.append(name)
        return value

    samples = interleaved({"a": lambda: subject("a", 3.0), "b": lambda: subject("b", 2.0)}, 2)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert ratios(samples, "a", "b").median == 1.5
    assert spread(range(101))[:4] == (50, 25, 75, 99)


def test_a_pack_of_any_size(tmp_path: Path) -> None:
    from selector import Catalog

    write_pack(tmp_path, 60)
    catalog = Catalog.load("many", manifests=tmp_path)
    assert len(catalog.manifests) == 60
    assert len({c.backend for c in catalog.candidates}) == 60
