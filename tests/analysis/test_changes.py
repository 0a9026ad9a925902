"""Why not, exactly: sets that are known by hand, in words and in order. Random ones are tried one by one elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.analysis.changes import answers_text, exact
from selector.catalog import Catalog
from selector.environment import Environment
from selector.request import Request
from selector.selection import decide

from .catalogs import small

POLICY = "policy: [{name: all, order: [b, a]}]\n"
A = "requires: {device: gpu, packages: {lib: '>=3.0.0b1,<4'}}\nsupports: {size: {multiple_of: 8, max: 256}, dtype: [f16, bf16]}\n"
B = "requires: {device: any, packages: {other: any}}\nsupports: {size: {max: 128}, dtype: [f16, bf16, f8]}\n"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return small(tmp_path, POLICY, a=A, b=B)


def lines(catalog: Catalog, ident: str, packages: dict[str, str], **fields: object) -> list[str]:
    facts = {"device": "gpu", "cc": "9.0", "packages": packages}
    environment = Environment(facts, vocabulary=catalog.vocabulary)
    report = decide(Request(fields, vocabulary=catalog.vocabulary), catalog, environment, ())
    return list(answers_text(exact(report, ident), ident))


def test_a_package_is_said_as_the_manifest_limits_it(catalog: Catalog) -> None:
    assert lines(catalog, "a", {}, size=64, dtype="f16") == [
        "a works with one of these sets of changes:",
        "  - lib >=3.0.0b1,<4",
        "a is selected with one of these sets of changes:",
        "  - lib >=3.0.0b1,<4",
    ]
    # a pre-release is in the range, and one that is too old is not
    assert lines(catalog, "a", {"lib": "3.0.0rc1"}, size=64, dtype="f16")[0] == "a works as it is"
    assert lines(catalog, "a", {"lib": "3.0.0a1"}, size=64, dtype="f16")[1] == "  - lib >=3.0.0b1,<4"


def test_what_the_machine_can_change_stands_before_another_shape(catalog: Catalog) -> None:
    both = {"lib": "3.1", "other": "1"}
    assert lines(catalog, "a", both, size=64, dtype="f16") == [
        "a works as it is",
        "a is selected with one of these sets of changes:",
        "  - other not usable",
        "  or with another shape or kind of layer:",
        "  - size a multiple of 8 and 129 to 256",
    ]


def test_all_smallest_sets_and_no_larger_one(catalog: Catalog) -> None:
    assert lines(catalog, "a", {"lib": "2.0", "other": "1"}, size=64, dtype="f8") == [
        "a works with one of these sets of changes:",
        "  - dtype (f16 or bf16) and lib >=3.0.0b1,<4   (b is chosen)",
        "a is selected with one of these sets of changes:",
        "  - dtype (f16 or bf16) and lib >=3.0.0b1,<4 and other not usable",
        "  or with another shape or kind of layer:",
        "  - size (a multiple of 8 and 129 to 256) and dtype (f16 or bf16) and lib >=3.0.0b1,<4",
    ]


def test_another_machine_is_the_last_resort(catalog: Catalog) -> None:
    environment = Environment({"device": "cpu", "packages": {"lib": "3.1"}}, vocabulary=catalog.vocabulary)
    request = Request({"size": 64, "dtype": "f16"}, vocabulary=catalog.vocabulary)
    valid, _ = exact(decide(request, catalog, environment, ()), "a")
    assert valid.machine
    assert [s.names for s in valid.sets] == [("device",)]


def test_nothing_helps_a_candidate_that_refuses_everything(tmp_path: Path) -> None:
    catalog = small(tmp_path, POLICY, a=A + "rules: [{reject: not yet}]\n", b=B)
    assert lines(catalog, "a", {"lib": "3.1"}, size=64) == [
        "a works: no change makes it so",
        "a is selected: no change makes it so",
    ]


def test_nobody_is_told_to_leave_a_field_open(catalog: Catalog) -> None:
    found = "\n".join(lines(catalog, "b", {"other": "1"}, size=512, dtype="f4"))
    assert "open" not in found
    assert "size at most 128" in found
