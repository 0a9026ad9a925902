"""`attn-select verify`: run what the manifests declare on this machine, and name the lines that are not true."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command
from selector.cli.tune_text import counted
from selector.errors import EXIT_NOTHING_FITS, printable

if TYPE_CHECKING:
    from argparse import Namespace
    from types import ModuleType

    from selector.catalog import Catalog
    from selector.environment import Environment

__all__ = ["register"]

#: Exit code where something that is declared does not hold.
EXIT_WRONG = 1

#: Machines that a line of the table names.
MACHINES = 3

#: Seconds between two lines of progress where standard error is no terminal.
EVERY = 10.0

_TITLES = (
    ("declared_but_fails", "Declared, but fails", "red"),
    ("wrong_numbers", "Wrong numbers", "red"),
    ("works_but_undeclared", "Works, but is not declared", "yellow"),
)


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "verify",
        run,
        help="run what the manifests declare here, compare with the reference, name lines that are not true",
        description=(
            "Walk the declared space of every candidate that this machine can run: all pairs of values of all axes and both\n"
            "sides of every limit. Each call runs in a child process and is compared with the float64 reference; the bounds\n"
            "follow from the formats. Wrappers of candidates for other machines are asked what they refuse; nothing of them runs.\n"
            "Exit code 1 if something that is declared fails or gives wrong numbers."
        ),
        examples=(
            "verify --quick",
            "verify --quick --rejected --json",
            "verify --manifests edited/ --state walk.jsonl",
        ),
    )
    group = parser.add_argument_group("the walk")
    group.add_argument("--quick", action="store_true", help="stop within a minute")
    group.add_argument("--rejected", action="store_true", help="also try what the manifests refuse")
    group.add_argument(
        "--backend", action="append", metavar="NAME", help="only this backend or candidate; repeatable"
    )
    group.add_argument(
        "--device", metavar="NAME", help="tensors on this device (default: the machine's; cpu beside a GPU)"
    )
    group.add_argument(
        "--limit", type=float, metavar="S", default=180.0, help="seconds a call (default: 180)"
    )
    group.add_argument("--time", type=float, metavar="S", help="seconds for the whole walk")
    group.add_argument(
        "--state", metavar="FILE", help="keep verdicts in FILE, and go on from those that it holds"
    )
    options.add_catalog(parser)
    options.add_output(parser)


def run(arguments: Namespace) -> int:
    """Walk and report."""
    for name in ("limit", "time"):
        value = getattr(arguments, name)
        if value is not None and not value > 0:
            raise UsageError(f"--{name} {value:g}: more than 0")
    catalog = options.catalog_of(arguments)
    names = tuple(n for word in arguments.backend or () for n in word.split(","))
    _check_names(catalog, names)
    machine = _machine(arguments, catalog)
    module = _module()
    device = str(machine.get("device"))
    why = module.missing(device)
    if why is not None:
        if arguments.device is not None:
            raise UsageError(f"--device {arguments.device}: {why}")
        raise UsageError(
            f"this machine's device is {device}: {why}", "--device cpu walks what runs on the CPU"
        )
    shown = _Progress()
    try:
        result = module.verify(
            catalog,
            machine,
            module.Options(
                names=names,
                quick=arguments.quick,
                rejected=arguments.rejected,
                limit=arguments.limit,
                seconds=arguments.time,
                state=arguments.state,
            ),
            shown.show,
            shown.say,
        )
    except (ValueError, RuntimeError) as error:
        raise UsageError(str(error)) from None
    finally:
        shown.end()
    if arguments.json:
        output.write_json(result.to_dict())
    else:
        _write(result, machine)
    shown.go_on(result, arguments)
    if result.interrupted:
        from selector.cli.app import EXIT_INTERRUPTED

        return EXIT_INTERRUPTED
    if not result.ran:
        return EXIT_NOTHING_FITS if result.clean else EXIT_WRONG
    return 0 if result.clean else EXIT_WRONG


def _check_names(catalog: Catalog, names: tuple[str, ...]) -> None:
    for name in names:
        if not catalog.find(name):
            from selector.engine import near_name

            near = near_name(name, catalog.names())
            raise UsageError(
                f"--backend {name}: no backend of pack {catalog.name} is called so",
                f"did you mean {near}?" if near else f"backends: {', '.join(catalog.names())}",
            )


def _machine(arguments: Namespace, catalog: Catalog) -> Environment:
    from selector.probe import probe

    machine = probe(catalog.root)
    return machine if arguments.device is None else machine.replace(device=arguments.device)


def _module() -> ModuleType:
    """The walk lies with the kernels, so that this package needs none."""
    from importlib import import_module

    return import_module("backends.verify")


class _Progress:
    """Progress on standard error: one line that changes on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self.began = time.monotonic()
        self.last = -EVERY  # the first one at once
        self.width = 0

    def show(self, at: Any) -> None:
        now = time.monotonic()
        if now - self.last < (0.2 if self.live else EVERY):
            return
        self.last = now
        turn = f", round {at.round + 1}" if at.round else ""
        failing = f", {counted(at.failing, 'finding')}" if at.failing else ""
        verb = "" if at.ran else " (wrapper only)"
        text = (
            f"{now - self.began:5.0f} s  {at.candidate}{verb}: {at.share:4.0%} of the pairs{turn}, "
            f"{counted(at.calls, 'call')}{failing}"
        )
        if self.live:
            self.width = max(self.width, len(text))
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()
        else:
            self.say(text)

    def say(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    def go_on(self, result: Any, arguments: Namespace) -> None:
        """How to get to the end of a walk that did not."""
        if not result.interrupted and not result.unfinished:
            return
        first = "interrupted" if result.interrupted else "the walk is incomplete"
        if arguments.state is not None:
            self.say(f"{first}: the same command goes on from the verdicts in {arguments.state}")
            return
        ways = ["--state FILE keeps the verdicts, so that the next walk with it goes on from there"]
        if not result.interrupted and arguments.time is not None:
            ways.append(f"--time gives it longer than {arguments.time:g} s")
        elif not result.interrupted:
            ways.append("without --quick it goes on to the end")
        self.say(f"{first}: {'; '.join(ways)}")

    def end(self) -> None:
        if self.live and self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()


def _write(result: Any, machine: Environment) -> None:
    from selector.render.cells import cells, pad
    from selector.render.screen import Screen

    screen = Screen(output.paint(), output.width(), True)
    screen.put(*_headline(result, machine))
    wide = max([cells(count.candidate) for count in result.counts] + [9]) + 2
    columns = ("calls", "fails", "wrong", "undeclared", "seconds")
    heads = "".join(name.rjust(max(len(name), 6) + 2) for name in columns)
    screen.out.append("")
    screen.out.append(screen.paint("  " + pad("candidate", wide) + heads, "dim"))
    lists = (result.declared_but_fails, result.wrong_numbers, result.works_but_undeclared)
    by_candidate: dict[str, list[Any]] = {}
    for count in result.counts:
        by_candidate.setdefault(count.candidate, []).append(count)
    for name, counts in by_candidate.items():
        found = [sum(f.candidate == name for f in findings) for findings in lists]
        calls, seconds = sum(c.calls for c in counts), sum(c.seconds for c in counts)
        numbers = (str(calls), *(str(n) if n else "-" for n in found), f"{seconds:.1f}")
        row = "".join(n.rjust(max(len(c), 6) + 2) for n, c in zip(numbers, columns))
        said = "; ".join(_remarks(counts))
        screen.out.append("  " + pad(name, wide) + row + (screen.paint(f"  {said}", "dim") if said else ""))
    for ident, why in result.elsewhere.items():
        screen.put(printable(f"{ident} not walked: {why}"), 2, 6, "dim")
    for key, title, color in _TITLES:
        findings = getattr(result, key)
        if not findings:
            continue
        screen.title(f"{title} ({len(findings)})")
        alike: dict[tuple[str, str, str, bool], list[Any]] = {}
        for finding in findings:
            alike.setdefault((finding.at, finding.outcome, finding.message, finding.ran), []).append(finding)
        for (at, outcome, message, _), group in alike.items():
            _show(screen, at, outcome, message, group, color)
    output.write(screen.text())


def _headline(result: Any, machine: Environment) -> tuple[Any, ...]:
    """What came out, with its layout: what did not run, or not to the end, is not called as declared."""
    failing = len(result.declared_but_fails) + len(result.wrong_numbers)
    walked = len(dict.fromkeys(count.candidate for count in result.counts))
    color = "green"
    verdict = f"{failing} not as declared" if failing else "all as declared"
    if result.interrupted or result.unfinished:
        color = "yellow"
        why = "interrupted" if result.interrupted else "the walk is incomplete"
        verdict = verdict if failing else "as declared so far"
        verdict += f", but {why}: {_done(result)} walked to the end"
    calls = sum(count.calls for count in result.counts)
    if not result.ran and not result.interrupted:
        color = "yellow"
        asked = walked + len(result.elsewhere)
        text = f"nothing could be run here: {machine.title} runs none of the candidates asked for ({asked})"
        text += f"; {calls} calls put to their wrappers: {verdict}" if calls else ""
    elif not calls:
        color = "yellow"
        text = f"no call was run on {machine.title}: {verdict.removeprefix('as declared so far, but ')}"
    else:
        text = f"{result.checked} calls run on {machine.title} and compared: {verdict}"
    return text, 0, 2, "bold", "red" if failing else color


def _done(result: Any) -> str:
    """How many candidates were walked to the end, of those that run here and of those whose wrappers were asked."""
    parts = []
    for title, ran in (("candidates that run here", True), ("wrappers of others", False)):
        names = dict.fromkeys(count.candidate for count in result.counts if count.ran is ran)
        done = [name for name in names if name not in result.unfinished]
        if names and (ran or len(done) < len(names) or not result.ran):
            parts.append(f"{len(done)} of {len(names)} {title}")
    return " and ".join(parts) or "none"


def _remarks(counts: list[Any]) -> list[str]:
    """What is to be said of one candidate's walks beside numbers."""
    remarks = []
    if not counts[0].ran:
        names = [count.environment for count in counts]
        more = f" and {len(names) - MACHINES} more" if len(names) > MACHINES else ""
        remarks.append(f"wrapper only, as on {', '.join(names[:MACHINES])}{more}")
    unsaid, memory = sum(c.unsaid for c in counts), sum(c.memory for c in counts)
    if unsaid:
        remarks.append(f"{unsaid} refused for what no axis says")
    if memory:
        remarks.append(f"{memory} did not fit into memory")
    return [*remarks, *dict.fromkeys(count.note for count in counts if count.note)]


def _show(screen: Any, at: str, outcome: str, message: str, group: list[Any], color: str) -> None:
    """Findings with one line and one message: the line, who shows it, and the first one's call."""
    from selector.constraints import word

    first = group[0]
    names = ", ".join(dict.fromkeys(f.candidate for f in group))
    where = "" if first.ran else f" on {first.environment}, by the wrapper"
    screen.put(at, 2, 4, "bold", color)
    screen.put(printable(f"{names}{where}: {outcome}: {message}"), 4, 6)
    fields = [n if v is True else f"{n}={word(v)}" for n, v in first.request.items()]
    beside = [f"{n}={word(v)}" for n, v in first.call.items()]
    said = f" (call: {' '.join(beside)})" if beside else ""
    screen.put(printable(" ".join(fields) + said), 4, 6, "dim")
    if first.also:
        screen.put(printable(f"see also {', '.join(first.also)}"), 4, 6, "dim")
