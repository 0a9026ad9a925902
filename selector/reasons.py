"""Why a candidate was refused: evidence as records, made from the same compiled checks that decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.conditions import axes_of, describe
from selector.constraints import Constraint, Test, word
from selector.errors import Mark
from selector.nodes import evaluate
from selector.vocabulary import UNKNOWN, Axis

if TYPE_CHECKING:
    from selector.manifest import Candidate, Rule
    from selector.program import AdjustNode, Program, Trace

__all__ = ["Reason", "Warned", "reasons_of", "warnings_of"]


class Reason(NamedTuple):
    """One reason, complete in itself.

    ``axis`` is the axis it is counted under, ``axes`` all it is about; ``wanted`` what was asked for and ``offered`` what is
    there (for a request's axis: the value, and the candidate's allowed set; for a fact of the environment: what the candidate
    needs, and the fact). ``because`` is the rule's own words, ``at`` the line of the manifest, ``fix`` who could change it.
    """

    axis: str
    code: str
    wanted: str
    offered: str
    message: str
    because: str | None
    at: Mark | None
    source: str | None
    axes: tuple[str, ...] = ()
    kind: str = "declared"
    fix: str = "request"
    family: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "axis": self.axis,
            "code": self.code,
            "message": self.message,
            "wanted": self.wanted,
            "offered": self.offered,
            "because": self.because,
            "at": None if self.at is None else str(self.at),
            "source": self.source,
            "axes": list(self.axes),
            "kind": self.kind,
            "fix": self.fix,
        }


class Warned(NamedTuple):
    """A warning that applies to an accepted candidate."""

    message: str
    note: str | None
    at: Mark
    source: str | None
    strict: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "message": self.message,
            "note": self.note,
            "at": str(self.at),
            "source": self.source,
            "strict": self.strict,
        }


_CODES = {
    "in": "not_listed",
    "not_in": "excluded_value",
    "min": "below_minimum",
    "max": "above_maximum",
    "multiple_of": "not_a_multiple",
    "version": "version_out_of_range",
}


def reasons_of(program: Program, i: int, trace: Trace, *, strict: bool = False) -> tuple[Reason, ...]:
    """Every reason for which candidate ``i`` refuses what ``trace`` describes; empty if it accepts."""
    return program.evidence.of(i, trace, strict=strict)


def warnings_of(program: Program, i: int, trace: Trace) -> tuple[Warned, ...]:
    """The warnings of candidate ``i`` that apply."""
    return tuple(
        Warned(rule.text, rule.note, rule.at, rule.source, rule.strict)
        for rule, node in program.rules[i]
        if rule.kind == "warn" and evaluate(node, trace.atoms)
    )


def adjustment_reasons(
    program: Program, i: int, changes: dict[int, tuple[Any, Any]], use: str | None, applied: list[AdjustNode]
) -> list[Reason]:
    """What strict selection says to a candidate that would change the request."""
    found = []
    candidate = program.candidates[i]
    at = applied[0].adjustment.at if applied else candidate.at
    source = applied[0].adjustment.source if applied else None
    for index, (before, after) in changes.items():
        if before is None:
            continue
        axis = program.vocabulary.axes[index]
        found.append(
            Reason(
                axis.name, "adjustment", word(before), word(after),
                f"{axis.name} {word(before)}: {candidate.id} would change it to {word(after)}", "strict selection changes nothing",
                at, source, (axis.name,), "adjustment", axis.fix,
            )
        )  # fmt: skip
    if use is not None:
        found.append(
            Reason(
                "backend", "adjustment", candidate.id, use, f"{candidate.id} would run as {use}", "strict selection changes nothing",
                at, source, (), "adjustment", "none",
            )
        )  # fmt: skip
    return found


def limit_reasons(program: Program, i: int, axis: Axis, value: Any) -> tuple[Reason, ...]:
    """Why candidate ``i`` refuses a value of an axis, which it does, by what it declares: one reason, or one a package."""
    candidate = program.candidates[i]
    atom, declared = program.check_of(candidate, axis)
    at = candidate.at if declared is None else declared.at
    source = candidate.source if declared is None else declared.source
    family = declared is not None and declared.family
    if axis.type == "packages" and value is not UNKNOWN:
        found = _packages(candidate, axis, atom.constraint, value, at, source)
        return tuple(reason._replace(family=family) for reason in found)
    reason = _limit(candidate, axis, atom.constraint, value, at, source, declared is not None)
    return (reason._replace(family=family),)


def _limit(
    candidate: Candidate,
    axis: Axis,
    constraint: Constraint,
    value: Any,
    at: Mark,
    source: str | None,
    said: bool,
) -> Reason:
    allowed = constraint.describe()
    env = axis.of == "environment"
    if value is UNKNOWN:
        message = f"{axis.name} unknown: {candidate.id} works if {axis.name} is {allowed}"
        return Reason(
            axis.name,
            "unknown",
            allowed,
            "unknown",
            message,
            None,
            at,
            source,
            (axis.name,),
            "declared",
            axis.fix,
        )
    if value is None:
        message = f"{axis.name} left open: {candidate.id} needs one of {allowed}"
        return Reason(
            axis.name,
            "required",
            "open",
            allowed,
            message,
            None,
            at,
            source,
            (axis.name,),
            "declared",
            axis.fix,
        )
    if axis.type in ("flag", "mode") and not env:
        code = "not_supported"
        if value:
            message = f"{axis.name}: {candidate.id} does not support {axis.title}"
            allowed = "not supported"
        else:
            message = f"no {axis.name}: {candidate.id} serves {axis.title} only"
            allowed = f"{axis.title} only"
        return Reason(
            axis.name,
            code,
            word(value),
            allowed,
            message,
            None,
            at,
            source,
            (axis.name,),
            "declared",
            axis.fix,
        )
    failing = constraint.failing(value)
    code = _CODES.get(failing[0].op, "not_supported") if failing else "not_supported"
    if env:
        code = "disabled_by_setting" if axis.variable else code
        verb = "needs" if not axis.variable else "is switched off unless it is"
        shown = f"{axis.variable}={word(value)}" if axis.variable else f"{axis.name} {word(value)}"
        message = f"{shown}: {candidate.id} {verb} {allowed}"
        return Reason(
            axis.name,
            code,
            allowed,
            word(value),
            message,
            None,
            at,
            source,
            (axis.name,),
            "declared",
            axis.fix,
        )
    if said:
        message = f"{axis.name} {word(value)}: {candidate.id} takes {allowed}"
    else:
        message = f"{axis.name} {word(value)}: {candidate.id} does not declare any"
    return Reason(
        axis.name, code, word(value), allowed, message, None, at, source, (axis.name,), "declared", axis.fix
    )


def _packages(
    candidate: Candidate, axis: Axis, constraint: Constraint, value: Any, at: Mark, source: str | None
) -> Iterator[Reason]:
    for test in constraint.failing(value):
        yield package_reason(candidate.id, axis, test, value, at, source)


def package_reason(
    ident: str, axis: Axis, test: Test, packages: Any, at: Mark | None, source: str | None
) -> Reason:
    """The reason that one package test fails, by the package's state."""
    name, specifiers = test.operand
    found = packages.get(name)
    state = "missing" if found is None else found.state
    wanted = f"{name} absent" if specifiers is None else f"{name} {' or '.join(specifiers)}".rstrip()
    if specifiers is None:
        offered, code, said = f"{name} {found.version or ''}".rstrip(), "present", f"{name} is installed"
    elif state == "missing":
        offered, code, said = "missing", "missing_package", f"{name} is not installed"
    elif state == "usable":
        code = "version_out_of_range"
        offered = found.version or "unknown version"
        said = f"{name} {offered}"
    else:
        code = state.replace(" ", "_")
        offered = state if found.detail is None else f"{state} ({found.detail})"
        said = f"{name}: {offered}"
    return Reason(
        axis.name,
        code,
        wanted,
        offered,
        f"{said}: {ident} needs {wanted}",
        None,
        at,
        source,
        (axis.name,),
        "declared",
        axis.fix,
    )


def involved_axes(rule: Rule) -> tuple[Axis, ...]:
    """The axes that a rule names, in the order of its conditions."""
    return tuple(
        dict.fromkeys(
            [*axes_of(rule.when), *axes_of(rule.unless), *axes_of(rule.require), *axes_of(rule.until)]
        )
    )


def rule_reason(candidate: Candidate, rule: Rule, values: Sequence[Any], inner: str = "") -> Reason:
    """Why a rule that applies refuses, given the values of all axes; ``inner``: why others refuse that it asks about."""
    involved = involved_axes(rule)
    shown = [f"{a.name}={word(_value(values[a.index]))}" for a in involved if a.type != "packages"]
    unknown = [a for a in involved if values[a.index] is UNKNOWN]
    offered = describe(rule.require) if rule.require is not None else _opposite(rule)
    asked = ", ".join(shown)
    told = [candidate.id]
    if asked or (rule.require is not None and not inner):
        told.append(f"asked: {asked or 'this'}")
    if rule.require is not None:
        told.append(f"needs: {offered}")
    if inner:
        told.append(inner)
    message = f"{rule.text} ({'; '.join(told)})"
    code = "unknown" if unknown else rule.kind
    first = rule.axes[0].name if rule.axes else (involved[0].name if involved else "backend")
    fix = "none"
    for axis in rule.axes or involved:
        if axis.fix != "none":
            fix = axis.fix
            break
    return Reason(
        first, code, asked or "this request", offered, message, rule.text, rule.at, rule.source,
        tuple(a.name for a in rule.axes), "known_wrong" if rule.kind == "known_wrong" else "rule", fix, rule.family,
    )  # fmt: skip


def _value(value: Any) -> Any:
    return "unknown" if value is UNKNOWN else value


def _opposite(rule: Rule) -> str:
    """What would have to be otherwise for the rule not to speak."""
    parts = []
    if rule.when is not None:
        parts.append(f"not ({describe(rule.when)})")
    if rule.unless is not None:
        parts.append(describe(rule.unless))
    if rule.until is not None:
        parts.append(describe(rule.until))
    return " or ".join(parts) or "nothing"
