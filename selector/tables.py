"""What deciding needs of a compiled catalog: masks, atoms and trees. What only explanations read stays in the `Program`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selector.nodes import Accept, Atom, Node

if TYPE_CHECKING:
    from selector.vocabulary import Axis, Vocabulary

__all__ = ["Check", "OrderTable", "PolicyTable", "Step", "Tables"]


class Step(NamedTuple):
    """How an axis gets its value: as given, as another axis, by an expression; and where it does not apply."""

    axis: Axis
    same_as: int | None
    ignored: Node
    expr: Any


class Check(NamedTuple):
    """One declared limit as a test: ``atom`` is true for the values that the candidates in ``mask`` refuse."""

    atom: Atom
    mask: int


class OrderTable(NamedTuple):
    """One entry of a policy's order: when it counts, and the candidates it stands for."""

    node: Node
    members: tuple[int, ...]


class PolicyTable(NamedTuple):
    """A policy rule: its name, when it holds, its order, and who is reached by choice only where the order does not list it."""

    name: str
    node: Node
    order: tuple[OrderTable, ...]
    closed: int


class Tables:
    """Candidates are positions (bits of masks), atoms are bits of another kind of mask."""

    __slots__ = (
        "accept_bits",
        "accept_order",
        "adjust",
        "atoms",
        "atoms_of",
        "checks",
        "clauses",
        "closed",
        "everyone",
        "ids",
        "listed",
        "policy",
        "steps",
        "vocabulary",
    )

    def __init__(
        self,
        vocabulary: Vocabulary,
        ids: Sequence[str],
        *,
        listed: int,
        closed: int,
        atoms: Sequence[Atom | Accept],
        steps: Sequence[Step],
        checks: Sequence[Sequence[Check]],
        clauses: Sequence[tuple[Node, int, bool]],
        policy: Sequence[PolicyTable],
        adjust: dict[int, tuple[Node, ...]],
        accept_order: Sequence[int],
    ) -> None:
        self.vocabulary = vocabulary
        self.ids = tuple(ids)
        self.everyone = (1 << len(self.ids)) - 1
        self.listed, self.closed = listed, closed
        self.atoms, self.steps, self.checks = tuple(atoms), tuple(steps), tuple(checks)
        #: Trees that refuse the candidates of a mask; the flag: only in strict mode.
        self.clauses, self.policy = tuple(clauses), tuple(policy)
        #: By position, when each adjustment of a candidate applies.
        self.adjust, self.accept_order = adjust, tuple(accept_order)
        self.atoms_of: dict[int, list[tuple[int, Atom]]] = {}
        #: By position, the bits of the atoms "is accepted" and "is not accepted"; 0 for one that nothing asks about.
        self.accept_bits: dict[int, tuple[int, int]] = {}
        place: dict[str, int] = {}
        for k, atom in enumerate(self.atoms):
            if isinstance(atom, Atom):
                self.atoms_of.setdefault(atom.axis, []).append((1 << k, atom))
                continue
            place = place or {ident: i for i, ident in enumerate(self.ids)}
            i = place.get(atom.candidate)
            if i is not None:
                yes, no = self.accept_bits.get(i, (0, 0))
                self.accept_bits[i] = (yes, no | 1 << k) if atom.negated else (yes | 1 << k, no)
