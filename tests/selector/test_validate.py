"""Validation: one fault for each mistake, where it is, with the nearest valid word."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, validators
from packaging.specifiers import SpecifierSet

from selector.errors import Fault, ManifestError
from selector.schema_accept import acceptor
from selector.validate import load_valid, nearest, validate
from selector.yaml_loader import MAX_DEPTH, load_text
from tests.selector.schema_samples import FILES, SCHEMAS, VOCABULARY, data_of

EIGHT = """\
manifest: 1
name: flash_attn
requires:
  device: [cuda, rocm]
  compute_capability: 9.10
supports:
  dtype: [float16, bf61]
  head_size: {multiple_of: 8, maximum: 256}
  use_mla: true
  sinks: yes
variants:
  - name: fa2
    extend: base
rules:
  - when: {head_sise: 256}
    reject: too large
"""


def test_eight_mistakes_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "flash_attn.yaml"
    path.write_text(EIGHT)
    with pytest.raises(ManifestError) as caught:
        load_valid(path, SCHEMAS["manifest"])
    assert str(caught.value) == textwrap.dedent(f"""\
        {path}:4:18: device: "rocm" is not one of cuda or cpu
              device: [cuda, rocm]
                             ^
        {path}:5:23: compute_capability: expected a version specifier such as ">=8.0,<9" or "==9.*", a list or a mapping, not 9.1
              compute_capability: 9.10
                                  ^
            quote it: "9.10"
        {path}:7:20: dtype: "bf61" is not one of float16, bfloat16 or fp8_e4m3
              dtype: [float16, bf61]
                               ^
            did you mean bfloat16?
        {path}:8:31: unknown key maximum in head_size
              head_size: {{multiple_of: 8, maximum: 256}}
                                          ^
            did you mean max?
        {path}:9:3: unknown key use_mla in supports
              use_mla: true
              ^
            it is called mla here
        {path}:10:10: sinks: "yes" is not one of true, false or any
              sinks: yes
                     ^
            write true
        {path}:13:5: unknown key extend in variants
                extend: base
                ^
            did you mean extends?
        {path}:15:12: unknown key head_sise in when
              - when: {{head_sise: 256}}
                       ^
            did you mean head_size?""")
    assert [fault.path for fault in caught.value.faults] == [
        "requires.device[1]", "requires.compute_capability", "supports.dtype[1]", "supports.head_size.maximum",
        "supports.use_mla", "supports.sinks", "variants[0].extend", "rules[0].when.head_sise",
    ]  # fmt: skip


HEAD = "manifest: 1\nname: a\n"


def faults_of(text: str, kind: str = "manifest") -> list[Fault]:
    return validate(load_text(text, "f.yaml"), SCHEMAS[kind])


@pytest.mark.parametrize(
    ("line", "column", "message", "hint"),
    [
        # keys
        ("suports: {}", 1, "unknown key suports", "did you mean supports?"),
        ("head_size: 8", 1, "unknown key head_size", "head_size belongs under supports"),
        ("hed_size: 8", 1, "unknown key hed_size", "did you mean head_size? It belongs under supports"),
        ("device: cuda", 1, "unknown key device", "device belongs under requires"),
        ("flash_attn_version: 3", 1, "unknown key flash_attn_version", "it is called fa_version here"),
        ("supports: {device: cuda}", 12, "unknown key device in supports", "device belongs under requires"),
        ("requires: {has_sink: true}", 12, "unknown key has_sink in requires", "did you mean sinks? It belongs under supports"),
        ("requires: {sm: 9}", 12, "unknown key sm in requires", "it is called compute_capability here"),
        ("supports: {zzz: 1}", 12, "unknown key zzz in supports",
         "known here: head_size, head_size_v, dtype, attn_type, sinks, mla, window, window_left, quantized, fa_version, "
         "rounded or kind"),
        ("rules: [{reject: x, wen: {}}]", 21, "unknown key wen in rules", "did you mean when?"),
        ("variants: [{nme: x}]", 13, "unknown key nme in variants", "did you mean name?"),
        ("variants: [{title: x}]", 12, "variants: name is missing", None),
        ("rules: [{when: {sinks: true}}]", 9, "rules: reject is missing", None),
        ("rules: [{warn: x, reject: y}]", 19, "reject: a rule either rejects or warns", None),
        ("rules: [{reject: y, strict: true}]", 21, "strict has no meaning without warn", None),
        ("adjust: [{note: x}]", 10, "adjust: set is missing", None),
        # types
        ("supports: []", 11, "supports: expected a mapping, not a list", None),
        ("supports:", 10, "supports: expected a mapping, not nothing", None),
        ("rules: {}", 8, "rules: expected a list, not a mapping", None),
        ("title: 3", 8, "title: expected text, not 3", 'quote it: "3"'),
        ("title: 1.50", 8, "title: expected text, not 1.5", 'quote it: "1.50"'),
        ("title: true", 8, "title: expected text, not true", None),
        ('title: ""', 8, "title: the text is empty", None),
        ("variants: []", 11, "variants: a list with nothing in it", None),
        ("rules: [{reject: x, variants: fa2}]", 31, "variants: expected a list, not \"fa2\"", "write a list: [fa2]"),
        ("rules: [{reject: x, axis: hed_size}]", 27,
         "axis: \"hed_size\" is not one of head_size, head_size_v, dtype, attn_type, sinks, mla, ... (19 in all)",
         "did you mean head_size?"),
        ("kernel: a b", 9, 'kernel: expected a module such as package.module, not "a b"', None),
        ("variants: [{name: a/b}]", 19, 'name: expected a name of letters, digits and . _ + -, not "a/b"', None),
        # flags and modes
        ("supports: {sinks: 1}", 19, "sinks: 1 is not one of true, false or any", "write true"),
        ("supports: {mla: off}", 17, 'mla: "off" is not one of true, false or any', "write false"),
        ('supports: {mla: "true"}', 17, 'mla: "true" is not one of true, false or any', "write true"),
        ("supports: {mla: ani}", 17, 'mla: "ani" is not one of true, false or any', "did you mean any?"),
        ("rules: [{when: {sinks: any}, reject: x}]", 24, 'sinks: "any" is not one of true or false', None),
        # choices
        ("supports: {dtype: BF16}", 19, 'dtype: "BF16" is not one of float16, bfloat16 or fp8_e4m3', "did you mean bfloat16?"),
        ("supports: {dtype: 16}", 19, "dtype: expected text, a list or a mapping, not 16", None),
        ("supports: {dtype: [16]}", 20, "dtype: 16 is not one of float16, bfloat16 or fp8_e4m3", None),
        ("supports: {dtype: [any]}", 20, 'dtype: "any" is not one of float16, bfloat16 or fp8_e4m3', None),
        ("supports: {dtype: []}", 19, "dtype: a list with nothing in it", None),
        ("supports: {dtype: {}}", 19, "dtype: a mapping with nothing in it", None),
        ("supports: {dtype: {in: half}}", 24, 'in: expected a list, not "half"', "write a list: [half]"),
        ("supports: {dtype: {notin: [half]}}", 20, "unknown key notin in dtype", "did you mean not_in?"),
        ("supports: {dtype: {given: true}}", 20, "unknown key given in dtype", "known here: in, not_in, tagged or required"),
        ("supports: {dtype: {tagged: b61}}", 28, 'tagged: "b61" is not one of b16 or quantized', "did you mean b16?"),
        ("supports: {dtype: {in: [half], required: 1}}", 42, "required: expected true or false, not 1", "write true"),
        ("requires: {arch: [7]}", 19, "arch: expected text, not 7", 'quote it: "7"'),
        ("rules: [{when: {dtype: {given: true, in: [half]}}, reject: x}]", 24, "dtype: given stands alone, not with in", None),
        # numbers
        ('supports: {head_size: "64"}', 23, 'head_size: expected a whole number, a list or a mapping, not "64"',
         "remove the quotes: 64"),
        ("supports: {head_size: 64.0}", 23, "head_size: expected a whole number, a list or a mapping, not 64.0", "write 64"),
        ("supports: {head_size: 64.5}", 23, "head_size: expected a whole number, a list or a mapping, not 64.5", None),
        ("supports: {head_size: true}", 23, "head_size: expected a whole number, a list or a mapping, not true", None),
        ("supports: {head_size: [64, x]}", 28, 'head_size: expected a whole number or a mapping, not "x"', None),
        ("supports: {head_size: {min: '8'}}", 29, 'min: expected a whole number, not "8"', "remove the quotes: 8"),
        ("supports: {head_size: {in: 8}}", 28, "in: expected a list, not 8", "write a list: [8]"),
        ("supports: {head_size: {multiple_of: 0}}", 37, "multiple_of: 0, and at least 1 makes sense", None),
        ("adjust: [{set: {head_size: 0}}]", 28, "head_size: 0, and at least 1 makes sense", None),
        ("adjust: [{set: {head_size: 99999}}]", 28, "head_size: 99999, and at most 65536 makes sense", None),
        ("adjust: [{set: {rounded: 16}}]", 17, "unknown key rounded in set",
         "did you mean ..."),
        # versions
        ('requires: {compute_capability: "=>8"}', 32,
         'compute_capability: expected a version specifier such as ">=8.0,<9" or "==9.*", not "=>8"', 'did you mean ">=8"?'),
        ('requires: {compute_capability: "= 8"}', 32,
         'compute_capability: expected a version specifier such as ">=8.0,<9" or "==9.*", not "= 8"', 'did you mean "==8"?'),
        ('requires: {compute_capability: "8.0+"}', 32,
         'compute_capability: expected a version specifier such as ">=8.0,<9" or "==9.*", not "8.0+"', 'did you mean ">=8.0"?'),
        ("requires: {compute_capability: ampere}", 32,
         'compute_capability: expected a version specifier such as ">=8.0,<9" or "==9.*", not "ampere"', None),
        ("requires: {compute_capability: [8.0]}", 33,
         'compute_capability: expected a version specifier such as ">=8.0,<9" or "==9.*", not 8.0', 'quote it: "8.0"'),
        ("requires: {packages: {torch: 2.10}}", 30,
         'torch: expected a version specifier such as ">=2.6,<3", any or absent or a list, not 2.1', 'quote it: "2.10"'),
        ("requires: {packages: {torch: anny}}", 30,
         'torch: expected a version specifier such as ">=2.6,<3", any or absent, not "anny"', None),
        ("requires: {packages: {torch: >=2}}", 0, "", None),
        ("requires: {packages: {torch: '2', <3: any}}", 35, 'packages: expected the name of a package, not "<3"',
         "quote the whole specifier: inside braces a comma ends unquoted text"),
        ("requires: {packages: any}", 22, 'packages: expected a mapping, not "any"', None),
        # pairs
        ("supports: {window: [1, 2, 3]}", 20, "window: expected two whole numbers, not a list of 3", None),
        ("supports: {window: [[1, 2], 3]}", 29, "window: expected two whole numbers, not 3", None),
        ("supports: {window: [[1, x]]}", 25, 'window: expected a whole number, not "x"', None),
        ("supports: {window: []}", 20, "window: expected two whole numbers, not a list of 0", None),
        ("supports: {window: [[1, 2, 3]]}", 21, "window: expected two whole numbers, not a list of 3", None),
        # conditions
        ("rules: [{when: {}, reject: x}]", 16, "when: a mapping with nothing in it", None),
        ("rules: [{when: {any: {sinks: true}}, reject: x}]", 22, "any: expected a list, not a mapping", None),
        ("rules: [{when: {not: [{sinks: true}]}, reject: x}]", 22, "not: expected a mapping, not a list", None),
        ("rules: [{when: {all: [{not: {snks: true}}]}, reject: x}]", 30, "unknown key snks in not", "did you mean sinks?"),
        ("rules: [{when: {accepts: a/b/c}, reject: x}]", 26,
         'accepts: expected backend or backend/variant, not "a/b/c"', None),
    ],
)  # fmt: skip
def test_one_mistake_in_a_manifest(line: str, column: int, message: str, hint: str | None) -> None:
    try:
        faults = faults_of(HEAD + line)
    except ManifestError as error:
        assert (column, message) == (0, "")
        assert [f.hint for f in error.faults] == ['quote it: ">=2"']
        return
    assert [f.message for f in faults] == [message]
    (fault,) = faults
    assert (fault.at.file, fault.at.line, fault.at.column) == ("f.yaml", 3, column)
    assert fault.line_text == line
    assert fault.severity == "error"
    if hint != "did you mean ...":
        assert fault.hint == hint


@pytest.mark.parametrize(
    ("kind", "text", "place", "message", "hint"),
    [
        ("manifest", "", (1, 1), "the file is empty", None),
        ("manifest", "- a", (1, 1), "expected a mapping, not a list", None),
        ("manifest", "just text", (1, 1), 'expected a mapping, not "just text"', None),
        ("manifest", "name: a", (1, 1), "manifest is missing", "write manifest: 1"),
        ("manifest", "manifest: 2\nname: a", (1, 11), "manifest: expected 1, not 2", None),
        ("manifest", "manifest: true\nname: a", (1, 11), "manifest: expected 1, not true", None),
        ("pack", "pack: 1\nname: a\nunlisted: lst", (3, 11), 'unlisted: "lst" is not one of last or excluded',
         "did you mean last?"),
        ("pack", "pack: 1\nname: a\npolicy: [{name: x, order: a/b}]", (3, 27), 'order: expected a list, not "a/b"',
         "write a list: [a/b]"),
        ("pack", "pack: 1\nname: a\npolicy: [{name: x, order: [{candidate: a, wen: {}}]}]", (3, 43), "unknown key wen in order",
         "did you mean when?"),
        ("environment", "environment: 1\nname: a\nfacts: {device: cuda, compute_capability: 9.0}", (3, 43),
         'compute_capability: expected a version such as "9.0", not 9.0', 'quote it: "9.0"'),
        ("environment", "environment: 1\nname: a\nfacts: {compute_capability: sm90}", (3, 29),
         'compute_capability: expected a version such as "9.0", not "sm90"', None),
        ("environment", "environment: 1\nname: a\nfacts: {compute_capability: v9}", (3, 29),
         'compute_capability: expected a version such as "9.0", not "v9"', 'did you mean "9"?'),
        ("environment", "environment: 1\nname: a\nfacts: {amx: yes}", (3, 14),
         'amx: expected true or false, not "yes"', "write true"),
        ("environment", "environment: 1\nname: a\nfacts: {hopper: true}", (3, 9), "unknown key hopper in facts",
         "known here: device, device_name, arch, compute_capability, amx or packages"),
        ("environment", "environment: 1\nname: a\nfacts: {packages: {torch: {state: mising}}}", (3, 35),
         'state: "mising" is not one of usable, missing, version out of range, broken import, wrong build, '
         "not for this device, disabled by setting or unknown", "did you mean missing?"),
        ("environment", "environment: 1\nname: a\nfacts: {packages: {torch: 2.10}}", (3, 27),
         'torch: expected a version such as "9.0" or a mapping, not 2.1', 'quote it: "2.10"'),
        ("software", "software: 1\nprofiles: {}\npackages: {a: {version: 2.8}}", (3, 25),
         'version: expected a version such as "9.0", not 2.8', 'quote it: "2.8"'),
        ("software", "software: 1\npackages: {}\nprofiles: {full: {packages: al}}", (3, 29),
         'packages: expected a list, not "al"', "write a list: [al]"),
        ("request", "head_dimm: 3", (1, 1), "unknown key head_dimm", "did you mean head_size?"),
        ("request", "head_dim: 0", (1, 11), "head_dim: 0, and at least 1 makes sense", None),
        ("request", "sinks: on", (1, 8), 'sinks: expected true or false, not "on"', "write true"),
        ("request", "dtype: bf61", (1, 8), 'dtype: "bf61" is not one of float16, bfloat16 or fp8_e4m3',
         "did you mean bfloat16?"),
        ("request", "window: 3", (1, 9), "window: expected two whole numbers, not 3", None),
        ("vocabulary", "vocabulary: 1\naxes: {Head-Size: {type: flag, of: request}}", (2, 8),
         'axes: expected a word of small letters, digits and _, not "Head-Size"', None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: flg, of: request}}", (2, 18),
         'type: "flg" is not one of flag, mode, choice, integer, version, pair or packages', "did you mean flag?"),
        ("vocabulary", "vocabulary: 1\naxes: {a: {of: request}}", (2, 11), "a: type is missing", None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: flag}}", (2, 11), "a: of is missing", None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: flag, of: request, values: [x]}}", (2, 37),
         "values: only a choice has it", None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: flag, of: request, min: 0}}", (2, 37),
         "min: only an integer or a pair has it", None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: flag, default: true, derive: {when: {b: 1}}}}", (2, 24),
         "default: a derived axis cannot have it", None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: integer, derive: {summ: [b, 1]}}}", (2, 36),
         "unknown key summ in derive", "did you mean sum?"),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: integer, derive: {sum: [b], max: [b]}}}", (2, 35),
         "derive: expected one operator, not sum or max together", None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: integer, derive: {else: 1}}}", (2, 35),
         "derive: case is missing", None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: integer, derive: {ratio: [b, {mx: [c]}]}}}", (2, 48),
         "unknown key mx in ratio", "did you mean max?"),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: integer, derive: {ratio: [b]}}}", (2, 43),
         "ratio: expected at least 2 entries, not 1", None),
        ("vocabulary", "vocabulary: 1\naxes: {a: {type: choice, of: request, values: [8]}}", (2, 48),
         "values: expected text, not 8", 'quote it: "8"'),
    ],
)  # fmt: skip
def test_one_mistake_in_another_file(
    kind: str, text: str, place: tuple[int, int], message: str, hint: str | None
) -> None:
    assert [(f.message, f.hint, f.at.line, f.at.column) for f in faults_of(text, kind)] == [
        (message, hint, *place)
    ]


def test_two_missing_keys_and_an_unknown_one_that_is_neither() -> None:
    assert sorted(f.message for f in faults_of("homepag: x")) == [
        "manifest is missing", "name is missing", "unknown key homepag",
    ]  # fmt: skip


def test_an_entry_that_only_adds_values_needs_no_type() -> None:
    """A pack's vocabulary extends a choice of the one it is merged into."""
    assert (
        faults_of("vocabulary: 1\naxes: {dtype: {values: {int8: {tags: [quantized]}}}}", "vocabulary") == []
    )


VERSIONS = [
    ">=2.8.dev0", "==2.8.0+cu128", "!=1.5.*", "~=2.2", ">=1!2.0", "==4.0.0b3", "==2.8.3.post2", ">= 8.0, < 9", "<3",
    "===1.0", "==9.*", ">=2.6.0rc1,!=2.7.0,<3", "9.0", "2.8.0a0+git123", "8.*", "1.0.post1.dev3",
]  # fmt: skip


@pytest.mark.parametrize("specifier", VERSIONS)
def test_version_specifiers(specifier: str) -> None:
    text = specifier if specifier[0] in "<>=!~" else f"=={specifier}"
    SpecifierSet(text)  # the sample is right
    assert (
        faults_of(HEAD + f"requires: {{compute_capability: '{specifier}', packages: {{x: '{specifier}'}}}}")
        == []
    )


@pytest.mark.parametrize(
    "text",
    [
        "1" + "rc" * 5000 + "!",
        "1." * 5000 + "!",
        "1" + "-" * 5000,
        ">=1," * 5000,
        ">=1" + " " * 5000 + "!",
        "1+" + "a-" * 5000,
    ],
)
def test_patterns_take_no_time_on_endless_versions(text: str) -> None:
    start = time.perf_counter()
    packages = f"  packages:\n    '{text[:900]}': '{text}'"
    faults = faults_of(HEAD + f"requires:\n  compute_capability: '{text}'\n{packages}")
    assert len(faults) >= 2
    assert time.perf_counter() - start < 2


# -- bounds ---------------------------------------------------------------------------------------------------------


def test_the_deepest_document_can_be_checked() -> None:
    levels = MAX_DEPTH - 4
    text = HEAD + "rules: [{reject: x, when: " + "{not: " * levels + "{snks: 1}" + "}" * levels + "}]"
    (fault,) = faults_of(text)
    assert fault.hint == "did you mean sinks?"
    many = (
        HEAD
        + "rules: [{reject: x, when: "
        + "{any: [" * (levels // 2)
        + "{snks: 1}"
        + "]}" * (levels // 2)
        + "}]"
    )
    assert len(faults_of(many)) == 1


@pytest.mark.parametrize(
    "entry",
    ["{wen: 1}", "x", "{reject: x, when: {a: 1, b: 2, c: 3, d: 4}}", "{reject: x, axis: [a, b, c, d, e, f]}"],
)
def test_a_file_of_mistakes_takes_seconds_at_most(entry: str) -> None:
    text = HEAD + "rules:\n" + f"  - {entry}\n" * (300_000 // (len(entry) + 5))
    document = load_text(text, "f.yaml")
    start = time.perf_counter()
    faults = validate(document, SCHEMAS["manifest"])
    assert time.perf_counter() - start < 10
    assert 100 < len(faults) < 2000


def test_an_endless_word_is_cut() -> None:
    (fault,) = faults_of(HEAD + f"supports: {{dtype: {'x' * 500_000}}}")
    assert len(fault.message) < 200
    (fault,) = faults_of(HEAD + f"{'y' * 1000}: 3")
    assert len(fault.message) < 200


def test_a_valid_file_needs_no_validator() -> None:
    """The import alone would cost more than everything else."""
    code = (
        "import sys, json\nfrom selector.validate import validate\nfrom selector.yaml_loader import load_text\n"
        "schema = json.loads(sys.argv[1])\n"
        "assert validate(load_text(sys.argv[2], 'f'), schema) == []\n"
        "assert 'jsonschema' not in sys.modules\n"
        "assert len(validate(load_text('nme: 1', 'f'), schema)) == 3\n"
        "assert 'jsonschema' in sys.modules\n"
    )
    arguments = [json.dumps(SCHEMAS["environment"]), json.dumps(data_of(FILES["environment"]))]
    child = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (child.returncode, child.stderr) == (0, "")


def test_schemas_do_not_take_each_other_s_checks() -> None:
    """Checks are kept by the identity of a schema, which Python may give to another one later."""
    document = load_text("a: 1", "f")
    for i in range(200):
        schema: dict[str, object] = {"type": "object", "properties": {"a": {"const": i}}}
        assert [f.message for f in validate(document, schema)] == (
            [] if i == 1 else [f"a: expected {i}, not 1"]
        )
        del schema


def test_a_keyword_from_elsewhere_is_left_to_the_validator() -> None:
    assert validate(load_text("a: 4", "f"), {"properties": {"a": {"multipleOf": 2}}}) == []
    (fault,) = validate(load_text("a: 3", "f"), {"properties": {"a": {"multipleOf": 2}}})
    assert fault.message == "3 is not a multiple of 2"
    (fault,) = validate(load_text("a: b", "f"), {"properties": {"a": {"pattern": "^x"}}})
    assert fault.message == 'a: expected text like ^x, not "b"'


def test_nearest() -> None:
    assert nearest("bf61", ["bfloat16"], {"bf16": "bfloat16"}) == "bfloat16"
    assert nearest("Dtype", ["dtype", "head_size"]) == "dtype"
    assert nearest("zzz", ["dtype"]) is None
    assert nearest("", ["dtype"]) is None


# -- the fast yes is the validator's yes ----------------------------------------------------------------------------

SCALARS = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        2,
        -1,
        64,
        1.0,
        2.5,
        "",
        "x",
        "any",
        "all",
        "bf16",
        "float16",
        "9.0",
        ">=8",
        "<3",
        "absent",
    ]
)
PARTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["when", "not", "any", "in", "min", "given", "required", "sinks", "dtype", "head_size", "zzz",
                         "case", "else", "max", "axis", "value", "name", "warn", "reject", "strict"]),
        inner, max_size=3,
    ),
    max_leaves=6,
)  # fmt: skip
STRICT: Any = validators.extend(  # type: ignore[no-untyped-call]
    Draft7Validator,
    type_checker=Draft7Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)
VALIDATORS = {kind: STRICT(schema) for kind, schema in SCHEMAS.items()}
ACCEPTORS = {kind: acceptor(schema) for kind, schema in SCHEMAS.items()}
SAMPLES = {kind: VOCABULARY if kind == "vocabulary" else data_of(text) for kind, text in FILES.items()}


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside `data`."""
    found = []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, part in list(items):
        found += [(data, key), *places(part)]
    return found


@settings(max_examples=250, deadline=None)
@given(st.data(), st.sampled_from(sorted(SAMPLES)))
def test_accepted_means_valid_and_valid_means_accepted(draw: st.DataObject, kind: str) -> None:
    data = copy.deepcopy(SAMPLES[kind])
    for _ in range(draw.draw(st.integers(0, 2), label="changes")):
        spots = places(data)
        if not spots:
            break
        container, key = spots[draw.draw(st.integers(0, len(spots) - 1))]
        change = draw.draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "remove":
            del container[key]
        elif change == "add" and isinstance(container, dict):
            container[draw.draw(st.sampled_from(["zzz", "sinks", "given", "else", "set", "warn", "min"]))] = (
                draw.draw(PARTS)
            )
        else:
            container[key] = draw.draw(PARTS)
    valid = VALIDATORS[kind].is_valid(data)
    assert ACCEPTORS[kind](data) == valid
    faults = validate(load_text(json.dumps(data), "f.json"), SCHEMAS[kind])
    assert bool(faults) == (not valid)
    assert len({(f.at, f.message) for f in faults}) == len(faults)
