"""Faults and findings as SARIF 2.1.0, which code hosts show beside the lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from selector.analysis.findings import CODES

if TYPE_CHECKING:
    from selector.analysis.findings import Finding
    from selector.errors import Fault

__all__ = ["sarif"]

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
#: What faults of the files themselves are called.
FAULT = "fault"


def sarif(faults: Iterable[Fault], findings: Iterable[Finding], version: str) -> dict[str, Any]:
    """One run with every fault and finding."""
    results = [
        _result(
            FAULT,
            f.severity,
            f.message + (f" ({f.hint})" if f.hint else ""),
            f.at.file,
            f.at.line,
            f.at.column,
        )
        for f in faults
    ]
    results += [
        _result(f.code, f.severity, f"{f.message}. {f.proof}", f.at.file, f.at.line, f.at.column)
        for f in findings
    ]
    rules = [{"id": FAULT, "shortDescription": {"text": "A file that the language does not take."}}]
    rules += [
        {
            "id": code,
            "shortDescription": {"text": text},
            "defaultConfiguration": {"level": _LEVELS[severity]},
        }
        for code, (severity, text) in CODES.items()
    ]
    driver = {"name": "attn-select lint", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _result(code: str, severity: str, text: str, file: str, line: int, column: int) -> dict[str, Any]:
    region = {"startLine": max(line, 1), "startColumn": max(column, 1)}
    place = {"artifactLocation": {"uri": file.replace("\\", "/")}, "region": region}
    return {
        "ruleId": code,
        "level": _LEVELS[severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }
