"""Classes of values leave nothing out: every value lies in one, and nothing tells two of a class apart."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from selector.analysis.integers import cut
from selector.analysis.versions import named_versions, representatives
from selector.versions import contains

RELEASES = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda n: ".".join(map(str, n)))
SUFFIXES = st.sampled_from(
    [
        "",
        "",
        "",
        ".dev0",
        ".dev2",
        "a0",
        "b1",
        "rc1",
        "rc2",
        ".post0",
        ".post1",
        "+local",
        "rc1.post1",
        ".0.1",
    ]
)
VERSIONS = st.builds(lambda release, suffix: release + suffix, RELEASES, SUFFIXES)
NAMED = st.builds(
    lambda release, suffix: release + suffix,
    RELEASES,
    st.sampled_from(["", "", "rc1", ".dev0", ".post1", "b2"]),
)
CLAUSES = st.one_of(
    st.builds(lambda op, v: op + v, st.sampled_from([">=", "<=", ">", "<", "==", "!="]), NAMED),
    st.builds(lambda op, v: f"{op}{v}.*", st.sampled_from(["==", "!="]), RELEASES),
    st.builds(lambda v: f"~={v}.1", RELEASES),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(CLAUSES, min_size=1, max_size=2).map(",".join), min_size=1, max_size=4),
    st.lists(VERSIONS, max_size=20),
)
def test_every_version_answers_like_a_representative(specifiers: list[str], versions: list[str]) -> None:
    def answers(version: str) -> tuple[bool, ...]:
        return tuple(contains(s, version) for s in specifiers)

    known = {answers(text) for text, _ in representatives(named_versions(specifiers), answers)}
    for version in versions:
        assert answers(version) in known, version


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.none(), st.integers(-20, 20)),
    st.one_of(st.none(), st.integers(21, 300)),
    st.lists(st.integers(-25, 310), max_size=6),
    st.lists(st.integers(2, 12), max_size=4, unique=True),
)
def test_every_number_lies_in_one_piece(
    low: int | None, high: int | None, starts: list[int], moduli: list[int]
) -> None:
    pieces = cut(low, high, starts, moduli)
    for number in range(-60 if low is None else low, (330 if high is None else high) + 1):
        assert sum(p.holds(number) for p in pieces) == 1, number
    for piece in pieces:
        assert piece.holds(piece.example)
        assert all(piece.holds(n) for n in piece.members(5))
