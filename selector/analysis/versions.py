"""Versions that stand for all others: points at, beside and between the versions that specifiers name.

PEP 440 orders versions totally, and a specifier changes its answer only near the versions it names: at the version, at
its development, pre-, post- and local releases, and at the ends of a prefix. Samples from all of these places, put in
groups by what the specifiers say of them, leave no possible combination of answers out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable

__all__ = ["named_versions", "representatives"]

_VERSION = re.compile(r"[0-9][0-9A-Za-z.!+_-]*")
#: What may stand behind the number of a named release, in PEP 440's order; and behind one beside it.
_SUFFIXES = (".dev0", "a0", "rc1", "rc1.post1", "", "+local", ".post0.dev0", ".post1", ".post1+local")
_FEW = (".dev0", "")


def named_versions(specifiers: Iterable[str]) -> list[str]:
    """The versions that specifiers name, without the star of a prefix."""
    found: dict[str, None] = {}
    for specifier in specifiers:
        for text in _VERSION.findall(specifier.replace(".*", "")):
            found[text.strip(".")] = None
    return list(found)


def samples(named: Iterable[str]) -> list[str]:
    """Versions in every place where the answer of a specifier that names these can change."""
    from packaging.version import InvalidVersion, Version

    named_releases: dict[tuple[int, ...], None] = {}
    releases: dict[tuple[int, ...], None] = {(0,): None}
    found: dict[str, None] = {}
    for text in named:
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        found[text] = None
        release = version.release
        named_releases[release] = None
        for length in range(1, len(release) + 1):
            releases.update(dict.fromkeys(_beside(release[:length])))
        for tail in ((0,), (0, 1), (1,), (99,)):
            releases[release + tail] = None
        found.update(dict.fromkeys(_suffixed(version)))
    releases[(max(r[0] for r in releases) + 1,)] = None
    for group, suffixes in ((named_releases, _SUFFIXES), (releases, _FEW)):
        for release in group:
            text = ".".join(map(str, release))
            found.update(dict.fromkeys(f"{text}{suffix}" for suffix in suffixes))
    return list(found)


def _beside(release: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    yield release
    yield (*release[:-1], release[-1] + 1)
    if release[-1]:
        yield (*release[:-1], release[-1] - 1)
        yield (*release[:-1], release[-1] - 1, 99)


def _suffixed(version: object) -> Iterable[str]:
    """Releases beside a named development, pre- or post-release."""
    text = str(version).partition("+")[0]
    release = ".".join(map(str, version.release))  # type: ignore[attr-defined]
    pre = version.pre  # type: ignore[attr-defined]
    post, dev = version.post, version.dev  # type: ignore[attr-defined]
    yield f"{text}+local"
    if pre is not None:
        for number in (pre[1] - 1, pre[1], pre[1] + 1):
            if number >= 0:
                for tail in (".dev0", "", "+local", ".post1"):
                    yield f"{release}{pre[0]}{number}{tail}"
    stem = f"{release}{pre[0]}{pre[1]}" if pre is not None else release
    if post is not None:
        for number in (post - 1, post, post + 1):
            if number >= 0:
                for tail in (".dev0", "", "+local"):
                    yield f"{stem}.post{number}{tail}"
        stem = f"{stem}.post{post}"
    if dev is not None:
        for number in (dev - 1, dev, dev + 1):
            if number >= 0:
                for tail in ("", "+local"):
                    yield f"{stem}.dev{number}{tail}"


def _plainness(text: str) -> tuple[bool, bool, int, int, str]:
    """Versions as people write them come first."""
    return (
        "+" in text or text == "0",
        not re.fullmatch(r"[0-9.]+", text),
        abs(text.count(".") - 1),
        len(text),
        text,
    )


def representatives(
    named: Iterable[str], answers: Callable[[str], Hashable]
) -> list[tuple[str, tuple[str, ...]]]:
    """One version for each combination of ``answers`` (the plainest), with all samples that share them, in order."""
    from packaging.version import Version

    groups: dict[Hashable, list[str]] = {}
    for text in samples(named):
        groups.setdefault(answers(text), []).append(text)
    found = []
    for members in groups.values():
        members.sort(key=lambda v: (Version(v), v))
        found.append((min(members, key=_plainness), tuple(members)))
    return sorted(found, key=lambda pair: (Version(pair[0]), pair[0]))
