"""`attn-select tune`: measure what is valid on this machine, and rank by it from then on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command
from selector.errors import EXIT_NOTHING_FITS, SelectorError

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.measured import Entry, Measurements
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
    if known is not None and known.fingerprint != machine.fingerprint:
        print(f"{path} is stale ({known.stale(machine)}); it is written anew", file=sys.stderr)
        known = None
    entries = {_text(e.request): e for e in (known.entries if known is not None else ())}
    fresh: list[Entry] = []
    for words, request in _questions(arguments, catalog):
        for phase in ("prefill", "decode") if arguments.phase == "both" else (arguments.phase,):
            entry = _phase(arguments, catalog, machine, f"{words}, {phase}", request, phase, entries)
            if entry is not None:
                fresh.append(entry)
                entries[_text(entry.request)] = entry
                whole = measured.Measurements(
                    machine.title, machine.fingerprint, machine.to_dict(), entries.values()
                )
                _write(path, whole)  # after each, so that an interrupted run goes on from there
    if not entries:
        return EXIT_NOTHING_FITS
    _report(arguments, path, fresh)
    return 0


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
    """What each measurement is called, and its fields."""
    asked = options.request_of(arguments.words, catalog.vocabulary)
    if arguments.config is None:
        if not arguments.words:
            raise UsageError("say what to measure: AXIS=VALUE words, or --config FILE")
        return [("request", asked)]
    from selector.model_config import read_config

    model = read_config(arguments.config, tp=arguments.tp)
    found = []
    for layer in model.layers:
        if layer.attention:
            fields = {k: v for k, v in layer.request.items() if catalog.vocabulary.find(k) is not None}
            found.append((layer.kind, catalog.request({**fields, **asked.to_dict()})))
    return found


def _phase(
    arguments: Namespace,
    catalog: Catalog,
    machine: Environment,
    words: str,
    request: Request,
    phase: str,
    entries: dict[str, Entry],
) -> Entry | None:
    """What was measured of one request in one phase; None if it is known already, or there is nothing to compare."""
    from importlib import import_module

    from selector.measured import Entry, Timing
    from selector.runner import load_kernel
    from selector.selection import decide

    try:
        tuning, trial = import_module("backends.tuning"), import_module("backends.trial")
    except ImportError as error:
        raise UsageError(
            f"measuring needs {error.name or 'a framework'}, which is not installed here"
        ) from None
    shapes = [
        trial.Shapes(batch, keys, 1 if phase == "decode" else keys, 0)
        for batch in _numbers("--batch", arguments.batch)
        for keys in _numbers("--lengths", arguments.lengths)
    ]
    device = str(machine.get("device"))
    try:
        trials = tuning.trials_of(request.to_dict(), "cuda" if device == "rocm" else device, shapes)
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"cannot make tensors for {words}: {str(error).splitlines()[0]}") from None
    fields = {k: v for k, v in trials[0].request.items() if catalog.vocabulary.find(k) is not None}
    asked = catalog.request(fields)
    if not arguments.again and _text(asked.to_dict()) in entries:
        print(f"{words}: measured already (--again measures it anew)", file=sys.stderr)
        return None
    report = decide(asked, catalog, machine)
    runners = {}
    for ranked in report.ranked:
        candidate = catalog.find(ranked.id)[0]
        module = load_kernel(candidate)

        def go(
            *tensors: Any, module: Any = module, variant: str | None = candidate.variant, **more: Any
        ) -> Any:
            return module.run(module.make_call(*tensors, **more), variant=variant)

        runners[ranked.id] = go
    if len(runners) < 2:
        print(f"{words}: {', '.join(runners) or 'nothing'} fits, nothing to compare", file=sys.stderr)
        return None
    print(f"{words}: {len(runners)} candidates, {len(shapes)} shapes ...", file=sys.stderr, flush=True)
    times = tuning.time_candidates(trials, runners, arguments.runs, arguments.limit)
    for failed in (t for t in times if t.error is not None):
        print(f"{words}: {failed.candidate} is left out: {failed.error}", file=sys.stderr)
    timings = tuple(Timing(t.candidate, t.median, t.low, t.high, t.runs) for t in times if t.error is None)
    return Entry(asked.to_dict(), tuning.shapes_text(shapes), timings)


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


def _rows(entries: Any) -> list[dict[str, Any]]:
    from selector.measured import ordered

    return [
        {
            "request": dict(e.request),
            "shapes": e.shapes,
            "order": [
                {"candidate": t.candidate, "median_us": round(t.median * 1e6, 3), "low_us": round(t.low * 1e6, 3), "high_us": round(t.high * 1e6, 3), "runs": t.runs}
                for t in ordered(e.timings)
            ],
        }
        for e in entries
    ]  # fmt: skip


def _report(arguments: Namespace, path: str, entries: list[Entry]) -> None:
    if arguments.json:
        output.write_json({"file": path, "entries": _rows(entries)})
        return
    for row in _rows(entries):
        output.write(_table(row))
    output.write(f"written to {path}")


def _show(arguments: Namespace, path: str, known: Measurements | None, machine: Environment) -> int:
    stale = known.stale(machine) if known is not None else None
    if arguments.json:
        output.write_json(
            {"file": path, "stale": stale, "entries": _rows(known.entries) if known is not None else []}
        )
    elif known is None:
        output.write(f"{path}: nothing has been measured")
    else:
        output.write(f"{path}: {len(known.entries)} requests" + (f"; stale: {stale}" if stale else ""))
        for row in _rows(known.entries):
            output.write(_table(row))
    return 0


def _table(row: dict[str, Any]) -> str:
    fields = " ".join(k if v is True else f"{k}={v}" for k, v in row["request"].items())
    lines = [f"{fields}", f"  {row['shapes']}"]
    width = max(len(t["candidate"]) for t in row["order"])
    best = row["order"][0]["median_us"]
    for t in row["order"]:
        times = f"{t['median_us']:>10.1f} us  ({t['low_us']:.1f} to {t['high_us']:.1f})"
        lines.append(f"  {t['candidate']:<{width}}  {times}  {t['median_us'] / best:>5.2f}x")
    return "\n".join(lines)
