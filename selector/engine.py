"""A catalog on one environment: decisions with preferences applied, and those already made."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from selector import measured, quarantine
from selector.bound import Bound
from selector.decision import Decision
from selector.errors import PinError
from selector.vocabulary import nearest

if TYPE_CHECKING:
    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.explainer import Explainer
    from selector.preferences import Preference
    from selector.reasons import Reason
    from selector.report import Report
    from selector.request import Request
    from selector.selection import Selection

__all__ = ["Engine", "Outcome", "engine_for"]

#: Engines that one catalog keeps.
KEPT = 64

_ALL: WeakSet[Engine] = WeakSet()
#: Held while that set is read or grows, which deciding does not do.
_LOCK = allocate_lock()


class Outcome(NamedTuple):
    """A decision after preferences: accepted positions in order, excluded ones, the policy rule, what preferences removed."""

    ranked: tuple[int, ...]
    excluded: tuple[int, ...]
    policy: int
    listed: tuple[int, ...]
    removed: Mapping[int, tuple[Reason, ...]]

    @property
    def best(self) -> int:
        """The winner's position, or -1."""
        return self.ranked[0] if self.ranked else -1


class Engine:
    """One catalog on one environment: a bound program and the decisions already made."""

    __slots__ = ("__weakref__", "_explainer", "bound", "catalog", "environment", "memo", "strict")

    def __init__(self, catalog: Catalog, environment: Environment, strict: bool) -> None:
        self.catalog, self.environment, self.strict = catalog, environment, strict
        self.bound = Bound(catalog.tables, environment, lambda: catalog.program, strict=strict)
        self.memo: dict[Any, Selection | Report] = {}
        self._explainer: Explainer | None = None

    def explainer(self) -> Explainer:
        """What explains many requests; made when it is first wanted."""
        if self._explainer is None:
            from selector.explainer import Explainer

            self._explainer = Explainer(self.catalog.program, self.bound.facts, strict=self.strict)
        return self._explainer

    def decide(self, request: Request, preferences: tuple[Preference, ...]) -> Outcome | Decision:
        """The decision with preferences applied. Raises PinError for a pin that names nobody."""
        decision = self.bound.decide(request)
        broken = self._broken(decision) if quarantine.KNOWN and self.environment.live else {}
        if not preferences and not broken:
            return decision
        return self._prefer(decision, preferences, broken)

    def wishes(self, request: Request, preferences: tuple[Preference, ...]) -> tuple[Preference, ...]:
        """The preferences, and last what was measured for this request on this machine."""
        found = measured.in_use()
        if found is None or found.fingerprint != self.environment.fingerprint:
            return preferences
        ranked = self.bound.decide(request).ranked
        wish = found.preference(request, [self.catalog.candidates[i].id for i in ranked])
        return preferences if wish is None else (*preferences, wish)

    def _broken(self, decision: Decision) -> dict[int, tuple[Reason, ...]]:
        """The accepted candidates whose kernels failed in this process, which is the machine that is decided about."""
        candidates = self.catalog.candidates
        found = ((i, quarantine.reason_of(candidates[i])) for i in (*decision.ranked, *decision.excluded))
        return {i: (reason,) for i, reason in found if reason is not None}

    def _prefer(
        self,
        decision: Decision,
        preferences: tuple[Preference, ...],
        removed: dict[int, tuple[Reason, ...]],
    ) -> Outcome:
        ranked = [i for i in decision.ranked if i not in removed]
        excluded = [i for i in decision.excluded if i not in removed]
        for preference in preferences:
            if preference.kind == "avoid":
                for i in self.positions(preference):
                    if i in ranked or i in excluded:
                        removed[i] = (
                            self._removed(i, preference, "avoided", f"avoided by {preference.where}"),
                        )
                ranked = [i for i in ranked if i not in removed]
                excluded = [i for i in excluded if i not in removed]
        for preference in reversed(preferences):  # the last to be moved up stands first
            if preference.kind == "prefer":
                first = [i for i in self.positions(preference) if i in ranked]
                ranked = [*first, *(i for i in ranked if i not in first)]
        for preference in preferences:
            if preference.kind == "pin":
                wanted = self.positions(preference)
                kept = [i for i in [*ranked, *excluded] if i in wanted]
                for i in [*ranked, *excluded]:
                    if i not in wanted:
                        why = f"{preference.where} asks for {', '.join(preference.names)}"
                        removed[i] = (self._removed(i, preference, "not_asked_for", why),)
                ranked, excluded = kept, []
                break
        return Outcome(tuple(ranked), tuple(excluded), decision.policy, decision.ranked, removed)

    def _removed(self, i: int, preference: Preference, code: str, why: str) -> Reason:
        from selector.reasons import Reason

        ident = self.catalog.candidates[i].id
        return Reason(
            "backend",
            code,
            ", ".join(preference.names),
            ident,
            f"{ident}: {why}",
            why,
            None,
            None,
            ("backend",),
            "preference",
            "request",
        )

    def positions(self, preference: Preference) -> list[int]:
        """The candidates a preference names, in its order. Raises PinError for a name that nobody has."""
        found: dict[int, None] = {}
        for name in preference.names:
            matches = self.catalog.find(name)
            if not matches:
                known = self.catalog.names()
                near = near_name(name, known)
                hint = f"; did you mean {near}?" if near else ""
                sign = ": " if preference.source == "configuration" else "="  # behind a place, or a name
                raise PinError(
                    f"{preference.where}{sign}{name}: no backend of pack {self.catalog.name} is called {name!r}{hint}"
                    f"\nbackends: {', '.join(dict.fromkeys(c.backend for c in self.catalog.candidates))}"
                )
            found.update(dict.fromkeys(self.catalog.program.position[c.id] for c in matches))
        return list(found)


def near_name(name: str, known: Sequence[str]) -> str | None:
    """The candidate or backend that was meant: one whose own name it is (`fa3` of `flash_attn/fa3`), else the nearest.

    Where none is near as a whole, one that a part of is: `flsh` of `flash_attn`.
    """
    folded = name.lower()
    own = next((k for k in known if k.lower().rpartition("/")[2] == folded), None)
    found = own or nearest(name, known)
    if found is None and len(name) > 3:
        parts = {
            part: k
            for k in sorted(known, key=lambda k: "/" not in k)
            for part in k.replace("_", "/").split("/")
        }
        found = parts.get(nearest(name, parts) or "")
    return found


def forget() -> None:
    """Forget decisions, not engines: a kernel failed or was given another chance, or wishes are read anew.

    Memos are replaced, not emptied: what a thread adds that began before is not read any more.
    """
    with _LOCK:
        found = list(_ALL)
    for engine in found:
        engine.memo = {}


def engine_for(catalog: Catalog, environment: Environment, strict: bool) -> Engine:
    """The engine of a pair; made once. What only a live environment sees (process variables, quarantine) is part of it."""
    key = (environment.fingerprint, environment.live, environment.name, strict)
    engine = catalog.engines.get(key)
    if engine is None:
        engine = Engine(catalog, environment, strict)
        if len(catalog.engines) >= KEPT:
            catalog.engines.clear()
        catalog.engines[key] = engine
        with _LOCK:
            _ALL.add(engine)
    return engine
