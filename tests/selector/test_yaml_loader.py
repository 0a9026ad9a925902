"""The YAML reader: what it reads, where it says things are, what it refuses, and that hostile input costs little."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from selector import yaml_reader
from selector.errors import (
    EnvironmentFileError,
    Fault,
    ManifestError,
    Mark,
    NoBackendError,
    PinError,
    Problem,
    RequestError,
    SelectorError,
    format_path,
    printable,
)
from selector.yaml_loader import MAX_BYTES, MAX_DEPTH, load_file, load_text

LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if hasattr(yaml, "CSafeLoader") else [])]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """Each of the two parsers: PyYAML is also distributed without libyaml."""
    monkeypatch.setattr(yaml_reader, "_Loader", request.param)
    loader: type = request.param
    return loader


def faults_of(text: str | bytes) -> tuple[Fault, ...]:
    with pytest.raises(ManifestError) as caught:
        load_text(text, "f.yaml")
    return caught.value.faults


def told(text: str | bytes) -> list[tuple[int, int, str, str | None]]:
    return [(f.at.line, f.at.column, f.message, f.hint) for f in faults_of(text)]


# -- what is read ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None), ("Null", None),
        ("1", 1), ("-7", -7), ("+3", 3), ("017", 17), ("9.10", 9.1), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0),
        ("-2.5E-1", -0.25),
        # YAML 1.1 reads all of these as something else than text
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("22:22", "22:22"),
        ("1_000", "1_000"), ("2024-01-01", "2024-01-01"), ("0x1F", "0x1F"), ("0b1", "0b1"), (".inf", ".inf"),
        (".nan", ".nan"), ("=", "="), ("1.2.3", "1.2.3"), (".", "."), ("+", "+"), ("e3", "e3"),
        ("==9.*", "==9.*"), ("~=2.4", "~=2.4"), ("<3", "<3"), ("tRUE", "tRUE"),
        ('"true"', "true"), ("'1'", "1"), ('""', ""), ('"9.10"', "9.10"), ("|\n  a\n  b", "a\nb"), (">\n  a\n  b", "a b"),
        ('"<<"', "<<"), ('"é\\n"', "é\n"), ("日本", "日本"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    data = load_text(f"k: {text}", "f.yaml").data
    assert isinstance(data, dict)
    assert data == {"k": value}
    assert type(data["k"]) is type(value)


@pytest.mark.usefixtures("parser")
def test_structures() -> None:
    text = """\
        a: {b: [1, two, {c: }], "d e": null}
        f:
          - - 1
            - 2
          - g: h
            i: j
        k: []
        l: {}
        """
    assert load_text(textwrap.dedent(text), "f").data == {
        "a": {"b": [1, "two", {"c": None}], "d e": None},
        "f": [[1, 2], {"g": "h", "i": "j"}],
        "k": [],
        "l": {},
    }


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only a comment\n", "---\n", "--- \n...\n", "%YAML 1.2\n---\n"]
)
def test_no_content_is_null(text: str) -> None:
    document = load_text(text, "f")
    assert document.data is None
    assert document.mark(("a", 0)).file == "f"


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "text", ["\ufeffa: b", "\ufeffa: b".encode(), "a: b\r\n", b"a: b\n", "%YAML 1.2\n---\na: b\n..."]
)
def test_byte_order_mark_line_ends_and_bytes(text: str | bytes) -> None:
    document = load_text(text, "f")
    assert document.data == {"a": "b"}
    assert document.mark(("a",)).column == 4


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text("aä<~'\"\\#:{}[],&*!|>%@` \n\t1.-e?日", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab:1 '\"~<", max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from(LOADERS), st.sampled_from([None, 1]))
def test_json_is_read_as_json_and_every_place_is_found(
    data: object, loader: type, indent: int | None
) -> None:
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    kept, yaml_reader._Loader = yaml_reader._Loader, loader
    try:
        document = load_text(text, "f.json")
    finally:
        yaml_reader._Loader = kept
    assert document.data == data
    lines = text.split("\n")

    def check(part: object, path: tuple[str | int, ...]) -> None:
        mark = document.mark(path)
        start = json.dumps(part, ensure_ascii=False)[:1]
        assert lines[mark.line - 1][mark.column - 1 :].startswith(start), path
        if isinstance(part, dict):
            for key, value in part.items():
                at = document.mark((*path, key), key=True)
                assert lines[at.line - 1][at.column - 1 :].startswith(json.dumps(key, ensure_ascii=False))
                check(value, (*path, key))
        elif isinstance(part, list):
            for i, value in enumerate(part):
                check(value, (*path, i))

    check(data, ())


# -- places ---------------------------------------------------------------------------------------------------------

PLACES = """\
# comment
name: x
rules:
  - when: {head_size: 9, "a b": [1, 22]}
    reject: >-
      text
  - when:
"""


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("path", "key", "place"),
    [
        ((), False, (2, 1)),
        (("name",), False, (2, 7)),
        (("name",), True, (2, 1)),
        (("rules",), True, (3, 1)),
        (("rules",), False, (4, 3)),
        (("rules", 0), False, (4, 5)),
        (("rules", 0, "when"), False, (4, 11)),
        (("rules", 0, "when", "head_size"), True, (4, 12)),
        (("rules", 0, "when", "head_size"), False, (4, 23)),
        (("rules", 0, "when", "a b", 1), False, (4, 37)),
        (("rules", 0, "reject"), False, (5, 13)),
        # the nearest ancestor of what is not there
        (("rules", 0, "when", "nope"), False, (4, 11)),
        (("rules", 0, "when", "nope"), True, (4, 11)),
        (("rules", 7, "when"), False, (4, 3)),
        (("name", "x", 0), True, (2, 7)),
        (("nope",), True, (2, 1)),
    ],
)
def test_marks(path: tuple[str | int, ...], key: bool, place: tuple[int, int]) -> None:
    mark = load_text(PLACES, "dir/f.yaml").mark(path, key)
    assert mark == Mark("dir/f.yaml", *place)
    assert str(mark) == f"dir/f.yaml:{place[0]}:{place[1]}"


def test_lines_and_faults_of_a_document() -> None:
    document = load_text(PLACES, "f.yaml")
    assert document.line(2) == "name: x"
    assert [document.line(n) for n in (0, -1, 99)] == ["", "", ""]
    assert document.fault(("rules", 0, "when", "head_size"), "m", "h", key=True) == Fault(
        Mark("f.yaml", 4, 12),
        "rules[0].when.head_size",
        "m",
        "h",
        '  - when: {head_size: 9, "a b": [1, 22]}',
        "error",
    )


def test_a_document_survives_pickling() -> None:
    document = pickle.loads(pickle.dumps(load_text(PLACES, "f.yaml")))
    assert document.mark(("rules", 0, "reject")) == Mark("f.yaml", 5, 13)
    assert document.line(2) == "name: x"


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\nb: 4\na: 5", [
            (3, 1, "a is given twice (first on line 1)", "keep one"),
            (4, 1, "b is given twice (first on line 2)", "keep one"),
            (5, 1, "a is given twice (first on line 1)", "keep one"),
        ]),
        ("a: &x 1\nb: *x", [
            (1, 4, "anchors (&x) are refused", "text that starts with & must be quoted"),
            (2, 4, "aliases (*x) are refused", "write the value out; text that starts with * must be quoted"),
        ]),
        ("a: &x {b: 1}", [(1, 4, "anchors (&x) are refused", "text that starts with & must be quoted")]),
        ("- &x a\n- *x", [
            (1, 3, "anchors (&x) are refused", "text that starts with & must be quoted"),
            (2, 3, "aliases (*x) are refused", "write the value out; text that starts with * must be quoted"),
        ]),
        ("*a", [(1, 1, "aliases (*a) are refused", "write the value out; text that starts with * must be quoted")]),
        ("<<: {a: 1}\nb: 1", [(1, 1, "merge keys (<<) are refused", "repeat the entries, or use `extends`")]),
        ("a: !!python/object:os.system [x]", [
            (1, 4, "tags (!!python/object:os.system) are refused", "text that starts with ! must be quoted")]),
        ("a: !!str 1", [(1, 4, "tags (!!str) are refused", "text that starts with ! must be quoted")]),
        ("a: ! 1", [(1, 4, "tags (!) are refused", "text that starts with ! must be quoted")]),
        ("a: !x {b: c}", [(1, 4, "tags (!x) are refused", "text that starts with ! must be quoted")]),
        ("a: !=2.4", [(1, 4, "!=2.4 unquoted is a YAML tag", 'quote it: "!=2.4"')]),
        ("1: a", [(1, 1, "a key must be text, and 1 is a number", 'quote it: "1"')]),
        ("9.0: a", [(1, 1, "a key must be text, and 9.0 is a number", 'quote it: "9.0"')]),
        ("true: a", [(1, 1, "a key must be text, and true is a truth value", 'quote it: "true"')]),
        ("~: a", [(1, 1, "a key must be text, and ~ is nothing", 'quote it: "~"')]),
        ("?\n: a", [(1, 2, "a key must be text, and an empty key is nothing", "write a name before the colon")]),
        ("? [a]\n: b", [
            (1, 3, "a key must be a word, not a list or a mapping", 'text that starts with "{" or "[" must be quoted')]),
        ("{a: 1}: b", [
            (1, 1, "a key must be a word, not a list or a mapping", 'text that starts with "{" or "[" must be quoted')]),
        ("a: 1\n---\nb: 2", [(2, 1, "a second document in one file", "keep one document in each file")]),
        ("a: 1\n...\n---\n", [(3, 1, "a second document in one file", "keep one document in each file")]),
        ("%YAML 1.1\n---\na: 1", [(1, 1, "%YAML 1.1 is not read", "remove the line, or say %YAML 1.2")]),
        ("%TAG ! tag:x,2000:\n---\na: 1", [(1, 1, "%TAG is not read: tags are refused", "remove the line")]),
        ("a: 1e999", [(1, 4, "1e999 is too large for a number", "quote it if it is text")]),
        (f"a: {'9' * 5000}", [(1, 4, "a number of more than 18 digits", "quote it if it is text")]),
        ('a: "\\0"', [(1, 4, "a control character in text", "remove the escape")]),
        ('a: "\\e[31m"', [(1, 4, "a control character in text", "remove the escape")]),
        # what people write when they mean a version
        ("a: >=2.4", [(1, 4, ">=2.4 unquoted starts a block of text", 'quote it: ">=2.4"')]),
        ("a: >=2.4,<3  # why\nb: 1", [(1, 4, ">=2.4,<3 unquoted starts a block of text", 'quote it: ">=2.4,<3"')]),
        ("a: {b: >=2.4, c: 1}", [(1, 8, "unquoted text cannot start with >", 'quote it: ">=2.4"')]),
        ("a: [>2]", [(1, 5, "unquoted text cannot start with >", 'quote it: ">2"')]),
        ("a: >2\nb: 1", [
            (1, 4, "> starts a block of text, and the block is empty", 'a comparison must be quoted: ">2"')]),
        # syntax
        ("a:\n\tb: 1", [(2, 1, "a tab cannot be used here", "indent with spaces")]),
        ("a: @x", [(1, 4, "unquoted text cannot start with @", 'quote it: "@x"')]),
        ("a: `x \"y\"`", [(1, 4, "unquoted text cannot start with `", "quote it: '`x \"y\"`'")]),
        ("a: %x", [(1, 4, "unquoted text cannot start with %", 'quote it: "%x"')]),
        ("a: *", [(1, 4, "aliases and anchors are refused", 'quote it: "*"')]),
        ("a: b: c", [(1, 5, "a colon inside unquoted text, or a wrong indentation",
                      "quote the text, or line the key up with its neighbours")]),
        ("a: 'x", [(1, 4, "the quote that opens here is never closed", "close it")]),
        ("- a\nb: c", [(2, 1, "this does not line up with what starts on line 1", "check the indentation and the quotes")]),
        ("a:\n - b\n c: d", [
            (3, 2, "this does not line up with what starts on line 2", "check the indentation and the quotes")]),
        ("  a: 1\n b: 2", [(2, 2, "this does not belong to anything above it", "check the indentation")]),
        ("a: 1\nb\nc: 1", [(2, 1, "expected `key: value`", "write a colon and a space after the key")]),
        ("a: [1\nb: {c\n", None),
        ("a: {b: 1\nc: 2", None),
        ("a: ]", [(1, 4, "expected a value here", "text that starts with a bracket or a comma must be quoted")]),
        ("a: [1,, 2]", [(1, 7, "expected a value here", "text that starts with a bracket or a comma must be quoted")]),
        ('a: "\\q"', None),
    ],
)  # fmt: skip
def test_refused(text: str, expected: list[tuple[int, int, str, str | None]] | None) -> None:
    if expected is None:  # the two parsers stop in different places
        assert len(faults_of(text)) == 1
    else:
        assert told(text) == expected


@pytest.mark.usefixtures("parser")
def test_all_faults_of_a_text_come_together_and_with_their_paths() -> None:
    text = "a: &x 1\nrules:\n  - when: {b: 1, b: 2}\n    3: !t x\n  - q: *x\n  - r: >=2\n"
    assert [(f.at.line, f.path) for f in faults_of(text)] == [
        (1, "a"), (3, "rules[0].when.b"), (4, "rules[0]"), (4, "rules[0]"), (5, "rules[1].q"), (6, "rules[2].r"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (b"a: b\nc: \xff", (2, 4), "byte 0xff is not UTF-8 text"),
        (b"a: \xed\xa0\x80", (1, 4), "byte 0xed is not UTF-8 text"),
        ("é: \xff".encode("latin-1"), (1, 1), "byte 0xe9 is not UTF-8 text"),
        ("a: b".encode("utf-16"), (1, 1), "UTF-16 text"),
        ("a: \0", (1, 4), "the character U+0000 is not allowed"),
        (b"a: b\n\0", (2, 1), "the character U+0000 is not allowed"),
        ("a: \x1b[31m", (1, 4), "the character U+001B is not allowed"),
        ("é: \x85", (1, 4), "the character U+0085 is not allowed"),
        ("a\u2028b: c", (1, 2), "the character U+2028 is not allowed"),
        ("a: \ufeffb", (1, 4), "the character U+FEFF is not allowed"),
        ("a: \ud800", (1, 4), "the character U+D800 is not allowed"),
    ],
)
def test_characters_that_are_refused(text: str | bytes, place: tuple[int, int], message: str) -> None:
    (fault,) = faults_of(text)
    assert (fault.at.line, fault.at.column) == place
    assert fault.message == message
    str(ManifestError([fault])).encode("utf-8")


# -- files ----------------------------------------------------------------------------------------------------------


def file_fault(path: Path | str) -> Fault:
    with pytest.raises(ManifestError) as caught:
        load_file(path)
    (fault,) = caught.value.faults
    read = int("bytes" in fault.message or fault.message.startswith("larger"))  # else it is no file to read
    assert fault.at == Mark(os.fspath(path), read, read)
    assert read or str(fault).startswith(f"{printable(os.fspath(path))}: ")
    return fault


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\n")
    assert load_file(path).data == {"a": 1}
    assert load_file(str(path)).mark(("a",)) == Mark(str(path), 1, 4)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    assert load_file(link).data == {"a": 1}


def test_what_is_no_readable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.yaml").mkdir()
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "pool.yaml")
    (tmp_path / "pool.yaml").symlink_to(tmp_path / "loop.yaml")
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "fifo.yaml")
    expected = {
        tmp_path / "x.yaml": "a directory, and a file was expected",
        tmp_path / "loop.yaml": "a symbolic link that leads back to itself",
        tmp_path / "none.yaml": "no such file",
        tmp_path / "file" / "a.yaml": "no such file (a part of the path is not a directory)",
        tmp_path / "fifo.yaml": "not a regular file",
        Path("/dev/zero"): "not a regular file",
        tmp_path / ("n" * 300): "the name is too long",
    }
    start = time.perf_counter()
    assert {path: file_fault(path).message for path in expected} == expected
    assert file_fault("a\0b").message == "not a possible file name"
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)
        server.bind("s.yaml")
        assert file_fault("s.yaml").message == "not a regular file"
    assert time.perf_counter() - start < 5


def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    assert file_fault(path).message == "may not be read (permission denied)"


def test_a_file_that_grows_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size is only what was true a moment ago (and 0 for files that the system makes up)."""
    path = tmp_path / "a.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 100))
    real = os.fstat

    def small(descriptor: int) -> os.stat_result:
        fields = list(real(descriptor))
        fields[6] = 0
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", small)
    assert file_fault(path).message == "larger than 1 MiB"


def test_a_hundred_megabytes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.write(b"a: 1\n")
        file.truncate(100 << 20)
    tracemalloc.start()
    try:
        start = time.perf_counter()
        fault = file_fault(path)
        assert time.perf_counter() - start < 1
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert fault.message == "104857600 bytes, and at most 1048576 are read"


@pytest.mark.parametrize("text", ["#" * (MAX_BYTES + 1), b"#" * (MAX_BYTES + 1)])
def test_a_large_text_is_refused(text: str | bytes) -> None:
    assert [f.message for f in faults_of(text)] == ["larger than 1 MiB"]


# -- hostile input --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("parser")
def test_depth() -> None:
    def nested(levels: int) -> str:
        return "[" * levels + "]" * levels

    load_text(nested(MAX_DEPTH), "f")
    load_text("- " * (MAX_DEPTH - 1) + "- a", "f")
    for text in (
        nested(MAX_DEPTH + 1),
        "- " * MAX_DEPTH + "- a",
        nested(10_000),
        "{a: " * 10_000,
        "- " * 10_000,
    ):
        assert [f.message for f in faults_of(text)] == [f"nested deeper than {MAX_DEPTH} levels"]


HOSTILE = r"""
import re, sys, time, resource
from collections.abc import Callable
from pathlib import Path
import yaml
from selector import yaml_reader
from selector.errors import ManifestError
from selector.yaml_loader import MAX_BYTES, load_text

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [" + ", ".join([f"*{a}"] * 9) + "]\n" for a, b in zip("abcdefgh", "bcdefghi"))

def hostile(size):
    return {
        "alias bomb": bomb,
        "merge bomb": bomb.replace("[x", "{x: y").replace("]", "}") + "z: {<<: *a}",
        "aliases": "a: &a x\nb: [" + "*a, " * (size // 4) + "]",
        "brackets": "[" * size,
        "braces": "{" * size,
        "braces and keys": "{a: " * (size // 4),
        "dashes": "- " * (size // 2),
        "questions": "? " * (size // 2),
        "stairs": "".join(" " * i + "a:\n" for i in range(1400)),
        "quote": 'a: "' + "x" * size,
        "escapes": 'a: "' + r"\x41" * (size // 4),
        "duplicates": "a: 1\n" * (size // 5),
        "tags": "- !!python/object/apply:os.system [x]\n" * (size // 40),
        "anchors": "".join(f"- &a{i} x\n" for i in range(size // 14)),
        "number": "a: " + "9" * size,
        "float": "a: 1." + "9" * size + "x: :",
        "key": "a" * size + ": b\n",
        "documents": "---\n" * (size // 4),
        "numbers as keys": "".join(f"{i}: x\n" for i in range(size // 10)),
        "percent": "%" * size,
        "exclamation": "a: !" + "x" * size,
        "nul": "a: b\n" + "\0" * 1000,
        "folded": "a: >" + "9" * size,
        "colons": ":" * size + " :",
        "tabs": "a:\n" + "\t" * size + "b: c",
    }

worst = 0.0
for loader in {getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader}:
    yaml_reader._Loader = loader
    for name, text in hostile(MAX_BYTES // 8 if loader is yaml.SafeLoader else MAX_BYTES - 100).items():
        start = time.perf_counter()
        try:
            load_text(text, "f.yaml")
        except ManifestError as error:
            assert 0 < len(error.faults) <= 101, name
            assert len(str(error)) < 20_000, name
            assert sum(len(f.message + (f.hint or "")) for f in error.faults) < 50_000, name
        else:
            sys.exit(f"{name} was read")
        worst = max(worst, time.perf_counter() - start)
        print(f"{name} {loader.__name__} {time.perf_counter() - start:.2f}")
# the peak of this program alone: ru_maxrss has that of the process which started it, too
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text()).group(1))
assert worst < 10, worst
"""


def test_hostile_texts_cost_little_time_and_memory() -> None:
    """Up to a mebibyte of each; the child may use 1 GiB of address space and every text 10 seconds."""
    child = subprocess.run(
        [sys.executable, "-c", HOSTILE], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stdout[-2000:] + child.stderr[-2000:]
    assert int(child.stdout.split()[-1]) < 300_000  # KiB


YAMLISH = st.text("ab1 \n:-?[]{},#&*!|>'\"%@`~<=.\t\\x0e\r/", max_size=60)


@settings(max_examples=400)
@given(YAMLISH | st.text(max_size=30) | st.binary(max_size=40), st.sampled_from(LOADERS))
def test_any_text_is_read_or_refused_with_places_inside_it(text: str | bytes, loader: type) -> None:
    kept, yaml_reader._Loader = yaml_reader._Loader, loader
    try:
        document = load_text(text, "f.yaml")
    except ManifestError as error:
        assert error.faults
        for fault in error.faults:
            assert fault.at.line >= 1
            assert fault.at.column >= 1
        str(error).encode("utf-8")
    else:
        json.dumps(document.data, allow_nan=False)
    finally:
        yaml_reader._Loader = kept


def test_places_and_checks_cost_less_than_a_pure_python_parser() -> None:
    """A ratio within one run: libyaml with our places against PyYAML's own parser without any (a fifteenth of it, measured)."""
    if yaml_reader._Loader is yaml.SafeLoader:
        pytest.skip("PyYAML without libyaml")
    entry = (
        "  - when: {kv_cache_dtype: fp8_e4m3, alibi: true, head_size: {min: 1, max: 256}}\n"
        '    reject: "a sentence"\n    source: https://example.com/a/b#L1\n'
    )
    text = "manifest: 1\nrules:\n" + entry * 18
    ours = min(_seconds(lambda: load_text(text, "f.yaml")) for _ in range(5))
    pure = min(_seconds(lambda: yaml.load(text, yaml.SafeLoader)) for _ in range(3))
    assert ours < pure / 4


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    for _ in range(5):
        work()
    return time.process_time() - start


# -- errors ---------------------------------------------------------------------------------------------------------

FAULT = Fault(Mark("f.yaml", 3, 7), "a.b", "message", "hint", "  bad: line")


@pytest.mark.parametrize(
    "error",
    [
        ManifestError([FAULT]),
        RequestError([Problem("head_sze", "unknown axis head_sze", "did you mean head_size?")]),
        EnvironmentFileError("no environment h10", "did you mean h100?", [FAULT]),
        NoBackendError("nothing fits", report={"rejected": ["a"]}),
        PinError("flash_attn/fa2 cannot be used"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_values(error: SelectorError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert again == error
    assert hash(again) == hash(error)
    assert str(again) == str(error)
    assert again != SelectorError(*error.args)
    assert error.exit_code == (3 if isinstance(error, NoBackendError) else 2)


def test_errors_with_different_evidence_differ() -> None:
    assert ManifestError([FAULT]) != ManifestError([FAULT._replace(path="a")])
    assert NoBackendError("m", report=1) != NoBackendError("m", report=2)
    assert NoBackendError("m") != PinError("m")
    raised = NoBackendError("m")
    raised.report = 1
    assert pickle.loads(pickle.dumps(raised)).report == 1


def test_the_text_of_errors() -> None:
    warning = FAULT._replace(at=Mark("f.yaml", 2, 1), severity="warning", line_text=None, hint=None)
    assert str(ManifestError([FAULT, warning])) == (
        "f.yaml:2:1: warning: message\nf.yaml:3:7: message\n      bad: line\n          ^\n    hint"
    )
    problems = [Problem("a", "unknown axis a", "did you mean b?"), Problem("c", "c is a flag")]
    assert str(RequestError(problems)) == "unknown axis a (did you mean b?)\nc is a flag"
    assert str(EnvironmentFileError("no environment h10", "did you mean h100?")) == (
        "no environment h10 (did you mean h100?)"
    )


def test_an_error_is_one_screen_in_file_order_and_harmless_to_a_terminal() -> None:
    faults = [FAULT._replace(at=Mark("f.yaml", n, 1)) for n in range(50, 0, -1)]
    lines = str(ManifestError(faults)).split("\n")
    assert lines[0] == "f.yaml:1:1: message"
    assert lines[-1] == "... and 30 more"
    assert len(lines) == 20 * 4 + 1
    evil = Fault(
        Mark("f\x1b\ud800.yaml", 1, 503), "", "m\x07", None, "\t" + "é" * 500 + "\x1b[31m!" + "x" * 500
    )
    text = str(ManifestError([evil]))
    assert text.isascii() is False
    assert text.replace("\n", "").isprintable()
    head, line, caret = text.split("\n")
    assert head == "f\\x1b\\ud800.yaml:1:503: m\\x07"
    assert line[caret.index("^") :].startswith("[31m!")
    assert len(line) < 130


def test_paths() -> None:
    assert format_path(("rules", 2, "when", "head_size")) == "rules[2].when.head_size"
    assert format_path(()) == ""
    assert format_path((0, "a")) == "[0].a"


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("count", [98, 99, 100, 101, 102])
def test_broken_syntax_behind_as_many_mistakes_as_are_told(count: int) -> None:
    assert len(faults_of("a: 1\n" * (count + 1) + "b: ]")) == min(count + 1, yaml_reader.MAX_FAULTS)
