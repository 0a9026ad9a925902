"""`attn-select explain`: what is chosen for one request, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.from_error import add_options as add_error_options
from selector.cli.parser import Subparsers, add_command
from selector.errors import EXIT_NOTHING_FITS

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.cli.from_error import FromError
    from selector.report import Report

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "explain",
        run,
        help="what is chosen for a request, and why",
        description=(
            "What is chosen for one attention layer on one machine: the ranked candidates, every reason for those\n"
            "that are rejected, what the request's fields cost, and what would help when nothing fits.\n"
            "`attn-select schema axes` lists the axes."
        ),
        examples=(
            "explain --on h100 head_size=128 dtype=bf16 kv_cache_dtype=fp8 per_head_scales",
            "explain --on a100 --pack vllm head_size=128 dtype=bf16 --why-not FLASHINFER",
            "explain --on h100 --without flash-attn-3 head_size=128 dtype=bf16 --json",
            "explain --on h100 --requests layers.jsonl --winners",
            "explain --on h100 --pack vllm --from-error server.log",
        ),
        words="AXIS=VALUE",
        words_help="a field of the request; a flag alone is true, null leaves a field open",
    )
    options.add_environment(parser)
    options.add_catalog(parser)
    options.add_preferences(parser)
    options.add_output(parser, verbose="every reason of every candidate, notes and sources")
    saving = parser.add_argument_group("files")
    saving.add_argument("--html", metavar="FILE", help="write the report as one self-contained page")
    saving.add_argument("--save", metavar="FILE", help="write a snapshot that `replay` decides again")
    group = parser.add_argument_group("other questions")
    group.add_argument(
        "--why-not", metavar="NAME", help="what stands against one candidate, and what would help it"
    )
    group.add_argument(
        "--requests",
        metavar="FILE",
        help='one JSON object a line in (- for standard input), one a line out; a line is {"request": {"head_size": 128}} and may '
        "have environment, backend, avoid, prefer and strict as well",
    )
    group.add_argument("--winners", action="store_true", help="with --requests: no reasons")
    add_error_options(parser)


def run(arguments: Namespace) -> int:
    """Explain one request, or a file of them."""
    if arguments.requests is not None:
        from selector.cli.batch import answer_lines

        if arguments.words:
            raise UsageError("--requests takes its requests from the file alone, and here are fields as well")
        if arguments.why_not is not None:
            raise UsageError("--why-not asks about one request, --requests about many")
        if arguments.from_error is not None:
            raise UsageError(f"{arguments.error_option} brings one request, --requests many")
        return answer_lines(arguments)
    if arguments.winners:
        raise UsageError("--winners goes with --requests")
    told: FromError | None = None
    if arguments.from_error is not None:
        from selector.cli.from_error import from_error

        told = from_error(arguments)
    report = _report(arguments) if told is None else told.report
    if arguments.why_not is not None:
        from selector.cli.why_not import why_not

        return why_not(report, arguments)
    if arguments.save is not None:
        report.save(arguments.save)
        output.told(arguments.save)
    if arguments.html is not None:
        output.write_file(arguments.html, report.to_html())
    if arguments.json:
        whole = report.to_dict()
        output.write_json(whole if told is None else {"error": told.to_dict(), "report": whole})
    else:
        if told is not None:
            output.write(told.to_text(color=output.colors(), width=output.width()))
        output.write(output.report_text(report, verbose=arguments.verbose))
    return 0 if report.selected is not None else EXIT_NOTHING_FITS


def _report(arguments: Namespace) -> Report:
    from selector.selection import decide

    catalog = options.catalog_of(arguments)
    request = options.request_of(arguments.words, catalog.vocabulary, arguments.parser)
    machine = options.environment_of(arguments, catalog)
    return decide(request, catalog, machine, options.preferences_of(arguments), strict=arguments.strict)
