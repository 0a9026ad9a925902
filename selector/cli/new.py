"""`attn-select new`: a manifest that lints, and with --kernel a wrapper that runs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from selector.cli import options, output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

    from selector.vocabulary import Axis, Vocabulary

__all__ = ["register"]

#: What the wrapper's template honours, as axes; those that the vocabulary has are declared.
HONOURED = {
    "causal": "true",
    "non_causal": "true",
    "lse": "true",
    "layout": "[dense]",
    "kv_cache_dtype": "[auto]",
}

#: Formats that it declares.
FORMATS = "[float16, bfloat16, float32]"


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "new",
        run,
        help="a manifest that lints, and a kernel wrapper that runs",
        description=(
            "Write a manifest for a new backend, with every axis that a candidate must declare and the flags it may have.\n"
            "In a directory with a pack.yaml it joins that pack; elsewhere it begins a pack of its own. With --kernel also\n"
            "a wrapper module, which hands the call to the reference until the kernel is there."
        ),
        examples=("new my_backend", "new my_backend --into manifests/core", "new my_backend --kernel"),
        words="NAME",
        words_usage="NAME",
        words_help="the backend's name",
    )
    parser.add_argument(
        "--into", metavar="DIR", help="directory of the manifest (default: a new one called NAME)"
    )
    parser.add_argument(
        "--kernel",
        nargs="?",
        const="",
        metavar="MODULE",
        help="also a wrapper, as this module below the current directory (default: NAME_kernel)",
    )
    parser.add_argument("--manifests", metavar="DIR", help="the manifests directory with the vocabulary")
    options.add_output(parser)


def run(arguments: Namespace) -> int:
    """Write the files, and say what to do next."""
    if len(arguments.words) != 1:
        raise UsageError("new takes one name", "attn-select new my_backend")
    name: str = arguments.words[0]
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name) is None:
        raise UsageError(f"{name!r} is no name of a backend: letters, digits and _, a letter first")
    folder = arguments.into or name
    arguments.pack = None
    from selector.cli.schema import vocabulary_of

    vocabulary = vocabulary_of(arguments)
    module = None if arguments.kernel is None else arguments.kernel or f"{name}_kernel"
    files = {os.path.join(folder, f"{name}.yaml"): manifest_text(name, vocabulary, module, folder)}
    joins = os.path.isfile(os.path.join(folder, "pack.yaml"))
    pack = os.path.basename(os.path.abspath(folder))
    if not joins:
        files[os.path.join(folder, "pack.yaml")] = _filled(
            "pack.yaml", name=name, pack=pack, folder=folder, schemas=_schemas(folder)
        )
    if module is not None:
        if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", module) is None:
            raise UsageError(f"--kernel {module}: no name of a module")
        files[module.replace(".", os.sep) + ".py"] = _filled("kernel.py", name=name, pack=folder)
    _write(files)
    if arguments.json:
        output.write_json({"name": name, "files": list(files), "joins": joins, "kernel": module})
        return 0
    paint = output.paint()
    lines = [f"{path} {paint('written', 'green')}" for path in files]
    lines += ["", "next:", f"  attn-select lint {folder}"]
    if joins:
        lines.append(f"  add {name} to the policy's orders in {os.path.join(folder, 'pack.yaml')}")
    axes = " ".join(_example(a) for a in vocabulary.axes if a.declare_required and a.of == "request")
    lines.append(f"  attn-select explain --pack {os.path.join(folder, '')} --on PRESET {axes}")
    if module is not None:
        lines.append(f"  PYTHONPATH=. attn-select run --pack {os.path.join(folder, '')} {axes} causal")
    output.write("\n".join(lines))
    return 0


def _example(axis: Axis) -> str:
    if axis.values:
        return f"{axis.name}={axis.values[0]}"
    return f"{axis.name}=128" if axis.type == "integer" else f"{axis.name}=..."


def manifest_text(name: str, vocabulary: Vocabulary, module: str | None, folder: str) -> str:
    """A manifest that lints: what must be declared is, what may be declared stands beside it as comments."""
    requires: list[str] = []
    supports: list[str] = []
    flags: list[str] = []
    for axis in vocabulary.axes:
        if axis.derive is not None or axis.identity:
            continue
        lines = requires if axis.of == "environment" else supports
        if axis.declare_required:
            said = (
                FORMATS
                if module is not None and axis.of == "request" and "bfloat16" in axis.values
                else "any"
            )
            lines.append(f"  {axis.name}: {said}  # {_hint(axis)}")
        elif module is not None and axis.name in HONOURED:
            lines.append(f"  {axis.name}: {HONOURED[axis.name]}")
        elif axis.of == "request" and axis.type in ("flag", "mode"):
            flags.append(f"  # {axis.name}: true  # {_hint(axis)}")
        elif axis.of == "environment" and axis.type in ("version", "packages"):
            example = '{name: ">=1.0"}' if axis.type == "packages" else '">=1.0"'
            requires.append(f"  # {axis.name}: {example}")
    supports += ["  # What it has besides; a flag that is not declared is not had:", *flags]
    return _filled(
        "manifest.yaml",
        name=name,
        schemas=_schemas(folder),
        kernel="" if module is None else f"kernel: {module}\n",
        requires="\n".join(requires) or "  {}",
        supports="\n".join(supports),
    )


def _hint(axis: Axis) -> str:
    text = ", ".join(axis.values) if axis.values else axis.doc or axis.title
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."


def _filled(template: str, **values: str) -> str:
    """A template with its placeholders filled."""
    from string import Template

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(here, "templates", f"{template}.in"), encoding="utf-8") as file:
        text = file.read()
    return Template(text).substitute(values)


def _schemas(folder: str) -> str:
    """Where an editor finds the schemas from ``folder``: relative inside a checkout, absolute elsewhere."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.path.join(package, "schema")
    beside = os.path.relpath(os.path.abspath(folder), os.path.dirname(package))
    return path if beside.startswith(os.pardir) else os.path.relpath(path, folder)


def _write(files: dict[str, str]) -> None:
    """Write new files; none if one of them is there already."""
    there = [path for path in files if os.path.lexists(path)]
    if there:
        raise UsageError(f"{there[0]} is there already; nothing was written")
    for path, text in files.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
