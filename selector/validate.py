"""A document against a JSON Schema: every mistake, with its place and the nearest valid word.

The schemas of this package avoid `oneOf` and `anyOf`, so each error of the validator is one mistake at one place.
The validator is imported when the first document fails (`selector.schema_accept` knows a valid one). Whether a schema is itself
valid is a matter of the tests, not of loading.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from selector.errors import Fault, ManifestError, format_path
from selector.schema_accept import acceptor
from selector.schema_messages import Finding, explain, nearest
from selector.yaml_loader import Document, load_file

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    from selector.schema_axes import Schema

__all__ = ["MAX_ERRORS", "checks_of", "load_valid", "nearest", "validate"]

#: Errors of the validator that are looked at; a file with more is hopeless, or hostile.
MAX_ERRORS = 200
#: Schemas whose checks are kept.
_KEPT = 64

_kept: dict[int, _Checks] = {}


def load_valid(path: str | os.PathLike[str], schema: Schema) -> Document:
    """Read the file at `path` and hold it against `schema`.

    Raises:
        ManifestError: with every mistake.
    """
    document = load_file(path)
    faults = validate(document, schema)
    if faults:
        raise ManifestError(faults)
    return document


def validate(document: Document, schema: Schema) -> list[Fault]:
    """Every mistake of `document`, in the order of the file; empty if there is none."""
    if document.data is None:
        return [document.fault((), "the file is empty")]
    checks = checks_of(schema)
    if checks.accepts(document.data):
        return []
    errors = list(islice(checks.errors(document.data), MAX_ERRORS))
    findings = [finding for error in sorted(errors, key=_importance) for finding in explain(error, document)]
    faults = [
        Fault(at, format_path(finding.path), finding.message, finding.hint, document.line(at.line))
        for finding in _one_for_each_mistake(findings)
        for at in (document.mark(finding.path, finding.key),)
    ]
    return sorted(faults, key=lambda fault: fault.at)


class _Checks:
    """What is kept for one schema; the validator only from the first invalid document on."""

    __slots__ = ("accepts", "schema", "validator")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema  # holding the schema keeps its id from being used again
        self.accepts = acceptor(schema)
        self.validator: Validator | None = None

    def errors(self, data: object) -> Iterable[ValidationError]:
        if self.validator is None:
            from jsonschema import validators

            base: Any = validators.Draft7Validator
            whole = base.TYPE_CHECKER.redefine(
                "integer", lambda _, value: type(value) is int
            )  # 128.0 is none
            extend: Any = validators.extend
            self.validator = extend(base, type_checker=whole)(self.schema)
        return self.validator.iter_errors(cast("Any", data))


def checks_of(schema: Schema) -> _Checks:
    """The checks of a schema; made once."""
    kept = _kept.get(id(schema))
    if kept is None:
        if len(_kept) >= _KEPT:
            del _kept[next(iter(_kept))]
        kept = _kept[id(schema)] = _Checks(schema)
    return kept


def _importance(error: ValidationError) -> int:
    """Of several errors at one place the first is told: a wrong type says more than what follows from it."""
    return 0 if error.validator in ("type", "enum", "const", "not") else 1


def _one_for_each_mistake(findings: Iterable[Finding]) -> Iterable[Finding]:
    """One finding a place; none for a missing key that an unknown key of the same mapping was meant to be."""
    told: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        told.setdefault((finding.path, finding.word) if finding.missing else (finding.path,), finding)
    meant = {(finding.path[:-1], finding.word) for finding in told.values() if finding.key and finding.word}
    return [f for f in told.values() if not (f.missing and (f.path, f.word) in meant)]
