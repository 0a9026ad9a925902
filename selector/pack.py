"""Packs: a set of manifests with the policy that ranks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from selector.conditions import Condition, parse
from selector.document import Document
from selector.errors import Fault, Mark
from selector.vocabulary import Vocabulary, nearest

__all__ = ["PHASE", "Between", "ErrorText", "OrderEntry", "Pack", "PairRule", "PolicyRule", "decode_pack"]

#: The axis of the request that packs with `phases` answer apart.
PHASE = "phase"


class OrderEntry(NamedTuple):
    """One place in an order: a candidate or a whole backend, perhaps only under a condition."""

    name: str
    when: Condition | None
    unless: Condition | None
    at: Mark


class PolicyRule(NamedTuple):
    """The order that holds where ``when`` does.

    ``closed`` names the packs whose candidates are reached by an explicit choice only, where no order lists them.
    """

    name: str
    when: Condition | None
    order: tuple[OrderEntry, ...]
    unlisted: str
    note: str | None
    source: str | None
    at: Mark
    pack: str
    closed: tuple[str, ...]


class PairRule(NamedTuple):
    """What goes together. ``given`` says which side is the condition: decode, prefill, or both (each implies the other)."""

    given: str
    when: Condition | None
    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    note: str | None
    source: str | None
    at: Mark


class Between(NamedTuple):
    """A part of a text, by the literal texts on both sides of it; white space does not count."""

    after: str
    before: str


class ErrorText(NamedTuple):
    """How the described project says that nothing fits: where its text has the request, and what else can be read of it."""

    request: Between
    backend: Between | None
    environment: Mapping[str, Between]
    refusals: Between | None
    refusal: Between | None
    at: Mark


class Pack(NamedTuple):
    """A pack's own file."""

    name: str
    title: str
    version: str | None
    doc: str
    source: str | None
    unlisted: str
    phases: tuple[str, ...]
    pairs: tuple[PairRule, ...]
    policy: tuple[PolicyRule, ...]
    at: Mark
    backend_option: str | None
    error: ErrorText | None


def decode_pack(
    document: Document, vocabulary: Vocabulary, known: Callable[[], Mapping[str, Any]]
) -> tuple[Pack, list[Fault]]:
    """The pack of a schema-valid document. ``known`` gives all candidate and backend names, for the references."""
    faults: list[Fault] = []
    data: dict[str, Any] = document.data  # type: ignore[assignment]
    names = known()

    def report(path: tuple[str | int, ...], message: str, hint: str | None) -> None:
        faults.append(document.fault(path, message, hint, key=message.startswith("unknown axis")))

    def condition(raw: Mapping[str, Any], key: str, path: tuple[str | int, ...]) -> Condition | None:
        return None if raw.get(key) is None else parse(raw[key], vocabulary, report, (*path, key))

    def check(name: str, path: tuple[str | int, ...]) -> str:
        if name not in names:
            near = nearest(name, names)
            report(
                path, f"no candidate or backend is called {name!r}", f"did you mean {near}?" if near else None
            )
        return name

    def listed(raw: Any, path: tuple[str | int, ...]) -> tuple[str, ...]:
        items = raw if isinstance(raw, list) else [raw]
        return tuple(check(name, (*path, i)) for i, name in enumerate(items))

    unlisted = data.get("unlisted", "last")
    policy = []
    for i, raw in enumerate(data.get("policy") or []):
        path: tuple[str | int, ...] = ("policy", i)
        order = []
        for j, entry in enumerate(raw.get("order") or []):
            here = (*path, "order", j)
            if isinstance(entry, Mapping):
                name = check(entry["candidate"], (*here, "candidate"))
                when, unless = condition(entry, "when", here), condition(entry, "unless", here)
            else:
                name, when, unless = check(entry, here), None, None
            order.append(OrderEntry(name, when, unless, document.mark(here)))
        policy.append(
            PolicyRule(
                raw.get("name", f"rule {i + 1}"),
                condition(raw, "when", path),
                tuple(order),
                raw.get("unlisted", unlisted),
                raw.get("note"),
                raw.get("source") or data.get("source"),
                document.mark(path),
                data["name"],
                (data["name"],) if raw.get("unlisted", unlisted) == "excluded" else (),
            )
        )
    pairs = []
    for i, raw in enumerate(data.get("pairs") or []):
        path = ("pairs", i)
        pairs.append(
            PairRule(
                raw.get("given", "both"),
                condition(raw, "when", path),
                listed(raw.get("prefill", []), (*path, "prefill")),
                listed(raw.get("decode", []), (*path, "decode")),
                raw.get("note"),
                raw.get("source"),
                document.mark(path),
            )
        )
    for i, name in enumerate(data.get("phases") or ()):
        phase = vocabulary.find(PHASE)
        if phase is None or name not in phase.values:
            report(("phases", i), f"the axis {PHASE} of the vocabulary has no value {name!r}", None)
    pack = Pack(
        data["name"],
        data.get("title", data["name"]),
        data.get("version"),
        data.get("doc", ""),
        data.get("source"),
        unlisted,
        tuple(data.get("phases") or ()),
        tuple(pairs),
        tuple(policy),
        document.mark(("name",)),
        data.get("option"),
        _error(data["error"], document) if data.get("error") is not None else None,
    )
    return pack, faults


def _error(raw: Mapping[str, Any], document: Document) -> ErrorText:
    def between(entry: Mapping[str, str] | None) -> Between | None:
        return None if entry is None else Between(entry["after"], entry["before"])

    request = raw["request"]
    return ErrorText(
        Between(request["after"], request["before"]),
        between(raw.get("backend")),
        {
            axis: Between(entry["after"], entry["before"])
            for axis, entry in (raw.get("environment") or {}).items()
        },
        between(raw.get("refusals")),
        between(raw.get("refusal")),
        document.mark(("error",), key=True),
    )
