"""What the schemas need to know of the axes, read from the plain data of a vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The types an axis can have.
TYPES = ("flag", "mode", "choice", "integer", "version", "pair", "packages")


class Axis(NamedTuple):
    """What the schemas need to know of one axis."""

    name: str
    type: str
    of: str
    description: str
    aliases: tuple[str, ...]
    values: tuple[str, ...]
    value_aliases: dict[str, str]
    tags: tuple[str, ...]
    open: bool
    minimum: int | None
    maximum: int | None
    identity: bool
    derived: bool
    default: object
    undeclared: str


def read_axes(vocabulary: Mapping[str, object]) -> dict[str, Axis]:
    """The axes of a (merged) vocabulary that has passed its own schema, in its order."""
    raw = _mapping(vocabulary.get("axes"))
    owners: dict[str, str] = {}
    return {name: _read_axis(name, _mapping(entry), _owner(name, raw, owners)) for name, entry in raw.items()}


def _read_axis(name: str, raw: dict[str, object], of: str) -> Axis:
    kind = raw.get("type")
    values = raw.get("values")
    entries = {str(v): {} for v in values} if isinstance(values, list) else _mapping(values)
    aliases: dict[str, str] = {}
    tags: dict[str, None] = {}
    for known, entry in entries.items():
        for alias in _words(_mapping(entry).get("aliases")):
            aliases.setdefault(alias, known)
        tags.update(dict.fromkeys(_words(_mapping(entry).get("tags"))))
    title, doc, unit = raw.get("title") or name, raw.get("doc"), raw.get("unit")
    head = f"{title} ({unit})" if unit else str(title)
    minimum, maximum = raw.get("min"), raw.get("max")
    return Axis(
        name=name,
        type=kind if isinstance(kind, str) and kind in TYPES else "choice",
        of=of,
        description=f"{head}: {doc}" if doc else f"{head}.",
        aliases=_words(raw.get("aliases")),
        values=tuple(entries),
        value_aliases={alias: known for alias, known in aliases.items() if alias not in entries},
        tags=tuple(tags),
        open=raw.get("open") is True or (kind == "choice" and not entries),
        minimum=minimum if isinstance(minimum, int) else None,
        maximum=maximum if isinstance(maximum, int) else None,
        identity=raw.get("identity") is True,
        derived="derive" in raw,
        default=raw.get("default"),
        undeclared=_undeclared(raw, of),
    )


def _undeclared(raw: Mapping[str, object], of: str) -> str:
    """What a candidate that does not mention the axis accepts, in words."""
    if raw.get("declare") == "required":
        return "an error"
    said = raw.get("undeclared")
    if said == "none" or (raw.get("identity") is True and said is None):
        return "no value"
    false = raw.get("type") in ("flag", "mode") and of == "request" and "derive" not in raw and said is None
    return "false" if false else "no limit"


def _owner(name: str, raw: dict[str, object], known: dict[str, str]) -> str:
    """`request` or `environment`; a derived axis belongs to the environment when all its operands do."""
    if name in known:
        return known[name]
    entry = _mapping(raw.get(name))
    of = entry.get("of")
    if isinstance(of, str):
        known[name] = of
    elif "derive" in entry:
        known[name] = "request"  # also what a cycle, which the vocabulary refuses, ends with
        operands = sorted(word for word in _operands(entry["derive"]) if word in raw and word != name)
        if operands and all(_owner(operand, raw, known) == "environment" for operand in operands):
            known[name] = "environment"
    else:
        known[name] = "request"
    return known[name]


def _operands(part: object) -> set[str]:
    """Every word in an operator, which includes the axes it reads."""
    if isinstance(part, str):
        return {part}
    if isinstance(part, dict):
        return set(part).union(*map(_operands, part.values()))
    if isinstance(part, list):
        return set().union(*map(_operands, part))
    return set()


def _mapping(part: object) -> dict[str, object]:
    return part if isinstance(part, dict) else {}


def _words(part: object) -> tuple[str, ...]:
    return tuple(w for w in part if isinstance(w, str)) if isinstance(part, list) else ()
