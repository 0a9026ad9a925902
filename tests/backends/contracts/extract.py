"""Signatures out of source text, by ``ast``: nothing of a package is imported.

A recording is plain JSON::

    {"package": "flash-attn", "version": "2.8.3", "source": "flash_attn-2.8.3.tar.gz",
     "modules": {"flash_attn": ["flash_attn_func", ...]},
     "callables": {"flash_attn_func": [["q", "either"], ["dropout_p", "either", "0.0"], ...]}}

A parameter is its name, its kind and, where it has one, the source text of its default. A function that is
not there in a version is not in its recording.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends.contracts.recipes import Recipe

    Parameter = list[str]
    Recording = dict[str, object]


def record(
    package: str, version: str, source: str, recipe: Recipe, read: Callable[[str], str | None]
) -> Recording:
    """The recording of one version; ``read`` gives a file's text, or None where there is no such file."""
    callables: dict[str, list[Parameter]] = {}
    for name, paths in (*recipe.callables.items(), *recipe.stubs.items()):
        tree = _first(paths, read)
        function = None if tree is None else _find(tree, name)
        if function is not None:
            callables[name] = function
    for name, paths in recipe.operators.items():
        schemas = next((text for path in paths if (text := read(path)) is not None), "")
        schema = re.search(rf"^- func: {name}\((.*)\) -> ", schemas, re.MULTILINE)
        if schema is not None:
            callables[name] = list(_schema(schema[1]))
    modules: dict[str, list[str]] = {}
    for module, paths in recipe.modules.items():
        tree = _first(paths, read)
        if tree is not None:
            bound = set(_bound(tree))
            wanted = {name.partition(".")[0] for name in (*recipe.callables, *recipe.stubs)}
            modules[module] = sorted(bound & wanted)
    if not callables:
        message = f"{source}: none of {package}'s functions found; has it moved its files?"
        raise LookupError(message)
    return {
        "package": package,
        "version": version,
        "source": source,
        "modules": modules,
        "callables": callables,
    }


def _first(paths: tuple[str, ...], read: Callable[[str], str | None]) -> ast.Module | None:
    for path in paths:
        text = read(path)
        if text is not None:
            return ast.parse(text)
    return None


def _find(tree: ast.Module, name: str) -> list[Parameter] | None:
    """The parameters of a function, a method or a class's fields; of overloads the last, the real one."""
    outer, _, inner = name.partition(".")
    found: list[Parameter] | None = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            found = list(_parameters(node.args))
        elif isinstance(node, ast.ClassDef) and node.name == outer:
            if not inner:
                found = list(_fields(node))
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == inner:
                    found = list(_parameters(method.args))
    return found


def _parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    plain = [(arg, "positional") for arg in arguments.posonlyargs] + [
        (arg, "either") for arg in arguments.args
    ]
    required = len(plain) - len(arguments.defaults)
    for index, (arg, kind) in enumerate(plain):
        default = arguments.defaults[index - required] if index >= required else None
        yield _parameter(arg.arg, kind, default)
    if arguments.vararg is not None:
        yield _parameter(arguments.vararg.arg, "rest", None)
    for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(arg.arg, "keyword", default)
    if arguments.kwarg is not None:
        yield _parameter(arguments.kwarg.arg, "keywords", None)


def _fields(node: ast.ClassDef) -> Iterator[Parameter]:
    """The fields of a NamedTuple or dataclass, which are its constructor's parameters."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield _parameter(item.target.id, "either", item.value)


def _parameter(name: str, kind: str, default: ast.expr | None) -> Parameter:
    return [name, kind] if default is None else [name, kind, ast.unparse(default)]


def _schema(arguments: str) -> Iterator[Parameter]:
    """The parameters of an operator's schema, such as ``Tensor query, *, float? scale=None``."""
    kind = "either"
    for argument in arguments.split(", "):
        if argument == "*":
            kind = "keyword"
            continue
        name, _, default = argument.rpartition(" ")[2].partition("=")
        yield [name, kind, default] if default else [name, kind]


def _bound(tree: ast.Module) -> Iterator[str]:
    """Every name that a module's top level binds: what can be imported from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node in tree.body:
                yield node.name
        elif isinstance(node, ast.ImportFrom | ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id
