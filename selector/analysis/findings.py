"""What the analysis has to say of manifests: findings with place, severity, and a witness or the proof that there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from selector.errors import Fault, Mark

if TYPE_CHECKING:
    from selector.analysis.smallest import Witness

__all__ = ["CODES", "NONE", "Finding"]

NONE = "no counterexample exists"

#: What can be found: code, severity, and what it means.
CODES: dict[str, tuple[str, str]] = {
    "never-accepts": (
        "error",
        "A candidate whose limits and rules exclude each other: no request can satisfy it.",
    ),
    "contradiction": ("warning", "A rule asks for something that the candidate's declared limits exclude."),
    "never-by-rule": ("info", "A candidate that a rule without any condition refuses."),
    "never-selected": ("warning", "A candidate that others are always preferred to where it accepts."),
    "only-by-name": ("info", "A candidate that no order reaches: only an explicit choice selects it."),
    "rule-never-applies": ("warning", "A rule whose condition cannot hold for any of its candidates."),
    "rule-repeats-limit": ("warning", "A rule that only refuses what declared limits refuse already."),
    "rule-repeats-rule": (
        "info",
        "A rule that only refuses what other rules and limits together refuse already.",
    ),
    "same-effect": ("warning", "Two rules that apply to exactly the same requests."),
    "never-shown": ("warning", "A warning that only applies where its candidate is refused."),
    "adjustment-never-applies": ("warning", "An adjustment whose condition cannot hold."),
    "policy-unreachable": ("warning", "A policy rule that earlier ones leave nothing to."),
    "order-impossible": (
        "warning",
        "A place in an order whose candidate cannot be accepted where the rule holds.",
    ),
    "order-repeated": ("warning", "A place in an order that an earlier place of the same order has taken."),
    "order-never-reached": ("info", "A place in an order where an earlier one always accepts as well."),
    "same-order": ("info", "Neighbouring policy rules with the same order."),
    "pair-never-applies": ("warning", "A pair of phases whose condition cannot hold."),
    "case-never-taken": ("warning", "An entry of a derived axis that earlier entries leave nothing to."),
    "axis-unread": ("warning", "An axis of a pack that nothing reads."),
    "allow-unused": ("warning", "A comment that allows a finding which is not there."),
    "allow-unknown": ("error", "A comment that allows no known finding, or gives no reason."),
    "undecided": ("info", "A question whose arithmetic took too long."),
}


class Finding(NamedTuple):
    """One finding: ``proof`` says why it is so, in words; ``witness`` is a request that shows it, if one can."""

    code: str
    at: Mark
    message: str
    proof: str
    witness: Witness | None = None
    command: str | None = None

    @property
    def severity(self) -> str:
        """error, warning or info."""
        return CODES[self.code][0]

    def fault(self) -> Fault:
        """The finding as a fault of a file, for the renderer that all faults share."""
        hint = self.proof if self.witness is None else f"{self.proof}; for instance {self.witness.text}"
        return Fault(self.at, "", f"{self.message} [{self.code}]", hint, None, self.severity)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "code": self.code,
            "severity": self.severity,
            "file": self.at.file,
            "line": self.at.line,
            "column": self.at.column,
            "message": self.message,
            "proof": self.proof,
            "witness": None if self.witness is None else self.witness.to_dict(),
            "command": self.command,
        }
