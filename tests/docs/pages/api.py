"""`docs/reference/api.md`: the public names of `selector` and `backends`, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ForwardRef

from tests.docs.pages.markdown import code, fence, head

__all__ = ["MODULES", "pages"]

#: Modules whose public names are described, and which of them (default: what they export).
MODULES: dict[str, tuple[str, ...]] = {
    "selector": (),
    "backends": (),
    "backends.call": (),
    "backends.dispatch": ("report_of",),
    "backends.quantize": (),
    "backends.bounds": (),
}


def pages() -> dict[str, str]:
    """The page."""
    lines = head(
        "Python reference",
        "the docstrings of selector and backends",
        "What `from selector import ...` and `from backends import ...` give. `selector` imports neither torch nor a kernel library; "
        "`backends` imports torch. Every error is a `SelectorError` with an `exit_code`.",
    )
    for name, wanted in MODULES.items():
        module = import_module(name)
        lines += [f"## Module {name}", "", *_doc(inspect.getdoc(module) or "")]
        for public in wanted or module.__all__:
            lines += _entry(name, public, getattr(module, public))
    return {"reference/api.md": "\n".join(lines).rstrip() + "\n"}


def _entry(module: str, name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from [f"### {name}", ""]
        bases = [base.__name__ for base in value.__bases__ if base not in (object, tuple)]
        yield from fence(
            _signature(name, value) + (f"  # is a {', '.join(bases)}" if bases else ""), "python"
        )
        yield from _doc(_own_doc(value))
        yield from _members(value)
    elif callable(value):
        yield from [
            f"### {name}",
            "",
            *fence(_signature(name, value), "python"),
            *_doc(inspect.getdoc(value) or ""),
        ]
    else:
        yield from [f"### {name}", "", f"{code(f'{module}.{name}')}: {type(value).__name__}.", ""]


def _own_doc(value: type) -> str:
    """A class's docstring, unless it is one that `NamedTuple` made up."""
    doc = value.__dict__.get("__doc__") or ""
    return "" if re.match(rf"{value.__name__}\([\w, ]*\)$", doc) else inspect.cleandoc(doc)


def _members(value: type) -> Iterator[str]:
    """Public methods and properties with a docstring, in the order of the source; inherited ones too if the project wrote them."""
    found: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        if base.__module__.partition(".")[0] in ("selector", "backends"):
            found.update({k: v for k, v in vars(base).items() if not k.startswith("_")})
    for name, member in found.items():
        if isinstance(member, property):
            doc = inspect.getdoc(member)
            if doc:
                yield f"- **`{name}`**: {_inline(doc)}"
            continue
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if inspect.isfunction(function):
            before = f"{value.__name__}." if isinstance(member, (classmethod, staticmethod)) else ""
            doc = inspect.getdoc(function) or ""
            yield f"- **`{before}{_signature(name, function, bound=not isinstance(member, staticmethod))}`**: {_inline(doc)}"
    yield ""


def _signature(name: str, value: Any, bound: bool = False) -> str:
    """`name(parameters) -> result`, annotations as the source writes them, wrapped where the line is long."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    given = list(signature.parameters.values())[bound:]
    shown: list[str] = []
    for n, p in enumerate(given):
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        if p.kind is p.KEYWORD_ONLY and not any(
            q.kind in (q.VAR_POSITIONAL, q.KEYWORD_ONLY) for q in given[:n]
        ):
            shown.append("*")
        note = "" if p.annotation is p.empty else f": {_annotation(p.annotation)}"
        default = "" if p.default is p.empty else f" = {p.default!r}" if note else f"={p.default!r}"
        shown.append(f"{stars}{p.name}{note}{default}")
        if p.kind is p.POSITIONAL_ONLY and (
            n + 1 == len(given) or given[n + 1].kind is not p.POSITIONAL_ONLY
        ):
            shown.append("/")
    result = signature.return_annotation
    arrow = "" if result is signature.empty or inspect.isclass(value) else f" -> {_annotation(result)}"
    line = f"{name}({', '.join(shown)}){arrow}"
    if len(line) <= 100 or bound:
        return line
    return f"{name}(\n    " + ",\n    ".join(shown) + f",\n){arrow}"


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _doc(text: str) -> list[str]:
    """A docstring as Markdown: prose as it is, `>>>` and indented blocks as code."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.lstrip().startswith(">>>"):
            lines += fence(inspect.cleandoc(block), "python")
        elif _is_block(block):
            lines += fence(inspect.cleandoc(block), "text")
        else:
            lines += [_markup(_arguments(block)), ""]
    return lines if text.strip() else []


def _is_block(block: str) -> bool:
    """Whether every line of a paragraph is indented, or the paragraph is a table of another markup."""
    lines = block.splitlines()
    return all(line.startswith("    ") for line in lines) or any(
        set(line.strip()) == {"=", " "} for line in lines
    )


def _arguments(block: str) -> str:
    """A section such as `Arguments:` as a list."""
    first, *rest = block.splitlines()
    if (
        not rest
        or not re.fullmatch(r"\w+:", first.strip())
        or not all(line.startswith("    ") for line in rest)
    ):
        return block
    lines = [f"**{first.strip()}**", ""]
    for line in rest:
        text = line[4:]
        item = re.match(r"[\w, *]+: ", text) is not None
        lines.append(
            f"- {text}" if item else f"  {text.strip()}" if lines[-1].startswith(("-", "  ")) else text
        )
    return "\n".join(lines)


def _markup(text: str) -> str:
    """Roles and double backticks of docstrings as Markdown's code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def _inline(doc: str) -> str:
    """A docstring in one paragraph, for a list."""
    return _markup(" ".join(doc.split()))
