"""What an edit changes: the comparison names what both engines say differently, everywhere and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.analysis.changed import KINDS, Diff
from selector.analysis.diff import compare
from selector.analysis.witness import decide
from selector.catalog import Catalog

from .brute import compared
from .catalogs import small
from .edits import EDITS, applied

#: Too long for the suite: most of the pack is about the version of FlashAttention.
LONG = {"a derived axis changed"}
POINTS = 600


@pytest.fixture(scope="module")
def before() -> Catalog:
    return Catalog.load("vllm")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in EDITS])
def test_an_edit_changes_what_the_engines_say_changed(name: str, before: Catalog, tmp_path: Path) -> None:
    after = applied(name, tmp_path)
    diff = compare(before, after)
    assert diff.complete
    assert diff.changes
    for change in diff.changes:
        assert change.kind in KINDS
        for region in change.regions:
            request, environment = region.witness.request, region.witness.environment
            reports = [
                decide((request.within(c.vocabulary), environment), c).to_dict() for c in (before, after)
            ]
            assert reports[0] != reports[1], (change, region.condition)
    tally = compared(
        before, after, diff, POINTS, seed=2, batch=POINTS // (2 * sum(len(c.regions) for c in diff.changes))
    )
    assert [(key, request.to_dict(), which) for key, request, _, which in tally.wrong] == []
    assert tally.changed > 50
    assert tally.changed < POINTS
    assert tally.missed == 0  # no region is empty: the first round asks about every example


def test_a_pack_compared_with_itself_has_not_changed(before: Catalog) -> None:
    diff = compare(before, Catalog.load("vllm"))
    assert diff.changes == ()
    assert diff.notes == ()
    assert diff.complete


PACK = "policy: [{name: all, order: [a, b]}]\n"
A = "requires: {device: gpu}\nsupports: {size: {max: 256}, dtype: [f16, bf16]}\n"
B = "requires: {device: [cpu, gpu]}\nsupports: {dtype: any}\n"
WARNED = A + "rules: [{when: {size: 7}, warn: odd}]\n"
ADJUSTED = A + "adjust: [{when: {block: {max: 15}}, set: {block: 16}}]\n"


def changes(
    tmp_path: Path, old: dict[str, str], new: dict[str, str], pack: str = PACK, *, strict: bool = False
) -> Diff:
    before, after = small(tmp_path / "old", PACK, **old), small(tmp_path / "new", pack, **new)
    return compare(before, after, strict=strict)


def said(diff: Diff) -> list[tuple[str, str, str, str, list[str]]]:
    return [(c.kind, c.subject, c.old, c.new, [r.condition for r in c.regions]) for c in diff.changes]


def test_each_kind_of_change_is_told_in_its_own_words(tmp_path: Path) -> None:
    looser = said(changes(tmp_path / "1", {"a": A, "b": B}, {"a": A.replace("256", "512"), "b": B}))
    assert ("accepted", "a", "refused", "accepted", ["size 257 to 512"]) in looser
    assert ("winner", "b", "b", "a", ["size 257 to 512"]) in looser
    warned = said(changes(tmp_path / "2", {"a": A, "b": B}, {"a": WARNED, "b": B}))
    assert warned == [("warnings", "a", "none", "odd", ["size 7"])]
    adjusted = said(changes(tmp_path / "3", {"a": A, "b": B}, {"a": ADJUSTED, "b": B}))
    assert adjusted == [("adjustments", "a", "none", "block=16", ["block at most 15"])]
    order = "policy: [{name: all, order: [b, a]}]\n"
    swapped = said(changes(tmp_path / "4", {"a": A, "b": B}, {"a": A, "b": B}, order))
    assert swapped == [
        ("winner", "a", "a", "b", ["always"]),
        ("order", "a, b", "a before b", "b before a", ["always"]),
    ]
    closed = "unlisted: excluded\npolicy: [{name: all, order: [b]}]\n"
    reached = said(changes(tmp_path / "5", {"a": A, "b": B}, {"a": A, "b": B}, closed))
    assert ("reach", "a", "in the order", "only by name", ["always"]) in reached
    rule = "rules: [{when: {dtype: f8}, reject: not this}]\n"
    reasons = said(changes(tmp_path / "6", {"a": A, "b": B}, {"a": A + rule, "b": B}))
    assert reasons == [("reasons", "a", "not said", "not this", ["dtype f8"])]


def test_strict_selection_is_compared_apart(tmp_path: Path) -> None:
    """A warning that strict selection is to heed changes nothing else."""
    texts = {"a": WARNED, "b": B}, {"a": WARNED.replace("warn: odd", "warn: odd, strict: true"), "b": B}
    assert changes(tmp_path / "1", *texts).changes == ()
    strict = said(changes(tmp_path / "2", *texts, strict=True))
    assert ("winner", "a", "a", "b", ["size 7"]) in strict
    assert ("accepted", "a", "accepted", "refused", ["size 7"]) in strict


def test_what_only_one_side_has_is_noted(tmp_path: Path) -> None:
    diff = changes(tmp_path, {"a": A, "b": B}, {"a": A, "c": B}, PACK.replace("b]", "c]"))
    assert diff.notes == ("candidate b is gone", "candidate c is new")
    assert ("winner", "b", "b", "c") in [c[:4] for c in said(diff)]


def test_a_rule_about_a_derived_number_that_only_one_side_has(tmp_path: Path) -> None:
    rule = "rules: [{when: {gap: 8}, reject: no}]\n"
    policy = "policy: [{name: all, order: [a]}]\n"
    with_rule = small(tmp_path / "1", policy, a=A + rule)
    without = small(tmp_path / "2", policy, a=A)
    for old, new, kind in ((with_rule, without, "accepted"), (without, with_rule, "refused")):
        found = [c for c in compare(old, new).changes if c.kind == "accepted"]
        assert [(c.new, [r.condition for r in c.regions]) for c in found] == [(kind, ["gap 8"])]
