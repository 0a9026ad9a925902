"""`explain --requests`: one JSON object a line in, one a line out, in order and in constant memory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from selector.cli import options
from selector.cli.errors import UsageError
from selector.errors import EXIT_USAGE, SelectorError
from selector.request import Request

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.preferences import Preference

__all__ = ["answer_lines"]

#: Bytes of one line; no request is nearly as long.
LINE = 1 << 20

#: Environments kept by what a line says of them; answers kept by what was asked, and their characters.
KEPT, ANSWERS, CHARACTERS = 256, 4096, 1 << 23

KEYS = ("request", "environment", "backend", "avoid", "prefer", "strict")


def answer_lines(arguments: Namespace) -> int:
    """Answer every line of the file; a line that cannot be answered becomes `{"error", "line"}`, the rest go on.

    Returns 0 if every line was answered (also with "nothing fits"), 2 if some could not be.
    """
    catalog = options.catalog_of(arguments)
    answerer = _Answerer(
        catalog,
        None if arguments.on is None else options.environment_of(arguments, catalog),
        options.preferences_of(arguments),
        strict=arguments.strict,
        reasons=not arguments.winners,
    )
    if arguments.on is None:
        answerer.probe = lambda: options.environment_of(arguments, catalog)
    bad = total = 0
    piped = arguments.requests == "-"
    with _opened(arguments.requests) as file:
        for number, line in _lines(file):
            total += 1
            try:
                answer = answerer.answer(line)
            except (SelectorError, ValueError, RecursionError) as error:
                bad += 1
                answer = _json({"error": _first(error), "line": number})
            sys.stdout.write(answer)
            if piped:
                sys.stdout.flush()  # whoever writes the next line may be waiting for this answer
    if bad:
        sys.stdout.flush()
        print(f"{bad} of {total} lines could not be answered", file=sys.stderr)
    return EXIT_USAGE if bad else 0


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return open(name, "rb")
    except OSError as error:
        raise UsageError(f"--requests {name}: {error.strerror}") from None


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines; None for one that is too long. Empty lines at the end are none."""
    empty = 0
    number = 0
    while line := file.readline(LINE):
        number += 1
        too_long = len(line) == LINE and not line.endswith(b"\n")
        while too_long and (rest := file.readline(LINE)):
            if rest.endswith(b"\n"):
                break
        if not too_long and not line.strip():
            empty += 1
            continue
        for skipped in range(number - empty, number):
            yield skipped, b""
        empty = 0
        yield number, None if too_long else line


def _first(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} (column {error.colno})"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: byte {error.start + 1}"
    return str(error)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


class _Answerer:
    """Answers lines with engines that are made once an environment."""

    def __init__(
        self,
        catalog: Catalog,
        environment: Environment | None,
        preferences: tuple[Preference, ...],
        *,
        strict: bool,
        reasons: bool,
    ) -> None:
        self.catalog, self.environment, self.preferences = catalog, environment, preferences
        self.strict, self.reasons = strict, reasons
        self.known: dict[str, Environment] = {}
        self.answers: dict[object, str] = {}
        self.room = CHARACTERS
        self.probe: Any = None

    def answer(self, line: bytes | None) -> str:
        """The answer to one line. Raises SelectorError or ValueError for one that cannot be meant."""
        data = _parsed(line)
        for name in data:
            if name not in KEYS:
                raise ValueError(_unknown(name))
        if "request" not in data:
            raise ValueError('the line has no "request"')
        fields = data["request"]
        if not isinstance(fields, dict):
            raise ValueError('"request" is an object of axis to value')
        strict = data.get("strict", self.strict)
        if not isinstance(strict, bool):
            raise ValueError('"strict" is true or false')
        request = Request(fields, vocabulary=self.catalog.vocabulary)
        machine, wishes = self.machine(data.get("environment")), self.wishes(data)
        key = (request, machine.fingerprint, machine.name, wishes, strict)
        known = self.answers.get(key)
        return (
            known if known is not None else self.remember(key, self.decided(request, machine, wishes, strict))
        )

    def decided(
        self, request: Request, machine: Environment, wishes: tuple[Preference, ...], strict: bool
    ) -> str:
        """The answer to a request that was not asked before, as a line of JSON."""
        from selector.answers import answer_text
        from selector.selection import decide

        report = decide(request, self.catalog, machine, wishes, strict=strict)
        return answer_text(report, reasons=self.reasons) + "\n"

    def remember(self, key: object, answer: str) -> str:
        """Keep an answer; the memory for them is bounded."""
        self.room -= len(answer)
        if self.room < 0 or len(self.answers) >= ANSWERS:
            self.answers.clear()
            self.room = CHARACTERS - len(answer)
        self.answers[key] = answer
        return answer

    def wishes(self, data: Mapping[str, Any]) -> tuple[Preference, ...]:
        """The preferences of one line, and of the command."""
        given = {key: data.get(key) for key in ("backend", "avoid", "prefer")}
        if not any(given.values()):
            return self.preferences
        from selector.preferences import from_call

        for key, value in given.items():
            items = value if isinstance(value, list) and key != "backend" else [value]
            if value is not None and not all(isinstance(v, str) for v in items):
                raise ValueError(f'"{key}" is a name{"" if key == "backend" else ", or a list of them"}')
        own = from_call(given["backend"], given["avoid"], given["prefer"])
        kept = [p for p in self.preferences if p.kind != "pin" or not given["backend"]]
        return (*own, *kept)

    def machine(self, said: Any) -> Environment:
        """The environment of one line: a preset's name, an object of facts, or what the command's options say."""
        if said is None:
            if self.environment is None:
                self.environment = self.probe()
            return self.environment
        if not isinstance(said, (str, dict)):
            raise ValueError('"environment" is the name of a preset, or an object of facts')
        key = said if isinstance(said, str) else json.dumps(said, sort_keys=True)
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= KEPT:
                self.known.clear()
            found = self.known[key] = self.made(said)
        return found

    def made(self, said: str | dict[str, Any]) -> Environment:
        """A new environment. A file name is not accepted: lines may come from anywhere."""
        from selector.environment import Environment, check_names

        vocabulary = self.catalog.vocabulary
        if isinstance(said, str):
            return Environment.preset(said, vocabulary=vocabulary, root=self.catalog.root)
        facts = said.get("facts", said)
        if not isinstance(facts, dict):
            raise ValueError('"facts" is an object of axis to value')
        check_names(vocabulary, facts)
        name = said.get("name") if facts is not said else None
        return Environment(facts, name=str(name or "custom"), vocabulary=vocabulary)


def _unknown(key: str) -> str:
    from selector.vocabulary import nearest

    near = nearest(key, KEYS)
    hint = (
        f"did you mean {near}?"
        if near
        else f'one of {", ".join(KEYS)}; a line is {{"request": {{AXIS: VALUE, ...}}, ...}}'
    )
    return f"unknown key {key!r}: {hint}"


def _parsed(line: bytes | None) -> dict[str, Any]:
    if line is None:
        raise ValueError(f"the line is longer than {LINE} bytes")
    if not line.strip():
        raise ValueError("the line is empty")
    data = json.loads(line.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    if not isinstance(data, dict):
        raise ValueError("the line is no JSON object")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise ValueError(f"{twice!r} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
