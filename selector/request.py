"""Requests: what one attention layer needs. A frozen value that is its own cache key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import environ
from typing import Any

from selector.errors import Problem, RequestError
from selector.locations import VARIABLE
from selector.vocabulary import Axis, Vocabulary

__all__ = ["Request"]

#: Spellings of values remembered for one name of a field.
KEPT = 1024
#: Characters of the longest of them.
LONGEST = 100

#: The default vocabulary by what names its directory; forgotten when manifests are loaded.
_DEFAULT: dict[str | None, Vocabulary] = {}


def default_vocabulary() -> Vocabulary:
    """The vocabulary of the manifests in use (`ATTN_SELECTOR_MANIFESTS` or the shipped ones), as it was last loaded."""
    named = environ.get(VARIABLE)
    found = _DEFAULT.get(named)
    if found is None:
        from selector.catalog import base_vocabulary

        found = _DEFAULT[named] = base_vocabulary()
    return found


def forget() -> None:
    """Look at the file of the default vocabulary again at the next request."""
    _DEFAULT.clear()


class Request:
    """What one attention layer needs, as axis values.

    Fields are any axes of the vocabulary that belong to the request (`head_size=128`, `dtype="bf16"`), under their names or
    aliases and in any spelling of their values. A field that is not given has its axis's default; None leaves it open.
    Raises RequestError that lists every unknown field and impossible value, each with the allowed set and the nearest word.
    """

    __slots__ = ("_axes", "_hash", "_values", "vocabulary")

    def __init__(
        self, fields: Mapping[str, Any] | None = None, /, *, vocabulary: Vocabulary | None = None, **more: Any
    ) -> None:
        if vocabulary is None:
            vocabulary = default_vocabulary()
        self.vocabulary = vocabulary
        given = more if fields is None else {**fields, **more}
        items = _remembered(vocabulary, given)
        if items is None:
            items = _canonical(vocabulary, given)
        if items:
            items.sort()
            axes, values = zip(*items)
        else:
            axes = values = ()
        self._axes: tuple[int, ...] = axes
        self._values: tuple[Any, ...] = values
        self._hash = hash((axes, values))

    @classmethod
    def of(cls, vocabulary: Vocabulary, axes: tuple[int, ...], values: tuple[Any, ...]) -> Request:
        """A request from canonical positions and values, sorted by position and free of defaults."""
        self = object.__new__(cls)
        self.vocabulary = vocabulary
        self._axes, self._values = axes, values
        self._hash = hash((axes, values))
        return self

    def items(self) -> Iterable[tuple[Axis, Any]]:
        """The fields that differ from their defaults, in the vocabulary's order."""
        axes = self.vocabulary.axes
        return ((axes[i], v) for i, v in zip(self._axes, self._values, strict=False))

    def to_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, by canonical name, as plain JSON-able values."""
        return {a.name: list(v) if isinstance(v, tuple) else v for a, v in self.items()}

    def get(self, name: str) -> Any:
        """The value of one field (default included; None where left open)."""
        axis = self.vocabulary.find(name)
        if axis is None:
            raise KeyError(name)
        for i, value in zip(self._axes, self._values, strict=False):
            if i == axis.index:
                return value
        return axis.default if axis.same_as is None else self.get(axis.same_as)

    def replace(self, **fields: Any) -> Request:
        """A copy with some fields changed, under their names or aliases."""
        changed = {axis.name for axis in map(self.vocabulary.find, fields) if axis is not None}
        kept = {name: value for name, value in self.to_dict().items() if name not in changed}
        return Request({**kept, **fields}, vocabulary=self.vocabulary)

    def without(self, name: str) -> Request:
        """A copy with one field back at its default. Raises KeyError for a name that is no field."""
        axis = self.vocabulary.find(name)
        if axis is None:
            raise KeyError(name)
        kept = [(i, v) for i, v in zip(self._axes, self._values, strict=False) if i != axis.index]
        return Request.of(self.vocabulary, tuple(i for i, _ in kept), tuple(v for _, v in kept))

    def within(self, vocabulary: Vocabulary) -> Request:
        """The same request in another vocabulary. Raises RequestError for fields that it does not have."""
        return self if vocabulary is self.vocabulary else Request(self.to_dict(), vocabulary=vocabulary)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Request)
            and self._hash == other._hash
            and self._axes == other._axes
            and self._values == other._values
            and (self.vocabulary is other.vocabulary or self.to_dict() == other.to_dict())
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return "Request(" + ", ".join(f"{k}={v!r}" for k, v in self.to_dict().items()) + ")"

    def __reduce__(self) -> tuple[Any, ...]:
        # Axes of a pack travel with the request; the base vocabulary is there on the other side.
        base = self.vocabulary is default_vocabulary()
        return (_rebuild, (self.to_dict(), None if base else self.vocabulary))


def _rebuild(fields: dict[str, Any], vocabulary: Vocabulary | None = None) -> Request:
    return Request(fields, vocabulary=vocabulary)


def _remembered(vocabulary: Vocabulary, given: Mapping[str, Any]) -> list[tuple[int, Any]] | None:
    """The fields in canonical form, if every one was given like this before; None if not."""
    spelled = vocabulary.spelled
    items: list[tuple[int, Any]] = []
    aliased = False
    try:
        for name, raw in given.items():
            alias, memo = spelled[name]
            kind, item = memo[raw]
            if kind is not type(raw):  # 1 is True and 1.0 to a dict
                return None
            if item is not None:
                items.append(item)
            if alias:
                aliased = True
    except (KeyError, TypeError):
        return None
    if aliased and len({vocabulary._names[name].index for name in given}) < len(given):
        return None
    return items


def _remember(vocabulary: Vocabulary, axis: Axis, name: str, raw: Any, item: tuple[int, Any] | None) -> None:
    """Keep how a value was spelled: numbers, words and what stands for a word (a dtype), not what may change."""
    if isinstance(raw, (list, dict, set, bytearray)) or (isinstance(raw, str) and len(raw) > LONGEST):
        return
    memo = vocabulary.spelled.setdefault(name, (name != axis.name, {}))[1]
    if len(memo) >= KEPT:
        memo.clear()
    try:
        memo.setdefault(raw, (type(raw), item))
    except TypeError:  # not hashable
        return


def _canonical(vocabulary: Vocabulary, given: Mapping[str, Any]) -> list[tuple[int, Any]]:
    items: list[tuple[int, Any]] = []
    problems: list[Problem] = []
    seen: dict[int, str] = {}
    for name, raw in given.items():
        axis = vocabulary.find(name) if isinstance(name, str) else None
        problem = _field_problem(vocabulary, axis, name, seen)
        if problem is not None or axis is None:
            problems.append(problem or Problem(str(name), "unknown field", None))
            continue
        seen[axis.index] = name
        try:
            value = axis.canonical(raw)
        except ValueError as error:
            problems.append(Problem(name, str(error), getattr(error, "hint", None)))
            continue
        usual = axis.same_as is None and value == axis.default and type(value) is type(axis.default)
        item = None if usual else (axis.index, value)
        if item is not None:
            items.append(item)
        _remember(vocabulary, axis, name, raw, item)
    if problems:
        raise RequestError(problems)
    return items


def _field_problem(
    vocabulary: Vocabulary, axis: Axis | None, name: Any, seen: Mapping[int, str]
) -> Problem | None:
    if axis is None:
        near = vocabulary.nearest(str(name))
        hint = f"did you mean {near}?" if near else "`attn-select schema axes` lists them all"
        return Problem(str(name), f"unknown field {name!r}", hint)
    if axis.derive is not None:
        inputs = ", ".join(vocabulary.axes[i].name for i in vocabulary.depends[axis.index])
        return Problem(name, f"{axis.name} is derived from {inputs}: give those", None)
    if axis.of != "request":
        return Problem(
            name,
            f"{axis.name} belongs to the environment, not to a request",
            f"on the command line: --env {axis.name}=...",
        )
    if axis.index in seen:
        return Problem(name, f"{name} and {seen[axis.index]} are the same field", "give one of them")
    return None
