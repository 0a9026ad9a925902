"""`explain --from-NAME-error FILE`: the request that another project's error text carries, explained with its pack."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from selector.cli.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from selector.catalog import Catalog
    from selector.cli.parser import Parser
    from selector.environment import Environment
    from selector.error_text import Reading
    from selector.pack import Pack
    from selector.report import Report

__all__ = ["FromError", "add_options", "from_error"]

#: Bytes of a log that are read, from its end.
MAX_BYTES = 16 << 20


class FromError:
    """An error's text, read and decided again."""

    def __init__(self, reading: Reading, report: Report, source: str, notes: Sequence[str]) -> None:
        self.reading, self.report, self.source, self.notes = reading, report, source, tuple(notes)

    def to_text(self, *, color: bool, width: int) -> str:
        """What the text says, before the report."""
        from selector.errors import printable
        from selector.render.cells import Paint
        from selector.render.screen import Screen

        screen = Screen(Paint(color), width, False)
        screen.field("read from", printable(self.source))
        for name, text in self.reading.refusals.items():
            screen.field("it says", printable(f"{name}: {text}"), "dim")
        for note in self.notes:
            screen.field("note", printable(note), "yellow")
        return screen.text()

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, without the report."""
        reading = self.reading
        return {
            "source": self.source,
            "fields": dict(reading.fields),
            "unknown": dict(reading.unknown),
            "impossible": dict(reading.impossible),
            "cut": reading.cut,
            "requests": reading.requests,
            "backend": reading.backend,
            "facts": dict(reading.facts),
            "refusals": dict(reading.refusals),
            "notes": list(self.notes),
        }


class _OfPack(argparse.Action):
    """`--from-NAME-error FILE` is `--pack NAME --from-error FILE`."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Namespace, values: Any, option: str | None = None
    ) -> None:
        assert isinstance(self.const, str)
        namespace.from_error, namespace.error_pack, namespace.error_option = values, self.const, option


def add_options(parser: Parser) -> None:
    """`--from-error`, and one option for each pack of the manifests in use that describes an error text."""
    group = parser.add_argument_group(
        "the text of an error (- for standard input); AXIS=VALUE words add to it, or replace"
    )
    parser.set_defaults(error_pack=None, error_option="--from-error")
    group.add_argument(
        "--from-error",
        metavar="FILE",
        help="explain the request in the error text of the project that --pack describes",
    )
    for name, title in _described():
        group.add_argument(
            f"--from-{name}-error",
            action=_OfPack,
            const=name,
            metavar="FILE",
            help=f"explain the request in an error of {title}".replace("%", "%%"),
        )


def _described() -> list[tuple[str, str]]:
    """(name, title) of the packs that describe an error text. Only those files are parsed that may."""
    from selector.catalog import pack_names
    from selector.errors import ManifestError
    from selector.locations import manifests_root
    from selector.stored import load_stored

    root, found = manifests_root(), []
    for name in pack_names(root):
        path = os.path.join(root, name, "pack.yaml")
        try:
            with open(path, encoding="utf-8") as file:
                if not any(line.startswith("error") for line in file):
                    continue
            data: Any = load_stored(path).data
        except (OSError, ValueError, ManifestError):
            continue  # told when the pack is used
        if isinstance(data, dict) and isinstance(data.get("error"), dict):
            found.append((name, str(data.get("title", name))))
    return found


def from_error(arguments: Namespace) -> FromError:
    """Read and decide. Raises UsageError where the file holds no such error, or one of another machine."""
    from selector.cli import options
    from selector.error_text import read_error
    from selector.preferences import Preference
    from selector.selection import decide

    option: str = arguments.error_option
    catalog = _catalog(arguments, option)
    pack = next((p for p in catalog.packs if p.error is not None), None)
    if pack is None or pack.error is None:
        described = ", ".join(name for name, _ in _described())
        raise UsageError(
            f"{option}: pack {catalog.name} does not describe the error text of its project",
            f"packs that do: {described or 'none'}",
        )
    text, source, notes = _read(arguments.from_error, option)
    backends = {m.name.lower(): m.name for m in catalog.manifests}
    reading = read_error(text, pack.error, catalog.vocabulary, backends)
    if not reading.found:
        raise UsageError(f"{option} {source}: {_absent(pack, text)}")
    machine = options.environment_of(arguments, catalog)
    _same_machine(reading, machine, arguments, source)
    if not reading.requests and not arguments.words:
        said = "; ".join(f"{name}: {why}" for name, why in reading.refusals.items())
        raise UsageError(
            f"the error in {source} carries no request{': ' + said if said else ''}",
            "add the layer's fields as AXIS=VALUE words: head_size=128 dtype=bfloat16 ...",
        )
    given = options.request_of(arguments.words, catalog.vocabulary, arguments.parser)
    words = {catalog.vocabulary.find(n) for n in options.fields_of(arguments.words, catalog.vocabulary)}
    fields = {
        a.name: v
        for n, v in reading.fields.items()
        if (a := catalog.vocabulary.find(n)) not in words and a is not None
    }
    request = catalog.request({**fields, **{a.name: given.get(a.name) for a in words if a is not None}})
    preferences = options.preferences_of(arguments)
    if reading.backend is not None and not any(p.kind == "pin" for p in preferences):
        pin = Preference("pin", (reading.backend,), "flag", f"the error in {source}")
        preferences = (*preferences, pin)
    report = decide(request, catalog, machine, preferences, strict=arguments.strict)
    return FromError(reading, report, source, [*notes, *_notes(reading, report, pack)])


def _catalog(arguments: Namespace, option: str) -> Catalog:
    from selector.cli import options

    name: str | None = arguments.error_pack
    if name is not None:
        if arguments.pack and name not in arguments.pack:
            raise UsageError(f"{option} takes pack {name}, and --pack asks for {', '.join(arguments.pack)}")
        arguments.pack = arguments.pack or [name]
    return options.catalog_of(arguments)


def _read(path: str, option: str) -> tuple[str, str, list[str]]:
    """(text, what to call it, notes); bytes that are no text are replaced."""
    try:
        if path == "-":
            data, source = sys.stdin.buffer.read(), "standard input"
        else:
            source = path
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > MAX_BYTES:
                    file.seek(-MAX_BYTES, os.SEEK_END)
                data = file.read()
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {path}: {getattr(error, 'strerror', None) or error}") from None
    notes = []
    if len(data) >= MAX_BYTES:
        data = data[-MAX_BYTES:]
        notes.append(f"only the last {MAX_BYTES >> 20} MiB were read")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return data.decode(encoding, errors="replace"), source, notes


def _absent(pack: Pack, text: str) -> str:
    assert pack.error is not None
    if not text.strip():
        return "there is nothing in it"
    markers = [
        pack.error.request.after,
        *([pack.error.backend.after] if pack.error.backend is not None else []),
    ]
    shown = " nor ".join(repr(m.strip()) for m in markers)
    return (
        f"no error of {pack.title} in it: neither {shown}"
        if len(markers) > 1
        else f"no error of {pack.title} in it: no {shown}"
    )


def _same_machine(reading: Reading, machine: Environment, arguments: Namespace, source: str) -> None:
    """Raise UsageError where the text is of another kind of machine than the one that is asked about."""
    for name, said in reading.facts.items():
        here = machine.facts.get(name)
        if here is not None and here != said:
            where = "this machine" if arguments.on is None else f"--on {arguments.on}"
            raise UsageError(
                f"the error in {source} comes from a machine with {name} {said}, and {where} has {name} {here}",
                "name the machine with --on PRESET (attn-select env --list lists them)",
            )


def _notes(reading: Reading, report: Report, pack: Pack) -> list[str]:
    """What could not be read, what is not known, and where the pack disagrees with the text."""
    notes = []
    if reading.requests > 1:
        notes.append(f"{reading.requests} different requests failed; this is the last one")
    if reading.cut:
        notes.append("the text ends inside the request: fields behind the cut have their defaults here")
    for name, text in reading.unknown.items():
        notes.append(
            f"{name}={text}: pack {pack.name} ({pack.version}) has no such axis, so nobody is judged on it"
        )
    for name, text in reading.impossible.items():
        notes.append(f"{name}={text} could not be read, and is left out")
    accepted = {r.id.partition("/")[0] for r in report.ranked} | {
        i.partition("/")[0] for i in report.excluded
    }
    for name in reading.refusals:
        if name in accepted:
            notes.append(
                f"{name} is refused there, and accepted by the pack on {report.environment.name}: "
                "another version, or software that is missing there (--without NAME)"
            )
    return notes
