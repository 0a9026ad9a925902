"""`attn-select plan`: what each kind of layer of a model gets, before its weights are loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command
from selector.errors import EXIT_NOTHING_FITS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from selector.catalog import Catalog
    from selector.model_config import ModelConfig

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "plan",
        run,
        help="what each layer of a model gets, from its config.json",
        description=(
            "One verdict for each kind of attention layer in a model's config.json (or the directory it lies in), then\n"
            "the best single backend for all of them and what it costs. Further AXIS=VALUE words hold for every layer.\n"
            "Exit code 3 if some layer has no backend (with --fleet: on some machine)."
        ),
        examples=(
            "plan config.json --on h100",
            "plan models/my-model --on b200 --tp 8 --kv-cache-dtype fp8",
            "plan config.json --pack vllm --on h100 --block-size 16 batch_invariant",
            "plan config.json --fleet fleet.yaml",
        ),
        words="CONFIG",
        words_usage="CONFIG [AXIS=VALUE ...]",
        words_help="a model's config.json or its directory, then fields AXIS=VALUE for every layer",
    )
    group = parser.add_argument_group("how the model is run")
    group.add_argument(
        "--tp", type=int, default=1, metavar="N", help="ranks of tensor parallelism (default: 1)"
    )
    group.add_argument("--dtype", metavar="X", help="format of activations (default: the configuration's)")
    group.add_argument(
        "--kv-cache-dtype",
        metavar="X",
        help="format of the KV cache (default: the configuration's, else the query's)",
    )
    group.add_argument("--block-size", type=int, metavar="N", help="tokens in a block of the KV cache")
    options.add_environment(parser)
    fleet = parser.add_argument_group("many machines")
    fleet.add_argument(
        "--fleet", metavar="FILE", help="the kinds of machines, with their counts, instead of one machine"
    )
    options.add_catalog(parser)
    options.add_preferences(parser)
    options.add_output(parser, verbose="the whole report of each kind of layer")


def run(arguments: Namespace) -> int:
    """Plan a model."""
    from selector.cli.plan_decide import make_plan
    from selector.cli.plan_help import Helper

    if not arguments.words:
        raise UsageError("plan needs a model's config.json", "attn-select plan CONFIG.json --on h100")
    catalog = options.catalog_of(arguments)
    model = _model(arguments, catalog)
    if not any(kind.attention for kind in model.layers):
        raise UsageError(f"{model.source} describes no attention layer")
    helper = Helper(lambda changes: _model(arguments, catalog, changes))
    if arguments.fleet is not None:
        from selector.cli.plan_fleet import run_fleet

        return run_fleet(arguments, catalog, model, helper)
    machine = options.environment_of(arguments, catalog)
    plan = make_plan(
        model.layers,
        catalog,
        machine,
        options.preferences_of(arguments),
        strict=arguments.strict,
        helper=helper,
    )
    if arguments.json:
        from selector.cli.plan_text import plan_dict

        output.write_json(plan_dict(plan, model))
    else:
        from selector.cli.plan_text import plan_text

        output.write(
            plan_text(plan, model, color=output.colors(), width=output.width(), verbose=arguments.verbose)
        )
    return EXIT_NOTHING_FITS if any(v.chosen is None for v in plan.verdicts) else 0


def _model(arguments: Namespace, catalog: Catalog, changes: Mapping[str, str] | None = None) -> ModelConfig:
    """The model with the options that are given, or with other values of some of them."""
    from selector.model_config import load_architectures, read_config

    changes = changes or {}
    config, *words = arguments.words
    fields = options.fields_of(words, catalog.vocabulary)
    # Checked here and named canonically, so that they replace what the configuration says of the same axes.
    given = catalog.request(fields)
    names = {name: catalog.vocabulary.find(name) for name in fields}
    path = os.path.join(catalog.root, "architectures.yaml")
    return read_config(
        config,
        dtype=changes.get("dtype", arguments.dtype),
        kv_cache_dtype=changes.get("kv_cache_dtype", arguments.kv_cache_dtype),
        block_size=arguments.block_size,
        tp=arguments.tp,
        given={axis.name: given.get(axis.name) for axis in names.values() if axis is not None},
        architectures=load_architectures(path) if os.path.isfile(path) else None,
    )
