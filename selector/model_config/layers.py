"""Which layer of a model is of which kind: one function for each operator of a schedule, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from selector.model_config.architectures import Architectures, Component, Model, Schedule, Word
from selector.model_config.errors import shown
from selector.model_config.facts import holds
from selector.model_config.section import (
    MAX_LAYERS,
    MAX_SIZE,
    MAX_WIDTH,
    Found,
    Names,
    Section,
)
from selector.model_config.source import Json

#: Origin of a schedule that no field and no architecture asks for.
DEFAULT = "the default"


class Plan(NamedTuple):
    """The word of each layer, where that comes from, and layers' own query heads per key/value head."""

    words: Sequence[Word]
    origin: str
    groups: Mapping[int, int]


class Window(NamedTuple):
    """The width of the sliding window in tokens (None: there is none), and where it comes from."""

    width: int | None
    found: Found | None


NO_WINDOW = Window(None, None)


def plain_plan(component: Component, layers: int) -> Plan:
    """The layers of a part that has one kind of them."""
    kind = component.kind or component.name
    return Plan([Word(kind, kind, None, None, True, {}, None)] * layers, "one kind", {})


def read_window(section: Section, names: Mapping[str, Names]) -> Window:
    """The sliding window. Null, 0 or less, or a switch that is off mean none."""
    found = section.find(names.get("window", ()))
    if found is None:
        return Window(None, None)
    switch = section.find(names.get("use_window", ()))
    if switch is not None and not isinstance(switch.value, bool):
        raise section.fail(switch.field, f"is {shown(switch.value)}, expected true or false")
    if switch is not None and switch.value is False:
        return Window(None, switch)
    if found.value is False:
        return Window(None, found)
    value = found.value
    if isinstance(value, list):  # one for each layer: the widest; which layers have one says the schedule
        value = max(
            (section.whole(w, found.field, 0, MAX_WIDTH) for w in value if w is not None),
            default=0,
        )
    width = section.whole(value, found.field, -1, MAX_WIDTH)
    return Window(width if width > 0 else None, found)


def read_layers(section: Section, layers: int, data: Architectures, model: Model, window: Window) -> Plan:
    """The kind of each of `layers` layers, by the first schedule whose field the section has.

    Lists that name every layer come first, then what the architecture does, then the general schedules.
    Where the sliding window is off, layers that would slide by a general schedule are full.
    """
    explicit = [schedule for schedule in data.schedules if schedule.operator == "words"]
    general = [schedule for schedule in data.schedules if schedule.operator != "words"]
    for schedule in (*explicit, *model.schedules, *general):
        if not holds(schedule.when, section):
            continue
        outcome = _OPERATORS[schedule.operator](_Context(section, layers, data, model), schedule)
        if outcome is None:
            continue
        words, origin, groups = outcome
        named = schedule.operator in ("words", "codes")
        if window.width is None and not named:
            words = [data.words[word.without_window] if word.without_window else word for word in words]
        return Plan(words, origin, groups)
    raise section.fail("", "has no field that says which kind its layers are")


class _Context(NamedTuple):
    section: Section
    layers: int
    data: Architectures
    model: Model

    def word(self, name: Json, field: str) -> Word:
        """The kind of layer that a configuration calls `name`."""
        renamed = self.model.words.get(name, name) if isinstance(name, str) else name
        word = self.data.words.get(renamed) if isinstance(renamed, str) else None
        if word is None:
            raise self.section.fail(
                field,
                f"is {shown(name)}, which is no known kind of layer",
                "known: " + ", ".join(self.data.words),
            )
        return word

    def entries(self, found: Found, repeat: bool = False) -> list[Json]:
        """A list with one entry for each layer; longer ones go on with the layers of drafting heads."""
        if not isinstance(found.value, list):
            raise self.section.fail(found.field, f"is {shown(found.value)}, expected a list")
        entries = found.value
        if repeat and 0 < len(entries) < self.layers:
            entries = entries * (self.layers // len(entries) + 1)
        if len(entries) < self.layers:
            raise self.section.fail(found.field, f"has {len(entries)} entries for {self.layers} layers")
        return entries[: self.layers]

    def field(self, schedule: Schedule) -> Found | None:
        """The field a schedule reads; an empty list or text says as little as none."""
        found = self.section.find((str(schedule.operand),))
        return None if found is None or found.value in ([], "") else found

    def pair(self, schedule: Schedule) -> tuple[Word, Word]:
        return self.data.words[str(schedule.options["then"])], self.data.words[str(schedule.options["else"])]


Outcome = tuple[Sequence[Word], str, Mapping[int, int]]


def _words(context: _Context, schedule: Schedule) -> Outcome | None:
    """A list with a word for each layer."""
    found = context.field(schedule)
    if found is None:
        return None
    entries = context.entries(found, bool(schedule.options["repeat"]))
    return (
        [context.word(entry, f"{found.field}[{i}]") for i, entry in enumerate(entries)],
        found.origin,
        {},
    )


def _letters(context: _Context, schedule: Schedule) -> Outcome | None:
    """A text with a letter for each layer. A number under the name of a repeated one is another schedule's."""
    found = context.field(schedule)
    repeat = bool(schedule.options["repeat"])
    if found is None or (repeat and not isinstance(found.value, str)):
        return None
    if not isinstance(found.value, str):
        raise context.section.fail(found.field, f"is {shown(found.value)}, expected text")
    letters = found.value
    if repeat:
        letters = letters[:MAX_LAYERS] * (context.layers // len(letters) + 1)
    if len(letters) < context.layers:
        raise context.section.fail(found.field, f"has {len(letters)} letters for {context.layers} layers")
    return (
        _mapped(context, schedule, found, list(letters[: context.layers])),
        found.origin,
        {},
    )


def _codes(context: _Context, schedule: Schedule) -> Outcome | None:
    """A list with a number for each layer."""
    found = context.field(schedule)
    if found is None:
        return None
    codes: list[Json] = []
    for i, entry in enumerate(context.entries(found)):
        whole = int(entry) if isinstance(entry, bool) else entry
        codes.append(str(context.section.whole(whole, f"{found.field}[{i}]", 0, MAX_SIZE)))
    return _mapped(context, schedule, found, codes), found.origin, {}


def _mapped(context: _Context, schedule: Schedule, found: Found, codes: list[Json]) -> list[Word]:
    table = schedule.options["map"]
    assert isinstance(table, dict)
    words = []
    for i, code in enumerate(codes):
        if str(code) not in table:
            raise context.section.fail(
                f"{found.field}[{i}]",
                f"is {shown(code)}, which is no known kind of layer",
                "known: " + ", ".join(table),
            )
        words.append(context.data.words[str(table[str(code)])])
    return words


def _numbers(context: _Context, schedule: Schedule) -> Outcome | None:
    """A list of the layers of one kind, numbered from `first`; it may be empty."""
    found = context.section.find((str(schedule.operand),))
    if found is None:
        return None
    if not isinstance(found.value, list):
        raise context.section.fail(found.field, f"is {shown(found.value)}, expected a list")
    first = schedule.options["first"] or 0
    assert isinstance(first, int)
    then, other = context.pair(schedule)
    chosen = {
        context.section.whole(entry, f"{found.field}[{i}]", first, MAX_WIDTH) - first
        for i, entry in enumerate(found.value)
    }
    return (
        [then if i in chosen else other for i in range(context.layers)],
        found.origin,
        {},
    )


def _period(context: _Context, schedule: Schedule) -> Outcome | None:
    """Every n-th layer; `offset` is a number, a field, or `last` (of each n)."""
    origin = f"architecture {context.model.name}"
    if isinstance(schedule.operand, int):
        period = schedule.operand
    else:
        found = context.field(schedule)
        if found is None:
            return None
        period, origin = (
            context.section.whole(found.value, found.field, 0, MAX_LAYERS),
            found.origin,
        )
    if period == 0:  # the pattern is switched off
        return None
    offset = schedule.options["offset"]
    if offset == "last":
        offset = period - 1
    elif isinstance(offset, str):
        given = context.section.integer((offset,), 0, MAX_LAYERS)
        if given is None:
            raise context.section.missing((offset,))
        offset, origin = given[0], f"{origin}, {offset}"
    assert isinstance(offset, int)
    then, other = context.pair(schedule)
    return (
        [then if i % period == offset else other for i in range(context.layers)],
        origin,
        {},
    )


def _from(context: _Context, schedule: Schedule) -> Outcome | None:
    """All layers from the n-th on."""
    found = context.field(schedule)
    if found is None:
        return None
    first = context.section.whole(found.value, found.field, 0, MAX_WIDTH)
    then, other = context.pair(schedule)
    return (
        [then if i >= first else other for i in range(context.layers)],
        found.origin,
        {},
    )


def _blocks(context: _Context, schedule: Schedule) -> Outcome | None:
    """A list of mappings, one for each layer; some have no attention, some their own groups of heads."""
    found = context.field(schedule)
    if found is None:
        return None
    absent = schedule.options["no_op"]
    assert isinstance(absent, list)
    then, other = context.pair(schedule)
    words, groups = [], {}
    for i, entry in enumerate(context.entries(found)):
        field = f"{found.field}[{i}]"
        if not isinstance(entry, dict):
            raise context.section.fail(field, f"is {shown(entry)}, expected a mapping")
        block = Section(context.section.file, field, entry, context.section.model_type, {})
        empty = any((off := block.find((str(name),))) is not None and off.value is True for name in absent)
        words.append(other if empty else then)
        group = None if empty else block.integer((str(schedule.options["group"]),))
        if group is not None:
            groups[i] = group[0]
    return words, found.origin, groups


def _all(context: _Context, schedule: Schedule) -> Outcome | None:
    """All layers are of one kind."""
    origin = f"architecture {context.model.name}" if schedule in context.model.schedules else DEFAULT
    return [context.data.words[str(schedule.operand)]] * context.layers, origin, {}


_OPERATORS: Mapping[str, Callable[[_Context, Schedule], Outcome | None]] = {
    "words": _words,
    "letters": _letters,
    "codes": _codes,
    "numbers": _numbers,
    "period": _period,
    "from": _from,
    "blocks": _blocks,
    "all": _all,
}
