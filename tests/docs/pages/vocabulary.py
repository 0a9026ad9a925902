"""`docs/reference/vocabulary.md`: every axis of the shipped vocabulary, and what each pack adds."""

from __future__ import annotations

from typing import Any

from selector.catalog import pack_names
from selector.schema_words import Axis, read_axes
from tests.docs.pages import MANIFESTS, manifest
from tests.docs.pages.markdown import code, escape, head, listed, literal, table

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """The page."""
    lines = head(
        "Vocabulary",
        "manifests/vocabulary.yaml and the packs' vocabulary.yaml",
        "Every axis that a request or a machine can have. What the types mean is in [the language](language.md#types-of-axes); "
        "[adding an axis](../howto-axis.md) is one entry of YAML. `attn-select schema axes NAME` shows one of them.",
    )
    base = manifest("vocabulary.yaml")
    axes = read_axes(base)
    groups = (
        ("The request", [a for a in axes.values() if a.of == "request" and not a.derived and not a.identity]),
        ("The candidate itself", [a for a in axes.values() if a.identity]),
        ("The machine", [a for a in axes.values() if a.of == "environment" and not a.derived]),
        ("Worked out from others", [a for a in axes.values() if a.derived]),
    )
    for title, members in groups:
        lines += [f"## {title}", ""]
        for axis in members:
            lines += _axis(axis, base["axes"][axis.name])
    for pack in pack_names(str(MANIFESTS)):
        if (MANIFESTS / pack / "vocabulary.yaml").is_file():
            lines += _pack(pack, base)
    return {"reference/vocabulary.md": "\n".join(lines).rstrip() + "\n"}


def _pack(pack: str, base: dict[str, Any]) -> list[str]:
    """What one pack's own vocabulary adds."""
    raw = manifest(f"{pack}/vocabulary.yaml")
    merged = {**base, "axes": {**base["axes"], **raw["axes"]}}
    axes = read_axes(merged)
    lines = [f"## Pack {pack}", ""]
    for name, entry in raw["axes"].items():
        if name in base["axes"]:
            lines += [f"### `{name}` in {pack}", "", "The axis of that name, with", ""]
            lines += _values(entry) + (
                [f"- further names: {listed(entry['aliases'])}"] if "aliases" in entry else []
            )
            lines.append("")
        else:
            lines += _axis(axes[name], entry)
    return lines


def _axis(axis: Axis, raw: dict[str, Any]) -> list[str]:
    """One axis under a heading that other pages can link to."""
    doc = escape(axis.description)
    return [f"### `{axis.name}`", "", doc[0].upper() + doc[1:], "", *_facts(axis, raw), ""]


def _facts(axis: Axis, raw: dict[str, Any]) -> list[str]:
    kind = f"- {axis.type} of the {axis.of}"
    if axis.minimum is not None or axis.maximum is not None:
        kind += f", {'' if axis.minimum is None else axis.minimum} to {'' if axis.maximum is None else axis.maximum}"
    lines = [kind]
    default = raw.get("default")
    if isinstance(default, dict):
        lines.append(f"- not given: the same as {code(default['same_as'])}")
    elif default is not None:
        lines.append(f"- not given: {code(literal(default))}")
    if not axis.derived:
        lines.append(
            f"- a candidate that does not declare it: {UNDECLARED.get(axis.undeclared, axis.undeclared)}"
        )
    if axis.aliases:
        lines.append(f"- other names: {listed(axis.aliases)}")
    for key, text in (
        ("applies_when", "has a meaning where"),
        ("variable", "read from the process variable"),
    ):
        if key in raw:
            lines.append(f"- {text} {code(literal(raw[key]))}")
    if "fix" in raw:
        lines.append(f"- changed by: {raw['fix']}")
    if "derive" in raw:
        lines.append(f"- worked out as {code(literal(raw['derive']))}")
    if "source" in raw:
        lines.append(
            f"- source: <{raw['source']}>"
            if raw["source"].startswith("http")
            else f"- source: {escape(raw['source'])}"
        )
    if axis.open:
        lines.append("- other values than these are admitted" if axis.values else "- any text")
    return lines + _values(raw)


UNDECLARED = {
    "an error": "lint refuses it",
    "false": "does not have it",
    "no limit": "takes any value",
    "no value": "refuses every value",
}


def _values(raw: dict[str, Any]) -> list[str]:
    """The values of a choice: a line where there is nothing to say of them, a table otherwise."""
    values = raw.get("values")
    if not values:
        return []
    entries = dict.fromkeys(values) if isinstance(values, list) else values
    if not any(entries.values()):
        return [f"- values: {listed(entries)}"]
    known = {name: entry or {} for name, entry in entries.items()}
    columns = [
        ("other spellings", "aliases", listed),
        ("tags", "tags", listed),
        ("meaning", "doc", escape),
    ]
    used = [column for column in columns if any(column[1] in entry for entry in known.values())]
    rows = [
        (code(name), *(show(entry[key]) if key in entry else "" for _, key, show in used))
        for name, entry in known.items()
    ]
    return ["", *table(("value", *(title for title, _, _ in used)), rows)][:-1]
