"""What broke once: names that mean two things, answers that depend on themselves, suggestions that did not work."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from selector import preferences
from selector.advice import suggestions
from selector.catalog import Catalog
from selector.environment import Environment
from selector.errors import EnvironmentFileError, ManifestError, RequestError
from selector.locations import manifests_root
from selector.request import Request
from selector.selection import explain, select

VOCABULARY = """\
vocabulary: 1
axes:
  device: {type: choice, of: environment, values: [cuda, cpu], declare: required}
  head_size: {type: integer, of: request, min: 1, declare: required, aliases: [head_dim]}
  dtype: {type: choice, of: request, values: [half, single], declare: required}
"""
PACK = "pack: 1\nname: p\ntitle: P\npolicy:\n  - {name: all, order: [one]}\n"
ONE = "manifest: 1\nname: one\nrequires: {device: any}\nsupports: {dtype: any, head_size: any}\n"
TWO = ONE.replace("one", "two")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in (*preferences.VARIABLES.values(), preferences.CONFIG_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    preferences.forget()


def load(folder: Path, vocabulary: str = VOCABULARY, pack: str = PACK, **manifests: str) -> Catalog:
    (folder / "p").mkdir()
    (folder / "vocabulary.yaml").write_text(vocabulary, encoding="utf-8")
    (folder / "p" / "pack.yaml").write_text(pack, encoding="utf-8")
    for name, text in (manifests or {"one": ONE}).items():
        (folder / "p" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return Catalog.load("p", manifests=folder)


def faults(error: pytest.ExceptionInfo[ManifestError]) -> list[tuple[str, int]]:
    return [(f.message, f.at.line) for f in error.value.faults]


# -- vocabularies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x: {type: integer, of: request, aliases: [head_size]}", "head_size means head_size already"),
        ("x: {type: integer, of: request, aliases: [head_dim]}", "head_dim means head_size already"),
        ("x: {type: choice, of: request, values: {a: {aliases: [b]}, b: {}}}", "b means b already"),
        ("x: {type: integer, of: request, min: 9, max: 1}", "empty range: min 9 is above max 1"),
        ("any: {type: flag, of: request}", "an axis cannot be called any: conditions use the word"),
        ("accepts: {type: flag, of: request}", "an axis cannot be called accepts: conditions use the word"),
        ("x: {type: integer, of: request, default: {same_as: dtype}}", "x is of type integer, and dtype of type choice"),
        ("x: {type: choice, of: request, values: [half], default: {same_as: dtype}}", "x has no value single, which dtype can have"),
        ("x: {type: integer, of: request, default: {same_as: head_sise}}", "no axis is called 'head_sise'"),
    ],
)  # fmt: skip
def test_words_that_mean_two_things_are_refused(tmp_path: Path, entry: str, message: str) -> None:
    with pytest.raises(ManifestError) as error:
        load(tmp_path, VOCABULARY + f"  {entry}\n")
    assert faults(error) == [(message, 6)]


def test_phases_need_their_axis(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as error:
        load(tmp_path, pack=PACK + "phases: [prefill, decode]\n")
    assert [m for m, _ in faults(error)] == [
        f"the axis phase of the vocabulary has no value {phase!r}" for phase in ("prefill", "decode")
    ]


# -- manifests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    ["rules:\n  - {{require: {{accepts: {0}}}, reject: x}}\n", "adjust:\n  - {{use: {0}, note: x}}\n"],
    ids=["accepts", "use"],
)
def test_answers_that_depend_on_themselves_are_refused(tmp_path: Path, entry: str) -> None:
    three = ONE.replace("one", "three")
    with pytest.raises(ManifestError) as error:
        load(
            tmp_path,
            one=ONE + entry.format("two"),
            two=TWO + entry.format("one"),
            three=three + entry.format("three"),
        )
    assert faults(error) == [
        ("one depends on two, and two on one: a circle", 6),
        ("three depends on itself: a circle", 6),
        ("two depends on one, and one on two: a circle", 6),
    ]


def test_a_chain_of_accepts_is_no_circle(tmp_path: Path) -> None:
    rule = "rules:\n  - {{require: {{accepts: {0}}}, reject: x}}\n"
    three = ONE.replace("one", "three")
    catalog = load(
        tmp_path, one=ONE + rule.format("two"), two=TWO + rule.format("three"), three=three + rule.format("four"),
        four=ONE.replace("one", "four"),
    )  # fmt: skip
    assert len(catalog.candidates) == 4


def test_a_wrong_limit_is_not_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as error:
        load(tmp_path, one=ONE.replace("head_size: any", "head_size: {min: 10, max: 3}"))
    assert faults(error) == [("empty range: min 10 is above max 3", 4)]


MIXED = """\
manifest: 1
name: one
titel: One
requires: {device: cudaa}
supports:
  dtype: [haff]
  head_size: {min: 10, max: 3}
variants:
  - {name: a, extends: bb}
  - {name: a}
rules:
  - {when: {head_sise: 3}, reject: x}
  - {when: {head_size: {mx: 3}}, reject: x}
  - {when: {head_size: 3}, variants: [c], reject: x}
  - {require: {accepts: newer}, reject: x}
adjust:
  - {use: nobody, note: x}
"""


def test_mistakes_of_every_kind_are_told_in_one_run(tmp_path: Path) -> None:
    """What the schema sees does not hide what it cannot see: references, ranges, names given twice."""
    with pytest.raises(ManifestError) as error:
        load(tmp_path, pack=PACK.replace("[one]", "[one/b]"), one=MIXED)
    found = {(Path(f.at.file).name, f.at.line): f.message for f in error.value.faults}
    assert found == {
        ("one.yaml", 3): "unknown key titel",
        ("one.yaml", 4): 'device: "cudaa" is not one of cuda or cpu',
        ("one.yaml", 6): 'dtype: "haff" is not one of half or single',
        ("one.yaml", 7): "empty range: min 10 is above max 3",
        ("one.yaml", 9): "variant extends 'bb', which is not there",
        ("one.yaml", 10): "variant 'a' is there twice",
        ("one.yaml", 12): "unknown key head_sise in when",
        ("one.yaml", 13): "unknown key mx in head_size",
        ("one.yaml", 14): "no variant 'c'",
        ("one.yaml", 15): "no candidate is called 'newer'",
        ("one.yaml", 17): "no candidate is called 'nobody'",
        ("pack.yaml", 5): "no candidate or backend is called 'one/b'",
    }


def test_a_manifest_without_a_name_makes_no_name_unknown(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as error:
        load(tmp_path, one=ONE.replace("name: one\n", ""))
    assert [m for m, _ in faults(error)] == ["name is missing"]


def test_names_that_differ_in_case_alone_are_two(tmp_path: Path) -> None:
    catalog = load(tmp_path, one=ONE, loud=ONE.replace("name: one", "name: ONE"))
    assert [c.id for c in catalog.find("ONE")] == ["ONE"]
    assert [c.id for c in catalog.find("one")] == ["one"]
    assert {c.id for c in catalog.find("One")} == {"one", "ONE"}


def test_a_manifests_directory_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTN_SELECTOR_MANIFESTS", "/nowhere/manifests")
    with pytest.raises(
        ManifestError, match="ATTN_SELECTOR_MANIFESTS names /nowhere/manifests, which is no directory"
    ):
        Catalog.load()


# -- environments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('version: "2.13.0"', 'verison: "2.13.0"'),
        ("profiles:\n", "profiles:\n  full: true\nprofiles_:\n"),
        ("packages:\n", "packages: [torch]\npackages_:\n"),
    ],
)
def test_a_broken_software_file_is_told_with_its_place(tmp_path: Path, old: str, new: str) -> None:
    root = tmp_path / "manifests"
    shutil.copytree(manifests_root(), root)
    path = root / "software.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(EnvironmentFileError) as error:
        Environment.preset("h100", root=str(root))
    assert error.value.faults
    assert all(f.at.file == str(path) and f.at.line > 1 for f in error.value.faults)


def test_a_title_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("environment: 1\nname: box\ntitle: {a: b}\nfacts: {device: cpu}\n", encoding="utf-8")
    with pytest.raises(EnvironmentFileError, match=r"box\.yaml:3:8: title is text"):
        Environment.load(path)


@pytest.mark.parametrize(
    ("left", "state"),
    [(b"", "its metadata names no version"), (b"Name: x\nVersion: \n", "its metadata names no version")],
)
def test_what_an_interrupted_installation_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes, state: str
) -> None:
    """It is no usable package, and it does not hide the real one further down the search path."""
    from selector.probe import probe

    for name in ("flash_attn-9.9", "PyYAML-9.9"):
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_bytes(left)
    root = tmp_path / "manifests"
    root.mkdir()
    shutil.copy(Path(manifests_root()) / "vocabulary.yaml", root)
    (root / "software.yaml").write_text(
        'software: 1\npackages:\n  flash-attn: {version: "2.8"}\n  pyyaml: {version: "6.0"}\nprofiles: {}\n',
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    packages = probe(str(root)).facts["packages"]
    assert (packages["flash-attn"].state, packages["flash-attn"].detail) == ("unknown", state)
    assert packages["pyyaml"].state == "usable"
    assert packages["pyyaml"].version[0].isdigit()


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_with_a_packs_axis_survives_pickling() -> None:
    catalog = Catalog.load("vllm")
    request = catalog.request(head_size=128, dtype="bf16", run_kv_cache_dtype="fp8")
    assert pickle.loads(pickle.dumps(request)) == request
    selection = select(request, catalog=catalog, environment="h100")
    assert pickle.loads(pickle.dumps(selection)).request == request


def test_a_request_of_the_base_vocabulary_stays_small_when_pickled() -> None:
    assert len(pickle.dumps(Request(head_size=128))) < 200


def test_replace_takes_aliases() -> None:
    request = Request(head_size=128, dtype="bf16")
    assert request.replace(head_dim=64).to_dict() == {"head_size": 64, "dtype": "bfloat16"}
    with pytest.raises(RequestError):
        request.replace(head_dim=64, head_size=64)


def test_without_a_field_that_is_none() -> None:
    with pytest.raises(KeyError):
        Request(head_size=128).without("head_sise")


def test_whole_numbers_of_other_libraries() -> None:
    numpy = pytest.importorskip("numpy")
    assert Request(head_size=numpy.int64(64)) == Request(head_size=64)
    with pytest.raises(RequestError):
        Request(head_size=numpy.float64(64))
    with pytest.raises(RequestError):
        Request(head_size=numpy.ones(2, dtype=int))


@pytest.mark.parametrize("wish", [{"avoid": [5]}, {"prefer": [None]}, {"backend": 5}])
def test_names_that_are_no_text(wish: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        select(head_size=128, dtype="bf16", environment="h100", **wish)


# -- suggestions ------------------------------------------------------------------------------------------------------


def test_every_suggestion_leads_to_what_it_says() -> None:
    """What only an explicit choice reaches is suggested with that choice, and not instead of what works without."""
    catalog = Catalog.load("core")
    asked = [
        ("pvc", {"head_size": 256, "dtype": "float16", "dropout": True, "pcp": True}),
        ("t4", {"head_size": 576, "dtype": "float32", "softcap": True, "rswa": True}),
        ("a100", {"head_size": 128, "dtype": "bfloat16", "kv_cache_dtype": "fp8_e4m3", "per_head_scales": True}),
        ("h100", {"head_size": 128, "dtype": "bfloat16", "fa_version": 2, "per_head_scales": True}),
    ]  # fmt: skip
    kinds = set()
    for machine, fields in asked:
        environment = Environment.preset(machine)
        report = explain(fields, catalog=catalog, environment=environment)
        assert report.selected is None
        for suggestion in suggestions(report):
            request, wishes = report.request, dict[str, Any]()
            for change in suggestion.changes:
                kinds.add(change.kind)
                if change.kind == "drop":
                    request = request.without(change.axis)
                elif change.kind == "choose":
                    wishes["backend"] = change.value
                elif change.kind == "set":
                    request = request.replace(**{change.axis: change.value})
                else:
                    pytest.fail(f"no such change is expected here: {change}")
            after = explain(request, catalog=catalog, environment=environment, **wishes)
            assert after.selected == suggestion.selected, suggestion.text
    assert {"drop", "choose"} <= kinds


# -- running ----------------------------------------------------------------------------------------------------------


def test_a_call_on_a_device_without_a_word_is_refused() -> None:
    torch = pytest.importorskip("torch")
    chosen = select(head_size=64, dtype="bf16", backend="reference")
    q = torch.zeros(1, 4, 2, 64, dtype=torch.bfloat16, device="meta")
    with pytest.raises(RequestError, match="'meta' is no value of device"):
        chosen.run(q, q, q)
