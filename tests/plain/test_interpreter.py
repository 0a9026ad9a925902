"""Hand-written cases of inheritance, references, adjustments and policy, and of reading a pack from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from .interpreter import Catalog, Reason, decide, load_pack
from .loading import merge_vocabularies
from .small import GPU, ask, catalog, parse
from .strategies import Case, cases

VARIANTS = """
name: fa
requires: {cc: ">=8.0", packages: {torch: ">=2"}}
supports: {size: {max: 256}, sinks: false}
rules:
  - {when: {dtype: f4}, reject: all}
  - {when: {dtype: f8}, reject: two only, variants: [two]}
variants:
  - {name: three, extends: base, version: 3, supports: {sinks: true}, rules: [{when: {size: 3}, reject: own}]}
  - name: base
    abstract: true
    requires: {packages: {lib: any}}
    supports: {size: {max: 64}}
    rules: [{when: {size: 2}, reject: base}]
  - {name: two, version: 2, requires: {cc: "==9.*"}}
"""
WITH_LIB = GPU.replace("usable}", "usable}, lib: {version: '1', state: usable}")


def test_a_derived_axis_belongs_where_what_it_reads_does() -> None:
    axes = """
  here: {type: flag, derive: {when: {device: gpu}}}
  twice: {type: flag, derive: {when: {here: true}}}
  both: {type: flag, derive: {when: {device: gpu, size: {given: true}}}}
"""
    vocabulary = catalog(axes=axes).vocabulary
    assert [vocabulary.of(axis) for axis in ("here", "twice", "both")] == [
        "environment",
        "environment",
        "request",
    ]
    assert vocabulary.of("quantized") == "request"


def test_variants_inherit_an_axis_at_a_time_and_packages_by_name() -> None:
    asked = catalog(VARIANTS)
    assert ask(asked).ranked == ["fa/two"]
    assert [reason.axis for reason in ask(asked).rejected["fa/three"]] == ["packages"]
    assert ask(asked, environment=WITH_LIB).ranked == ["fa/three", "fa/two"]
    assert ask(asked, "size: 65", WITH_LIB).ranked == ["fa/two"]
    assert ask(asked, "sinks: true", WITH_LIB).ranked == ["fa/three"]
    assert ask(asked, "version: 2", WITH_LIB).ranked == ["fa/two"]
    assert ask(asked, "", WITH_LIB.replace('"9.0"', '"8.0"')).ranked == ["fa/three"]


def test_rules_merge_from_manifest_to_sibling_to_variant() -> None:
    asked = catalog(VARIANTS)
    assert ask(asked, "dtype: f4", WITH_LIB).ranked == []
    assert ask(asked, "dtype: f8", WITH_LIB).ranked == ["fa/three"]
    assert ask(asked, "size: 2", WITH_LIB).rejected == {"fa/three": [Reason("rule", "size", ("size",), 1, 2)]}
    assert ask(asked, "size: 3", WITH_LIB).rejected == {"fa/three": [Reason("rule", "size", ("size",), 2, 3)]}


def test_accepts_asks_another_candidate_even_an_abstract_one() -> None:
    asked = catalog(
        "{name: a, variants: [{name: v, abstract: true, supports: {size: 64}}, {name: w}]}",
        "{name: b, rules: [{when: {not: {accepts: a/v}}, reject: needs it}]}",
        "{name: c, rules: [{require: {accepts: [a/v, b]}, reject: needs both, axis: size}]}",
        "{name: d, rules: [{when: {accepts: b}, reject: not beside b}]}",
    )
    assert ask(asked, "size: 64").ranked == ["a/w", "b", "c"]
    assert ask(asked, "size: 65").ranked == ["a/w", "d"]
    assert ask(asked).ranked == ["a/w", "b", "c"]
    assert ask(asked, "size: 65").rejected["c"] == [Reason("rule", "size", ("size",), 0, 65)]


def test_cycles_are_refused() -> None:
    asked = catalog(
        "{name: a, rules: [{when: {accepts: b}, reject: x}]}",
        "{name: b, rules: [{when: {accepts: a}, reject: x}]}",
    )
    with pytest.raises(ValueError, match="a -> b -> a"):
        ask(asked)
    with pytest.raises(ValueError, match="cycle"):
        catalog("{name: a, variants: [{name: v, extends: w}, {name: w, extends: v}]}")


ADJUST = """
name: x
supports: {block: [16, 64]}
adjust:
  - {when: {dtype: f16}, set: {block: 64}}
  - {when: {block: 64}, set: {size: 8}}
rules: [{when: {even: 16}, reject: derived}]
"""


def test_adjust_changes_the_request_in_order_and_derives_again() -> None:
    asked = catalog(ADJUST, axes="  even: {type: integer, derive: {sum: [size, size]}, undeclared: any}\n")
    changed = ask(asked, "dtype: f16, block: 48, size: 7")
    assert changed.rejected == {"x": [Reason("rule", "even", ("even",), 0, 16)]}
    assert changed.values["even"] == 14
    assert ask(asked, "dtype: f32, block: 48").rejected["x"][0].axis == "block"
    assert ask(asked, "dtype: f32, block: 16, size: 8").ranked == []
    plain = ask(asked, "block: 16")
    assert (plain.ranked, plain.adjusted) == (["x"], {})  # an open dtype does not adjust


def test_strict_refuses_a_change_but_not_a_filling() -> None:
    asked = catalog("{name: x, adjust: [{when: {dtype: f16}, set: {block: 64}}]}")
    assert ask(asked, "dtype: f16, block: 16").adjusted == {"x": {"set": {"block": 64}}}
    assert ask(asked, "dtype: f16, block: 64").adjusted == {}
    assert ask(asked, "dtype: f16", strict=True).adjusted == {"x": {"set": {"block": 64}}}
    assert ask(asked, "dtype: f16, block: 64", strict=True).ranked == ["x"]
    refused = ask(asked, "dtype: f16, block: 16", strict=True)
    assert refused.rejected == {"x": [Reason("adjustment", "block", ("block",), -1, 16)]}


def test_use_asks_the_other_candidate_too() -> None:
    asked = catalog(
        "{name: x, supports: {block: 1}, adjust: [{when: {dtype: f16}, set: {block: 1}, use: y}]}",
        "{name: y, supports: {size: 8, block: [1, 2]}}",
    )
    used = ask(asked, "dtype: f16, size: 8, block: 2")
    assert used.ranked == ["x", "y"]
    assert used.adjusted == {"x": {"set": {"block": 1}, "use": "y"}}
    refused = ask(asked, "dtype: f16, size: 9")
    assert refused.rejected["x"] == [Reason("adjustment", "", (), 0, "y")]
    assert ask(asked, "dtype: f16, size: 8", strict=True).ranked == ["y"]


POLICY = """
unlisted: excluded
policy:
  - {name: big, when: {size: {min: 100}}, order: [c, a/w, a]}
  - name: small
    when: {size: {max: 10}}
    unlisted: last
    order: [{candidate: c, when: {dtype: f16}}, {candidate: b, unless: {dtype: f16}}, a/w]
  - {name: other, when: {cc: ">=8"}, order: [b, a, b, a/v]}
"""
THREE = ("{name: a, variants: [{name: v}, {name: h, abstract: true}, {name: w}]}", "{name: b}", "{name: c}")


@pytest.mark.parametrize(
    ("request_", "environment", "rule", "ranked", "excluded"),
    [
        ("size: 100", GPU, "big", ["c", "a/w", "a/v"], ["b"]),
        ("size: 1, dtype: f16", GPU, "small", ["c", "a/w", "a/v", "b"], []),
        ("size: 1, dtype: f32", GPU, "small", ["b", "a/w", "a/v", "c"], []),
        ("size: 1", GPU, "small", ["a/w", "a/v", "b", "c"], []),  # open: neither entry holds
        ("", GPU, "other", ["b", "a/v", "a/w"], ["c"]),
        ("", "device: gpu", None, [], ["a/v", "a/w", "b", "c"]),  # unknown: the rule does not apply
    ],
)
def test_policy(
    request_: str, environment: str, rule: str | None, ranked: list[str], excluded: list[str]
) -> None:
    found = ask(catalog(*THREE, pack=POLICY), request_, environment)
    assert (found.policy_rule, found.ranked, found.excluded) == (rule, ranked, excluded)


def test_without_a_policy_the_catalog_gives_the_order() -> None:
    assert ask(catalog(*THREE)).ranked == ["a/v", "a/w", "b", "c"]


def test_a_pin_leaves_one_backend_and_overrides_an_exclusion() -> None:
    asked = catalog(*THREE, "{name: d, supports: {size: 1}}", pack=POLICY)
    assert ask(asked, "size: 100", backend="b").ranked == ["b"]
    assert ask(asked, "size: 100", backend="a").ranked == ["a/w", "a/v"]
    assert ask(asked, "size: 100", backend="a/v").ranked == ["a/v"]
    pinned = ask(asked, "size: 100", backend="d")
    assert (pinned.ranked, pinned.excluded, list(pinned.rejected)) == ([], [], ["d"])
    for name in ("e", "a/h"):
        with pytest.raises(ValueError, match="no candidate"):
            ask(asked, backend=name)


@pytest.mark.parametrize(
    ("request_", "environment"),
    [("sise: 1", GPU), ("quantized: true", GPU), ("device: gpu", GPU), ("dtype: f17", GPU), ("", "size: 1")],
)
def test_a_question_outside_the_vocabulary_is_an_error(request_: str, environment: str) -> None:
    with pytest.raises(ValueError, match=r"axis|derived|belong|cannot be"):
        ask(catalog("{name: x}"), request_, environment)


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "[on, yes, No, true, 010, 1.5, 9.10, '9.0', 2024-01-01, ~, null, 0x10, -3]"
    expected = ["on", "yes", "No", True, 10, 1.5, 9.1, "9.0", "2024-01-01", None, None, "0x10", -3]
    assert parse(text) == expected


def test_a_pack_is_read_in_order_of_file_names_with_its_own_vocabulary(tmp_path: Path) -> None:
    files = {
        "vocabulary.yaml": "{vocabulary: 1, axes: {size: {type: integer}, c: {type: choice, values: [a]}}}",
        "p/vocabulary.yaml": "{axes: {extra: {type: flag}, c: {values: {b: {tags: [t]}}}}}",
        "p/pack.yaml": "{pack: 1, name: p}",
        "p/zz.yaml": "{manifest: 1, name: first}",
        "p/b.yaml": "{manifest: 1, name: second, supports: {extra: true, c: b}}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    asked = load_pack(tmp_path, "p")
    assert decide(asked, {}, {}).ranked == ["second", "first"]
    assert decide(asked, {"extra": True, "c": "b"}, {}).ranked == ["second"]


def test_merging_vocabularies_leaves_the_base_alone() -> None:
    base = {"axes": {"c": {"type": "choice", "values": ["a"], "aliases": ["x"]}}}
    merged = merge_vocabularies(base, {"axes": {"c": {"values": ["b"], "aliases": ["y"], "default": "a"}}})
    assert list(merged["axes"]["c"]["values"]) == ["a", "b"]
    assert merged["axes"]["c"]["aliases"] == ["x", "y"]
    assert merged["axes"]["c"]["default"] == "a"
    assert base["axes"]["c"]["values"] == ["a"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(cases())
def test_every_candidate_of_a_random_catalog_has_one_place(case: Case) -> None:
    asked = Catalog(case.vocabulary, case.pack, case.manifests)
    for question in case.questions:
        found = decide(asked, question.request, question.environment, strict=question.strict)
        placed = [*found.ranked, *found.excluded, *found.rejected]
        listed = [candidate.id for candidate in asked.candidates.values() if not candidate.abstract]
        assert sorted(placed) == sorted(listed)
        assert all(found.rejected.values())
        assert set(found.values) == set(case.vocabulary["axes"])
