"""Derived axes: values computed from other axes by a closed set of operators.

An expression is parsed once (`parse`) and evaluated with the values of all axes and the true atoms (`Expr.value`).
Arithmetic on null is null, on UNKNOWN is UNKNOWN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from selector.conditions import Condition, Path, Report, axes_of
from selector.conditions import parse as parse_condition
from selector.nodes import FALSE, TRUE, AtomTable, Node, evaluate, simplify
from selector.vocabulary import UNKNOWN, Axis, Vocabulary

__all__ = ["Case", "Element", "Expr", "Literal", "Operation", "Ref", "Table", "Tag", "parse"]


def _ratio(a: int, b: int) -> int | None:
    return a // b if b and a % b == 0 else None


def _round_up(a: int, b: int) -> int | None:
    return -(-a // b) * b if b else None


def _gcd(values: Sequence[int]) -> int:
    return math.gcd(*values)


#: Operators on integers; each takes the operands, all known.
ARITHMETIC: dict[str, Callable[[Sequence[int]], int | None]] = {
    "max": max,
    "min": min,
    "sum": sum,
    "product": math.prod,
    "gcd": _gcd,
    "difference": lambda v: v[0] - v[1],
    "modulo": lambda v: v[0] % v[1] if v[1] else None,
    "floor_div": lambda v: v[0] // v[1] if v[1] else None,
    "ratio": lambda v: _ratio(v[0], v[1]),
    "round_up": lambda v: _round_up(v[0], v[1]),
}
BINARY = frozenset({"difference", "modulo", "floor_div", "ratio", "round_up"})


class Literal(NamedTuple):
    """A constant."""

    constant: Any

    def value(self, values: Sequence[Any], atoms: int) -> Any:
        """The expression's value."""
        return self.constant


class Ref(NamedTuple):
    """Another axis's value."""

    axis: int

    def value(self, values: Sequence[Any], atoms: int) -> Any:
        """The expression's value."""
        return values[self.axis]


class Operation(NamedTuple):
    """An arithmetic operator on operands."""

    op: str
    operands: tuple[Expr, ...]

    def value(self, values: Sequence[Any], atoms: int) -> Any:
        """The expression's value."""
        found = [o.value(values, atoms) for o in self.operands]
        if UNKNOWN in found:
            return UNKNOWN
        if None in found:
            return None
        return ARITHMETIC[self.op](found)


class Element(NamedTuple):
    """One element of a pair."""

    axis: int
    position: int

    def value(self, values: Sequence[Any], atoms: int) -> Any:
        """The expression's value."""
        pair = values[self.axis]
        return pair if pair is None or pair is UNKNOWN else pair[self.position]


class Tag(NamedTuple):
    """Whether a choice's value carries a tag."""

    axis: int
    members: frozenset[str]

    def value(self, values: Sequence[Any], atoms: int) -> Any:
        """The expression's value."""
        found = values[self.axis]
        return UNKNOWN if found is UNKNOWN else found in self.members


class Table(NamedTuple):
    """A look-up by another axis's value."""

    axis: int
    entries: tuple[tuple[Any, Any], ...]
    otherwise: Any

    def value(self, values: Sequence[Any], atoms: int) -> Any:
        """The expression's value."""
        found = values[self.axis]
        if found is UNKNOWN or found is None:
            return found
        for key, result in self.entries:
            if key == found:
                return result
        return self.otherwise


class CaseEntry(NamedTuple):
    """``definite``: the condition holds; ``possible``: it would hold for some value of what is UNKNOWN."""

    definite: Node
    possible: Node
    result: Expr
    condition: Condition


class Case(NamedTuple):
    """A decision list."""

    entries: tuple[CaseEntry, ...]
    otherwise: Expr

    def value(self, values: Sequence[Any], atoms: int) -> Any:
        """The expression's value."""
        for entry in self.entries:
            if evaluate(entry.definite, atoms):
                return entry.result.value(values, atoms)
            if evaluate(entry.possible, atoms):
                return UNKNOWN
        return self.otherwise.value(values, atoms)


Expr = Literal | Ref | Operation | Element | Tag | Table | Case


def inputs(expr: Expr) -> tuple[set[int], set[int]]:
    """The axes whose values, and the axes whose atoms, an expression reads."""
    if isinstance(expr, Literal):
        return set(), set()
    if isinstance(expr, (Ref, Element, Tag, Table)):
        return {expr.axis}, set()
    values: set[int] = set()
    atoms: set[int] = set()
    parts: list[Expr]
    if isinstance(expr, Operation):
        parts = list(expr.operands)
    else:
        parts = [e.result for e in expr.entries] + [expr.otherwise]
        for entry in expr.entries:
            atoms |= {a.index for a in axes_of(entry.condition)}
    for part in parts:
        more_values, more_atoms = inputs(part)
        values |= more_values
        atoms |= more_atoms
    return values, atoms


def specialise(expr: Expr, known: int, true: int, constants: Mapping[int, Any]) -> Expr:
    """Partial evaluation: settled atoms and constant axes are folded in."""
    if isinstance(expr, (Ref, Element, Tag, Table)):
        if expr.axis in constants:
            values = {expr.axis: constants[expr.axis]}
            return Literal(expr.value(values, 0))  # type: ignore[arg-type]
        return expr
    if isinstance(expr, Operation):
        operands = tuple(specialise(o, known, true, constants) for o in expr.operands)
        folded = Operation(expr.op, operands)
        return Literal(folded.value((), 0)) if all(isinstance(o, Literal) for o in operands) else folded
    if isinstance(expr, Case):
        entries: list[CaseEntry] = []
        for entry in expr.entries:
            definite = simplify(entry.definite, known, true)
            possible = simplify(entry.possible, known, true)
            result = specialise(entry.result, known, true, constants)
            if definite == TRUE:
                return _case(entries, result)
            if possible == TRUE and definite == FALSE:
                return _case(entries, Literal(UNKNOWN))
            if possible != FALSE:
                entries.append(CaseEntry(definite, possible, result, entry.condition))
        return _case(entries, specialise(expr.otherwise, known, true, constants))
    return expr


def _case(entries: list[CaseEntry], otherwise: Expr) -> Expr:
    if not entries:
        return otherwise
    return Case(tuple(entries), otherwise)


def parse(raw: Any, axis: Axis, vocabulary: Vocabulary, atoms: AtomTable, report: Report, path: Path) -> Expr:
    """The expression of a raw `derive`. Mistakes go to ``report``; the result is then a null literal."""
    return _Parser(axis, vocabulary, atoms, report).expression(raw, path, top=True)


class _Parser:
    def __init__(self, axis: Axis, vocabulary: Vocabulary, atoms: AtomTable, report: Report) -> None:
        self.axis, self.vocabulary, self.atoms, self.report = axis, vocabulary, atoms, report

    def expression(self, raw: Any, path: Path, top: bool = False) -> Expr:
        if not isinstance(raw, Mapping):
            if (
                isinstance(raw, str)
                and self.vocabulary.find(raw) is not None
                and (top or self.axis.type == "integer")
            ):
                return self.reference(raw, path)
            return self.literal(raw, path)
        ops = [k for k in raw if k != "else"]
        if len(ops) != 1:
            self.report(path, "one operator: " + ", ".join(sorted((*ARITHMETIC, *_FORMS))), None)
            return Literal(None)
        op = ops[0]
        if op in ARITHMETIC:
            return self.operation(op, raw[op], (*path, op))
        form = _FORMS.get(op)
        if form is None:
            self.report((*path, op), f"unknown operator {op!r}", None)
            return Literal(None)
        return form(self, raw, path)

    def reference(self, name: Any, path: Path) -> Expr:
        axis = self.find(name, path)
        return Literal(None) if axis is None else Ref(axis.index)

    def find(self, name: Any, path: Path) -> Axis | None:
        axis = self.vocabulary.find(name) if isinstance(name, str) else None
        if axis is None:
            near = self.vocabulary.nearest(str(name))
            self.report(path, f"unknown axis {name!r}", f"did you mean {near}?" if near else None)
        return axis

    def literal(self, raw: Any, path: Path) -> Literal:
        try:
            return Literal(self.axis.canonical(raw))
        except ValueError as error:
            self.report(path, str(error), getattr(error, "hint", None))
            return Literal(None)

    def operation(self, op: str, raw: Any, path: Path) -> Expr:
        if not isinstance(raw, list) or not raw or (op in BINARY and len(raw) != 2):
            self.report(path, f"{op} takes a list of {'two operands' if op in BINARY else 'operands'}", None)
            return Literal(None)
        operands: list[Expr] = []
        for i, item in enumerate(raw):
            if isinstance(item, int) and not isinstance(item, bool):
                operands.append(Literal(item))
            elif isinstance(item, str):
                operands.append(self.reference(item, (*path, i)))
            else:
                operands.append(self.expression(item, (*path, i)))
        return Operation(op, tuple(operands))

    def form_axis(self, raw: Mapping[str, Any], path: Path) -> Expr:
        return self.reference(raw["axis"], (*path, "axis"))

    def form_element(self, raw: Mapping[str, Any], path: Path) -> Expr:
        entry = raw["element"]
        if not isinstance(entry, list) or len(entry) != 2 or entry[1] not in (0, 1):
            self.report((*path, "element"), "element takes [pair axis, 0 or 1]", None)
            return Literal(None)
        axis = self.find(entry[0], (*path, "element", 0))
        return Literal(None) if axis is None else Element(axis.index, entry[1])

    def form_tag(self, raw: Mapping[str, Any], path: Path) -> Expr:
        entry = raw["tag"]
        if not isinstance(entry, Mapping) or set(entry) != {"axis", "tag"}:
            self.report((*path, "tag"), "tag takes {axis: ..., tag: ...}", None)
            return Literal(None)
        axis = self.find(entry["axis"], (*path, "tag", "axis"))
        tags = entry["tag"] if isinstance(entry["tag"], list) else [entry["tag"]]
        members: set[str] = set()
        for tag in tags:
            if axis is not None and tag not in axis.tags:
                self.report((*path, "tag", "tag"), f"no value of {axis.name} is tagged {tag!r}", None)
            elif axis is not None:
                members |= axis.tags[tag]
        return Literal(None) if axis is None else Tag(axis.index, frozenset(members))

    def form_table(self, raw: Mapping[str, Any], path: Path) -> Expr:
        entry = raw["table"]
        if not isinstance(entry, Mapping) or not {"axis", "map"} <= set(entry) <= {"axis", "map", "else"}:
            self.report((*path, "table"), "table takes {axis: ..., map: {...}, else: ...}", None)
            return Literal(None)
        axis = self.find(entry["axis"], (*path, "table", "axis"))
        if axis is None or not isinstance(entry["map"], Mapping):
            return Literal(None)
        entries = []
        for key, result in entry["map"].items():
            here = (*path, "table", "map", key)
            try:
                entries.append((axis.canonical(key), self.axis.canonical(result)))
            except ValueError as error:
                self.report(here, str(error), getattr(error, "hint", None))
        otherwise = self.literal(entry.get("else", self.axis.neutral), (*path, "table", "else"))
        return Table(axis.index, tuple(entries), otherwise.constant)

    def form_when(self, raw: Mapping[str, Any], path: Path) -> Expr:
        return Case((self.entry(raw["when"], (*path, "when"), Literal(True)),), Literal(False))

    def entry(self, raw: Any, path: Path, result: Expr) -> CaseEntry:
        condition = parse_condition(raw, self.vocabulary, self.report, path)
        definite = self.atoms.node(condition, strict=False)
        return CaseEntry(definite, self.atoms.node(condition, strict=True), result, condition)

    def form_case(self, raw: Mapping[str, Any], path: Path) -> Expr:
        items = raw["case"]
        if not isinstance(items, list):
            self.report((*path, "case"), "case takes a list of {when, value}", None)
            return Literal(None)
        entries = []
        for i, item in enumerate(items):
            here = (*path, "case", i)
            if not isinstance(item, Mapping) or set(item) != {"when", "value"}:
                self.report(here, "an entry is {when: condition, value: ...}", None)
                continue
            result = self.expression(item["value"], (*here, "value"))
            entries.append(self.entry(item["when"], (*here, "when"), result))
        otherwise = (
            self.expression(raw["else"], (*path, "else")) if "else" in raw else Literal(self.axis.neutral)
        )
        return Case(tuple(entries), otherwise)


_FORMS: dict[str, Callable[[_Parser, Mapping[str, Any], Path], Expr]] = {
    "axis": _Parser.form_axis,
    "element": _Parser.form_element,
    "tag": _Parser.form_tag,
    "table": _Parser.form_table,
    "when": _Parser.form_when,
    "case": _Parser.form_case,
}
