"""`select` and `explain`: one request, one environment, one catalog, one answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from selector import measured, quarantine
from selector import preferences as prefs
from selector.bound import Bound, Decision
from selector.catalog import Catalog
from selector.environment import Environment
from selector.errors import NoBackendError, PinError
from selector.log import announce
from selector.preferences import Preference
from selector.reasons import Reason
from selector.report import Report, Runs
from selector.request import Request
from selector.vocabulary import nearest

if TYPE_CHECKING:
    from selector.manifest import Candidate

__all__ = ["Outcome", "Selection", "explain", "select"]

#: Decisions remembered for one pair of catalog and environment.
KEPT = 16384


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


class Selection:
    """The winner for one request on one environment, and how to run it. Its report is made when it is read."""

    __slots__ = (
        "_prefs",
        "_report",
        "_run",
        "_runs",
        "catalog",
        "environment",
        "origins",
        "outcome",
        "request",
        "strict",
    )

    def __init__(
        self,
        catalog: Catalog,
        environment: Environment,
        request: Request,
        outcome: Outcome | Decision,
        preferences: tuple[Preference, ...],
        strict: bool,
        origins: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog, self.environment, self.request = catalog, environment, request
        self.outcome, self._prefs, self.strict = outcome, preferences, strict
        self.origins = origins
        self._report: Report | None = None
        self._run: Any = None
        self._runs: Runs | None = None

    @property
    def candidate(self) -> Candidate:
        """The winner."""
        return self.catalog.candidates[self.outcome.best]

    @property
    def id(self) -> str:
        """The winner, `backend/variant` or `backend`."""
        return self.candidate.id

    @property
    def backend(self) -> str:
        """The winner's backend."""
        return self.candidate.backend

    @property
    def variant(self) -> str | None:
        """The winner's variant, if its backend has variants."""
        return self.candidate.variant

    @property
    def candidates(self) -> tuple[str, ...]:
        """Accepted candidates in order, the winner first."""
        return tuple(self.catalog.candidates[i].id for i in self.outcome.ranked)

    @property
    def rejected(self) -> dict[str, tuple[Reason, ...]]:
        """Every refused candidate with every reason."""
        return self.report().rejected

    @property
    def policy_rule(self) -> str | None:
        """The name of the policy rule that gave the order."""
        return self.report().policy_rule

    def report(self) -> Report:
        """Everything there is to say about the decision."""
        if self._report is None:
            self._report = Report(
                self.catalog,
                self.environment,
                self.request,
                self.outcome,
                self._prefs,
                self.strict,
                self.origins,
                self.runs(),
            )
        return self._report

    def runs(self) -> Runs:
        """What the last call did; the selection's runner writes it, its report reads it."""
        if self._runs is None:
            self._runs = Runs()
        return self._runs

    def run(self, *args: Any, **fields: Any) -> Any:
        """Run the winner's kernel: tensors q, k, v and the fields of `backends.call.Call`.

        Raises RequestError for a call that is not what was selected for.
        """
        return self.runner()(*args, **fields)

    def runner(self) -> Any:
        """The runner behind `run`, for calls that are made already (`selector.runner.Runner.execute`)."""
        if self._run is None:
            from selector.runner import Runner

            self._run = Runner(self)
        return self._run

    def __repr__(self) -> str:
        return f"Selection({self.id} for {self.request!r} on {self.environment.name})"


class Engine:
    """One catalog on one environment: a bound program and the decisions already made."""

    __slots__ = ("bound", "catalog", "environment", "memo", "strict")

    def __init__(self, catalog: Catalog, environment: Environment, strict: bool) -> None:
        self.catalog, self.environment, self.strict = catalog, environment, strict
        self.bound = Bound(catalog.program.tables, environment, lambda: catalog.program, strict=strict)
        self.memo: dict[Any, Selection | Report] = {}

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
                near = nearest(name, known)
                hint = f"; did you mean {near}?" if near else ""
                raise PinError(
                    f"{preference.where}={name}: no backend of pack {self.catalog.name} is called {name!r}{hint}"
                    f"\nbackends: {', '.join(dict.fromkeys(c.backend for c in self.catalog.candidates))}"
                )
            found.update(dict.fromkeys(self.catalog.program.position[c.id] for c in matches))
        return list(found)


class _State:
    """What `select` uses when it is told nothing: swapped whole, never changed in place."""

    __slots__ = ("catalog", "engine", "environment", "memo")

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self.catalog, self.environment = catalog, environment
        self.engine = engine_for(catalog, environment, False)
        self.memo: dict[Request, Selection] = {}


_ENGINES: dict[tuple[int, str, bool], Engine] = {}
_DEFAULT: _State | None = None


def _forget() -> None:
    """Forget decisions, not engines: a kernel failed, or was given another chance."""
    for engine in list(_ENGINES.values()):
        engine.memo.clear()
    if _DEFAULT is not None:
        _DEFAULT.memo.clear()
        _DEFAULT.engine.memo.clear()


quarantine.LISTENERS.append(_forget)


def engine_for(catalog: Catalog, environment: Environment, strict: bool) -> Engine:
    """The engine of a pair; made once."""
    key = (id(catalog), environment.fingerprint, strict)
    engine = _ENGINES.get(key)
    if engine is None or engine.catalog is not catalog:
        engine = Engine(catalog, environment, strict)
        if len(_ENGINES) >= 64:
            _ENGINES.clear()
        _ENGINES[key] = engine
    return engine


def default_state() -> _State:
    """The probed environment and the core pack, made at the first decision."""
    global _DEFAULT
    state = _DEFAULT
    if state is None:
        state = _DEFAULT = _State(Catalog.load(), Environment.probe())
    return state


def reload(*packs: str, manifests: str | None = None) -> Catalog:
    """Load the default catalog anew, probe this machine and read the preferences again.

    The new state replaces the old one at once and whole; a broken edit raises ManifestError and leaves the old one in use.
    """
    global _DEFAULT
    state = _State(Catalog.load(*packs, manifests=manifests), Environment.probe())
    prefs.forget()
    measured.forget()
    _DEFAULT = state
    return state.catalog


def _preferences(
    backend: str | None, avoid: Any, prefer: Any, model: Any, source: str
) -> tuple[Preference, ...]:
    called = prefs.from_call(backend, avoid, prefer, source)
    process = prefs.from_process()
    if any(p.kind == "pin" for p in called):
        process = tuple(p for p in process if p.kind != "pin")
    return (*called, *process, *prefs.from_model(model, "the model's configuration"))


def decide(
    request: Request,
    catalog: Catalog,
    environment: Environment,
    preferences: tuple[Preference, ...] = (),
    *,
    strict: bool = False,
    origins: Mapping[str, str] | None = None,
) -> Report:
    """The report of a decision; never raises for "nothing fits"."""
    engine = engine_for(catalog, environment, strict)
    bound_request = request.within(catalog.vocabulary)
    preferences = engine.wishes(bound_request, preferences)
    outcome = engine.decide(bound_request, preferences)
    return Report(catalog, environment, bound_request, outcome, preferences, strict, origins)


def select(
    request: Request | Mapping[str, Any] | None = None,
    *,
    environment: Environment | str | None = None,
    catalog: Catalog | None = None,
    backend: str | None = None,
    avoid: Any = None,
    prefer: Any = None,
    model_prefers: Any = None,
    strict: bool = False,
    group: Any = None,
    group_limit: float = 30.0,
    **fields: Any,
) -> Selection:
    """The best candidate for a request.

    Arguments:
        request: a Request, or a mapping of fields; or give the fields as keywords.
        environment: the machine (default: this one, probed once). A text names a preset.
        catalog: what can be chosen (default: the core pack).
        backend: only this backend or candidate will do.
        avoid, prefer: names to leave out, or to put first.
        model_prefers: what a model's configuration names; a wish, not a demand.
        strict: refuse candidates that would change the request, and those with a serious warning.
        group: a process group of torch.distributed whose ranks all get the same candidate, valid on every rank.
        group_limit: seconds that a rank waits for the others (RankError after that).

    Raises NoBackendError (with ``.report``) if nothing fits, PinError if what was insisted on cannot be used, and
    RequestError for a field or value that the vocabulary does not know.
    """
    if (
        environment is None
        and catalog is None
        and backend is None
        and avoid is None
        and prefer is None
        and not strict
        and group is None
    ):
        state = _DEFAULT if _DEFAULT is not None else default_state()
        if not fields and model_prefers is None:
            try:
                return state.memo[request]  # type: ignore[index]  # anything else is no key, and falls through
            except (KeyError, TypeError):
                pass
        asked = _request(request, fields, state.catalog)
        preferences = _preferences(None, None, None, model_prefers, "call")
        selection = _selected(asked, state.catalog, state.environment, preferences, False)
        if isinstance(request, Request) and not fields and model_prefers is None:
            if len(state.memo) >= KEPT:
                state.memo.clear()
            state.memo[request] = selection
        return selection
    used, machine = _context(catalog, environment)
    preferences = _preferences(backend, avoid, prefer, model_prefers, "call")
    if group is not None:
        return _together(
            lambda: _request(request, fields, used), used, machine, preferences, strict, group, group_limit
        )
    return _selected(_request(request, fields, used), used, machine, preferences, strict)


def _together(
    request: Callable[[], Request],
    catalog: Catalog,
    environment: Environment,
    preferences: tuple[Preference, ...],
    strict: bool,
    group: Any,
    limit: float,
) -> Selection:
    """The candidate that all ranks of a group take, as this rank's selection."""
    from selector.agreement import agree

    report, chosen, _ = agree(request, catalog, environment, preferences, group, strict=strict, limit=limit)
    i = catalog.program.position[chosen]
    ranked = (i, *(k for k in report.outcome.ranked if k != i))
    found = report.outcome
    outcome = Outcome(ranked, found.excluded, found.policy, found.listed, found.removed)
    pin = Preference("pin", (chosen,), "call", "the process group")
    spoken = preferences if report.outcome.ranked[0] == i else (pin, *preferences)
    return Selection(catalog, environment, report.request, outcome, spoken, strict)


def _context(catalog: Catalog | None, environment: Environment | str | None) -> tuple[Catalog, Environment]:
    used = catalog if catalog is not None else default_state().catalog
    if environment is None:
        return used, default_state().environment
    return used, Environment.preset(environment) if isinstance(environment, str) else environment


def _request(
    request: Request | Mapping[str, Any] | None, fields: Mapping[str, Any], catalog: Catalog
) -> Request:
    if isinstance(request, Request):
        return request.replace(**fields) if fields else request
    return Request({**(request or {}), **fields}, vocabulary=catalog.vocabulary)


def _selected(
    request: Request,
    catalog: Catalog,
    environment: Environment,
    preferences: tuple[Preference, ...],
    strict: bool,
) -> Selection:
    engine = engine_for(catalog, environment, strict)
    key = (request, preferences)
    known = engine.memo.get(key)
    if known is None:
        inner = request.within(catalog.vocabulary)
        began = time.time_ns()
        preferences = engine.wishes(inner, preferences)
        outcome = engine.decide(inner, preferences)
        ended = time.time_ns()
        if outcome.best >= 0:
            known = Selection(catalog, environment, inner, outcome, preferences, strict)
        else:
            known = Report(catalog, environment, inner, outcome, preferences, strict)
        if len(engine.memo) >= KEPT:
            engine.memo.clear()
        engine.memo[key] = known
        announce(known, began, ended)
    if isinstance(known, Selection):
        return known
    raise nothing_fits(known)


def nothing_fits(report: Report) -> NoBackendError:
    """The error for a report without a winner."""
    pins = [p for p in report.preferences if p.kind == "pin"]
    text = report.to_text()
    return PinError(text, report) if pins else NoBackendError(text, report)


def explain(
    request: Request | Mapping[str, Any] | None = None,
    *,
    environment: Environment | str | None = None,
    catalog: Catalog | None = None,
    backend: str | None = None,
    avoid: Any = None,
    prefer: Any = None,
    model_prefers: Any = None,
    strict: bool = False,
    **fields: Any,
) -> Report:
    """The report for a request, like `select` but never raising for "nothing fits"."""
    used, machine = _context(catalog, environment)
    asked = _request(request, fields, used)
    return decide(
        asked, used, machine, _preferences(backend, avoid, prefer, model_prefers, "call"), strict=strict
    )
