"""`attn-select tune`: measure what is valid on this machine, and rank by it from then on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command
from selector.cli.tune_fields import shown, unshown_phase
from selector.cli.tune_text import Tuned, conclusion, counted, rows, table
from selector.errors import EXIT_NOTHING_FITS, SelectorError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.measured import Measurements
    from selector.request import Request

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "tune",
        run,
        help="measure the valid candidates here, and rank by what was measured",
        description=(
            "Times every candidate that accepts a request on this machine, for the given lengths, prefill and decode apart, and writes\n"
            "a file that ranking uses after the policy. It belongs to this machine and these package versions; anything else makes\n"
            "it stale. Ties within the spread keep the policy's order, and explicit choices outrank it. Requests that are in the\n"
            "file already are skipped (--again measures them anew)."
        ),
        examples=(
            "tune head_size=64 num_heads=8 dtype=float32 causal",
            "tune --config config.json --lengths 128,2048 --batch 1,8",
            "tune --show",
        ),
        words="AXIS=VALUE",
    )
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--config", metavar="FILE", help="a model's config.json: every kind of attention layer in it"
    )
    group.add_argument(
        "--tp", type=int, default=1, metavar="N", help="heads divided over N ranks (with --config)"
    )
    group.add_argument("--batch", default="1", metavar="N,N", help="sequences (default: 1)")
    group.add_argument(
        "--lengths", default="128,1024", metavar="N,N", help="tokens of keys (default: 128,1024)"
    )
    group.add_argument("--phase", choices=("prefill", "decode", "both"), default="both", help="default: both")
    group.add_argument("--runs", type=int, default=21, metavar="N", help="runs of each (default: 21)")
    group.add_argument(
        "--limit", type=float, default=2.0, metavar="S", help="seconds of one run at most (default: 2)"
    )
    group.add_argument("--again", action="store_true", help="measure what the file already has, too")
    group.add_argument(
        "--file",
        metavar="FILE",
        help="where to (default: ATTN_SELECTOR_MEASURED, or the user's data directory)",
    )
    group.add_argument("--show", action="store_true", help="only show what the file holds")
    options.add_catalog(parser)
    options.add_output(parser)


def run(arguments: Namespace) -> int:
    """Measure and write."""
    from selector import measured
    from selector.cli.app import EXIT_INTERRUPTED
    from selector.probe import probe

    path = arguments.file or measured.default_path()
    if path is None:
        raise UsageError(f"{measured.VARIABLE} is empty, which switches measurements off", "give --file FILE")
    known = measured.load(path) if os.path.isfile(path) else None
    measured.switch_off()
    catalog = options.catalog_of(arguments)
    machine = probe(catalog.root)
    if arguments.show:
        return _show(arguments, path, known, machine)
    work = _Work(arguments, catalog, machine, path, known)
    interrupted = False
    try:
        work.measure()
    except KeyboardInterrupt as stop:
        interrupted = True
        work.keep(getattr(stop, "times", []))
    work.report(interrupted)
    if interrupted:
        return EXIT_INTERRUPTED
    return 0 if work.fresh or work.known_already else EXIT_NOTHING_FITS


def _text(request: Any) -> str:
    import json

    return json.dumps(request, sort_keys=True)


def _numbers(option: str, text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"{option} takes whole numbers of at least 1, like 128,1024, not {text!r}")
    return found


def _questions(arguments: Namespace, catalog: Catalog) -> list[tuple[str, Request]]:
    """What each measurement is called (nothing for words alone), and its fields."""
    asked = options.request_of(arguments.words, catalog.vocabulary, arguments.parser)
    if arguments.config is None:
        if not arguments.words:
            raise UsageError("say what to measure: AXIS=VALUE words, or --config FILE")
        return [("", asked)]
    from selector.model_config import read_config

    model = read_config(arguments.config, tp=arguments.tp)
    found = []
    for layer in model.layers:
        if layer.attention:
            fields = {k: v for k, v in layer.request.items() if catalog.vocabulary.find(k) is not None}
            found.append((layer.kind, catalog.request({**fields, **asked.to_dict()})))
    return found


class _Work:
    """One run of the command: what was measured, and what was in the file before."""

    def __init__(
        self,
        arguments: Namespace,
        catalog: Catalog,
        machine: Environment,
        path: str,
        known: Measurements | None,
    ) -> None:
        self.arguments, self.catalog, self.machine, self.path = arguments, catalog, machine, path
        if known is not None and known.fingerprint != machine.fingerprint:
            _say(f"{path} is stale ({known.stale(machine)}): what is measured now replaces it")
            known = None
        self.entries = {_text(e.request): e for e in (known.entries if known is not None else ())}
        self.fresh: list[Tuned] = []
        self.known_already = 0
        self.half: Tuned | None = None
        """What was measured of a request until the run was interrupted; it is in no file."""
        self._now: tuple[str, Request, tuple[str, ...], str] | None = None

    def measure(self) -> None:
        """Measure all that is asked, and write after each request, so that an interrupted run goes on from there.

        Raises UsageError where one request was asked for, and no tensors can be made for it in any phase.
        """
        refused = []
        phases = ("prefill", "decode") if self.arguments.phase == "both" else (self.arguments.phase,)
        questions = _questions(self.arguments, self.catalog)
        for words, request in questions:
            reasons: dict[str, list[str]] = {}
            for phase in phases:
                why = self._phase(f"{words}, {phase}" if words else phase, request, phase)
                if why is not None:
                    reasons.setdefault(why, []).append(phase)
            for why, where in reasons.items():
                of = f" ({' and '.join(where)})" if words or len(where) < len(phases) else ""
                refused.append(f"{words or 'the request'}{of} is skipped: {why}")
            if self.arguments.config is None and sum(map(len, reasons.values())) == len(phases):
                raise UsageError("; ".join(reasons), "`explain` answers for any request")
            while refused:
                _say(refused.pop())

    def _phase(self, words: str, request: Request, phase: str) -> str | None:
        """Measure one request in one phase. Why no tensors can be made for it, if so."""
        from importlib import import_module

        from selector.selection import decide

        try:
            tuning, trial = import_module("backends.tuning"), import_module("backends.trial")
        except ImportError as error:
            raise UsageError(
                f"measuring needs {error.name or 'a framework'}, which is not installed here"
            ) from None
        unlike = unshown_phase(request, phase)
        if unlike is not None:
            return unlike
        shapes = [
            trial.Shapes(batch, keys, 1 if phase == "decode" else keys, 0)
            for batch in _numbers("--batch", self.arguments.batch)
            for keys in _numbers("--lengths", self.arguments.lengths)
        ]
        device = str(self.machine.get("device"))
        try:
            trials = tuning.trials_of(request.to_dict(), "cuda" if device == "rocm" else device, shapes)
        except (ValueError, RuntimeError) as error:
            return f"cannot make tensors for it: {str(error).splitlines()[0]}"
        asked, why = shown(self.catalog, request, trials[0].request)
        if asked is None:
            return why
        if not self.arguments.again and _text(asked.to_dict()) in self.entries:
            _say(f"{words}: measured already (--again measures it anew)")
            self.known_already += 1
            return None
        ranked = tuple(r.id for r in decide(asked, self.catalog, self.machine).ranked)
        if len(ranked) < 2:
            _say(f"{words}: {', '.join(ranked) or 'nothing'} fits, nothing to compare")
            return None
        runners = {ident: self._runner(ident) for ident in ranked}
        _say(f"{words}: {counted(len(runners), 'candidate')}, {counted(len(shapes), 'shape')} ...")
        self._now = words, asked, ranked, tuning.shapes_text(shapes)
        times = tuning.time_candidates(
            trials,
            runners,
            self.arguments.runs,
            self.arguments.limit,
            lambda text: _say(f"  {text}"),
        )
        for failed in (t for t in times if t.error is not None):
            _say(f"{words}: {failed.candidate} is left out: {failed.error}")
        tuned = self._tuned(times)
        if tuned is None:
            _say(f"{words}: fewer than two candidates were measured, nothing to compare")
            return None
        self.fresh.append(tuned)
        self.entries[_text(tuned.entry.request)] = tuned.entry
        self._write()
        return None

    def _runner(self, ident: str) -> Any:
        from selector.runner import load_kernel

        candidate = self.catalog.find(ident)[0]
        module = load_kernel(candidate)

        def go(*tensors: Any, **more: Any) -> Any:
            return module.run(module.make_call(*tensors, **more), variant=candidate.variant)

        return go

    def _tuned(self, times: Sequence[Any]) -> Tuned | None:
        """What was measured of the request that is at work; None for fewer than two candidates."""
        from selector.measured import Entry, Timing

        good = tuple(Timing(t.candidate, t.median, t.low, t.high, t.runs) for t in times if t.error is None)
        if self._now is None or len(good) < 2:
            return None
        words, request, ranked, shapes = self._now
        self._now = None
        return Tuned(words, Entry(request.to_dict(), shapes, good), ranked)

    def keep(self, times: Sequence[Any]) -> None:
        """Keep what an interrupted measurement has, to be shown."""
        self.half = self._tuned(times)

    def _write(self) -> None:
        from selector.measured import Measurements

        machine = self.machine
        whole = Measurements(machine.title, machine.fingerprint, machine.to_dict(), self.entries.values())
        _write(self.path, whole)

    def report(self, interrupted: bool) -> None:
        """What was measured, what follows from it, and where it is."""
        if self.arguments.json:
            found = [
                {**row, "policy": t.ranked[0], "chosen": self._chosen(t)}
                for t in self.fresh
                for row in rows([t.entry])
            ]
            output.write_json({"file": self.path, "entries": found})
        else:
            for tuned in self.fresh:
                output.write(f"{tuned.words}: {table(tuned.entry)}")
            if self.half is not None:
                output.write(f"{self.half.words}, interrupted and not kept: {table(self.half.entry)}")
            if self.fresh:
                output.write("\nFrom now on")
            for tuned in self.fresh:
                said = conclusion(tuned.entry.timings, self._chosen(tuned), tuned.ranked[0])
                output.write(f"  {tuned.words}: {said}")
            output.write(self._where())
        if interrupted and self.fresh:
            _say(
                f"interrupted: {self.path} has what was measured to the end; the same command goes on from there"
            )
        elif interrupted:
            _say("interrupted before a request was measured to the end")

    def _chosen(self, tuned: Tuned) -> str:
        return tuned.chosen(self.catalog.request(dict(tuned.entry.request)))

    def _where(self) -> str:
        from selector import measured
        from selector.preferences import from_process

        if not self.fresh and self.known_already:
            return f"nothing new was measured; {self.path} has {counted(len(self.entries), 'request')}"
        if not self.fresh:
            to_the_end = " to the end" if self.half is not None else ""
            return f"nothing was measured{to_the_end}, and nothing is written"
        lines = [f"written to {self.path}"]
        if os.path.abspath(self.path) != os.path.abspath(measured.default_path() or os.curdir):
            lines.append(f"  it counts where {measured.VARIABLE}={self.path} is set")
        wishes = dict.fromkeys(p.where for p in from_process())
        if wishes:
            lines.append(f"  explicit choices outrank it: {', '.join(wishes)}")
        return "\n".join(lines)


def _say(text: str) -> None:
    from selector.errors import printable

    print(printable(text), file=sys.stderr, flush=True)


def _write(path: str, found: Measurements) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    scratch = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(found.to_text())
        os.replace(scratch, path)
    except OSError as error:
        raise SelectorError(f"cannot write {path}: {error.strerror or error}") from None


def _show(arguments: Namespace, path: str, known: Measurements | None, machine: Environment) -> int:
    stale = known.stale(machine) if known is not None else None
    if arguments.json:
        output.write_json(
            {"file": path, "stale": stale, "entries": rows(known.entries) if known is not None else []}
        )
    elif known is None:
        output.write(f"{path}: nothing has been measured")
    else:
        count = counted(len(known.entries), "request")
        output.write(f"{path}: {count}" + (f"; stale, so it does not count: {stale}" if stale else ""))
        for entry in known.entries:
            output.write(table(entry))
    return 0
