"""`attn-select matrix`: what every candidate supports, axis by axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "matrix",
        run,
        help="the support table: candidates by axes",
        description=(
            "What every candidate's manifest declares, one column an axis, in groups. Axes on which all agree stand in a\n"
            "line below their group (--all gives them columns, and shows abstract variants). A mark (*) says that a rule\n"
            "limits the axis further; --md lists the rules and the policy too."
        ),
        examples=("matrix", "matrix --md > support.md", "matrix --pack vllm head_size kv_cache_dtype"),
        words="AXIS",
        words_help="only these axes (default: all)",
    )
    parser.add_argument("--md", action="store_true", help="Markdown")
    parser.add_argument("--html", metavar="FILE", help="write it as one self-contained page that filters")
    parser.add_argument("--all", action="store_true", help="a column for every axis, a row for every variant")
    options.add_catalog(parser)
    options.add_output(parser)


def run(arguments: Namespace) -> int:
    """Print the table."""
    from selector.render.matrix import matrix_data, matrix_markdown, matrix_text

    catalog = options.catalog_of(arguments)
    only = []
    for name in arguments.words:
        axis = catalog.vocabulary.find(name)
        if axis is None:
            near = catalog.vocabulary.nearest(name)
            raise UsageError(f"no axis is called {name!r}", f"did you mean {near}?" if near else None)
        only.append(axis.name)
    if arguments.html is not None:
        from selector.render.html import matrix_html

        if only or arguments.all:
            raise UsageError(
                "the page holds every axis and filters them itself", "leave out the axes and --all"
            )
        output.write_file(arguments.html, matrix_html(catalog))
        return 0
    if arguments.json:
        output.write_json(matrix_data(catalog, everything=arguments.all, only=only))
    elif arguments.md:
        output.write(matrix_markdown(catalog, everything=arguments.all, only=only))
    else:
        output.write(
            matrix_text(
                catalog,
                everything=arguments.all,
                only=only,
                color=output.colors(),
                width=output.width(),
            )
        )
    return 0
