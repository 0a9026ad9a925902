"""Reports as text, against golden files: `UPDATE_GOLDEN=1 pytest tests/selector/test_render_text.py` writes them anew."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from selector import preferences
from selector.advice import near_misses
from selector.catalog import Catalog
from selector.environment import Environment
from selector.preferences import Preference
from selector.render.cells import Paint, cells, cut, pad, wrap
from selector.render.rejections import blocks, braced
from selector.render.text import report_text, why_not_text
from selector.report import Report
from selector.selection import decide

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
#: Relative, so that the places in the golden files are the same in every checkout.
SMALL = "tests/data/render"

LAYER = {"head_size": 128, "dtype": "bf16"}


@pytest.fixture(autouse=True)
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    os.chdir(ROOT)
    return Catalog.load("small", manifests=SMALL)


def made(
    catalog: Catalog,
    machine: str,
    fields: dict[str, Any],
    wishes: tuple[Preference, ...] = (),
    *,
    strict: bool = False,
    origins: dict[str, str] | None = None,
) -> Report:
    environment = Environment.preset(machine, vocabulary=catalog.vocabulary, root=catalog.root)
    return decide(catalog.request(fields), catalog, environment, wishes, strict=strict, origins=origins)


def flags(**given: Any) -> tuple[Preference, ...]:
    return tuple(preferences.from_call(given.get("backend"), given.get("avoid"), given.get("prefer"), "flag"))


CASES: dict[str, dict[str, Any]] = {
    "chosen": {"machine": "new", "fields": {**LAYER, "block_size": 64}},
    "warned": {"machine": "new", "fields": {**LAYER, "sinks": True}},
    "adjusted": {"machine": "new", "fields": {**LAYER, "sinks": True, "block_size": 32}},
    "strict": {"machine": "new", "fields": {**LAYER, "sinks": True, "block_size": 32}, "strict": True},
    "known_wrong": {"machine": "new", "fields": {**LAYER, "head_size": 192, "sinks": True}},
    "open": {"machine": "host", "fields": {}},
    "excluded": {"machine": "host", "fields": {"head_size": 64, "dtype": "float32"}},
    "pinned": {"machine": "new", "fields": LAYER, "wishes": flags(backend="swift/two")},
    "preferred": {"machine": "new", "fields": LAYER, "wishes": flags(prefer="slow", avoid="swift/three")},
    "wish_not_met": {
        "machine": "old",
        "fields": LAYER,
        "wishes": tuple(preferences.from_model("swift/three", "config.json: attention")),
        "origins": {"head_size": "config.json: head_dim"},
    },
    "nothing_fits": {"machine": "old", "fields": {**LAYER, "per_head_scales": True, "kv_cache_dtype": "fp8"}},
    "elsewhere": {"machine": "old", "fields": {"head_size": 64}, "wishes": flags(backend="swift/three")},
    "explicit_only": {
        "machine": "host",
        "fields": {"head_size": 64, "dtype": "float32"},
        "wishes": flags(avoid="broad,slow"),
    },
    "verbose": {
        "machine": "new",
        "fields": {**LAYER, "sinks": True},
        "verbose": True,
        "origins": {"head_size": "config.json: head_dim"},
    },
    "verbose_nothing": {"machine": "old", "fields": {**LAYER, "per_head_scales": True}, "verbose": True},
    "narrow": {
        "machine": "old",
        "fields": {**LAYER, "per_head_scales": True, "kv_cache_dtype": "fp8"},
        "width": 50,
    },
    "colored": {"machine": "new", "fields": {**LAYER, "sinks": True, "block_size": 32}, "color": True},
}


def golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_golden(catalog: Catalog, name: str) -> None:
    case = dict(CASES[name])
    shown = {k: case.pop(k) for k in ("width", "verbose", "color") if k in case}
    report = made(catalog, case.pop("machine"), case.pop("fields"), case.pop("wishes", ()), **case)
    golden(name, report_text(report, **shown))


def test_golden_why_not(catalog: Catalog) -> None:
    report = made(catalog, "new", {**LAYER, "sinks": True, "block_size": 32})
    golden("why_not", why_not_text(report, ["swift/two", "swift/three", "broad", "slow"]))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [40, 60, 80, 110, 200])
def test_lines_fit_and_only_places_may_not(catalog: Catalog, name: str, width: int) -> None:
    case = dict(CASES[name])
    case.pop("width", None)
    case.pop("color", None)
    verbose = case.pop("verbose", False)
    report = made(catalog, case.pop("machine"), case.pop("fields"), case.pop("wishes", ()), **case)
    for line in report_text(report, width=width, verbose=verbose).splitlines():
        assert cells(line) <= width or " " not in line.strip().removesuffix(")").rpartition(" (+")[0], line
        assert line == line.rstrip()


def test_color_changes_nothing_but_color(catalog: Catalog) -> None:
    report = made(catalog, "new", {**LAYER, "sinks": True, "block_size": 32})
    colored = report_text(report, color=True)
    assert re.sub(r"\033\[[0-9;]*m", "", colored) == report_text(report)
    assert "\033[m" not in colored


def test_nothing_from_outside_can_act_on_the_terminal(catalog: Catalog) -> None:
    """Machines, origins and preferences come from files and variables; the reader of manifests refuses such text itself."""
    evil = "\033[31m\u202e\a\n"
    machine = Environment(
        {
            "device": "cuda",
            "packages": {"swift": {"version": "2.5", "state": "broken import", "detail": evil}},
        },
        name=evil,
        title=evil,
        origin=evil,
        vocabulary=catalog.vocabulary,
    )
    for wishes in ((), (Preference("pin", ("swift",), "variable", evil),)):
        for fields in ({**LAYER, "mla": True}, LAYER):
            report = decide(
                catalog.request(fields), catalog, machine, wishes, origins={"head_size": evil, "mla": evil}
            )
            for verbose in (False, True):
                text = report_text(report, verbose=verbose)
                assert all(c.isprintable() or c == "\n" for c in text)
                assert "\\x1b[31m\\u202e" in text


def test_a_familys_veto_stands_once(catalog: Catalog) -> None:
    """A rule of the manifest rejects both variants; each variant's own reasons follow."""
    report = made(catalog, "old", {**LAYER, "per_head_scales": True})
    found = blocks(report, ["swift/two", "swift/three"])
    shared = [b for b in found if len(b.ids) == 2]
    assert [b.label for b in shared] == ["swift/*"]
    assert [line.text for line in shared[0].lines] == [
        "per-head scales need a quantised cache (asked: per_head_scales=true, kv_quantized=false; needs: kv_quantized)"
    ]
    own = {b.label: [line.text for line in b.lines] for b in found if len(b.ids) == 1}
    assert own == {
        "swift/two": ["per_head_scales: does not support per-head scales"],
        "swift/three": ["compute_capability 8.0: needs ==9.*"],
    }


def test_long_lists_are_cut_with_a_count_and_how_to_see_all() -> None:
    catalog = Catalog.load("vllm")
    report = made(catalog, "h100", {"head_size": 128, "dtype": "bf16"})
    short, full = report_text(report), report_text(report, verbose=True)
    assert len(short.splitlines()) < 60
    assert re.search(r"and \d+ more: .*--verbose shows all", short.replace("\n      ", " "))
    for ident in report.rejected:
        assert ident.partition("/")[2] in full


def test_the_headline_counts_candidates_by_axis() -> None:
    catalog = Catalog.load("core")
    fields = {"head_size": 128, "dtype": "bf16", "kv_cache_dtype": "fp8", "per_head_scales": True}
    report = made(catalog, "a100", fields)
    head = report_text(report, width=300).splitlines()[0]
    counts = {m[2]: int(m[1]) for m in re.finditer(r"(\d+) (\w+)(?:,|$)", head.partition(";")[2])}
    for axis, count in counts.items():
        assert count == sum(any(r.axis == axis for r in rs) for rs in report.rejected.values())
    assert list(counts.values()) == sorted(counts.values(), reverse=True)


def test_what_helps_helps(catalog: Catalog) -> None:
    """Everything printed under "What would help" is done, and then something fits."""
    fields = {**LAYER, "per_head_scales": True, "kv_cache_dtype": "fp8"}
    text = report_text(made(catalog, "old", fields))
    told = text.partition("What would help (each tried)\n")[2].splitlines()[0]
    assert told == "  drop per_head_scales: broad works"
    after = made(catalog, "old", {k: v for k, v in fields.items() if k != "per_head_scales"})
    assert after.selected == "broad"


@pytest.mark.parametrize(
    ("text", "width"),
    [("plain", 5), ("日本語", 6), ("é", 1), ("e\u0301", 1), ("a\u200bb", 2), ("🙂", 2), ("", 0)],
)
def test_cells(text: str, width: int) -> None:
    assert cells(text) == width
    assert cells(pad(text, 9)) == 9


def test_cutting_and_wrapping_wide_characters() -> None:
    assert cut("日本語", 6) == "日本語"
    assert cut("日本語x", 6) == "日本…"
    assert cells(cut("日本語x", 5)) <= 5
    assert wrap("ab 日本語 cd", 6) == ["ab", "日本語", "cd"]
    assert wrap("日本語日本語", 4) == ["日本", "語日", "本語"]
    assert wrap("", 10) == [""]
    assert all(cells(line) <= 7 for line in wrap("a much longer text with averyveryverylongword in it", 7))


def test_braces() -> None:
    assert braced(["a"]) == "a"
    assert braced(["a/x", "a/y"]) == "a/{x,y}"


def test_paint_without_style_is_plain() -> None:
    assert Paint(True)("x") == "x"
    assert Paint(True)("x", "red") == "\033[31mx\033[0m"
    assert Paint(False)("x", "red") == "x"


def test_who_is_in_the_order_and_who_is_not(tmp_path: Path) -> None:
    """A candidate that only catalog order ranks is not said to be the policy's, and is no near miss before those that are."""
    root = tmp_path / "render"
    shutil.copytree(SMALL, root)
    pack = root / "small" / "pack.yaml"
    pack.write_text(pack.read_text("utf-8").replace("unlisted: excluded", "unlisted: last"), "utf-8")
    catalog = Catalog.load("small", manifests=root)
    report = made(catalog, "new", {"head_size": 128, "dtype": "float32"})
    because = {r.id: r.because for r in report.ranked}
    assert because["spare"] == "not in the order of policy “newest GPUs”"
    assert {why for ident, why in because.items() if ident != "spare"} == {"policy “newest GPUs”"}
    refused = made(
        catalog, "new", {"head_size": 128, "dtype": "float32", "mla": True, "per_head_scales": True}
    )
    assert "spare" in refused.rejected
    assert near_misses(refused)[-1] == "spare"
