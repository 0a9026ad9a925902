"""`attn-select serve`: the live page."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from selector.cli import options
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "serve",
        run,
        help="a page on this machine where the verdict changes as you type",
        description="A page on 127.0.0.1, backed by the real engine. Manifests are read again when they are saved; Ctrl-C ends it.",
        examples=("serve", "serve --pack vllm --on b200 --port 8080"),
    )
    parser.add_argument(
        "--port", type=int, default=8765, metavar="PORT", help="0: any free one (default: 8765)"
    )
    parser.add_argument("--on", metavar="PRESET", default="", help="the machine that is chosen at first")
    options.add_catalog(parser)


def _preset(name: str, root: str | None) -> str:
    """A preset's own name. Raises EnvironmentFileError where nobody has it, UsageError for a file."""
    from selector.environment import Environment

    if os.sep in name or os.path.isfile(name):
        raise UsageError(
            f"serve --on {name}: a preset by name, no file", "`attn-select env --list` lists them"
        )
    return Environment.preset(name, root=root).name


def run(arguments: Namespace) -> int:
    """Serve until interrupted."""
    from selector.serve import make_server

    if not 0 <= arguments.port <= 65535:
        raise UsageError(f"--port {arguments.port}: a port is 0 to 65535")
    packs = arguments.pack or ["core"]
    if len(packs) > 1:
        raise UsageError("serve shows one pack at a time; the page switches between them")
    root = options.root_of(arguments)
    on = _preset(arguments.on, root) if arguments.on else ""
    try:
        server = make_server(arguments.port, root, packs[0], on)
    except OSError as error:
        raise UsageError(
            f"cannot listen on 127.0.0.1:{arguments.port}: {error.strerror}", "--port 0 takes a free one"
        ) from None
    print(f"http://127.0.0.1:{server.server_address[1]}/  (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("", file=sys.stderr)
    finally:
        server.server_close()
    return 0
