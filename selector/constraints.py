"""Constraints: what a manifest, a rule or a policy says of one axis.

A constraint is a disjunction of clauses; a clause is a conjunction of ``(operator, operand)`` tests. One function an
operator, one table, nothing else knows operators. Parsing and wording are separate from testing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.versions import contains, is_specifier

if TYPE_CHECKING:
    from selector.vocabulary import Axis

__all__ = [
    "ANY",
    "OPERATORS",
    "Constraint",
    "ConstraintError",
    "Test",
    "parse_condition",
    "parse_declared",
    "undeclared",
]


class ConstraintError(ValueError):
    """A constraint that its axis cannot have. ``path`` leads from the constraint to the offending part."""

    def __init__(self, message: str, path: tuple[str | int, ...] = (), hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.path, self.hint = message, path, hint


class Test(NamedTuple):
    """One test of a clause: an operator's name and its operand (hashable)."""

    op: str
    operand: Any


_version_in = contains


def _package_ok(operand: tuple[str, tuple[str, ...] | None], packages: Mapping[str, Any]) -> bool:
    """``operand`` is (name, specifiers): None means absent, () any version; else any specifier holds."""
    name, specifiers = operand
    found = packages.get(name)
    if specifiers is None:
        return found is None or found.state == "missing"
    if found is None or found.state != "usable":
        return False
    # A usable package of unknown version satisfies only "any version"; `judge` tells False from "not known".
    return not specifiers or (
        found.version is not None and any(contains(s, found.version) for s in specifiers)
    )


def _doubtful(operand: tuple[str, tuple[str, ...] | None], packages: Mapping[str, Any]) -> bool:
    """Whether nobody knows if the test holds: the state is unknown, or the version of a usable package."""
    found = packages.get(operand[0])
    if found is None:
        return False
    return found.state == "unknown" or (
        found.state == "usable" and found.version is None and bool(operand[1])
    )


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "in": lambda operand, value: value in operand,
    "not_in": lambda operand, value: value not in operand,
    "min": lambda operand, value: bool(value >= operand),
    "max": lambda operand, value: bool(value <= operand),
    "multiple_of": lambda operand, value: value % operand == 0,
    "version": contains,
    "package": _package_ok,
}


class Constraint:
    """An immutable test of one axis's value. ``holds`` takes a known value; null and UNKNOWN are the caller's business."""

    __slots__ = ("clauses", "given", "key", "required", "words")

    def __init__(
        self,
        clauses: tuple[tuple[Test, ...], ...],
        *,
        required: bool = False,
        given: bool | None = None,
        words: str | None = None,
    ) -> None:
        self.clauses = clauses
        self.required = required
        self.given = given
        self.words = words
        self.key: tuple[Any, ...] = (clauses, required, given)

    def holds(self, value: Any) -> bool:
        """Whether a known, non-null value satisfies the constraint."""
        if self.given is not None:
            return self.given
        for clause in self.clauses:
            for op, operand in clause:
                if not OPERATORS[op](operand, value):
                    break
            else:
                return True
        return False

    def judge(self, value: Any) -> bool | None:
        """Like ``holds``, but None where a package's version or state is not known."""
        if self.holds(value):
            return True
        if isinstance(value, Mapping):
            for clause in self.clauses:
                if all(
                    OPERATORS[op](o, value) or (op == "package" and _doubtful(o, value)) for op, o in clause
                ):
                    return None
        return False

    @property
    def is_any(self) -> bool:
        """True if every known value holds."""
        return self.given is None and () in self.clauses

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraint) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Constraint({self.describe()})"

    def failing(self, value: Any) -> tuple[Test, ...]:
        """The tests of a single-clause constraint that ``value`` fails (all clauses' tests otherwise)."""
        return tuple(t for clause in self.clauses for t in clause if not OPERATORS[t.op](t.operand, value))

    def describe(self) -> str:
        """The allowed set in words: ``64, 128 or 256``; ``a multiple of 8, at most 256``; ``>=8.0``."""
        if self.words is not None:
            return self.words
        if self.given is not None:
            return "any given value" if self.given else "left open"
        if not self.clauses:
            return "nothing"
        if self.is_any:
            return "any"
        return " or ".join(_describe_clause(c) for c in self.clauses)


def _listed(values: Sequence[str], last: str = "or") -> str:
    if len(values) <= 1:
        return "".join(values)
    return f"{', '.join(values[:-1])} {last} {values[-1]}"


def word(value: Any) -> str:
    """A value as it is written in messages."""
    if value is None:
        return "open"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(word(v) for v in value) + "]"
    return str(value)


def _ordered(values: Any) -> list[str]:
    try:
        return [word(v) for v in sorted(values)]
    except TypeError:
        return sorted(word(v) for v in values)


def _describe_test(test: Test) -> str:
    op, operand = test
    if op == "in":
        return _listed(operand.order if isinstance(operand, OrderedSet) else _ordered(operand))
    if op == "not_in":
        return "not " + _listed(operand.order if isinstance(operand, OrderedSet) else _ordered(operand))
    if op == "package":
        name, specifiers = operand
        if specifiers is None:
            return f"{name} absent"
        return f"{name} {_listed(specifiers)}".rstrip()
    words = {"min": "at least {}", "max": "at most {}", "multiple_of": "a multiple of {}", "version": "{}"}
    return words[op].format(operand)


def _describe_clause(clause: tuple[Test, ...]) -> str:
    tests = {t.op: t.operand for t in clause}
    if set(tests) == {"min", "max"}:
        return f"{tests['min']} to {tests['max']}"
    return ", ".join(_describe_test(t) for t in sorted(clause, key=lambda t: t.op != "multiple_of"))


class OrderedSet(frozenset[Any]):
    """A frozen set that remembers the order it was written in, for messages."""

    written: tuple[Any, ...]

    def __new__(cls, values: Sequence[Any]) -> OrderedSet:
        self = super().__new__(cls, values)
        self.written = tuple(dict.fromkeys(values))
        return self

    @property
    def order(self) -> list[str]:
        """The members as messages write them."""
        return [word(v) for v in self.written]

    def __reduce__(self) -> tuple[Any, ...]:
        return (OrderedSet, (self.written,))


ANY = Constraint(((),))


def _in(values: Sequence[Any]) -> Constraint:
    return Constraint(((Test("in", OrderedSet(values)),),))


def undeclared(axis: Axis) -> Constraint:
    """What a candidate accepts on an axis that it does not mention."""
    if axis.undeclared == "not had":
        return Constraint(((Test("in", OrderedSet([False])),),), words="not supported")
    if axis.undeclared == "none":
        return Constraint((), words="not declared")
    return ANY


def parse_declared(axis: Axis, raw: Any) -> Constraint:
    """A constraint of `supports` or `requires`. A request's flag is "not needed, or had"; others are plain conditions."""
    if axis.type == "flag" and axis.of == "request":
        if raw is True or raw == "any":
            return ANY
        if raw is False:
            return Constraint(((Test("in", OrderedSet([False])),),), words="not supported")
        raise ConstraintError(f"{axis.name} is a flag: true, false or any")
    return parse_condition(axis, raw)


def parse_condition(axis: Axis, raw: Any) -> Constraint:
    """A constraint of a condition (`when`, `unless`, `require`, a policy)."""
    if raw == "any" and axis.type != "packages":
        return ANY
    if isinstance(raw, Mapping) and "given" in raw and axis.type != "packages":
        if len(raw) != 1 or not isinstance(raw["given"], bool):
            raise ConstraintError("given stands alone and is true or false", ("given",))
        return Constraint((), given=raw["given"])
    return _PARSERS[axis.type](axis, raw)


def _boolean(axis: Axis, raw: Any) -> Constraint:
    if raw is True or raw is False:
        return _in([raw])
    raise ConstraintError(f"{axis.name} is a {axis.type}: true, false or any")


def _values(axis: Axis, raw: Any, path: tuple[str | int, ...] = ()) -> list[Any]:
    items = raw if isinstance(raw, list) else [raw]
    found = []
    for i, item in enumerate(items):
        where = (*path, i) if isinstance(raw, list) else path
        try:
            found.append(axis.canonical(item))
        except ValueError as error:
            raise ConstraintError(str(error), where, getattr(error, "hint", None)) from None
    return found


def _required(raw: Mapping[str, Any]) -> bool:
    required = raw.get("required", False)
    if not isinstance(required, bool):
        raise ConstraintError("required is true or false", ("required",))
    return required


def _keys(raw: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in raw:
        if key not in allowed:
            raise ConstraintError(f"unknown key {key!r}: one of {_listed(list(allowed))}", (key,))


def _choice(axis: Axis, raw: Any) -> Constraint:
    if not isinstance(raw, Mapping):
        if raw is None:
            raise ConstraintError("a value is missing here ({given: false} tests for a field left open)")
        return _in(_values(axis, raw))
    _keys(raw, ("in", "not_in", "tagged", "required"))
    tests = []
    words = None
    if "in" in raw:
        tests.append(Test("in", OrderedSet(_values(axis, raw["in"], ("in",)))))
    if "not_in" in raw:
        tests.append(Test("not_in", OrderedSet(_values(axis, raw["not_in"], ("not_in",)))))
    if "tagged" in raw:
        tags = raw["tagged"] if isinstance(raw["tagged"], list) else [raw["tagged"]]
        for tag in tags:
            if not isinstance(tag, str) or tag not in axis.tags:
                raise ConstraintError(f"no value of {axis.name} is tagged {tag!r}", ("tagged",))
        members = [v for v in axis.values if any(t in axis.tags and v in axis.tags[t] for t in tags)]
        tests.append(Test("in", OrderedSet(members)))
    return Constraint((tuple(tests),), required=_required(raw), words=words)


def _integer_clause(axis: Axis, raw: Any, path: tuple[str | int, ...]) -> tuple[tuple[Test, ...], bool]:
    if not isinstance(raw, Mapping):
        return (Test("in", OrderedSet(_values(axis, raw, path))),), False
    tests: list[Test] = []
    allowed = ("min", "max", "multiple_of", "in", "not_in", "required")
    for key, operand in raw.items():
        if key not in allowed:
            raise ConstraintError(f"unknown key {key!r}: one of {_listed(list(allowed))}", (*path, key))
        if key in ("in", "not_in"):
            tests.append(Test(key, OrderedSet(_values(axis, operand, (*path, key)))))
        elif key != "required":
            if not isinstance(operand, int) or isinstance(operand, bool):
                raise ConstraintError(f"{key} takes a whole number, not {operand!r}", (*path, key))
            if key == "multiple_of" and operand < 1:
                raise ConstraintError("multiple_of takes a number of at least 1", (*path, key))
            tests.append(Test(key, operand))
    bounds = {t.op: t.operand for t in tests}
    if "min" in bounds and "max" in bounds and bounds["min"] > bounds["max"]:
        raise ConstraintError(
            f"empty range: min {bounds['min']} is above max {bounds['max']}", (*path, "min")
        )
    return tuple(tests), _required(raw)


def _integer(axis: Axis, raw: Any) -> Constraint:
    if isinstance(raw, list) and any(isinstance(item, Mapping) for item in raw):
        clauses = []
        required = False
        for i, item in enumerate(raw):
            clause, needs = _integer_clause(axis, item, (i,))
            clauses.append(clause)
            required = required or needs
        return Constraint(tuple(clauses), required=required)
    clause, required = _integer_clause(axis, raw, ())
    return Constraint((clause,), required=required)


def _specifier(raw: Any, path: tuple[str | int, ...]) -> str:
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        raise ConstraintError(f'a version is text: quote it ("{raw}")', path)
    if not isinstance(raw, str):
        raise ConstraintError(f"a version specifier is text, not {raw!r}", path)
    text = raw.strip()
    if text[:1].isdigit():
        text = f"=={text}"
    if not is_specifier(text):
        raise ConstraintError(
            f"{raw!r} is not a version specifier", path, 'write it like ">=8.0,<9" or "==9.*"'
        )
    return text


def _version(axis: Axis, raw: Any) -> Constraint:
    required = False
    path: tuple[str | int, ...] = ()
    if isinstance(raw, Mapping):
        _keys(raw, ("in", "required"))
        required = _required(raw)
        if "in" not in raw:
            return Constraint(((),), required=required)
        raw, path = raw["in"], ("in",)
    items = raw if isinstance(raw, list) else [raw]
    clauses = []
    for i, item in enumerate(items):
        where = (*path, i) if isinstance(raw, list) else path
        clauses.append(() if item == "any" else (Test("version", _specifier(item, where)),))
    return Constraint(tuple(clauses), required=required)


def _pair(axis: Axis, raw: Any) -> Constraint:
    path: tuple[str | int, ...] = ()
    required = False
    if isinstance(raw, Mapping):
        _keys(raw, ("in", "not_in", "required"))
        required = _required(raw)
        tests = []
        for key in ("in", "not_in"):
            if key in raw:
                tests.append(Test(key, OrderedSet(_pairs(axis, raw[key], (key,)))))
        return Constraint((tuple(tests),), required=required)
    return Constraint(((Test("in", OrderedSet(_pairs(axis, raw, path))),),), required=required)


def _pairs(axis: Axis, raw: Any, path: tuple[str | int, ...]) -> list[Any]:
    if isinstance(raw, list) and len(raw) == 2 and all(isinstance(v, int) for v in raw):
        raw = [raw]
    if not isinstance(raw, list):
        raise ConstraintError(f"{axis.name} takes a list of pairs [[a, b], ...]", path)
    return _values(axis, raw, path)


def _packages(axis: Axis, raw: Any) -> Constraint:
    if not isinstance(raw, Mapping):
        raise ConstraintError(f"{axis.name} is a mapping of name to version specifier, any or absent")
    tests = []
    for name, spec in raw.items():
        if spec == "absent":
            specifiers: tuple[str, ...] | None = None
        elif spec == "any":
            specifiers = ()
        else:
            items = spec if isinstance(spec, list) else [spec]
            specifiers = tuple(
                _specifier(item, (name, i) if isinstance(spec, list) else (name,))
                for i, item in enumerate(items)
            )
        tests.append(Test("package", (str(name), specifiers)))
    return Constraint((tuple(tests),))


_PARSERS: dict[str, Callable[[Axis, Any], Constraint]] = {
    "flag": _boolean,
    "mode": _boolean,
    "choice": _choice,
    "integer": _integer,
    "version": _version,
    "pair": _pair,
    "packages": _packages,
}
