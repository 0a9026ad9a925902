"""What `tune` measured for a request, as a chart in its report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from selector import Catalog, Environment, explain, measured
from selector.measured import Entry, Measurements, Timing
from selector.render.html import duration, report_html

pytest.importorskip("jinja2")

FAST, SLOW = "flash_attn/fa3", "flashinfer/fa3"


@pytest.fixture(autouse=True)
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    machine = Environment.preset("h100")
    request = Catalog.load("core").request({"head_size": 128, "dtype": "bf16"})
    timings = (Timing(SLOW, 0.0004, 0.00039, 0.00042, 21), Timing(FAST, 0.0001, 0.000098, 0.00011, 21))
    entry = Entry(request.to_dict(), "batch 2, 512 keys", timings)
    file = tmp_path / "measured.yaml"
    found = Measurements("h100", machine.fingerprint, machine.to_dict(), [entry])
    file.write_text(found.to_text(), encoding="utf-8")
    monkeypatch.setenv(measured.VARIABLE, str(file))
    measured.forget()
    yield
    monkeypatch.undo()
    measured.forget()


def page(head_size: int, machine: str) -> str:
    return report_html(
        explain(head_size=head_size, dtype="bf16", environment=machine, catalog=Catalog.load("core"))
    )


def test_a_report_shows_what_was_measured_for_it() -> None:
    text = page(128, "h100")
    assert "batch 2, 512 keys; h100" in text
    chart = text[text.index('class="chart"') :]
    assert chart.index(FAST) < chart.index(SLOW)
    assert 'style="width: 25.0%"></span> 100 µs' in chart
    assert "98 µs to 110 µs" in chart


def test_and_nothing_that_was_measured_elsewhere() -> None:
    assert 'class="chart"' not in page(64, "h100")
    assert 'class="chart"' not in page(128, "h200")


def test_times_have_the_unit_that_fits() -> None:
    assert [duration(s) for s in (2.5, 0.0123, 4.2e-6, 3e-7)] == ["2.5 s", "12.3 ms", "4.2 µs", "0.3 µs"]
