"""JSON Schemas as Markdown: what each key takes and means, mapping by mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.docs.pages.markdown import code, escape, literal, table

__all__ = ["Walker"]

#: What stands behind a pattern.
KINDS = {
    "name": "a name",
    "candidate": "a candidate",
    "module": "a module",
    "word": "a word",
    "variable": "a process variable",
    "version": "a version",
    "specifier": "a specifier",
}
TYPES = {
    "string": "text",
    "integer": "a number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "a mapping",
}
PLURALS = {
    "text": "texts",
    "a name": "names",
    "a candidate": "candidates",
    "an axis": "axes",
    "a number": "numbers",
}
#: What a condition is for, where the schema says no more than that it is one.
CONDITIONS = {
    "when": "Only where this holds.",
    "unless": "Not where this holds.",
    "require": "What must hold as well.",
    "until": "Not where this holds: what repairs it.",
    "implies": "What holds then.",
}
#: A mapping with more keys than this, all of the same form, is shown as one line.
MANY = 8


class Walker:
    """The mappings of one schema, each a table of keys under a heading of its own.

    ``names`` maps a definition to the Markdown that stands for it instead of its own table; ``forms`` says what a mapping by
    axis takes (`limit`, `when` and `value`).
    """

    def __init__(self, schema: Mapping[str, Any], names: Mapping[str, str], forms: Mapping[str, str]) -> None:
        self.schema, self.names, self.forms = schema, names, forms
        self.waiting: list[tuple[str, Mapping[str, Any]]] = []
        self.shown: list[Mapping[str, Any]] = []

    def lines(self, level: int, top: str) -> Iterator[str]:
        """The tables: the schema's own keys, then those of every mapping inside it."""
        yield from self.keys(self.schema)
        while self.waiting:
            title, part = self.waiting.pop(0)
            yield from ["#" * level + f" {title} of {top}", ""]
            if part.get("description"):
                yield from [escape(part["description"]), ""]
            yield from self.keys(part)

    def keys(self, part: Mapping[str, Any]) -> list[str]:
        """One mapping as a table."""
        self.shown.append(part)
        needed = part.get("required", ())
        if len(needed) == len(part["properties"]) > 1:
            needed = ()  # nothing to tell apart
        rows, folded = [], []
        for key, sub in part["properties"].items():
            if sub.get("$ref", "").startswith("#/definitions/limit."):
                folded.append(key)
                continue
            sub = self.resolve(sub, keep=True)
            default = (
                f" Default: {code(literal(sub['default']))}."
                if "default" in sub and key not in needed
                else ""
            )
            star = " (required)" if key in needed else ""
            text = self.resolve(sub).get("description", "")
            if sub.get("$ref") == "#/definitions/condition":
                text = CONDITIONS[key]
            text = escape(text) + default
            rows.append((code(key) + star, self.takes(sub, key), text))
        if folded:
            axes = ", ".join(code(key) for key in folded)
            rows.append((axes, self.forms["limit"], "An axis that is a property of the candidate itself."))
        return table(("key", "takes", "meaning"), rows)

    def resolve(self, part: Mapping[str, Any], keep: bool = False) -> Mapping[str, Any]:
        """What a reference stands for; with ``keep`` references that have a name are left as they are."""
        while "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if keep and name in self.names:
                return part
            part = {**self.schema["definitions"][name], **{k: v for k, v in part.items() if k != "$ref"}}
        return part

    def takes(self, part: Mapping[str, Any], key: str) -> str:
        """What a value may be, in a few words of Markdown."""
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if name in self.names:
                return self.names[name]
            return self.takes(self.resolve(part), key)
        if "const" in part:
            return code(literal(part["const"]))
        if "enum" in part:
            if part["enum"] == part.get("x-values") and "x-aliases" not in part and len(part["enum"]) >= MANY:
                return "an axis"
            return ", ".join(code(literal(value)) for value in part["enum"])
        if "allOf" in part and "properties" not in part and all("$ref" in p for p in part["allOf"]):
            return self.takes(part["allOf"][0], key)
        kinds = part.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        if not kinds and "else" in part:
            return f"{code(literal(part['if']['const']))} or {self.takes(part['else'], key)}"
        return " or ".join(dict.fromkeys(self.kind(kind, part, key) for kind in kinds))

    def kind(self, kind: str, part: Mapping[str, Any], key: str) -> str:
        """What a value of one JSON type may be."""
        if kind == "array":
            if not isinstance(part.get("items"), Mapping) or not part["items"]:
                return "a list"
            inner = self.takes(part["items"], key)
            return "a list of " + " or ".join(_plural(word) for word in inner.split(" or "))
        if kind == "object" and (
            "properties" in part or "additionalProperties" in part or "patternProperties" in part
        ):
            return self.mapping(part, key)
        if kind == "string" and "enum" in part.get("then", {}):
            return self.takes(part["then"], key)
        if kind == "string" and "x-kind" in part:
            return KINDS.get(part["x-kind"], TYPES[kind])
        return TYPES[kind]

    def mapping(self, part: Mapping[str, Any], key: str) -> str:
        """A mapping: by axis, by name, or with a table of its own further down."""
        entries = part.get("properties")
        if not entries:
            patterns = list(part.get("patternProperties", {}).values())
            entry = patterns[0] if patterns else part["additionalProperties"]
            return f"name: {self.takes(entry, key).removesuffix(' or null')}"
        references = {
            v.get("$ref", "").removeprefix("#/definitions/").partition(".")[0] for v in entries.values()
        }
        if len(references) == 1 and references & self.forms.keys():
            return f"axis: {self.forms[references.pop()]}"
        shapes = [{k: v for k, v in sub.items() if k != "description"} for sub in entries.values()]
        if len(shapes) > MANY and all(shape == shapes[0] for shape in shapes):
            return f"axis: {self.takes(shapes[0], key)}"
        if set(entries) <= {"after", "before"}:
            return "{after: text, before: text}"
        if part not in self.shown and all(part != known for _, known in self.waiting):
            self.waiting.append((code(key), part))
        return f"[mapping](#{key}-of-{self.top})"

    top = "file"


def _plural(word: str) -> str:
    """Several of what a word of `takes` stands for."""
    return word.replace("[mapping]", "[mappings]") if word.startswith("[") else PLURALS.get(word, word)
