"""One part of a configuration: its fields by name, with where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from selector.model_config.errors import ConfigError, shown
from selector.model_config.source import Json

#: Upper limits that keep one number from making the answer unbounded.
MAX_LAYERS = 10_000
MAX_SIZE = 65_536
MAX_WIDTH = 1 << 31

Names = tuple[str, ...]


class Found(NamedTuple):
    """A value and its origin: a field of the file, or the architecture's default."""

    value: Json
    field: str
    origin: str


class Section:
    """A (nested) configuration: `data` at `path`, the architecture's `defaults` for what it leaves out.

    A field that is there and null has been switched off by whoever wrote the file: the default does not
    replace it.
    """

    __slots__ = (
        "_inherited", "_other", "_parent", "_place", "data", "defaults", "file", "model_type", "path",
    )  # fmt: skip

    def __init__(
        self,
        file: str,
        path: str,
        data: Mapping[str, Json],
        model_type: str,
        defaults: Mapping[str, Json],
        parent: Section | None = None,
        inherited: frozenset[str] = frozenset(),
    ) -> None:
        self.file = file
        self.path = path
        self.data = data
        self.model_type = model_type
        self.defaults = defaults
        self._parent = parent
        self._inherited = inherited
        self._other: Mapping[str, Json] = {}
        self._place = ""

    def layer(self, other: Mapping[str, Json], place: str) -> Section:
        """This section as one layer sees it: `other` are its fields at `place`, which come before all names."""
        section = Section(
            self.file, self.path, self.data, self.model_type, self.defaults, self._parent, self._inherited
        )
        section._other = other
        section._place = place
        return section

    def where(self, name: str) -> str:
        """A field of this section as one would look for it in the file."""
        return f"{self.path}.{name}" if self.path else name

    def find(self, names: Iterable[str]) -> Found | None:
        """The first of `names` that has a value; a name with dots is a field inside a field."""
        names = tuple(names)
        for name in names:
            if name in self._other:
                value = self._other[name]
                place = self.where(f"{self._place}.{name}")
                return None if value is None else Found(value, place, f"config.json: {place}")
        null = False
        for name in names:
            present, value = _look(self.data, name)
            if present and value is not None:
                return Found(value, self.where(name), f"config.json: {self.where(name)}")
            null = null or present
        if null:
            return None
        if self._parent is not None:
            taken = self._parent.find(name for name in names if name in self._inherited)
            if taken is not None:
                return taken
        for name in names:
            value = self.defaults.get(name)
            if value is not None:
                return Found(value, self.where(name), f"default of {self.model_type}: {name}")
        return None

    def fail(self, field: str, message: str, hint: str | None = None) -> ConfigError:
        """The error that `field`, as `where` names it, is wrong."""
        return ConfigError(self.file, field, message, hint)

    def missing(self, names: Names, hint: str | None = None) -> ConfigError:
        """The error that none of `names` is there."""
        if not names:
            return ConfigError(self.file, self.path, "describes a part for which no field names are known")
        others = ", ".join(names[1:])
        also = f"; nor is there {others}" if others else ""
        return ConfigError(self.file, self.where(names[0]), f"is missing{also}", hint)

    def integer(self, names: Names, low: int = 1, high: int = MAX_SIZE) -> tuple[int, Found] | None:
        """A whole number from `low` to `high`, or None where no name has a value."""
        found = self.find(names)
        return None if found is None else (self.whole(found.value, found.field, low, high), found)

    def whole(self, value: Json, field: str, low: int, high: int) -> int:
        """`value` of `field` when it is a whole number from `low` to `high`."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(field, f"is {shown(value)}, expected a whole number")
        if not low <= value <= high:
            raise self.fail(field, f"is {shown(value)}, expected {low} to {high}")
        return value

    def each(self, names: Names, layer: int, layers: int) -> tuple[int, Found] | None:
        """A whole number of layer `layer` of `layers`: one for all of them, or a list with one for each."""
        found = self.find(names)
        if found is None:
            return None
        value, field = found.value, found.field
        if isinstance(value, list):
            if len(value) < layers:
                raise self.fail(field, f"has {len(value)} entries for {layers} layers")
            value, field = value[layer], f"{field}[{layer}]"
        return self.whole(value, field, 1, MAX_SIZE), found

    def mapping(self, name: str) -> Mapping[str, Json] | None:
        """A nested mapping, or None where there is none (or null)."""
        present, value = _look(self.data, name)
        if not present or value is None:
            return None
        if not isinstance(value, dict):
            raise self.fail(self.where(name), f"is {shown(value)}, expected a mapping")
        return value


def _look(data: Mapping[str, Json], name: str) -> tuple[bool, Json]:
    """Whether the field `name` ("a.b": b inside a) is there, and its value."""
    if name in data:
        return True, data[name]
    head, dot, rest = name.partition(".")
    if dot:
        inner = data.get(head)
        if isinstance(inner, dict):
            return _look(inner, rest)
    return False, None
