"""Conditions in words are exact: read back, they hold of all values that they have to name and of none that is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from selector.analysis.classes import Class
from selector.analysis.describe import allowed_text, by_specifiers
from selector.analysis.facets import Facet, derived
from selector.analysis.integers import cut
from selector.analysis.space import Space
from selector.analysis.translate import Translation
from selector.analysis.versions import named_versions, representatives
from selector.catalog import Catalog
from selector.versions import contains
from selector.vocabulary import Vocabulary

from .test_classes import CLAUSES, VERSIONS


def taken(text: str, version: str) -> bool:
    """Whether the words for a class of versions hold of one."""
    return text == "any" or all(
        not contains(part[4:], version) if part.startswith("not ") else contains(part, version)
        for part in text.split(" and ")
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(CLAUSES, min_size=1, max_size=2).map(",".join), min_size=1, max_size=4, unique=True),
    st.lists(VERSIONS, max_size=12),
    st.randoms(use_true_random=False),
)
def test_versions_in_words(specifiers: list[str], versions: list[str], draw: Random) -> None:
    def answers(version: str) -> tuple[bool, ...]:
        return tuple(contains(s, version) for s in specifiers)

    found = representatives(named_versions(specifiers), answers)
    classes = {k: text for k, (text, _) in enumerate(found)}
    inside = {k for k in classes if draw.random() < 0.5} or {0}
    wanted = {k for k in inside if draw.random() < 0.7} or inside
    texts = by_specifiers(specifiers, classes, inside, wanted)
    where = {answers(text): k for k, text in classes.items()}
    for version in [*versions, *(v for _, members in found for v in members)]:
        k = where[answers(version)]
        said = any(taken(text, version) for text in texts)
        assert said or k not in wanted, (version, texts)
        assert not said or k in inside, (version, texts)


AXES = Vocabulary({"axes": {"size": {"type": "integer", "of": "request", "min": 1, "max": 300}}})
WORDS: list[tuple[str, Callable[[int, str], bool]]] = [
    (r"(\d+)", lambda n, a: n == int(a)),
    (r"a multiple of (\d+)", lambda n, a: n % int(a) == 0),
    (r"no multiple of (\d+)", lambda n, a: n % int(a) != 0),
    (r"at least (\d+)", lambda n, a: n >= int(a)),
    (r"at most (\d+)", lambda n, a: n <= int(a)),
]


def meets(text: str, number: int) -> bool:
    """Whether the words for numbers hold of one: alternatives, each of parts that all hold, in brackets."""
    if text in ("any", "given"):
        return True
    alternatives = []
    for piece in re.split(r" or |, ", text):
        assert piece.startswith("(") == piece.endswith(")"), text
        alternatives.append(piece.strip("()").split(" and "))
        assert len(alternatives[-1]) == 1 or text == piece or piece.startswith("("), text
    return any(all(_part(p, number) for p in parts) for parts in alternatives)


def _part(text: str, number: int) -> bool:
    span = re.fullmatch(r"(\d+) to (\d+)", text)
    if span is not None:
        return int(span[1]) <= number <= int(span[2])
    for pattern, holds in WORDS:
        match = re.fullmatch(pattern, text)
        if match is not None:
            return holds(number, match[1])
    raise AssertionError(text)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 300), max_size=4),
    st.lists(st.integers(2, 12), max_size=3, unique=True),
    st.randoms(use_true_random=False),
)
def test_one_range_of_numbers_in_words(starts: list[int], moduli: list[int], draw: Random) -> None:
    axis = AXES.by_name["size"]
    pieces = cut(axis.min, axis.max, starts, moduli)
    classes = tuple(Class("value", p.example, (p,)) for p in pieces)
    facet = Facet(axis, None, classes, tuple(range(2, len(classes) + 2)))
    wanted = frozenset({draw.randrange(len(classes))})
    inside = wanted | {k for k in range(len(classes)) if draw.random() < 0.4}
    text = allowed_text(facet, inside, wanted)
    for number in range(1, 301):
        k = next(k for k, p in enumerate(pieces) if p.holds(number))
        assert meets(text, number) or k not in wanted, (number, text)
        assert not meets(text, number) or k in inside, (number, text)


def test_a_ratio_is_at_least_one() -> None:
    """Of a derived number only what its operands allow is told."""
    program = Catalog.load("core").program
    found = {f.name: f for f in derived(Translation(Space([program]), program))}
    texts = {
        name: [
            allowed_text(found[name], frozenset({k}), frozenset({k})) for k in range(len(found[name].classes))
        ]
        for name in ("group_size", "group_remainder", "max_head_size")
    }
    assert {"1", "at least 2"} <= set(texts["group_size"])
    assert texts["max_head_size"][0] == "at most 128"  # not "1 to 128"
    assert not any("at most 0" in text or "-1" in text for found in texts.values() for text in found)
