"""`attn-select run`: select for random tensors on this machine, run the winner, compare with the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command
from selector.errors import EXIT_NOTHING_FITS

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.request import Request
    from selector.selection import Selection

__all__ = ["register"]

#: Exit code for a result that lies outside its bound.
EXIT_WRONG = 1


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "run",
        run,
        help="select for random tensors here, run the winner, compare with the reference",
        description=(
            "Make random tensors for a request on this machine, select, run the winner's kernel, and compare its output\n"
            "with the float64 reference. The bound is what a correct kernel can be off, from the formats alone.\n"
            "Exit code 1 if the error is outside the bound."
        ),
        examples=(
            "run head_size=64 num_heads=8 dtype=bf16 causal",
            "run head_size=128 num_heads=32 num_kv_heads=8 dtype=bf16 kv_cache_dtype=fp8_e4m3 per_head_scales causal",
            "run head_size=64 layout=paged block_size=16 sinks --seq 512 --queries 1 --backend reference",
        ),
        words="AXIS=VALUE",
        words_help="a field of the request; a flag alone is true",
    )
    group = parser.add_argument_group("the tensors")
    for flag, default, text in (
        ("--batch", 2, "sequences"),
        ("--seq", 256, "tokens of keys in each"),
        ("--queries", None, "tokens of queries in each (default: as many as keys)"),
        ("--seed", 0, "seed of the random values"),
        ("--repeat", 5, "runs on the clock; the median counts"),
    ):
        shown = text if default is None else f"{text} (default: {default})"
        group.add_argument(flag, type=int, default=default, metavar="N", help=shown)
    options.add_catalog(parser)
    options.add_preferences(parser)
    options.add_output(parser)


def run(arguments: Namespace) -> int:
    """Select, run, compare."""
    from selector.probe import probe
    from selector.selection import Selection, decide, engine_for

    _check(arguments)
    catalog = options.catalog_of(arguments)
    asked = options.request_of(arguments.words, catalog.vocabulary, arguments.parser)
    machine = probe(catalog.root)
    trial = _trial(arguments, asked, machine)
    request = _request(catalog, asked, trial.request)
    preferences = options.preferences_of(arguments)
    report = decide(request, catalog, machine, preferences, strict=arguments.strict)
    if report.selected is None:
        if arguments.json:
            output.write_json(report.to_dict())
        else:
            output.write(output.report_text(report))
        return EXIT_NOTHING_FITS
    outcome = engine_for(catalog, machine, arguments.strict).decide(request, preferences)
    selection = Selection(catalog, machine, request, outcome, preferences, arguments.strict)
    return _measure(arguments, selection, trial)


def _check(arguments: Namespace) -> None:
    for flag, least in (("batch", 1), ("seq", 1), ("queries", 1), ("repeat", 1)):
        value = getattr(arguments, flag)
        if value is not None and value < least:
            raise UsageError(f"--{flag} {value}: at least {least}")


def _trial(arguments: Namespace, asked: Request, machine: Environment) -> Any:
    """The tensors. What makes them lies with the kernels, so that this package needs no framework."""
    from importlib import import_module

    try:
        module = import_module("backends.trial")
    except ImportError as error:
        raise UsageError(
            f"running needs {error.name or 'a framework'}, which is not installed here"
        ) from None
    queries = arguments.queries
    if queries is None:
        queries = 1 if asked.get("query_length") == "one" else arguments.seq
    shapes = module.Shapes(arguments.batch, arguments.seq, queries, arguments.seed)
    device = str(machine.get("device"))
    try:
        return module.make_trial(asked.to_dict(), "cuda" if device == "rocm" else device, shapes)
    except (ValueError, RuntimeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(f"cannot make tensors for this request: {lines[0]}") from None


def _request(catalog: Catalog, asked: Request, made: dict[str, object]) -> Request:
    """What is selected for: what the tensors need, and a property of the candidate that the user insists on.

    Raises UsageError for a field that the tensors do not show: the answer would be about something else.
    """
    fields = {name: value for name, value in made.items() if catalog.vocabulary.find(name) is not None}
    known = {axis.name for name in fields if (axis := catalog.vocabulary.find(name)) is not None}
    other = []
    for axis, value in asked.items():
        if axis.identity:
            fields[axis.name] = value
        elif axis.name not in known:
            other.append(axis.name)
    if other:
        raise UsageError(f"run makes no tensors for {', '.join(other)}", "`explain` answers for any request")
    request = catalog.request(fields)
    differing = [
        a.name for a, v in asked.items() if request.get(a.name) != v and not _alike(v, request.get(a.name))
    ]
    if differing:
        shown = ", ".join(f"{n}={asked.get(n)} (the tensors: {request.get(n)})" for n in differing)
        raise UsageError(f"no tensors are made for {shown}")
    return request


def _alike(asked: Any, made: Any) -> bool:
    """A format's general name and the format that it stands for here (fp8 and fp8_e4m3)."""
    return isinstance(asked, str) and isinstance(made, str) and made.startswith(asked)


def _measure(arguments: Namespace, selection: Selection, trial: Any) -> int:
    from importlib import import_module

    found = import_module("backends.trial").measure(trial, selection.run, arguments.repeat)
    within = found.largest <= found.bound
    ran = selection._run.ran or selection.id
    if arguments.json:
        output.write_json(
            {
                "selected": selection.id,
                "ran": ran,
                "request": selection.request.to_dict(),
                "environment": selection.environment.name,
                "policy_rule": selection.policy_rule,
                "max_error": found.largest,
                "mean_error": found.mean,
                "bound": found.bound,
                "within_bound": within,
                "max_error_unquantized": found.unquantized,
                "seconds": found.seconds,
                "runs": found.runs,
            }
        )
    else:
        _show(trial.shapes, selection, ran, found, within)
    return 0 if within else EXIT_WRONG


def _show(shapes: Any, selection: Selection, ran: str, found: Any, within: bool) -> None:
    from selector.constraints import word
    from selector.render.screen import Screen

    screen = Screen(output.paint(), output.width(), False)
    screen.put(f"{ran} ran: {selection.candidate.title}", 0, 2, "bold", "green" if within else "red")
    if ran != selection.id:
        screen.field("instead of", selection.id, "yellow")
    fields = [a.name if v is True else f"{a.name}={word(v)}" for a, v in selection.request.items()]
    screen.field("request", " ".join(fields))
    tokens = f"{shapes.queries} quer{'y' if shapes.queries == 1 else 'ies'} and {shapes.keys} keys each"
    screen.field(
        "tensors", f"{shapes.batch} sequence{'s' if shapes.batch != 1 else ''}, {tokens}; seed {shapes.seed}"
    )
    screen.field("environment", selection.environment.title)
    screen.field("error", f"at most {found.largest:.2e}, on average {found.mean:.2e} against float64")
    verdict = "within it" if within else "OUTSIDE it"
    screen.field("bound", f"{found.bound:.2e}: {verdict}", "green" if within else "red")
    if found.unquantized is not None:
        screen.field(
            "quantisation", f"at most {found.unquantized:.2e} against float64 on the values before it"
        )
    screen.field("time", f"{found.seconds * 1e3:.3g} ms, the median of {found.runs} runs")
    output.write(screen.text())
