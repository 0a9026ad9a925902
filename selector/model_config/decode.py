"""From the document of `architectures.yaml` to `Architectures`, with every mistake and its place."""

from __future__ import annotations

from collections.abc import Mapping

from selector.errors import Fault, ManifestError
from selector.model_config.architectures import (
    OPERATORS,
    SCHEDULES,
    Architectures,
    Check,
    Component,
    Condition,
    Fact,
    KVCache,
    Model,
    PerLayer,
    Schedule,
    Scheme,
    Word,
)
from selector.model_config.source import Json
from selector.yaml_loader import Document


def decode_architectures(document: Document) -> Architectures:
    """A document as `Architectures`; raises `ManifestError` with every mistake."""
    faults: list[Fault] = []
    top = _Node(document, (), faults)
    top.keys(
        ("architectures", "components", "fields", "words", "models", "per_layer"),
        ("source", "inherited", "pack_axes", "schedules", "facts", "dtypes", "kv_cache"),
    )
    words = _words(top.child("words"))
    result = Architectures(
        components=tuple(_component(node) for node in top.child("components").entries()),
        inherited=frozenset(top.texts("inherited")),
        pack_axes=frozenset(top.texts("pack_axes")),
        fields={name: _names(node) for name, node in top.child("fields").items()},
        words=words,
        schedules=tuple(_schedule(node, words) for node in top.child("schedules").entries()),
        facts=tuple(_fact(node) for node in top.child("facts").entries()),
        dtypes={
            spelling: name for name, node in top.child("dtypes").items() for spelling in node.own_texts()
        },
        kv_cache=_kv_cache(top.child("kv_cache")),
        per_layer=_per_layer(top.child("per_layer"), words),
        models=_models(top.child("models"), words),
    )
    for component in top.child("components").entries():
        _known(component.child("fields"), result.fields)
    for _, word in top.child("words").items():
        _known(word.child("fields"), result.fields)
    if faults:
        raise ManifestError(faults)
    return result


def _known(node: _Node, tables: Mapping[str, object]) -> None:
    if isinstance(node.value, str) and node.value not in tables:
        node.fault(f"no such table of fields: {node.value}", f"known: {', '.join(tables)}")


class _Node:
    """A value of the document with its place; what it should be and is not becomes a fault."""

    __slots__ = ("document", "faults", "path", "value")

    def __init__(self, document: Document, path: tuple[str | int, ...], faults: list[Fault]) -> None:
        self.document = document
        self.path = path
        self.faults = faults
        value: Json = document.data
        for step in path:
            if isinstance(value, dict) and isinstance(step, str):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                value = None
        self.value = value

    def fault(self, message: str, hint: str | None = None) -> None:
        self.faults.append(self.document.fault(self.path, message, hint))

    def child(self, key: str | int) -> _Node:
        return _Node(self.document, (*self.path, key), self.faults)

    def keys(self, needed: tuple[str, ...], allowed: tuple[str, ...]) -> None:
        if not isinstance(self.value, dict):
            self.fault("is expected to be a mapping")
            return
        for key in self.value:
            if key not in needed and key not in allowed:
                self.child(key).fault(f"no such key: {key}", f"known: {', '.join(needed + allowed)}")
        for key in needed:
            if self.value.get(key) is None:
                self.fault(f"{key} is missing")

    def items(self) -> list[tuple[str, _Node]]:
        if self.value is None:
            return []
        if not isinstance(self.value, dict):
            self.fault("is expected to be a mapping")
            return []
        return [(key, self.child(key)) for key in self.value]

    def entries(self) -> list[_Node]:
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.fault("is expected to be a list")
            return []
        return [self.child(index) for index in range(len(self.value))]

    def own_texts(self) -> tuple[str, ...]:
        return tuple(str(node.value) for node in self.entries() if node.is_text())

    def is_text(self) -> bool:
        if not isinstance(self.value, str):
            self.fault("is expected to be text")
            return False
        return True

    def texts(self, key: str) -> tuple[str, ...]:
        return self.child(key).own_texts()

    def text(self, key: str) -> str | None:
        node = self.child(key)
        return str(node.value) if node.value is not None and node.is_text() else None

    def flag(self, key: str, default: bool = False) -> bool:
        node = self.child(key)
        if node.value is None:
            return default
        if not isinstance(node.value, bool):
            node.fault("is expected to be true or false")
            return default
        return node.value

    def number(self, key: str, default: int) -> int:
        node = self.child(key)
        if node.value is None:
            return default
        if isinstance(node.value, bool) or not isinstance(node.value, int) or node.value < 0:
            node.fault("is expected to be a whole number")
            return default
        return node.value

    def mapping(self, key: str) -> Mapping[str, Json]:
        return {name: node.value for name, node in self.child(key).items()}


def _names(node: _Node) -> Mapping[str, tuple[str, ...]]:
    return {name: child.own_texts() for name, child in node.items()}


def _condition(node: _Node) -> Condition:
    tests = []
    for field, child in node.items():
        if isinstance(child.value, dict):
            for operator, operand in child.value.items():
                if operator not in OPERATORS:
                    child.fault(
                        f"no such operator: {operator}",
                        f"known: {', '.join(OPERATORS)}",
                    )
                tests.append(Check(field, operator, operand))
        else:
            tests.append(Check(field, "equal", child.value))
    return tuple(tests)


def _fact(node: _Node) -> Fact:
    node.keys(("set",), ("when", "layers"))
    return Fact(_condition(node.child("when")), node.texts("layers"), node.mapping("set"))


def _schedule(node: _Node, words: Mapping[str, Word]) -> Schedule:
    operators = [name for name in SCHEDULES if isinstance(node.value, dict) and name in node.value]
    if len(operators) != 1:
        node.fault("needs exactly one of " + ", ".join(SCHEDULES))
        return Schedule("all", "", {}, ())
    operator = operators[0]
    needed, allowed = SCHEDULES[operator]
    node.keys((operator, *needed), ("when", *allowed))
    operand = node.child(operator)
    if not (operator == "period" and isinstance(operand.value, int)):
        operand.is_text()
    kinds = [node.child(key) for key in ("then", "else")] + [child for _, child in node.child("map").items()]
    if operator == "all":
        kinds.append(operand)
    for child in kinds:
        if child.value is not None and child.is_text() and str(child.value) not in words:
            child.fault(f"no such kind of layer: {child.value}", f"known: {', '.join(words)}")
    options = {key: node.child(key).value for key in (*needed, *allowed)}
    if "repeat" in options:
        options["repeat"] = node.flag("repeat")
    if "first" in options:
        options["first"] = node.number("first", 0)
    if "no_op" in options:
        options["no_op"] = [*node.texts("no_op")]
    if "group" in options:
        node.child("group").is_text()
    offset = node.child("offset")
    if offset.value is not None and (isinstance(offset.value, bool) or not isinstance(offset.value, int)):
        offset.is_text()
    return Schedule(operator, operand.value, options, _condition(node.child("when")))


def _words(node: _Node) -> Mapping[str, Word]:
    words: dict[str, Word] = {}
    for name, child in node.items():
        child.keys(("kind",), ("also", "fields", "without_window", "attention", "set", "note"))
        word = Word(
            name=name,
            kind=child.text("kind") or name,
            fields=child.text("fields"),
            without_window=child.text("without_window"),
            attention=child.flag("attention", True),
            axes=child.mapping("set"),
            note=child.text("note"),
        )
        for spelling in (name, *child.texts("also")):
            if spelling in words:
                child.fault(f"{spelling} is a spelling of {words[spelling].name} already")
            words[spelling] = word
    for word in tuple(words.values()):
        if word.without_window is not None and word.without_window not in words:
            node.child(word.name).fault(f"no such kind of layer: {word.without_window}")
    return words


def _component(node: _Node) -> Component:
    node.keys(
        ("name", "in", "fields", "set"),
        ("when", "flat", "optional", "kind", "scheduled", "cache", "fixed"),
    )
    return Component(
        name=node.text("name") or "",
        when=_condition(node.child("when")),
        sections=node.texts("in"),
        flat=node.flag("flat"),
        optional=node.flag("optional"),
        fields=node.text("fields") or "",
        kind=node.text("kind"),
        scheduled=node.flag("scheduled"),
        cache=node.flag("cache"),
        fixed=node.texts("fixed"),
        axes=node.mapping("set"),
    )


def _per_layer(node: _Node, words: Mapping[str, Word]) -> PerLayer:
    node.keys(("field", "without", "attention", "word"), ())
    word = node.text("word") or ""
    if word not in words:
        node.child("word").fault(f"no such kind of layer: {word}")
    return PerLayer(node.text("field") or "", node.text("without") or "", node.texts("attention"), word)


def _kv_cache(node: _Node) -> KVCache:
    node.keys(
        ("schemes", "per_head", "per_tensor", "attention_targets"),
        ("source", "algorithms"),
    )
    schemes = []
    for child in node.child("schemes").entries():
        child.keys(("type", "num_bits", "dtype"), ())
        schemes.append(
            Scheme(
                child.text("type") or "",
                child.number("num_bits", 0),
                child.text("dtype") or "",
            )
        )
    return KVCache(
        schemes=tuple(schemes),
        algorithms={name: str(value) for name, value in node.mapping("algorithms").items()},
        per_head=node.texts("per_head"),
        per_tensor=node.texts("per_tensor"),
        attention_targets=node.texts("attention_targets"),
    )


def _models(node: _Node, words: Mapping[str, Word]) -> Mapping[str, Model]:
    allowed = (
        "also", "defaults", "words", "schedules", "facts", "fields", "latent", "times", "note", "source",
    )  # fmt: skip
    models: dict[str, Model] = {}
    for name, child in node.items():
        child.keys((), allowed)
        renamed = child.mapping("words")
        for spelling, value in renamed.items():
            if str(value) not in words:
                child.child("words").child(spelling).fault(f"no such kind of layer: {value}")
        for spelling in (name, *child.texts("also")):
            if spelling in models:
                child.fault(f"{spelling} is described already, with {models[spelling].name}")
            models[spelling] = Model(
                name=spelling,
                defaults=child.mapping("defaults"),
                words={key: str(value) for key, value in renamed.items()},
                schedules=tuple(_schedule(entry, words) for entry in child.child("schedules").entries()),
                facts=tuple(_fact(entry) for entry in child.child("facts").entries()),
                fields=_names(child.child("fields")),
                latent=child.flag("latent", True),
                times=child.number("times", 1),
                note=child.text("note"),
            )
    return models
