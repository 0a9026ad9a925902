"""Requests out of the error texts of other projects, as packs describe them (`error:` in `pack.yaml`).

Such a text comes out of a log or a terminal: coloured, behind a prefix on every line, wrapped anywhere, or cut off. So the
literal markers of the pack are looked for in the text without its white space, and what cannot be read is said, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from selector.pack import Between, ErrorText
    from selector.vocabulary import Axis, Vocabulary

__all__ = ["Reading", "read_error"]

#: Characters without white space in which the end of a request, or of anything else between markers, is looked for.
REACH = 8192

#: Lines of one length in a row that were broken by their length, and not between words.
ALIKE = 4

#: Colours and other terminal sequences, the bytes themselves or written out by another logger.
_TERMINAL = re.compile(
    r"(?:\x1b|\\x1b|\\u001b|\\033|\^\[)\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
#: Line breaks that a logger has written out (JSON lines).
_WRITTEN_BREAK = re.compile(r"(?<!\\)\\r?\\?n")
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
#: How Python shows a member of an enumeration.
_MEMBER = re.compile(r"<[\w.]+:(.+)>\Z")
_DIGITS = str.maketrans("123456789", "0" * 9)


class Reading(NamedTuple):
    """What an error's text says.

    ``fields`` are of the vocabulary, by the names in the text, in canonical form; ``unknown`` it does not have;
    ``impossible`` have a value that it does not have. ``cut`` is whether the text ends inside the request. ``refusals`` are
    the other project's own words, by backend; ``backend`` is one that was asked for. ``requests`` counts distinct ones.
    """

    fields: Mapping[str, Any]
    unknown: Mapping[str, str]
    impossible: Mapping[str, str]
    cut: bool
    requests: int
    backend: str | None
    facts: Mapping[str, str]
    refusals: Mapping[str, str]

    @property
    def found(self) -> bool:
        """Whether the text says anything at all."""
        return self.requests > 0 or self.backend is not None


def read_error(text: str, form: ErrorText, vocabulary: Vocabulary, backends: Mapping[str, str]) -> Reading:
    """Read the last error in ``text``. ``backends`` maps what backends are called, in lower case, to their names."""
    starts = (form.request, form.backend, *form.environment.values())
    whole = _Text(text, [b.after for b in starts if b is not None])
    requests = [
        (at, found)
        for at, begin, end, closed in whole.parts(form.request)
        if (found := _Fields(whole.dense[begin:end], not closed, vocabulary)).known
    ]  # a marker without a field is a line of a program
    asked = whole.closed(form.backend)
    last = requests[-1] if requests else None
    pinned = asked[-1] if asked and (last is None or asked[-1][0] > last[0]) else None
    backend = None if pinned is None else _last_part(pinned[1], backends)
    refusals: dict[str, str] = {}
    if backend is not None and pinned is not None:
        own = next(whole.parts(form.refusal, pinned[0]), None)
        refusals = {} if own is None else {backend: whole.spaced(own[1], own[2])}
        last = None  # the request of another error
    elif last is not None:
        refusals = whole.listed(form.refusals, last[0], backends)
    facts = {}
    for name, between in form.environment.items() if last is not None else ():
        axis = vocabulary.find(name)
        said = [value for at, value in whole.closed(between) if last is not None and at < last[0]]
        if axis is not None and said:
            value = _value(axis, said[-1])
            facts.update({axis.name: value} if value is not _NONE else {})
    fields = last[1] if last is not None else _Fields("", False, vocabulary)
    count = len({f.key for _, f in requests}) if last is not None else 0
    return Reading(
        fields.known, fields.unknown, fields.impossible, fields.cut, count, backend, facts, refusals
    )


class _Text:
    """A text and the same without white space; positions are those of the second."""

    def __init__(self, text: str, starts: Sequence[str]) -> None:
        plain = _WRITTEN_BREAK.sub("\n", _TERMINAL.sub("", text))
        self.joined = _join(plain.splitlines(), starts)
        self.dense = "".join(self.joined.split())

    def parts(self, between: Between | None, start: int = 0) -> Iterator[tuple[int, int, int, bool]]:
        """Each part behind a first marker, up to the second one that closes it: (marker, begin, end, whether it is closed).

        No part reaches into the next one, so a log of nothing but markers costs what its length is.
        """
        if between is None:
            return
        after, before = _dense(between.after), _dense(between.before)
        opens = _OPENS.get(before) if after.endswith(_OPENS.get(before, " ")) else None
        at = self.dense.find(after, start)
        while at >= 0:
            begin = at + len(after)
            following = self.dense.find(after, begin)
            rest = self.dense[begin : begin + REACH if following < 0 else min(begin + REACH, following)]
            end = _closing(rest, opens, before)
            yield at, begin, begin + (len(rest) if end < 0 else end), end >= 0
            at = following

    def closed(self, between: Between | None) -> list[tuple[int, str]]:
        """(where, text) of each part that has both markers."""
        return [(at, self.dense[begin:end]) for at, begin, end, closed in self.parts(between) if closed]

    def listed(self, between: Between | None, start: int, backends: Mapping[str, str]) -> dict[str, str]:
        """`NAME: [TEXT]` by name, as far as the names are those of backends."""
        part = next(self.parts(between, start), None)
        if part is None:
            return {}
        _, begin, end, _ = part
        heads = [
            m for m in re.finditer(r"([A-Za-z]\w*):\[", self.dense[begin:end]) if m[1].lower() in backends
        ]
        found: dict[str, str] = {}
        for head, behind in zip(heads, [*heads[1:], None]):
            stop = self.dense.rfind(
                "]", begin + head.end(), end if behind is None else begin + behind.start()
            )
            until = stop if stop >= 0 else (end if behind is None else begin + behind.start())
            found.setdefault(backends[head[1].lower()], self.spaced(begin + head.end(), until))
        return found

    def spaced(self, begin: int, end: int) -> str:
        """A part with its white space."""
        words, seen = [], 0
        for word in re.finditer(r"\S+", self.joined):
            size = word.end() - word.start()
            if seen + size > begin:
                words.append(word[0][max(begin - seen, 0) : end - seen])
            seen += size
            if seen >= end:
                break
        return " ".join(w for w in words if w)


_OPENS = {")": "(", "]": "[", "}": "{"}


def _closing(text: str, opens: str | None, closes: str) -> int:
    """Where the second marker stands that closes the first; -1 where it does not. Brackets nest."""
    if opens is None:
        return text.find(closes)
    depth = 1
    for i, char in enumerate(text):
        depth += (char == opens) - (char == closes)
        if depth == 0:
            return i
    return -1


def _dense(text: str) -> str:
    return "".join(text.split()) or text


def _join(lines: list[str], starts: Sequence[str]) -> str:
    """Lines as one text, without the prefix that a logger puts before each, whose numbers may differ.

    The prefix is what a line has in common with the last one that holds one of ``starts``, as far as that does not reach
    into such a text: then it is another message of the same words.
    """
    parts: list[str] = []
    reference, previous, earlier, same = "", "", "", 0
    for line in lines:
        at = min((i for start in starts if (i := line.find(start.strip())) >= 0), default=-1)
        if at < 0 and any(_dense(start) in _dense(line) for start in starts):
            at = 0
        plain = line.translate(_DIGITS)
        prefix = _prefix((reference or previous).translate(_DIGITS), plain)
        if prefix and not reference and same > 1:  # two lines may begin alike by chance
            prefix = min(prefix, _prefix(earlier.translate(_DIGITS), plain))
        if at >= 0:
            prefix = prefix if prefix <= at else 0
            reference = line
        # where a terminal ended, lines of one length go on in the middle of a word
        parts.append(line[prefix:] if same >= ALIKE else " " + line[prefix:])
        same = same + 1 if line and len(line) == len(previous) else 1
        previous, earlier = line, previous
    return "".join(parts)


def _prefix(one: str, other: str) -> int:
    """The length of the words that two lines both begin with."""
    ends = 0
    for i, (a, b) in enumerate(zip(one, other), start=1):
        if a != b:
            break
        if a in " |\t":
            ends = i
    return ends


class _Fields:
    """The fields of one request's text."""

    def __init__(self, body: str, cut: bool, vocabulary: Vocabulary) -> None:
        self.known: dict[str, Any] = {}
        self.unknown: dict[str, str] = {}
        self.impossible: dict[str, str] = {}
        self.cut = cut
        pieces = _pieces(body)
        if cut and not body.endswith(","):
            pieces = pieces[:-1]  # nobody knows whether the last one is whole
        taken: set[str] = set()
        for piece in pieces:
            name, sign, text = piece.partition("=")
            if not sign or not _NAME.match(name) or not text:
                if cut:
                    break  # what follows the place of the cut
                self.impossible[name or "?"] = text or piece
                continue
            axis = vocabulary.find(name)
            if axis is None or axis.of != "request" or axis.derive is not None:
                self.unknown[name] = text
                continue
            value = _value(axis, text)
            if value is _NONE:
                if cut and "=" in text:
                    break
                self.impossible[name] = text
            elif axis.name not in taken:
                taken.add(axis.name)
                self.known[name] = value

    @property
    def key(self) -> tuple[tuple[str, Any], ...]:
        """The same for requests that are the same."""
        return tuple(sorted((name, repr(value)) for name, value in self.known.items()))


def _pieces(body: str) -> list[str]:
    """The text at its commas, those inside brackets left alone."""
    pieces, depth, begin = [], 0, 0
    for i, char in enumerate(body):
        depth += (char in "([{<") - (char in ")]}>")
        if char == "," and depth <= 0:
            pieces.append(body[begin:i])
            begin = i + 1
    last = body[begin:]
    return [*pieces, last] if last else pieces


class _Nothing:
    """No value of the axis."""


_NONE = _Nothing()


def _value(axis: Axis, text: str) -> Any:
    """The value that a text stands for; `_NONE` where the axis has no such value."""
    member = _MEMBER.match(text)
    plain = (member[1] if member else text).strip("'\"")
    if plain == "None":
        return None
    for spelling in (plain, plain.rpartition(".")[2]):
        try:
            return axis.canonical(spelling)
        except ValueError:
            continue
    return _NONE


def _last_part(text: str, backends: Mapping[str, str]) -> str | None:
    """The backend that a dotted name ends with."""
    member = _MEMBER.match(text)
    name = (text.partition(":")[0].lstrip("<") if member else text).rpartition(".")[2].strip("'\"")
    return backends.get(name.lower(), name or None)
