"""Whether random tensors show what a request says. What they do not show is refused: its times would be about something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from selector.catalog import Catalog
    from selector.request import Request
    from selector.vocabulary import Axis

__all__ = ["shown", "unshown_phase"]

#: The axis that says where a layer stands. It changes no tensor, so it stays in the request that is measured.
STANDS = "attn_type"

#: Its values that have no decode: all tokens are there at once.
AT_ONCE = ("encoder", "encoder_only")


def unshown_phase(request: Request, phase: str) -> str | None:
    """Why a request has nothing to measure in a phase; None if it has."""
    where = request.get(STANDS)
    if phase == "decode" and where in AT_ONCE:
        return f"{STANDS}={where} decodes nothing"
    return None


def shown(catalog: Catalog, asked: Request, made: Mapping[str, object]) -> tuple[Request | None, str | None]:
    """The request that is measured: all that the tensors need, and of what was asked what changes no tensor.

    ``made``: the fields read off the tensors. Without a request, the second value says what they do not show.
    """
    vocabulary = catalog.vocabulary
    fields = {axis.name: value for name, value in made.items() if (axis := vocabulary.find(name)) is not None}
    unknown = []
    for axis, value in asked.items():
        if axis.identity or axis.name == STANDS:
            fields[axis.name] = value
        elif axis.name not in fields and not _says_nothing(axis, value):
            unknown.append(axis.name)
    if unknown:
        return None, f"tune makes no tensors for {', '.join(unknown)}"
    request = catalog.request(fields)
    differing = [
        f"{axis.name}={_word(value)} (the tensors: {_word(request.get(axis.name))})"
        for axis, value in asked.items()
        if axis.name in fields and not _alike(value, request.get(axis.name))
    ]
    return (None, f"no tensors are made for {', '.join(differing)}") if differing else (request, None)


def _says_nothing(axis: Axis, value: object) -> bool:
    """A feature that is said to be absent, as it is where nobody speaks of it."""
    return value is None or value is False or value == axis.default


def _word(value: object) -> str:
    from selector.constraints import word

    return word(value)


def _alike(asked: object, made: object) -> bool:
    """The same value, or a format's general name and the format that it stands for here (fp8 and fp8_e4m3)."""
    if asked == made or (not asked and not made):
        return True
    return isinstance(asked, str) and isinstance(made, str) and made.startswith(asked)
