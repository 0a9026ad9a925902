"""The parts of a model, each with the section that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from selector.model_config.architectures import NOBODY, Architectures, Component, Model, Word
from selector.model_config.errors import ConfigError, shown
from selector.model_config.facts import Value
from selector.model_config.heads import join_fields
from selector.model_config.layers import NO_WINDOW, Plan, Window, plain_plan, read_layers, read_window
from selector.model_config.section import MAX_LAYERS, MAX_WIDTH, Found, Names, Section
from selector.model_config.source import Json, Source

#: Quantities that a configuration may give as a list, one for each layer.
_PER_LAYER = ("num_heads", "num_kv_heads", "head_size", "head_size_v")


class Own(NamedTuple):
    """A layer with fields of its own: the section as it sees it, and its window."""

    section: Section
    window: Window


class Part(NamedTuple):
    """A component of one model: what is known of its architecture, and what holds for all its layers.

    `models` has the entry of the whole model's type and then that of the part's own, `fields` the names of
    quantities, `context` the longest sequence in tokens (read only where there is a window), `varies` whether
    some quantity is a list with a value for each layer. `other` holds the layers with fields of their own.
    """

    component: Component
    section: Section
    models: tuple[Model, ...]
    fields: Mapping[str, Names]
    plan: Plan
    window: Window
    context: int
    dtype: Value
    varies: bool
    other: Mapping[int, Own]


class Parts:
    """The parts of one configuration. `asked_dtype` is the caller's, and replaces that of every part."""

    __slots__ = ("asked_dtype", "data", "source", "top")

    def __init__(self, source: Source, data: Architectures, asked_dtype: str | None) -> None:
        self.source = source
        self.data = data
        self.asked_dtype = asked_dtype
        model_type = self._model_type("", source.data)
        self.top = Section(source.name, "", source.data, model_type, self._model(model_type).defaults)

    def section(self, component: Component) -> Section | None:
        """The nested configuration of a component, or the top where it may be described there."""
        for path in component.sections:
            data = self.top.mapping(path)
            if data is None:
                continue
            model_type = self._model_type(f"{path}.", data)
            if component.optional and model_type == self.top.model_type:
                model_type = ""  # some parts bear the whole model's type, whose defaults are another part's
            elif not component.optional:
                model_type = model_type or self.top.model_type
            defaults = self._model(model_type).defaults
            inherited = self.data.inherited
            return Section(self.source.name, path, data, model_type, defaults, self.top, inherited)
        return self.top if component.flat else None

    def part(self, component: Component, section: Section) -> Part:
        """A component read from its section."""
        own = self.data.models.get(section.model_type)
        whole = None if component.optional else self.data.models.get(self.top.model_type)
        models = tuple(model for model in ((own,) if whole is own else (whole, own)) if model is not None)
        fields = join_fields(*(model.fields for model in models), self.data.fields[component.fields])
        model = models[-1] if models else NOBODY
        layers = self._layers(section, fields, model)
        window, plan, context = NO_WINDOW, plain_plan(component, layers), 0
        other: dict[int, Own] = {}
        if component.scheduled:
            window = read_window(section, fields)
            plan = read_layers(section, layers, self.data, model, window)
            other = self._other(section, layers, fields)
            plan = plan._replace(words=self._words(plan, window, other, model))
        if window.width is not None:
            found = section.integer(fields.get("context", ()), 0, MAX_WIDTH)
            context = 0 if found is None else found[0]
        return Part(
            component=component,
            section=section,
            models=models,
            fields=fields,
            plan=plan,
            window=window,
            context=context,
            dtype=self._dtype(section, fields.get("dtype", ())),
            varies=self._varies(section, fields),
            other=other,
        )

    def _model(self, model_type: str) -> Model:
        return self.data.models.get(model_type, NOBODY)

    def _model_type(self, path: str, data: Mapping[str, Json]) -> str:
        name = data.get("model_type")
        if name is not None and not isinstance(name, str):
            raise ConfigError(self.source.name, f"{path}model_type", f"is {shown(name)}, expected text")
        return name or ""

    def _layers(self, section: Section, fields: Mapping[str, Names], model: Model) -> int:
        """The number of layers; newer files leave it out and have a list that names each."""
        names = fields.get("layers", ())
        found = section.integer(names, 0, MAX_LAYERS)
        if found is None:
            for schedule in self.data.schedules:
                if schedule.operator in ("words", "letters") and not schedule.options["repeat"]:
                    listed = section.find((str(schedule.operand),))
                    if listed is not None and isinstance(listed.value, (list, str)) and listed.value:
                        found = section.whole(len(listed.value), listed.field, 1, MAX_LAYERS), listed
                        break
        if found is None:
            raise section.missing(names, "the number of layers cannot be known")
        layers = found[0] * max(model.times, 1)
        if layers > MAX_LAYERS:
            raise section.fail(found[1].field, f"makes {layers} layers, expected {MAX_LAYERS} at most")
        return layers

    def _other(self, section: Section, layers: int, names: Mapping[str, Names]) -> dict[int, Own]:
        """The layers that have fields of their own."""
        name = self.data.per_layer.field
        found: dict[int, Own] = {}
        for key, fields in (section.mapping(name) or {}).items():
            place = f"{name}.{key}"
            number = int(key) if str(key).isdecimal() and len(str(key)) < 10 else -1
            if not 0 <= number < layers:
                message = f"names a layer {shown(key)}, expected 0 to {layers - 1}"
                raise section.fail(section.where(name), message)
            if not isinstance(fields, dict):
                raise section.fail(section.where(place), f"is {shown(fields)}, expected a mapping")
            own = section.layer(fields, place)
            found[number] = Own(own, read_window(own, names))
        return found

    def _words(self, plan: Plan, window: Window, other: Mapping[int, Own], model: Model) -> list[Word]:
        """The kinds of layers, with those that their own fields make another: a window more or less, or no attention."""
        per_layer = self.data.per_layer
        words = list(plan.words)
        windowed: Plan | None = None
        for number, own in other.items():
            word = words[number]
            if own.window.width is None and word.without_window is not None:
                words[number] = self.data.words[word.without_window]
            elif own.window.width is not None and window.width is None:
                windowed = windowed or read_layers(own.section, len(words), self.data, model, own.window)
                words[number] = windowed.words[number]
            skipped = own.section.find((per_layer.without,))
            names = skipped.value if skipped is not None else None
            if isinstance(names, list) and any(name in per_layer.attention for name in names):
                words[number] = self.data.words[per_layer.word]
        return words

    def _varies(self, section: Section, fields: Mapping[str, Names]) -> bool:
        tables = (fields, *self.data.fields.values())
        found = (section.find(table.get(name, ())) for table in tables for name in _PER_LAYER)
        return any(entry is not None and isinstance(entry.value, list) for entry in found)

    def _dtype(self, section: Section, names: Names) -> Value:
        """The format of activations: the caller's, the section's, or that of any other part of the model."""
        if self.asked_dtype is not None:
            spelling = self.asked_dtype.removeprefix("torch.").lower()
            return Value(self.data.dtypes.get(spelling, self.asked_dtype), "you")
        found = section.find(names)
        if found is None or found.value == "auto":
            found = self._dtype_of_another(names)
        if found is None:
            raise section.missing(names or ("dtype",), "give one, such as dtype=bfloat16")
        name = found.value
        dtype = self.data.dtypes.get(name.removeprefix("torch.").lower()) if isinstance(name, str) else None
        if dtype is None:
            known = ", ".join(dict.fromkeys(self.data.dtypes.values()))
            message = f"is {shown(name)}, expected one of {known}"
            raise section.fail(found.field, message, "give dtype to decide it yourself")
        return Value(dtype, found.origin)

    def _dtype_of_another(self, names: Names) -> Found | None:
        for component in self.data.components:
            try:
                other = self.section(component)
            except ConfigError:
                continue  # told when that part is read
            found = None if other is None else other.find(names)
            if found is not None and found.value != "auto":
                return found
        return None
