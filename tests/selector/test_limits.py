"""Manifests and packs at the limits of the language: read quickly, and beyond them refused with a place; see docs/language.md."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selector import Catalog, ManifestError, explain
from selector.conditions import MAX_PARTS
from selector.loader import ADJUSTING, LONGEST, UNKNOWN
from selector.manifest import MAX_ADJUST, MAX_COMPARISONS, MAX_RULES, MAX_VARIANTS
from selector.yaml_loader import MAX_BYTES, MAX_DEPTH
from tests.fuzz.common import REQUEST

LIMITS = Path(__file__).resolve().parents[2] / "docs" / "language.md"
Entries = list[dict[str, Any]]


def load(folder: Path, **manifest: Any) -> Catalog:
    """A pack of one manifest, JSON being YAML."""
    whole = {"manifest": 1, "name": "m", "requires": {"device": "any"}, **manifest}
    whole.setdefault("supports", {"dtype": "any", "head_size": "any"})
    (folder / "pack.yaml").write_text("pack: 1\nname: p\n", encoding="utf-8")
    (folder / "m.yaml").write_text(json.dumps(whole, indent=0), encoding="utf-8")
    return Catalog.load(str(folder))


def refused(folder: Path, **manifest: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        load(folder, **manifest)
    fault = caught.value.faults[0]
    assert fault.at.line > 1
    return fault.message


def conditions(count: int) -> Entries:
    return [{"rules": [{"when": {"any": [{"head_size": i + 1} for i in range(count)]}, "reject": "no"}]}]


def rules(count: int) -> Entries:
    return [{"rules": [{"when": {"head_size": i % 60_000 + 1}, "reject": "no"} for i in range(count)]}]


def adjustments(count: int) -> Entries:
    chain = [{"when": {"block_size": i + 1}, "set": {"block_size": i + 2}} for i in range(count)]
    return [{"adjust": chain}]


def variants(count: int) -> Entries:
    """The last extends nobody, each before it the next one."""
    named: Entries = [{"name": f"v{i}", "extends": f"v{i + 1}"} for i in range(count)]
    del named[-1]["extends"]
    return [{"variants": named}]


def chain(count: int, link: Callable[[str], dict[str, Any]]) -> Entries:
    named = [{"name": f"v{i}", **link(f"m/v{i + 1}")} for i in range(count)]
    return [{"variants": [*named, {"name": f"v{count}"}]}]


def asking(name: str) -> dict[str, Any]:
    return {"rules": [{"require": {"accepts": name}, "reject": "no"}]}


def using(name: str) -> dict[str, Any]:
    return {"adjust": [{"use": name}]}


def both(name: str) -> dict[str, Any]:
    return {**asking(name), "adjust": [{"set": {"block_size": 16}}]}


@pytest.mark.parametrize(
    ("make", "limit", "message"),
    [
        (conditions, MAX_PARTS, f"any of {MAX_PARTS + 1} conditions, and at most {MAX_PARTS} are read"),
        (rules, 2_000, None),
        (adjustments, MAX_ADJUST, f"m has {MAX_ADJUST + 1} adjustments, and at most {MAX_ADJUST} are read"),
        (variants, MAX_VARIANTS, f"{MAX_VARIANTS + 1} variants, and at most {MAX_VARIANTS} are read"),
        (lambda n: chain(n, asking), LONGEST, f"m/v0 refers to a candidate that refers to another, and so on: "
                                              f"more than {LONGEST} in a row"),
        (lambda n: chain(n, using), LONGEST, f"m/v0 refers to a candidate that refers to another, and so on: "
                                             f"more than {LONGEST} in a row"),
        (lambda n: chain(n, both), ADJUSTING, f"m/v0 adjusts requests and asks one that does so too, and so on: "
                                              f"more than {ADJUSTING} in a row"),
    ],
    ids=["any", "rules", "adjust", "extends", "accepts", "use", "adjust-and-accepts"],
)  # fmt: skip
def test_at_and_beyond_the_limit(
    make: Callable[[int], Entries], limit: int, message: str | None, tmp_path: Path
) -> None:
    began = time.process_time()
    catalog = load(tmp_path, **make(limit)[0])
    report = explain({**REQUEST, "block_size": 1}, environment="h100", catalog=catalog)
    report.to_text()
    report.to_dict()
    assert time.process_time() - began < 6  # under 1.5 s measured, each
    if message is not None:
        began = time.process_time()
        assert refused(tmp_path, **make(limit + 1)[0]) == message
        assert time.process_time() - began < 2


def test_rules_of_all_variants_together(tmp_path: Path) -> None:
    named = [{"name": f"v{i}"} for i in range(100)]
    more = MAX_RULES // 100 + 1
    assert (
        refused(tmp_path, **rules(more)[0], variants=named)
        == f"{more * 100} rules in all variants together, and at most {MAX_RULES} are read"
    )


def test_comparisons_of_all_rules_together(tmp_path: Path) -> None:
    def alike(count: int) -> Entries:
        left = conditions(MAX_PARTS)[0]["rules"] * (count // MAX_PARTS)
        return left + rules(count % MAX_PARTS)[0]["rules"]  # type: ignore[no-any-return]

    load(tmp_path, rules=alike(MAX_COMPARISONS))
    message = f"{MAX_COMPARISONS + 1} comparisons in its rules, and at most {MAX_COMPARISONS} are read"
    assert refused(tmp_path, rules=alike(MAX_COMPARISONS + 1)) == message


def test_many_that_adjust_and_are_asked_about(tmp_path: Path) -> None:
    """Each is judged for itself: their number does not multiply."""
    pairs: Entries = []
    for i in range(60):
        pairs.append({"name": f"a{i}", "adjust": [{"set": {"block_size": i + 1}}]})
        pairs.append({"name": f"b{i}", **asking(f"m/a{i}")})
    began = time.process_time()
    catalog = load(tmp_path, variants=pairs)
    assert len(explain(REQUEST, environment="h100", catalog=catalog).ranked) == 120
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "link",
    [
        {"rules": [{"require": {"accepts": "m/a"}, "reject": "no"}], "adjust": [{"use": "m/b"}]},
        {"adjust": [{"when": {"accepts": "m/b"}, "set": {"block_size": 1}}]},
    ],
    ids=["accepts and use", "in a condition of adjust"],
)
def test_circles_through_adjustments(link: dict[str, Any], tmp_path: Path) -> None:
    other = {"name": "b", "rules": [{"require": {"accepts": "m/a"}, "reject": "no"}]}
    assert "circle" in refused(tmp_path, variants=[{"name": "a", **link}, other])


def test_unknown_names_in_an_adjustment(tmp_path: Path) -> None:
    entry = {"when": {"accepts": "m/c"}, "set": {"block_size": 1}}
    assert refused(tmp_path, variants=[{"name": "a", "adjust": [entry]}]) == "no candidate is called 'm/c'"


def test_thousands_of_unknown_names_cost_little(tmp_path: Path) -> None:
    began = time.process_time()
    wrong = [{"name": f"v{i}", **asking(f"q/v{i}")} for i in range(MAX_VARIANTS)]
    assert refused(tmp_path, variants=wrong) == "no candidate is called 'q/v0'"
    lost = [{"name": f"v{i}", "extends": f"w{i}"} for i in range(MAX_VARIANTS)]
    assert refused(tmp_path, variants=lost) == "variant extends 'w0', which is not there"
    with pytest.raises(ManifestError) as caught:
        Catalog.load(*(f"pack{i}" for i in range(1000)))
    assert len(caught.value.faults) == UNKNOWN
    assert time.process_time() - began < 5


def test_the_page_says_the_limits() -> None:
    text = LIMITS.read_text(encoding="utf-8")
    table = text[text.index("| what | at most |") :]
    said = [row.rsplit("|", 2)[1].strip() for row in table.splitlines()[2:] if row.startswith("|")]
    limits = [MAX_PARTS, MAX_COMPARISONS, MAX_VARIANTS, MAX_RULES, MAX_ADJUST, LONGEST, ADJUSTING]
    assert said == [f"{MAX_BYTES >> 20} MiB", str(MAX_DEPTH), "18 digits", *(f"{n:,}" for n in limits)]
