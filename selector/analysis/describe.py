"""Conditions in words: what a set of classes of one facet allows, as short as it can be said exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from selector.analysis.integers import Piece
from selector.constraints import _listed, word
from selector.versions import contains

if TYPE_CHECKING:
    from selector.analysis.classes import Class
    from selector.analysis.facets import Facet
    from selector.analysis.regions import Cube

__all__ = ["allowed_text", "bracketed", "cube_parts", "cube_text", "own_text"]

#: Values of a choice that are listed before their number takes over.
LISTED = 8


def cube_parts(cube: Cube, facets: Sequence[Facet]) -> list[tuple[str, str]]:
    """(facet's name, allowed values in words), in the facets' order."""
    return [(facets[f].name, allowed_text(facets[f], *_sets(cube, f))) for f in sorted(cube.allowed)]


def _sets(cube: Cube, f: int) -> tuple[frozenset[int], frozenset[int]]:
    """What is allowed of a facet, and what of that has to be said."""
    return cube.allowed[f], cube.needed.get(f) or cube.allowed[f]


def cube_text(cube: Cube, facets: Sequence[Facet]) -> str:
    """A condition as one line: its parts joined by "and", those with a word or comma of their own in brackets."""
    several = len(cube.allowed) > 1
    parts = (part_text(facets[f], *_sets(cube, f), several=several) for f in sorted(cube.allowed))
    return " and ".join(parts) or "always"


def own_text(cube: Cube, facets: Sequence[Facet]) -> str:
    """A condition without what it says of candidates, and that facts of the machine are known. Not exact: a first look."""
    kept = {
        f: allowed
        for f, allowed in cube.allowed.items()
        if facets[f].candidate is None and not _known_fact(facets[f], *_sets(cube, f))
    }
    return cube_text(cube._replace(allowed=kept), facets)


def _known_fact(facet: Facet, allowed: frozenset[int], needed: frozenset[int]) -> bool:
    if facet.axis is None or facet.axis.of != "environment" or facet.package is not None:
        return False
    return allowed_text(facet, allowed, needed) in ("given", "known")


def bracketed(text: str, *signs: str) -> str:
    """Words in brackets if one of the signs is in them."""
    return f"({text})" if any(sign in text for sign in signs) else text


def part_text(facet: Facet, allowed: frozenset[int], needed: frozenset[int], *, several: bool = False) -> str:
    """One facet's part of a condition: ``head_size 65 to 128``, ``no sinks``, ``flash-attn-3 missing``."""
    text = allowed_text(facet, allowed, needed)
    if several:
        text = bracketed(text, ", ", " or ", " and ")
    if facet.candidate is not None:
        return f"{facet.candidate} {text}"
    if facet.axis is not None and facet.axis.type in ("flag", "mode"):
        said = {
            "true": "{}",
            "false": "no {}",
            "false or open": "{} not true",
            "true or open": "{} not false",
        }
        return said.get(text, f"{{}} {text}").format(facet.name)
    return f"{facet.name} {text}"


def allowed_text(facet: Facet, allowed: frozenset[int], needed: frozenset[int]) -> str:
    """Values in words: all that are needed, none that is not allowed, and of those between as many as makes it short."""
    if facet.candidate is not None:
        return "accepts" if facet.classes[min(needed)].value else "refuses"
    if facet.package is not None:
        return _package_text(facet, allowed, needed)
    values = [k for k, c in enumerate(facet.classes) if c.kind == "value"]
    inside, wanted = [k for k in values if k in allowed], [k for k in values if k in needed]
    special = [_SPECIAL[c.kind] for k, c in enumerate(facet.classes) if k in needed and c.kind != "value"]
    if not wanted:
        return _listed(special)
    if len(inside) == len(values):
        missing = {c.kind for k, c in enumerate(facet.classes) if k not in allowed}
        return "known" if missing == {"unknown"} else "given"
    kind = facet.axis.type if facet.axis is not None else "choice"
    texts = _WORDERS.get(kind, _choice_texts)(facet, inside, wanted, values)
    return _joined([*texts, *special])


def _joined(texts: Sequence[str]) -> str:
    """Alternatives; those of several parts in brackets."""
    return _listed([bracketed(t, " and ", ", ") for t in texts] if len(texts) > 1 else texts)


_SPECIAL = {"null": "open", "unknown": "unknown", "absent": "not given"}


def _choice_texts(facet: Facet, inside: list[int], wanted: list[int], values: list[int]) -> list[str]:
    refused = [m for k in values if k not in inside for m in facet.classes[k].members]
    if any(not facet.classes[k].members for k in wanted):  # any other value is allowed
        return [f"not {_listed([word(m) for m in refused])}"] if refused else ["any"]
    listed = [m for k in wanted for m in facet.classes[k].members]
    whole = all(facet.classes[k].members for k in values)
    if whole and 0 < len(refused) < len(listed) and len(listed) > 2:
        return [f"not {_listed(_tagged(facet, refused, refused))}"]
    return _tagged(facet, [m for k in inside for m in facet.classes[k].members], listed)


def _tagged(facet: Facet, allowed: list[Any], needed: list[Any]) -> list[str]:
    """Values by their tags where at least three share one that no refused value has, and one by one."""
    left = set(needed)
    found: list[str] = []
    tags = facet.axis.tags if facet.axis is not None else {}
    for tag, members in sorted(tags.items(), key=lambda e: -len(e[1])):
        if len(members & left) > 2 and members <= set(allowed):
            found.append(f"tagged {tag}")
            left -= members
    return [*(word(v) for v in needed if v in left), *found]


# -- numbers ----------------------------------------------------------------------------------------------------------


def _integer_texts(facet: Facet, inside: list[int], wanted: list[int], values: list[int]) -> list[str]:
    pieces = sorted(
        ((p, k in inside, k in wanted) for k in values for p in facet.classes[k].members),
        key=lambda e: (e[0].low is not None, e[0].low or 0, len(e[0].by)),
    )
    ends = (pieces[0][0].low, pieces[-1][0].high)
    return [_span(*part, ends) for part in _spans(pieces)]


Span = tuple["int | None", "int | None", int, tuple[int, ...]]
#: A piece, whether it is allowed, and whether it has to be said.
Marked = tuple[Piece, bool, bool]


def _spans(pieces: Sequence[Marked]) -> list[Span]:
    """Ranges with a modulus (1: none) and those that must not divide, which together are the wanted pieces."""
    ranges = [list(g) for _, g in itertools.groupby(pieces, key=lambda e: (e[0].low, e[0].high))]
    moduli = sorted({m for p, _, _ in pieces for m in (*p.by, *p.no)})
    forms: list[tuple[int, tuple[int, ...]]] = [(1, ())]
    forms += [(m, ()) for m in moduli] + [(1, (m,)) for m in moduli]
    forms += [(a, (b,)) for a, b in itertools.permutations(moduli, 2)]
    forms += [_form(p) for p, _, wanted in pieces if wanted]  # a piece as it is
    left = {(i, p) for i, group in enumerate(ranges) for p, _, wanted in group if wanted}
    found: list[Span] = []
    while left:
        best: tuple[tuple[int, int], tuple[int, int, int, tuple[int, ...]]] | None = None
        for by, no in forms:
            for first, last in _runs(ranges, by, no):
                covered = sum(
                    (i, p) in left
                    for i in range(first, last + 1)
                    for p, _, _ in ranges[i]
                    if _meets(p, by, no)
                )
                rank = (covered, -(by > 1) - 2 * len(no))
                if covered and (best is None or rank > best[0]):
                    best = rank, (first, last, by, no)
        assert best is not None
        first, last, by, no = best[1]
        here = [
            i for i in range(first, last + 1) for p, _, _ in ranges[i] if (i, p) in left and _meets(p, by, no)
        ]
        first, last = here[0], here[-1]
        found.append((ranges[first][0][0].low, ranges[last][0][0].high, by, no))
        left -= {(i, p) for i in range(first, last + 1) for p, _, _ in ranges[i] if _meets(p, by, no)}
    return sorted(found, key=lambda s: (s[0] is not None, s[0] or 0, s[2]))


def _form(piece: Piece) -> tuple[int, tuple[int, ...]]:
    """What divides a piece's numbers, and what does not (the smallest of several that divide each other)."""
    return math.lcm(*piece.by), tuple(m for m in sorted(piece.no) if all(m % n or m == n for n in piece.no))


def _meets(piece: Piece, by: int, no: tuple[int, ...]) -> bool:
    if piece.low is not None and piece.low == piece.high:
        number = piece.low
        return number % by == 0 and all(number % m for m in no)
    return math.lcm(*piece.by) % by == 0 and piece.no.issuperset(no)


def _runs(ranges: Sequence[Sequence[Marked]], by: int, no: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    """Longest runs of ranges in which every piece that meets the moduli is allowed."""
    begin: int | None = None
    for i, group in enumerate([*ranges, []]):
        if i < len(ranges) and all(allowed for p, allowed, _ in group if _meets(p, by, no)):
            begin = i if begin is None else begin
        elif begin is not None:
            yield begin, i - 1
            begin = None


def _span(
    low: int | None, high: int | None, by: int, no: tuple[int, ...], ends: tuple[int | None, int | None]
) -> str:
    """One range in words; what the axis's domain says anyway is left out."""
    if low is not None and low == high:
        return str(low)
    parts = []
    if by > 1:
        parts.append(f"a multiple of {by}")
    parts += [f"no multiple of {m}" for m in no]
    if low is not None and high is not None and by > 1 and high - low < by:
        return str(-(-low // by) * by)
    low, high = (None if low == ends[0] else low), (None if high == ends[1] else high)
    if low is not None and high is not None:
        parts.append(f"{low} to {high}")
    elif low is not None:
        parts.append(f"at least {low}")
    elif high is not None:
        parts.append(f"at most {high}")
    return " and ".join(parts) or "any"


# -- versions ---------------------------------------------------------------------------------------------------------


def _version_texts(facet: Facet, inside: list[int], wanted: list[int], values: list[int]) -> list[str]:
    versions = {k: facet.classes[k].value for k in values}
    return by_specifiers(facet.specifiers, versions, set(inside), set(wanted))


def by_specifiers(
    specifiers: Sequence[str], versions: dict[int, str], inside: set[int], wanted: set[int]
) -> list[str]:
    """Specifiers that together take all wanted versions and none that is not ``inside``."""
    if inside == set(versions):
        return ["any"]
    single = {s: {k for k, v in versions.items() if contains(s, v)} for s in specifiers}
    parts: dict[str, set[int]] = {}
    for s, taken in single.items():
        parts.setdefault(s, taken)
        parts.setdefault(_opposite(s), set(versions) - taken)
    joined = {
        f"{a},{b}" if not a.startswith("not ") and not b.startswith("not ") else f"{a} and {b}": x & y
        for (a, x), (b, y) in itertools.combinations(parts.items(), 2)
    }
    left = set(wanted)
    found: list[str] = []
    usable = [(t, x) for t, x in [*parts.items(), *joined.items()] if x and x <= inside]
    while left:
        best = max(usable, key=lambda e: (len(e[1] & left), -len(e[0])), default=None)
        if best is None or not best[1] & left:
            k = min(left)
            best = _conjunction(parts, k, inside)
        found.append(best[0])
        left -= best[1]
    return found


def _conjunction(parts: dict[str, set[int]], k: int, inside: set[int]) -> tuple[str, set[int]]:
    """Specifiers that together say a class of versions (which all of them tell apart from the others), as few as can be."""
    kept = [t for t, taken in parts.items() if k in taken]
    for text in sorted(kept, key=lambda t: (not t.startswith("not "), len(t)), reverse=True):
        trial = [t for t in kept if t != text]
        if trial and set.intersection(*(parts[t] for t in trial)) <= inside:
            kept = trial
    plain = [t for t in kept if not t.startswith("not ")]
    texts = [",".join(plain)] if plain else []
    return " and ".join([*texts, *(t for t in kept if t.startswith("not "))]), set.intersection(
        *(parts[t] for t in kept)
    )


def _opposite(specifier: str) -> str:
    """A specifier's complement. (Not quite `<` for `>=`: a pre-release of the bound is neither.)"""
    if "," not in specifier and specifier.startswith("==") and not specifier.startswith("==="):
        return f"!={specifier[2:]}"
    if "," not in specifier and specifier.startswith("!="):
        return f"=={specifier[2:]}"
    return f"not {specifier}"


def _package_text(facet: Facet, allowed: frozenset[int], needed: frozenset[int]) -> str:
    usable = {
        k: c.value.version
        for k, c in enumerate(facet.classes)
        if c.value.state == "usable" and c.value.version
    }
    rest = [k for k in range(len(facet.classes)) if k not in usable]
    inside, wanted = {k for k in usable if k in allowed}, {k for k in usable if k in needed}
    texts = by_specifiers(facet.specifiers, usable, inside, wanted) if wanted else []
    if texts == ["any"]:
        texts = ["in any version"]
    if all(k in allowed for k in rest) and any(k in needed for k in rest):
        return _joined(["not usable", *texts])
    return _joined([*(_state(facet.classes[k]) for k in rest if k in needed), *texts])


def _state(found: Class) -> str:
    state: Any = found.value
    if state.state == "usable":
        return "of unknown version"
    return {"missing": "missing", "unknown": "unknown"}.get(state.state, "broken")


_WORDERS: dict[str, Callable[[Facet, list[int], list[int], list[int]], list[str]]] = {
    "integer": _integer_texts,
    "version": _version_texts,
}
