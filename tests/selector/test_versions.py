"""The short cut for plain versions says what `packaging` says."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from selector.versions import _clauses, _plain, contains, is_specifier, is_version

numbers = st.sampled_from(["0", "1", "2", "9", "10", "12", "00", "007", "123456789", "1234567890123"])
releases = st.lists(numbers, min_size=1, max_size=4).map(".".join)
suffixes = st.sampled_from(
    [
        "",
        "",
        "",
        "",
        "+cpu",
        "+cu130",
        "+1.2",
        "+a-b_c",
        "+",
        "+a..b",
        "rc1",
        "a2",
        ".post1",
        ".dev0",
        "+cpu.",
        "-1",
        " ",
    ]
)
prefixes = st.sampled_from(["", "", "", "", "v", "1!", " "])
versions = st.builds(lambda prefix, release, suffix: prefix + release + suffix, prefixes, releases, suffixes)
operators = st.sampled_from([">=", "<=", "==", "!=", "~=", ">", "<", "===", "=", "", ">=="])
clauses = st.builds(
    lambda op, space, version, star: op + space + version + star,
    operators,
    st.sampled_from(["", "", " "]),
    versions,
    st.sampled_from(["", "", "", ".*", "*"]),
)
specifiers = st.lists(clauses, max_size=3).map(",".join)


def reference(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:
        return False


@settings(max_examples=600, deadline=None)
@given(specifiers, versions)
def test_agrees_with_packaging(specifier: str, version: str) -> None:
    try:
        expected = reference(specifier, version)
    except InvalidSpecifier:
        assert not is_specifier(specifier)
        return
    assert is_specifier(specifier)
    assert contains(specifier, version) == expected


@settings(max_examples=600, deadline=None)
@given(st.one_of(versions, specifiers, st.text(alphabet="0123456789.+*v!abrcdevpost-_ \t\n²٣", max_size=8)))
def test_knows_a_version(text: str) -> None:
    try:
        Version(text)
        expected = True
    except InvalidVersion:
        expected = False
    assert is_version(text) == expected


@pytest.mark.parametrize("version", ["9.0", "2.13.0+cpu", "0.6.18", "12", "1.0+a-b_c"])
def test_a_plain_version_is_not_left_to_packaging(version: str) -> None:
    assert _plain(version) is not None


@pytest.mark.parametrize("specifier", ["==9.*", ">=2.8,<3", "~=2.2", "!=1.2.*", "> 8", ""])
def test_a_plain_specifier_is_not_left_to_packaging(specifier: str) -> None:
    assert _clauses(specifier) is not None


def test_packaging_is_not_imported_for_plain_ones() -> None:
    code = (
        "import sys; from selector.versions import contains; assert contains('>=2.8,<3', '2.13.0+cpu'); "
        "print(any(m.startswith('packaging') for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
