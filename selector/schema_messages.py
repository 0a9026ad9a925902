"""What a validator's error means, in words: one function a keyword, in one table.

A message says what was asked and what is allowed; a hint is added only where it applies. The annotations that
these functions read (`x-values`, `x-aliases`, ...) are described in `selector.schema_axes`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jsonschema.exceptions import ValidationError

    from selector.yaml_loader import Document, Path

__all__ = ["Finding", "explain", "nearest"]

#: Words that a message lists before it only counts.
LISTED = 8
#: Keys of a mapping that are listed in full where an unknown one resembles none; more are no help.
_FEW = 20


class Finding(NamedTuple):
    """One mistake: where, whether its key or its value is meant, what, what to do, and the key in question.

    `word` is the missing key, or the key that an unknown one was probably meant to be: the two are one mistake.
    """

    path: Path
    key: bool
    message: str
    hint: str | None = None
    word: str | None = None
    missing: bool = False


class Broken(NamedTuple):
    """A keyword of a schema that a part of a document does not satisfy."""

    path: Path
    keyword: str
    wanted: Any  # the keyword's value: JSON data
    value: Any  # the part of the document: JSON data
    schema: Mapping[str, Any]  # the subschema that the keyword stands in
    message: str  # the validator's own


def explain(error: ValidationError, document: Document) -> Iterator[Finding]:
    """The mistakes behind one error of the validator."""
    schema = error.schema if isinstance(error.schema, dict) else {}
    broken = Broken(
        tuple(error.absolute_path),
        str(error.validator),
        error.validator_value,
        error.instance,
        schema,
        error.message,
    )
    if broken.keyword in _EXPLAIN:
        yield from _EXPLAIN[broken.keyword](broken, document)
    else:  # a keyword that no schema of this package uses
        yield Finding(broken.path, False, broken.message[:200])


def nearest(word: str, known: Iterable[str], aliases: Mapping[str, str] | None = None) -> str | None:
    """The canonical word closest to `word` among `known` and `aliases` (alias to canonical), if one is close."""
    from difflib import get_close_matches

    table = {alias.lower(): canonical for alias, canonical in (aliases or {}).items()}
    table.update((known_word.lower(), known_word) for known_word in known)
    found = get_close_matches(word[:100].lower(), table, n=1, cutoff=0.6)
    return table[found[0]] if found else None


def listed(words: Iterable[object], limit: int = LISTED) -> str:
    """`a, b or c`; from `limit` words on the first few and how many there are."""
    items = [shown(word) if not isinstance(word, str) else word for word in words]
    if len(items) > limit:
        return f"{', '.join(items[: limit - 2])}, ... ({len(items)} in all)"
    return " or ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def shown(value: object) -> str:
    """A value as the file has it, cut to a bearable length."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _subject(path: Path) -> str:
    """What a message calls the place: the last key, with the position in a list behind it."""
    for at in range(len(path) - 1, -1, -1):
        if isinstance(path[at], str):
            return f"{path[at]}: "
    return ""


# -- types and values -----------------------------------------------------------------------------------------------

_TYPE_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_TRUTH = {
    **dict.fromkeys(("yes", "on", "y", "1", "true"), "true"),
    **dict.fromkeys(("no", "off", "n", "0", "false"), "false"),
}


def _type(broken: Broken, document: Document) -> Iterator[Finding]:
    wanted = broken.wanted if isinstance(broken.wanted, list) else [broken.wanted]
    kind = broken.schema.get("x-kind", "")
    words = {**_TYPE_WORDS, "array" if kind == "pair" else "string": _KINDS.get(kind, "text")}
    expected = listed(words[name] for name in wanted if name != "null")
    value = broken.value
    hint = None
    if type(value) in (int, float) and "string" in wanted:
        if "then" not in broken.schema:  # of a closed set of words none is a number
            hint = f'quote it: "{_as_written(document, broken.path, value)}"'
    elif isinstance(value, float) and "integer" in wanted and value.is_integer():
        hint = f"write {int(value)}"
    elif isinstance(value, str) and "integer" in wanted and re.fullmatch(r"[-+]?[0-9]+", value):
        hint = f"remove the quotes: {value}"
    elif "boolean" in wanted:
        hint = _truth_hint(value)
    elif wanted == ["array"] and kind != "pair" and isinstance(value, (str, int, float)):
        hint = f"write a list: [{_bare(value)[:60]}]"
    yield Finding(broken.path, False, f"{_subject(broken.path)}expected {expected}, not {shown(value)}", hint)


def _bare(value: object) -> str:
    return value if isinstance(value, str) else shown(value)


def _as_written(document: Document, path: Path, value: object) -> str:
    """A number with the digits of the file: the value of `9.10` is 9.1."""
    at = document.mark(path)
    found = re.match(r"[-+.0-9eE]+", document.line(at.line)[at.column - 1 :])
    return found.group() if found else str(value)


def _truth_hint(value: object) -> str | None:
    word = _TRUTH.get(_bare(value).lower())
    return f"write {word}" if word else None


def _enum(broken: Broken, document: Document) -> Iterator[Finding]:
    allowed = [word for word in broken.schema.get("x-values", broken.wanted) if word is not None]
    value = broken.value
    hint = _truth_hint(value) if True in allowed else None
    if hint is None and isinstance(value, str):
        words = [word for word in allowed if isinstance(word, str)]
        near = nearest(value, words, broken.schema.get("x-aliases"))
        hint = f"did you mean {near}?" if near else None
    message = f"{_subject(broken.path)}{shown(value)} is not one of {listed(allowed)}"
    yield Finding(broken.path, False, message, hint)


def _const(broken: Broken, document: Document) -> Iterator[Finding]:
    wanted = shown(broken.wanted)
    yield Finding(broken.path, False, f"{_subject(broken.path)}expected {wanted}, not {shown(broken.value)}")


#: What a `pattern` stands for.
_KINDS = {
    "specifier": 'a version specifier such as ">=8.0,<9" or "==9.*"',
    "requirement": 'a version specifier such as ">=2.6,<3", any or absent',
    "version": 'a version such as "9.0"',
    "name": "a name of letters, digits and . _ + -",
    "candidate": "backend or backend/variant",
    "module": "a module such as package.module",
    "word": "a word of small letters, digits and _",
    "variable": "the name of a process variable",
    "package": "the name of a package",
    "pair": "two whole numbers",
}
_SLIPS = (("=>", ">="), ("=<", "<="), ("= ", "=="), ("=", "=="))


def _pattern(broken: Broken, document: Document) -> Iterator[Finding]:
    kind = str(broken.schema.get("x-kind"))
    expected = _KINDS.get(kind, f"text like {broken.wanted}")
    hint = None
    if kind in ("specifier", "requirement", "version"):
        hint = _version_hint(str(broken.value), str(broken.wanted))
    yield Finding(
        broken.path, False, f"{_subject(broken.path)}expected {expected}, not {shown(broken.value)}", hint
    )


def _version_hint(value: str, pattern: str) -> str | None:
    """The specifier that was probably meant, if turning one slip round gives one."""
    text = value.strip()
    tries = [
        new + text[len(old) :].strip() for old, new in _SLIPS if text.startswith(old) and text[:2] != "=="
    ]
    if text.endswith("+"):
        tries.append(f">={text[:-1]}")
    tries += [text, text.lstrip("vV")]
    for attempt in tries:
        if attempt != value and len(attempt) <= 60 and re.search(pattern, attempt):
            return f'did you mean "{attempt}"?'
    return None


# -- numbers and sizes ----------------------------------------------------------------------------------------------


def _bound(broken: Broken, document: Document) -> Iterator[Finding]:
    words = "at least" if broken.keyword == "minimum" else "at most"
    yield Finding(
        broken.path,
        False,
        f"{_subject(broken.path)}{shown(broken.value)}, and {words} {broken.wanted} makes sense",
    )


def _size(broken: Broken, document: Document) -> Iterator[Finding]:
    kind = broken.schema.get("x-kind")
    keys = list(broken.value) if isinstance(broken.value, dict) else []
    if kind == "pair":
        message = f"expected {_KINDS[kind]}, not a list of {len(broken.value)}"
    elif kind == "alone":
        message = f"given stands alone, not with {listed(key for key in keys if key != 'given')}"
    elif kind == "operator" and keys:
        message = f"expected one operator, not {listed(keys)} together"
    elif isinstance(broken.value, str):
        message = "the text is empty"
    elif broken.keyword.startswith("min") and not broken.value:
        message = f"{shown(broken.value)} with nothing in it"
    else:
        bound = "at least" if broken.keyword.startswith("min") else "at most"
        message = f"expected {bound} {broken.wanted} entries, not {len(broken.value)}"
    yield Finding(broken.path, False, _subject(broken.path) + message)


# -- keys -----------------------------------------------------------------------------------------------------------


def _unknown(broken: Broken, document: Document) -> Iterator[Finding]:
    schema = broken.schema
    properties = schema.get("properties", {})
    names = list(schema.get("x-names", properties))
    patterns = [re.compile(pattern) for pattern in schema.get("patternProperties", {})]
    for key in broken.value:
        if key in properties or any(pattern.search(key) for pattern in patterns):
            continue
        where = f" in {_subject(broken.path)[:-2]}" if _subject(broken.path) else ""
        kind = schema.get("x-kind")
        if patterns and kind in _KINDS:
            comparison = kind == "package" and key[:1] in "<>=!~"
            hint = (
                "quote the whole specifier: inside braces a comma ends unquoted text" if comparison else None
            )
            yield Finding(
                (*broken.path, key),
                True,
                f"{_subject(broken.path)}expected {_KINDS[kind]}, not {shown(key)}",
                hint,
            )
            continue
        hint, word = _key_hint(key, names, schema)
        if hint is None:
            hint = f"known here: {listed(names, _FEW)}" if 0 < len(names) <= _FEW else None
        yield Finding((*broken.path, key), True, f"unknown key {shown(key)[1:-1]}{where}", hint, word)


def _key_hint(key: str, known: list[str], schema: Mapping[str, object]) -> tuple[str | None, str | None]:
    """Advice for an unknown key, and the key that it stands for."""
    aliases, elsewhere = schema.get("x-aliases"), schema.get("x-elsewhere")
    aliases = aliases if isinstance(aliases, dict) else {}
    elsewhere = elsewhere if isinstance(elsewhere, dict) else {}
    if key in aliases:
        return f"it is called {aliases[key]} here", aliases[key]
    if key in elsewhere:
        return f"{key} belongs under {elsewhere[key]}", None
    near = nearest(key, known, aliases)
    if near is not None:
        return f"did you mean {near}?", near
    near = nearest(key, elsewhere)
    return (f"did you mean {near}? It belongs under {elsewhere[near]}", None) if near else (None, None)


def _required(broken: Broken, document: Document) -> Iterator[Finding]:
    # The validator yields one error for each missing key, and names it only in its text.
    for key in broken.wanted:
        if key not in broken.value and broken.message.startswith(f"{key!r} "):
            rule = broken.schema.get("properties", {}).get(key)
            fixed = rule.get("const") if isinstance(rule, dict) else None
            hint = f"write {key}: {shown(fixed)}" if fixed is not None else None
            yield Finding(
                broken.path, False, f"{_subject(broken.path)}{key} is missing", hint, key, missing=True
            )


def _dependencies(broken: Broken, document: Document) -> Iterator[Finding]:
    for key, needs in broken.wanted.items():
        if key in broken.value and isinstance(needs, list):
            for needed in needs:
                if needed not in broken.value:
                    yield Finding((*broken.path, key), True, f"{key} has no meaning without {needed}")


def _not(broken: Broken, document: Document) -> Iterator[Finding]:
    reason = broken.schema.get("x-reason", "it has no meaning here")
    yield Finding(broken.path, True, f"{_subject(broken.path)}{reason}")


_EXPLAIN: dict[str, Callable[[Broken, Document], Iterator[Finding]]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "pattern": _pattern,
    "minimum": _bound,
    "maximum": _bound,
    "minLength": _size,
    "minItems": _size,
    "maxItems": _size,
    "minProperties": _size,
    "maxProperties": _size,
    "additionalProperties": _unknown,
    "required": _required,
    "dependencies": _dependencies,
    "not": _not,
}
