"""One of two catalogs over their common space: who wins, accepts and comes first, and what candidates say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.analysis.circuit import FALSE
from selector.analysis.translate import Translation
from selector.constraints import word

if TYPE_CHECKING:
    from selector.analysis.space import Space
    from selector.catalog import Catalog

__all__ = ["Side", "adjustments_of", "places_before", "reasons_of", "warnings_of"]


class Side:
    """One of the two catalogs over the common space."""

    def __init__(self, catalog: Catalog, space: Space, *, strict: bool = False) -> None:
        self.catalog, self.program = catalog, catalog.program
        self.translation = Translation(space, catalog.program, strict=strict)
        self.position = {c.id: i for i, c in enumerate(catalog.candidates) if not c.abstract}

    def wins(self, name: str) -> int:
        """The literal of a candidate being selected; false for one that is not there."""
        i = self.position.get(name)
        return FALSE if i is None else self.translation.wins[i]

    def accepted(self, name: str) -> int:
        """The literal of a candidate accepting."""
        i = self.position.get(name)
        return FALSE if i is None else self.translation.accepted(i)

    def ranked(self, name: str) -> int:
        """The literal of a candidate accepting and having a place in the order."""
        i = self.position.get(name)
        return FALSE if i is None else self.translation.ranked(i)


def places_before(side: Side) -> dict[tuple[str, str], int]:
    """For each two candidates the literal of: the first has an earlier place in the order that holds."""
    circuit = side.translation.space.circuit
    ids = [c.id for c in side.catalog.candidates]
    found: dict[tuple[str, str], list[int]] = {}
    for order in side.translation.orders:
        placed: dict[int, int] = {}
        for when, i, _ in order.places:
            new = circuit.both(when, -placed.get(i, FALSE))
            for other, earlier in placed.items():
                if other != i:
                    found.setdefault((ids[other], ids[i]), []).append(
                        circuit.conj((order.active, earlier, new))
                    )
            placed[i] = circuit.either(placed.get(i, FALSE), when)
    return {pair: circuit.disj(parts) for pair, parts in found.items()}


def reasons_of(side: Side, i: int) -> dict[str, int]:
    """What a candidate can be refused for, in words, with the literal of its being so."""
    view = side.translation.view.adjusted(i)[0] if side.program.adjust[i] else side.translation.view
    candidate = side.catalog.candidates[i]
    found: dict[str, list[int]] = {}
    for refusal in view.refusals(i):
        if refusal.kind == "declared":
            axis = side.program.vocabulary.axes[refusal.what]
            atom, _ = side.program.check_of(candidate, axis)
            text = f"{axis.name}: takes {atom.constraint.describe()}"
        else:
            text = candidate.rules[refusal.what].text
        found.setdefault(text, []).append(refusal.literal)
    return {text: side.translation.space.circuit.disj(literals) for text, literals in found.items()}


def warnings_of(side: Side, i: int) -> dict[str, int]:
    """What a candidate can be accepted with, in words, with the literal of its being said."""
    view = side.translation.view.adjusted(i)[0] if side.program.adjust[i] else side.translation.view
    found: dict[str, list[int]] = {}
    for rule, node in side.program.rules[i]:
        if rule.kind == "warn":
            found.setdefault(rule.text, []).append(view.truth(node))
    return {text: side.translation.space.circuit.disj(literals) for text, literals in found.items()}


def adjustments_of(side: Side, i: int) -> dict[str, int]:
    """What a candidate can change in a request, in words, with the literal of its doing so."""
    if not side.program.adjust[i]:
        return {}
    applied = side.translation.view.adjusted(i)[2]
    found: dict[str, list[int]] = {}
    for entry, literal in zip(side.program.adjust[i], applied):
        changes = [f"{axis.name}={word(value)}" for axis, value in entry.adjustment.changes]
        changes += [f"runs as {entry.adjustment.use}"] if entry.adjustment.use else []
        found.setdefault(", ".join(changes), []).append(literal)
    return {text: side.translation.space.circuit.disj(literals) for text, literals in found.items()}
