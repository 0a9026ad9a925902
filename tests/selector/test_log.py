"""Log lines, printed reports and spans of new decisions."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from selector import Catalog, NoBackendError, PinError, explain, select
from selector.log import EXPLAIN, LOGGER


@pytest.fixture
def catalog() -> Catalog:
    """A catalog of its own, so that nothing about it is decided yet."""
    return Catalog.load()


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """What the process's one tracer provider records; another test may have set it."""
    kept = InMemorySpanExporter()
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return kept


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == LOGGER]


# -- log lines --------------------------------------------------------------------------------------------------------


def test_one_line_a_new_decision(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)
    for _ in range(3):
        selection = select(head_size=128, dtype="bf16", sinks=True, environment="h100", catalog=catalog)
    select(head_size=64, dtype="bf16", environment="h100", catalog=catalog)
    first, second = records(caplog)
    assert first.getMessage() == (
        f"{selection.id} for head_size=128 dtype=bfloat16 sinks=true on h100 "
        f"(policy “Hopper”; {len(selection.candidates) - 1} more fit, {len(selection.rejected)} rejected)"
    )
    assert "\n" not in second.getMessage()
    assert first.levelno == logging.INFO


def test_the_fields_of_a_record(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)
    selection = select(
        head_size=128, dtype="bf16", environment="a100", catalog=catalog, avoid="flash_attn", strict=True
    )
    (record,) = records(caplog)
    fields = vars(record)
    assert fields["selected"] == selection.id
    assert (fields["backend"], fields["variant"]) == (selection.backend, selection.variant)
    assert fields["request"] == {"head_size": 128, "dtype": "bfloat16"}
    assert fields["environment"] == "a100"
    assert fields["environment_fingerprint"] == selection.environment.fingerprint
    assert (fields["pack"], fields["catalog_hash"]) == ("core", catalog.hash)
    assert fields["policy_rule"] == selection.policy_rule
    assert fields["accepted"] == list(selection.candidates)
    assert fields["rejected"] == len(selection.rejected)
    assert fields["preferences"] == ["avoid flash_attn (avoid)"]
    assert fields["strict"] is True
    assert 0.0 < fields["seconds"] < 60.0
    json.dumps({name: fields[name] for name in ("request", "accepted", "preferences")})


def test_a_refusal_is_a_decision(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)
    for _ in range(2):
        with pytest.raises(PinError):
            select(head_size=7, dtype="fp16", environment="t4", catalog=catalog, backend="flash_attn/fa3")
    with pytest.raises(NoBackendError):
        select(head_size=65000, dtype="fp8_e4m3", layout="paged", environment="t4", catalog=catalog)
    pinned, nothing = records(caplog)
    assert pinned.getMessage().startswith("no backend fits head_size=7 dtype=float16 on t4: ")
    assert vars(pinned)["selected"] is None and vars(nothing)["accepted"] == []


def test_explaining_is_not_deciding(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    explain(head_size=128, dtype="bf16", environment="h100", catalog=catalog)
    assert records(caplog) == []


def test_a_switched_off_logger_gets_nothing(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, logger=LOGGER)
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    selection = select(head_size=128, dtype="bf16", environment="h100", catalog=catalog)
    assert records(caplog) == []
    assert selection._report is None, "a report was made for nobody"


# -- printed reports --------------------------------------------------------------------------------------------------


def test_the_report_is_printed_once_a_request(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(EXPLAIN, "1")
    monkeypatch.setattr("selector.log._PRINTED", {})
    select(head_size=128, dtype="bf16", environment="h100", catalog=catalog)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("flash_attn/fa3 is selected: FlashAttention 3\n")
    assert "\x1b" not in err
    select(head_size=128, dtype="bf16", environment="h100", catalog=catalog)
    # the same request of a catalog with the same content is decided again, and not printed again
    select(head_size=128, dtype="bf16", environment="h100", catalog=Catalog.load())
    assert capsys.readouterr() == ("", "")
    select(head_size=128, dtype="bf16", environment="a100", catalog=catalog)
    assert capsys.readouterr().err.startswith("flash_attn/fa2 is selected")
    with pytest.raises(NoBackendError):
        select(head_size=65000, dtype="fp8_e4m3", layout="paged", environment="t4", catalog=catalog)
    assert capsys.readouterr().err.startswith("No backend fits")


@pytest.mark.parametrize("value", ["", "0", "false", " off "])
def test_values_that_leave_it_off(
    value: str, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(EXPLAIN, value)
    monkeypatch.setattr("selector.log._PRINTED", {})
    select(head_size=128, dtype="bf16", environment="h100", catalog=catalog)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("closing", ["sys.stderr = None", "sys.stderr.close()", "os.close(2)"])
def test_nobody_to_read_it_is_no_error(closing: str) -> None:
    program = (
        "import os, sys\n"
        "from selector import select\n"
        f"{closing}\n"
        "print(select(head_size=128, dtype='bf16', environment='h100').id)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={EXPLAIN: "1"}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "flash_attn/fa3\n"


# -- spans ------------------------------------------------------------------------------------------------------------


def one(spans: InMemorySpanExporter) -> ReadableSpan:
    (span,) = spans.get_finished_spans()
    return span


def test_a_span_a_new_decision(catalog: Catalog, spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("test").start_as_current_span("outer") as outer:
        for _ in range(2):
            selection = select(head_size=128, dtype="bf16", sinks=True, environment="h100", catalog=catalog)
    span, _ = spans.get_finished_spans()
    assert span.name == "attention_selector.select"
    assert span.parent is not None and span.parent.span_id == outer.get_span_context().span_id
    said = dict(span.attributes or {})
    assert said["attention_selector.selected"] == selection.id
    assert said["attention_selector.request.head_size"] == 128
    assert said["attention_selector.request.sinks"] is True
    assert said["attention_selector.accepted"] == selection.candidates
    assert said["attention_selector.policy_rule"] == "Hopper"
    assert span.start_time is not None and span.end_time is not None
    assert 0 < span.end_time - span.start_time < 60e9
    assert span.status.is_ok


def test_a_span_of_a_refusal(catalog: Catalog, spans: InMemorySpanExporter) -> None:
    with pytest.raises(NoBackendError):
        select(head_size=65000, dtype="fp8_e4m3", layout="paged", environment="t4", catalog=catalog)
    span = one(spans)
    assert not span.status.is_ok and span.status.description == "no backend fits"
    assert "attention_selector.selected" not in dict(span.attributes or {})


def test_nothing_is_imported_for_nobody() -> None:
    """A program that neither logs nor traces pays no import."""
    program = (
        "import sys\n"
        "from selector import select\n"
        "select(head_size=128, dtype='bf16', environment='h100')\n"
        "print(sorted(m for m in ('logging', 'opentelemetry', 'opentelemetry.trace') if m in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
