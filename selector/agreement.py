"""One candidate for all ranks of a process group.

Ranks exchange a fingerprint (one all-gather of 64 bytes). Where all are equal, each decides alone and all decide alike. Where
they differ, they exchange their answers, and every rank picks the same candidate: one that is valid on every rank, the one
whose worst place in the ranks' orders is best. If there is none, every rank raises the same error, which names the rank and
the device that refuses each candidate. A rank that fails still takes part, and waiting is limited, so nobody hangs.

The process group is `torch.distributed`'s; this module uses it through the module that made the group and imports nothing.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.errors import NoBackendError, SelectorError

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.preferences import Preference
    from selector.report import Report
    from selector.request import Request

    #: What one rank decides about, and for which machine.
    Question = tuple[Request, Catalog, Environment, tuple[Preference, ...]]

__all__ = ["Answer", "DisagreementError", "RankError", "agree", "choose"]

#: Seconds that a rank waits for the others.
LIMIT = 30.0

#: Reasons of one candidate that travel.
REASONS = 3


class RankError(SelectorError):
    """Another rank failed, or did not answer in time."""

    exit_code = 3


class DisagreementError(NoBackendError):
    """No candidate is valid on every rank."""


class Answer(NamedTuple):
    """What one rank sends: its environment, its accepted candidates in order, and why it refuses the others.

    ``device`` is empty where the rank failed before it knew its environment.
    """

    rank: int
    device: str
    accepted: tuple[str, ...]
    refused: Mapping[str, Sequence[str]]
    error: str | None

    @classmethod
    def load(cls, data: bytes) -> Answer:
        """From the bytes of `dump`."""
        raw = json.loads(data)
        return cls(raw["rank"], raw["device"], tuple(raw["accepted"]), raw["refused"], raw["error"])

    def dump(self) -> bytes:
        """As bytes for the exchange."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()


def device_of(environment: Environment) -> str:
    """How messages call a rank's device."""
    name = environment.get("device_name")
    device = environment.get("device")
    capability = environment.get("compute_capability")
    shown = name if isinstance(name, str) else environment.name
    return f"{shown} ({device}{' ' + capability if isinstance(capability, str) else ''})"


def answer_of(report: Report, rank: int) -> Answer:
    """One rank's answer."""
    ids = report.catalog.candidates
    accepted = tuple(ids[i].id for i in report.outcome.ranked)
    refused = {ident: [r.message for r in reasons[:REASONS]] for ident, reasons in report.rejected.items()}
    return Answer(rank, device_of(report.environment), accepted, refused, None)


def choose(answers: Sequence[Answer]) -> str:
    """The candidate that every rank takes. Raises RankError or DisagreementError, with the same text on every rank."""
    failed = [a for a in answers if a.error is not None]
    if failed:
        raise RankError("; ".join(f"rank {a.rank}{_beside(a.device)} failed: {a.error}" for a in failed))
    places: dict[str, list[int]] = {}
    for answer in answers:
        for place, ident in enumerate(answer.accepted):
            places.setdefault(ident, []).append(place)
    common = {ident: found for ident, found in places.items() if len(found) == len(answers)}
    if common:
        return min(common, key=lambda ident: (max(common[ident]), sum(common[ident]), ident))
    raise DisagreementError(_disagreement(answers, places))


def _beside(device: str) -> str:
    return f" ({device})" if device else ""


def _disagreement(answers: Sequence[Answer], places: Mapping[str, list[int]]) -> str:
    """Every candidate that some rank accepts, with the ranks that refuse it and why; then the devices."""
    lines = [f"no backend is valid on all {len(answers)} ranks"]
    wanted = sorted(places, key=lambda ident: (-len(places[ident]), ident)) or sorted(
        {i for a in answers for i in a.refused}
    )
    for ident in wanted[:8]:
        vetoes: dict[tuple[str, str], list[int]] = {}
        for answer in answers:
            if ident not in answer.accepted:
                why = next(iter(answer.refused.get(ident, ())), "not in its order")
                vetoes.setdefault((answer.device, why), []).append(answer.rank)
        for (device, why), ranks in vetoes.items():
            shown = ", ".join(str(r) for r in ranks)
            lines.append(
                f"  {ident}: refused by rank{'s' if len(ranks) > 1 else ''} {shown}, {device}: {why}"
            )
    if len(wanted) > 8:
        lines.append(f"  and {len(wanted) - 8} more candidates")
    return "\n".join(lines)


# -- the exchange -----------------------------------------------------------------------------------------------------


class _Group:
    """All-gathers over a process group, each with a time limit."""

    def __init__(self, group: Any, limit: float) -> None:
        dist = sys.modules.get("torch.distributed")
        torch = sys.modules.get("torch")
        if dist is None or torch is None:
            raise SelectorError(
                "group= takes a process group of torch.distributed, which this process has not imported"
            )
        self.dist: Any = dist
        self.torch: Any = torch
        self.group, self.limit = group, limit
        self.rank = int(self.dist.get_rank(group))
        self.size = int(self.dist.get_world_size(group))
        nccl = "nccl" in str(self.dist.get_backend(group))
        self.device = (
            self.torch.device("cuda", self.torch.cuda.current_device()) if nccl else self.torch.device("cpu")
        )

    def gather(self, data: bytes, width: int | None = None) -> list[bytes]:
        """Every rank's bytes. ``width``: all have that many; otherwise lengths are exchanged first."""
        if width is None:
            lengths = [int.from_bytes(b, "little") for b in self.gather(len(data).to_bytes(8, "little"), 8)]
            width = max(lengths)
        else:
            lengths = [width] * self.size
        torch = self.torch
        mine = torch.zeros(max(width, 1), dtype=torch.uint8)
        if data:
            mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        mine = mine.to(self.device)
        all_of = [torch.empty_like(mine) for _ in range(self.size)]
        self._wait(self.dist.all_gather(all_of, mine, group=self.group, async_op=True))
        return [bytes(t.cpu().tolist())[:n] for t, n in zip(all_of, lengths)]

    def _wait(self, work: Any) -> None:
        from datetime import timedelta

        try:
            done = work.wait(timedelta(seconds=self.limit))
        except Exception as error:  # whatever the transport raises when a peer is gone
            first = str(error).strip().splitlines()
            raise RankError(
                f"rank {self.rank}: another rank of the group is gone or did not answer within {self.limit:g} s"
                f" ({first[0][:200] if first else type(error).__name__})"
            ) from error
        if done is False:
            raise RankError(
                f"rank {self.rank}: another rank of the group did not answer within {self.limit:g} s"
            )


def agree(
    question: Callable[[], Question],
    group: Any,
    *,
    strict: bool = False,
    limit: float = LIMIT,
) -> tuple[Report, str, tuple[Answer, ...]]:
    """This rank's report, the candidate that all ranks take, and the ranks' answers (empty where all were equal).

    ``question`` is asked inside, so that a rank whose request, environment or configuration is wrong still meets the others.
    """
    from selector.selection import decide

    channel = _Group(group, limit)
    error: Exception | None = None
    report: Report | None = None
    facts: list[object] = []
    device = ""
    try:
        request, catalog, environment, preferences = question()
        device = device_of(environment)
        facts = [
            environment.fingerprint,
            catalog.hash,
            request.to_dict(),
            [p.to_dict() for p in preferences],
        ]
        report = decide(request, catalog, environment, preferences, strict=strict)
        answer = answer_of(report, channel.rank)
    except Exception as failure:
        # A rank that fails alone must still meet the others, or they would wait for it.
        error = failure
        text = str(failure).strip().splitlines()
        answer = Answer(channel.rank, device, (), {}, text[0] if text else type(failure).__name__)
    digest = hashlib.sha256(
        json.dumps(
            [facts, strict, list(answer.accepted), answer.error],
            sort_keys=True,
            default=str,
        ).encode()
    ).digest()
    same = len(set(channel.gather(digest, 32))) == 1
    answers: tuple[Answer, ...] = ()
    if same and report is not None and answer.accepted:
        return report, answer.accepted[0], answers
    answers = tuple(Answer.load(data) for data in channel.gather(answer.dump()))
    try:
        chosen = choose(answers)
    except DisagreementError as disagreement:
        disagreement.report = report
        raise
    except RankError as failed:
        raise failed from error
    assert report is not None  # an error of this rank has raised above
    return report, chosen, answers
