"""The vocabulary: every axis that a request or an environment can have, as data.

Only `manifests/vocabulary.yaml` and the packs' own vocabularies define axes; nothing here knows any axis by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from selector.constraints import word
from selector.versions import is_version

if TYPE_CHECKING:
    from selector.errors import Mark

__all__ = ["MISSING", "UNKNOWN", "Axis", "PackageState", "Packages", "ValueProblem", "Vocabulary"]


class _Special:
    """A value that stands outside every axis's domain."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


UNKNOWN: Final = _Special("UNKNOWN")
MISSING: Final = _Special("MISSING")

STATES: Final = (
    "usable",
    "missing",
    "version out of range",
    "broken import",
    "wrong build",
    "not for this device",
    "disabled by setting",
    "unknown",
)


class PackageState(tuple[Any, ...]):
    """What is known of one distribution: version (text or None), state (one of STATES), detail (text or None)."""

    __slots__ = ()

    def __new__(cls, version: str | None, state: str = "usable", detail: str | None = None) -> PackageState:
        return super().__new__(cls, (version, state, detail))

    @property
    def version(self) -> str | None:
        """The version found, as the distribution's metadata states it."""
        return self[0]  # type: ignore[no-any-return]

    @property
    def state(self) -> str:
        """One of STATES."""
        return self[1]  # type: ignore[no-any-return]

    @property
    def detail(self) -> str | None:
        """The first line of an import error, or what disabled it."""
        return self[2]  # type: ignore[no-any-return]

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class Packages(Mapping[str, PackageState]):
    """A frozen, hashable mapping of distribution name to its state. A name not in it is missing."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, PackageState] | Iterable[tuple[str, PackageState]] = ()) -> None:
        self._items = dict(items)
        self._hash = hash(frozenset(self._items.items()))

    def __getitem__(self, name: str) -> PackageState:
        return self._items[name]

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packages) and self._items == other._items

    def __repr__(self) -> str:
        return (
            "Packages("
            + ", ".join(f"{n}={p.version or p.state}" for n, p in sorted(self._items.items()))
            + ")"
        )


class ValueProblem(ValueError):
    """A value that its axis cannot have; ``hint`` says what to write instead, if that is known."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known word closest to ``name``, if one is close."""
    import difflib

    table = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), list(table), n=1, cutoff=0.6)
    return table[found[0]] if found else None


class Axis:
    """One axis: its type, its words and its domain."""

    __slots__ = (
        "_canon",
        "aliases",
        "applies_when",
        "at",
        "declare_required",
        "default",
        "derive",
        "doc",
        "fix",
        "identity",
        "index",
        "max",
        "min",
        "name",
        "of",
        "open",
        "pack",
        "raw",
        "same_as",
        "tags",
        "title",
        "type",
        "undeclared",
        "unit",
        "values",
        "variable",
        "words",
    )

    def __init__(
        self, name: str, raw: Mapping[str, Any], index: int, pack: str | None, at: Mark | None
    ) -> None:
        self.name, self.raw, self.index, self.pack, self.at = name, raw, index, pack, at
        self.type: str = raw["type"]
        self.of: str = raw.get("of", "request")
        self.title: str = raw.get("title", name.replace("_", " "))
        self.doc: str = raw.get("doc", "")
        self.unit: str | None = raw.get("unit")
        self.aliases: tuple[str, ...] = tuple(raw.get("aliases", ()))
        self.min: int | None = raw.get("min")
        self.max: int | None = raw.get("max")
        self.declare_required: bool = raw.get("declare") == "required"
        self.identity: bool = raw.get("identity", False)
        self.undeclared: str = raw.get("undeclared", self._undeclared())
        self.variable: str | None = raw.get("variable")
        self.open: bool = raw.get("open", False)
        self.applies_when: Any = raw.get("applies_when")
        self.derive: Any = raw.get("derive")
        self.words: Mapping[str, str] = raw.get("words", {})
        values = raw.get("values") or []
        table: Mapping[str, Any] = values if isinstance(values, Mapping) else dict.fromkeys(values)
        self.values: tuple[str, ...] = tuple(table)
        self.tags: dict[str, frozenset[str]] = {}
        self._canon: dict[Any, Any] = {}
        tags: dict[str, set[str]] = {}
        for value, entry in table.items():
            entry = entry or {}
            for spelling in (value, *entry.get("aliases", ())):
                self._canon[spelling] = value
                self._canon.setdefault(str(spelling).lower(), value)
            for tag in entry.get("tags", ()):
                tags.setdefault(tag, set()).add(value)
        self.tags = {t: frozenset(v) for t, v in tags.items()}
        default = raw.get("default")
        self.same_as: str | None = default["same_as"] if isinstance(default, Mapping) else None
        self.default: Any = self.neutral
        if default is not None and self.same_as is None:
            self.default = self.canonical(default)
        self.fix: str = raw.get("fix", "request" if self.of == "request" else "none")

    def _undeclared(self) -> str:
        if self.identity:
            return "none"
        asked = self.type in ("flag", "mode") and self.of == "request" and "derive" not in self.raw
        return "not had" if asked else "any"

    @property
    def neutral(self) -> Any:
        """The value of an axis that does not apply: false for flags and modes, null for the others."""
        return False if self.type in ("flag", "mode") else None

    def spellings(self) -> Iterable[str]:
        """All value spellings of a choice."""
        return (s for s in self._canon if isinstance(s, str))

    def canonical(self, value: Any) -> Any:
        """The canonical form of a value as anybody may write it. Raises ValueProblem with the allowed set."""
        if value is None:
            return None
        return _CANONICAL[self.type](self, value)

    def allowed(self) -> str:
        """The axis's whole domain in words."""
        if self.type in ("flag", "mode"):
            return "true or false"
        if self.type == "choice":
            shown = ", ".join(self.values)
            return f"{shown} or another name" if self.open else shown
        if self.type == "integer":
            lo = "" if self.min is None else f" of at least {self.min}"
            hi = "" if self.max is None else f"{' and' if lo else ' of'} at most {self.max}"
            return f"a whole number{lo}{hi}"
        return {"version": 'a version like "9.0"', "pair": "two whole numbers", "packages": "name: version"}[
            self.type
        ]

    def __repr__(self) -> str:
        return f"Axis({self.name}: {self.type} of the {self.of})"


def _canonical_bool(axis: Axis, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueProblem(f"{axis.name} is {axis.allowed()}, not {shown(value)}")


def _canonical_choice(axis: Axis, value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    found = axis._canon.get(text)
    if found is None:
        found = axis._canon.get(text.lower())
    if found is not None:
        return found  # type: ignore[no-any-return]
    if axis.open and isinstance(value, str) and text.strip() and len(text) <= 200:
        return text
    near = nearest(text, axis.spellings())
    raise ValueProblem(
        f"{shown(value)} is no value of {axis.name}: {axis.allowed()}",
        f"did you mean {near}?" if near else None,
    )


def _canonical_integer(axis: Axis, value: Any) -> int:
    number = value
    if isinstance(number, str):
        text = number.strip()
        digits = text[1:] if text[:1] in "+-" else text
        if digits.isascii() and digits.isdigit() and len(digits) <= 18:
            number = int(text)
    if not isinstance(number, int) or isinstance(number, bool):
        number = _whole(number)
    if number is None:
        raise ValueProblem(f"{axis.name} is {axis.allowed()}, not {shown(value)}")
    if (axis.min is not None and number < axis.min) or (axis.max is not None and number > axis.max):
        raise ValueProblem(f"{axis.name} is {axis.allowed()}, not {shown(value)}")
    return int(number)


def _whole(value: Any) -> int | None:
    """A whole number of another library (`numpy.int64`); None for what is none."""
    if isinstance(value, (str, bool)) or not hasattr(value, "__index__"):
        return None
    try:
        return value.__index__()  # type: ignore[no-any-return]
    except (TypeError, ValueError):
        return None


def _canonical_version(axis: Axis, value: Any) -> str:
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        raise ValueProblem(f'{axis.name} is a version, and {value!r} a number: quote it ("{value}")')
    if isinstance(value, (tuple, list)) and value and all(type(v) is int and 0 <= v < 10**6 for v in value):
        return ".".join(str(v) for v in value)
    if isinstance(value, str) and len(value) <= 100 and is_version(value):
        return value
    raise ValueProblem(f"{axis.name} is {axis.allowed()}, not {shown(value)}")


def _canonical_pair(axis: Axis, value: Any) -> tuple[int, int]:
    items = value
    if isinstance(items, str):
        items = [p.strip() for p in items.strip("[]() ").split(",")]
    if not isinstance(items, (list, tuple)) or len(items) != 2:
        raise ValueProblem(f"{axis.name} is {axis.allowed()}, not {shown(value)}")
    first, second = (_canonical_integer(axis, v) for v in items)
    return (first, second)


def _canonical_packages(axis: Axis, value: Any) -> Packages:
    if isinstance(value, Packages):
        return value
    if not isinstance(value, Mapping):
        raise ValueProblem(f"{axis.name} is a mapping of name to version, not {shown(value)}")
    found: dict[str, PackageState] = {}
    for name, entry in value.items():
        if isinstance(entry, PackageState):
            found[str(name)] = entry
        elif isinstance(entry, Mapping):
            state = entry.get("state", "usable")
            if state not in STATES:
                raise ValueProblem(f"{shown(state)} is no package state: {', '.join(STATES)}")
            detail = entry.get("detail")
            found[str(name)] = PackageState(
                _package_version(name, entry.get("version")), state, detail and str(detail)
            )
        elif entry is None:
            found[str(name)] = PackageState(None, "missing")
        else:
            found[str(name)] = PackageState(_package_version(name, entry))
    return Packages(found)


def _package_version(name: Any, version: Any) -> str | None:
    if version is None or isinstance(version, str):
        return version
    raise ValueProblem(f'the version of {name} is text: quote it ("{version}")')


_CANONICAL = {
    "flag": _canonical_bool,
    "mode": _canonical_bool,
    "choice": _canonical_choice,
    "integer": _canonical_integer,
    "version": _canonical_version,
    "pair": _canonical_pair,
    "packages": _canonical_packages,
}


def shown(value: Any) -> str:
    """A value in a message, cut to a bearable length."""
    if isinstance(value, (bool, tuple)) or value is None:
        text = word(value)
    else:
        try:
            text = repr(value)
        except Exception:  # a foreign object's own repr may fail; the message must not
            text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def _mentions(raw: Any, names: Mapping[str, Axis]) -> set[str]:
    """The axes that a raw condition or `derive` names (keys of conditions, operands, `axis:`)."""
    found: set[str] = set()
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            if key == "axis" and isinstance(value, str):
                found.add(value)
            elif key in ("map", "value", "else") and not isinstance(value, Mapping):
                if key == "value" and isinstance(value, str) and value in names:
                    found.add(value)
            elif key == "element" and isinstance(value, list) and value and isinstance(value[0], str):
                found.add(value[0])
            elif key in _STRUCTURE:
                found |= _mentions(value, names)
            elif key in names:
                found.add(key)
    elif isinstance(raw, list):
        for item in raw:
            if isinstance(item, str):
                found.add(item)
            else:
                found |= _mentions(item, names)
    return found


#: Keys of conditions and derived axes under which further mentions stand.
_STRUCTURE = frozenset(
    [
        "all",
        "any",
        "not",
        "when",
        "case",
        "tag",
        "table",
        "value",
        "else",
        "max",
        "min",
        "sum",
        "product",
        "gcd",
        "difference",
        "modulo",
        "floor_div",
        "ratio",
        "round_up",
    ]
)


class Vocabulary:
    """An immutable, ordered set of axes. Positions in ``axes`` are the positions of values in a request."""

    __slots__ = ("_names", "axes", "by_name", "cycle", "depends", "order", "raw", "spelled")

    def __init__(
        self,
        raw: Mapping[str, Any],
        *,
        packs: Mapping[str, str] | None = None,
        marks: Mapping[str, Mark] | None = None,
    ) -> None:
        self.raw = raw
        #: By name of a field: whether it is an alias, and values as they were given with their canonical form
        #: (see `selector.request`).
        self.spelled: dict[str, tuple[bool, dict[Any, tuple[type, tuple[int, Any] | None]]]] = {}
        self.axes: tuple[Axis, ...] = tuple(
            Axis(name, entry, i, (packs or {}).get(name), (marks or {}).get(name))
            for i, (name, entry) in enumerate(raw["axes"].items())
        )
        self.by_name: dict[str, Axis] = {a.name: a for a in self.axes}
        self._names: dict[str, Axis] = {alias: a for a in self.axes for alias in a.aliases}
        self._names.update(self.by_name)
        self.depends: tuple[tuple[int, ...], ...] = tuple(self._depends(a) for a in self.axes)
        self.order: tuple[int, ...]
        self.cycle: tuple[str, ...]
        self.order, self.cycle = self._sorted()
        self._infer_owner()

    def _depends(self, axis: Axis) -> tuple[int, ...]:
        names: set[str] = set()
        if axis.same_as is not None:
            names.add(axis.same_as)
        for raw in (axis.applies_when, axis.derive):
            names |= _mentions(raw, self._names)
        found = (self._names.get(n) for n in names)
        return tuple(sorted({a.index for a in found if a is not None}))

    def _sorted(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Axes in an order in which each comes after those it depends on; and the names of a cycle, if there is one."""
        done: dict[int, None] = {}
        pending = list(range(len(self.axes)))
        while pending:
            ready = [i for i in pending if all(d in done for d in self.depends[i])]
            if not ready:
                return (*done, *pending), tuple(self.axes[i].name for i in pending)
            done.update(dict.fromkeys(ready))
            pending = [i for i in pending if i not in done]
        return tuple(done), ()

    def _infer_owner(self) -> None:
        for i in self.order:
            axis = self.axes[i]
            if axis.derive is not None:
                owners = {self.axes[d].of for d in self.depends[i]}
                axis.of = "environment" if owners == {"environment"} else "request"
                axis.fix = "none"

    def __reduce__(self) -> tuple[Any, ...]:
        packs = {a.name: a.pack for a in self.axes if a.pack is not None}
        marks = {a.name: a.at for a in self.axes if a.at is not None}
        return (_restored, (self.raw, packs, marks))

    def find(self, name: str) -> Axis | None:
        """The axis of that name or alias."""
        return self._names.get(name)

    def names(self) -> Iterable[str]:
        """Every name and alias."""
        return self._names

    def nearest(self, name: str) -> str | None:
        """The canonical name of the axis whose name or alias is closest to ``name``."""
        found = nearest(name, self._names)
        return None if found is None else self._names[found].name

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.axes)} axes)"


def _restored(raw: Mapping[str, Any], packs: Mapping[str, str], marks: Mapping[str, Mark]) -> Vocabulary:
    return Vocabulary(raw, packs=packs, marks=marks)
