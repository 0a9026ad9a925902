"""`select` and `explain`: one request, one environment, one catalog, one answer."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar, cast

from selector import engine, measured, quarantine
from selector import preferences as prefs
from selector.catalog import Catalog
from selector.engine import Engine, Outcome, engine_for
from selector.environment import Environment
from selector.errors import NoBackendError, PinError, Problem, RequestError
from selector.locations import manifests_root
from selector.log import announce
from selector.preferences import Preference
from selector.request import Request

if TYPE_CHECKING:
    from selector.agreement import Question
    from selector.decision import Decision
    from selector.manifest import Candidate
    from selector.reasons import Reason
    from selector.report import Report, Runs

__all__ = ["Engine", "Outcome", "Selection", "engine_for", "explain", "select"]

#: Decisions remembered for one pair of catalog and environment.
KEPT = 8192

F = TypeVar("F", bound=Callable[..., Any])


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
        return self.catalog.tables.ids[self.outcome.best]

    @property
    def backend(self) -> str:
        """The winner's backend."""
        return self.id.partition("/")[0]

    @property
    def variant(self) -> str | None:
        """The winner's variant, if its backend has variants."""
        return self.id.partition("/")[2] or None

    @property
    def candidates(self) -> tuple[str, ...]:
        """Accepted candidates in order, the winner first."""
        ids = self.catalog.tables.ids
        return tuple(ids[i] for i in self.outcome.ranked)

    @property
    def rejected(self) -> dict[str, tuple[Reason, ...]]:
        """Every refused candidate with every reason."""
        return self.report().rejected

    @property
    def policy_rule(self) -> str | None:
        """The name of the policy rule that gave the order."""
        k = self.outcome.policy
        return None if k < 0 else self.catalog.tables.policy[k].name

    def report(self) -> Report:
        """Everything there is to say about the decision."""
        if self._report is None:
            from selector.report import Report

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
            from selector.report import Runs

            self._runs = Runs()
        return self._runs

    @property
    def run(self) -> Callable[..., Any]:
        """Runs the winner's kernel: ``run(q, k, v, ...)`` with tensors and the fields of `backends.call.Call`.

        Raises RequestError for a call that is not what was selected for. Kept in a variable it costs less than a microsecond
        beside the kernel, where the kernel offers that.
        """
        return self.runner().call  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        """All but the runner, which holds imported modules and is made again when it is wanted."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("_run", "_runs")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._run = self._runs = None
        for name, value in state.items():
            setattr(self, name, value)

    def runner(self) -> Any:
        """The runner behind `run`, for calls that are made already (`selector.runner.Runner.execute`)."""
        if self._run is None:
            from selector.runner import Runner

            self._run = Runner(self)
        return self._run

    def __repr__(self) -> str:
        return f"Selection({self.id} for {self.request!r} on {self.environment.name})"


class _State:
    """What `select` uses when it is told nothing: swapped whole, never changed in place."""

    __slots__ = ("catalog", "engine", "environment", "memo")

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self.catalog, self.environment = catalog, environment
        self.engine = engine_for(catalog, environment, False)
        self.memo: dict[Any, Selection] = {}


_DEFAULT: _State | None = None
#: The memo of the default state: what `select` looks into before anything else.
_KNOWN: dict[Any, Selection] = {}


#: Held while the default state, or its memo, is replaced; never while deciding.
_LOCK = allocate_lock()


def _use(state: _State) -> _State:
    global _DEFAULT, _KNOWN
    with _LOCK:
        _DEFAULT, _KNOWN = state, state.memo
    return state


def _forget() -> None:
    """Forget decisions, not engines: a kernel failed or was given another chance, or wishes are read anew.

    Memos are replaced, not emptied: a thread that began before adds its answer to the one that nobody reads any more.
    """
    global _KNOWN
    engine.forget()
    with _LOCK:
        if _DEFAULT is not None:
            _DEFAULT.memo = _KNOWN = {}


quarantine.LISTENERS.append(_forget)


def default_state() -> _State:
    """The probed environment and the core pack, made at the first decision."""
    return _DEFAULT if _DEFAULT is not None else _use(_State(Catalog.load(), Environment.probe()))


def reload(*packs: str, manifests: str | None = None) -> Catalog:
    """Load the default catalog anew, probe this machine and read the preferences again.

    The new state replaces the old one at once and whole. A broken manifest, configuration file or file of measurements raises
    ManifestError and leaves the old state in use.
    """
    state = _State(Catalog.load(*packs, manifests=manifests), Environment.probe())
    wishes, measurements = prefs.from_process(os.environ), measured.read()
    prefs.use(wishes)
    measured.use(measurements)
    _PRESETS.clear()
    _use(state)
    quarantine.changed()  # whoever keeps selections forgets them
    return state.catalog


def _preferences(
    backend: str | None, avoid: Any, prefer: Any, model: Any, source: str
) -> tuple[Preference, ...]:
    if backend is None and avoid is None and prefer is None and model is None:
        return prefs.from_process()
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
    from selector.report import Report

    deciding = engine_for(catalog, environment, strict)
    bound_request = request.within(catalog.vocabulary)
    preferences = deciding.wishes(bound_request, preferences)
    outcome = deciding.decide(bound_request, preferences)
    return Report(catalog, environment, bound_request, outcome, preferences, strict, origins)


def _remembering(full: F) -> F:
    """``full`` behind a short cut: a request alone that was answered before is one look-up."""

    def select(request: Any = None, **options: Any) -> Any:
        if not options:
            try:
                return _KNOWN[request]
            except (KeyError, TypeError):  # not answered yet, or no key
                pass
        return full(request, **options)

    return cast("F", update_wrapper(select, full))


@_remembering
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
        memo = state.memo  # as it is before wishes are read
        asked = _request(request, fields, state.catalog)
        preferences = _preferences(None, None, None, model_prefers, "call")
        selection = _selected(asked, state.catalog, state.environment, preferences, False)
        if isinstance(request, Request) and not fields and model_prefers is None:
            if len(memo) >= KEPT:
                memo.clear()
            memo[request] = selection
        return selection
    said = (request, fields, catalog, environment, backend, avoid, prefer, model_prefers)
    if group is not None:  # what is wrong with this rank's words is said to the others, who would wait for it
        return _together(partial(_question, *said), strict, group, group_limit)
    return _selected(*_question(*said), strict)


def _question(
    request: Request | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
    catalog: Catalog | None,
    environment: Environment | str | None,
    backend: str | None,
    avoid: Any,
    prefer: Any,
    model: Any,
) -> Question:
    used, machine = _context(catalog, environment)
    preferences = _preferences(backend, avoid, prefer, model, "call")
    return _request(request, fields, used), used, machine, preferences


def _together(
    question: Callable[[], Question],
    strict: bool,
    group: Any,
    limit: float,
) -> Selection:
    """The candidate that all ranks of a group take, as this rank's selection."""
    from selector.agreement import agree

    report, chosen, _ = agree(question, group, strict=strict, limit=limit)
    catalog, preferences = report.catalog, report.preferences
    i = catalog.program.position[chosen]
    ranked = (i, *(k for k in report.outcome.ranked if k != i))
    found = report.outcome
    outcome = Outcome(ranked, found.excluded, found.policy, found.listed, found.removed)
    pin = Preference("pin", (chosen,), "call", "the process group")
    spoken = preferences if report.outcome.ranked[0] == i else (pin, *preferences)
    return Selection(catalog, report.environment, report.request, outcome, spoken, strict)


def _context(catalog: Catalog | None, environment: Environment | str | None) -> tuple[Catalog, Environment]:
    used = catalog if catalog is not None else default_state().catalog
    if not isinstance(used, Catalog):
        raise TypeError(f'catalog is a Catalog (Catalog.load("core")), not {used!r}')
    if environment is None:
        return used, default_state().environment
    if isinstance(environment, str):
        return used, _preset(environment)
    if not isinstance(environment, Environment):
        raise TypeError(
            f'environment is an Environment or the name of a preset ("h100"), not {environment!r}'
        )
    return used, environment


#: Presets that were named, by name and directory; read anew after `reload`.
_PRESETS: dict[tuple[str, str], Environment] = {}


def _preset(name: str) -> Environment:
    key = (name, manifests_root())
    found = _PRESETS.get(key)
    if found is None:
        if len(_PRESETS) >= 256:
            _PRESETS.clear()
        found = _PRESETS[key] = Environment.preset(name)
    return found


def _request(
    request: Request | Mapping[str, Any] | None, fields: Mapping[str, Any], catalog: Catalog
) -> Request:
    if isinstance(request, Request):
        return request.replace(**fields) if fields else request
    if request is not None and not hasattr(request, "keys"):
        raise TypeError(
            f'request is a Request or a mapping of fields, not {request!r} (a machine is environment="h100")'
        )
    try:
        return Request({**(request or {}), **fields}, vocabulary=catalog.vocabulary)
    except RequestError as error:
        meant = [p._replace(hint=MEANT[p.field]) if _is_unknown(p) else p for p in error.problems]
        raise RequestError(meant) from None


#: What is an argument, or a word of the command, and no field.
MEANT = {
    "env": 'did you mean environment="h100"?',
    "on": 'did you mean environment="h100"?',
    "machine": 'did you mean environment="h100"?',
    "preset": 'did you mean environment="h100"?',
    "pack": 'a pack is chosen with catalog=Catalog.load("vllm")',
    "packs": 'packs are chosen with catalog=Catalog.load("core", "vllm")',
    "manifests": "another directory is chosen with catalog=Catalog.load(manifests=...)",
}


def _is_unknown(problem: Problem) -> bool:
    return problem.field in MEANT and problem.message.startswith("unknown field")


def _selected(
    asked: Request,
    catalog: Catalog,
    environment: Environment,
    preferences: tuple[Preference, ...],
    strict: bool,
) -> Selection:
    deciding = engine_for(catalog, environment, strict)
    memo = deciding.memo
    key: Any = (asked, preferences) if preferences else asked
    known = memo.get(key)
    if known is None:
        request = asked.within(catalog.vocabulary)
        began = time.time_ns()
        preferences = deciding.wishes(request, preferences)
        outcome = deciding.decide(request, preferences)
        ended = time.time_ns()
        if outcome.best >= 0:
            known = Selection(catalog, environment, request, outcome, preferences, strict)
        else:
            from selector.report import Report

            known = Report(catalog, environment, request, outcome, preferences, strict)
        if len(memo) >= KEPT:
            memo.clear()
        memo[key] = known
        announce(known, began, ended)
    if isinstance(known, Selection):
        return known
    raise nothing_fits(known)


def nothing_fits(report: Report) -> NoBackendError:
    """The error for a report without a winner."""
    pinned = any(p.kind == "pin" for p in report.preferences)
    return PinError(None, report) if pinned else NoBackendError(None, report)


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
