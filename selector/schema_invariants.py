"""The JSON Schema of a file of invariants: sentences that must hold of every request on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.schema_axes import TEXT, Schema
from selector.schema_parts import (
    CANDIDATE,
    CONDITION,
    DOC,
    NAME,
    NOTE,
    SOURCE,
    definitions,
    mapping,
    sequence,
)

if TYPE_CHECKING:
    from selector.schema_words import Axis

__all__ = ["invariants_schema"]


def invariants_schema(axes: dict[str, Axis]) -> Schema:
    """What `manifests/invariants.yaml` may say."""
    names: Schema = {
        **CANDIDATE,
        "type": ["string", "array"],
        "items": CANDIDATE,
        "minItems": 1,
        "description": "A candidate, a backend (all its variants), or a list of them.",
    }
    selected: Schema = {**names, "description": "Is chosen without anybody asking for it."}
    accepted: Schema = {**names, "description": "Accepts the request, so that it can be asked for."}
    never = mapping(
        {"selected": selected, "accepted": accepted},
        (),
        {"minProperties": 1, "description": "None of these candidates is selected, or accepts."},
    )
    always = mapping(
        {
            "some": {"const": "candidate", "description": "Something is selected."},
            "selected": {**names, "description": "One of these is selected."},
            "accepted": {**names, "description": "Each of these accepts."},
        },
        (),
        {"minProperties": 1, "description": "Something is selected; one of these is; each of these accepts."},
    )
    sentence = mapping(
        {
            "name": {**TEXT, "description": "The sentence in a few words."},
            "doc": DOC,
            "source": SOURCE,
            "note": NOTE,
            "packs": sequence(NAME, "The packs that it speaks of (default: every pack).", 1),
            "when": CONDITION,
            "facts": {
                "enum": ["known", "any"],
                "description": (
                    "known: only of machines of which every fact is known (what `always` assumes); any: of those with "
                    "unknown facts too (what `never` and `implies` assume)."
                ),
            },
            "strict": {
                "type": "boolean",
                "default": False,
                "description": "true: of strict selection, in which serious warnings refuse.",
            },
            "never": never,
            "always": always,
            "implies": CONDITION,
        },
        ["name"],
    )
    return mapping(
        {"invariants": sequence(sentence, "Sentences that must hold of every request on every machine.", 1)},
        ["invariants"],
        {"definitions": definitions(axes, "when")},
    )
