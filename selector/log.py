"""What is said of a new decision while a program runs: a log line, the report, a span.

`announce` is called once for a decision that is made, never for one that is remembered. Each of the three is off unless
somebody asked for it, and costs a look-up then:

* the logger ``attention_selector`` says one line at INFO, with the facts as fields of the record;
* ``ATTN_SELECTOR_EXPLAIN=1`` prints the report to standard error, once a distinct request;
* a span ``attention_selector.select`` is recorded where the program uses OpenTelemetry. Nothing here imports that
  package: a program that never did has nobody to send a span to.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selector.report import Report
    from selector.selection import Selection

__all__ = ["EXPLAIN", "LOGGER", "announce", "fields_of"]

LOGGER = "attention_selector"
EXPLAIN = "ATTN_SELECTOR_EXPLAIN"

#: Requests whose reports were printed; after so many the oldest may be printed again.
KEPT = 4096

#: Values of the variable that leave it off.
OFF = frozenset({"", "0", "false", "no", "off"})

#: `logging.INFO`, without the import.
INFO = 20

_LOGGER: Any = None
_PRINTED: dict[tuple[Any, ...], None] = {}


def announce(decided: Selection | Report, began: int, ended: int) -> None:
    """Say a decision where somebody listens.

    Arguments:
        decided: a Selection, or the Report of a request that nothing fits.
        began, ended: when it was decided, in nanoseconds since the epoch.
    """
    global _LOGGER
    # A program that never imported these has set up nobody who listens.
    if _LOGGER is None and "logging" in sys.modules:
        _LOGGER = sys.modules["logging"].getLogger(LOGGER)
    if _LOGGER is not None and _LOGGER.isEnabledFor(INFO):
        _log(_LOGGER, decided, ended - began)
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        _span(trace, decided, began, ended)
    wanted = os.environ.get(EXPLAIN)
    if wanted and wanted.strip().lower() not in OFF:
        _print(decided)


def fields_of(decided: Selection | Report) -> dict[str, Any]:
    """A decision as flat JSON-able fields, the same in log records and spans. No reason of a refusal is computed."""
    report = _report(decided)
    outcome, candidates = report.outcome, report.catalog.candidates
    chosen = candidates[outcome.ranked[0]] if outcome.ranked else None
    accepted = [candidates[i].id for i in outcome.ranked]
    return {
        "selected": None if chosen is None else chosen.id,
        "backend": None if chosen is None else chosen.backend,
        "variant": None if chosen is None else chosen.variant,
        "request": report.request.to_dict(),
        "environment": report.environment.name,
        "environment_fingerprint": report.environment.fingerprint,
        "pack": report.catalog.name,
        "catalog_hash": report.catalog.hash,
        "policy_rule": report.policy_rule,
        "preferences": [f"{p.kind} {', '.join(p.names)} ({p.where})" for p in report.preferences],
        "strict": report.strict,
        "accepted": accepted,
        "rejected": sum(not c.abstract for c in candidates) - len(accepted) - len(outcome.excluded),
    }


def line_of(fields: dict[str, Any]) -> str:
    """The fields of a decision as one line."""
    asked = " ".join(f"{axis}={_word(value)}" for axis, value in fields["request"].items()) or "defaults"
    where = f"{asked} on {fields['environment']}"
    rejected = f"{fields['rejected']} rejected"
    if fields["selected"] is None:
        return f"no backend fits {where}: {rejected}"
    rule = "no policy rule" if fields["policy_rule"] is None else f"policy “{fields['policy_rule']}”"
    wishes = f"; {'; '.join(fields['preferences'])}" if fields["preferences"] else ""
    others = len(fields["accepted"]) - 1
    return f"{fields['selected']} for {where} ({rule}{wishes}; {others} more fit, {rejected})"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value).replace(" ", "")


def _report(decided: Selection | Report) -> Report:
    make = getattr(decided, "report", None)
    return decided if make is None else make()  # type: ignore[return-value]  # what has `report` is a Selection


def _log(logger: Any, decided: Selection | Report, nanoseconds: int) -> None:
    fields = fields_of(decided)
    fields["seconds"] = nanoseconds / 1e9
    logger.info("%s", line_of(fields), extra=fields)


def _span(trace: Any, decided: Selection | Report, began: int, ended: int) -> None:
    span = trace.get_tracer(LOGGER).start_span(f"{LOGGER}.select", start_time=began)
    if span.is_recording():
        fields = fields_of(decided)
        for axis, value in fields.pop("request").items():
            span.set_attribute(f"{LOGGER}.request.{axis}", "null" if value is None else value)
        for name, value in fields.items():
            if value is not None:
                span.set_attribute(f"{LOGGER}.{name}", value)
        if fields["selected"] is None:
            span.set_status(trace.Status(trace.StatusCode.ERROR, "no backend fits"))
    span.end(end_time=ended)


def _print(decided: Selection | Report) -> None:
    """The report on standard error, unless it was printed before."""
    import contextlib

    report = _report(decided)
    key = (
        report.request,
        report.environment.fingerprint,
        report.catalog.hash,
        report.preferences,
        report.strict,
        report.selected,
    )
    stream = sys.stderr
    if key in _PRINTED or stream is None:
        return
    if len(_PRINTED) >= KEPT:
        _PRINTED.clear()
    _PRINTED[key] = None
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and _is_terminal(stream)
    text = report.to_text(color=color)
    # where nobody reads any more (a closed file or pipe), that is no reason to stop a model
    with contextlib.suppress(OSError, ValueError):
        print(text, file=stream, flush=True)


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
