"""A general plug-in of vLLM: its choice of an attention backend, answered from the pack `vllm` for this machine.

Installed beside vLLM it is loaded in every process of it (entry point `vllm.general_plugins`). ``ATTN_SELECTOR_VLLM`` says what
it does:

* ``off``: nothing;
* ``advise`` (default): vLLM decides; where the pack would decide otherwise, or vLLM finds nothing, the report is logged, once a
  distinct question;
* ``decide``: the pack's choice is returned, and where nothing fits a ValueError carries the report. A backend that was asked for
  by name stays vLLM's to validate.

It is written against the interface of the version that the pack describes. Where vLLM's differs, one warning is logged and vLLM
is left alone; the same where this project itself fails.
"""

from __future__ import annotations

import inspect
import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from backends.integrations._vllm_facts import device_of, environment_of, fields_of
from selector.errors import SelectorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from selector.catalog import Catalog
    from selector.environment import Environment
    from selector.report import Report

__all__ = ["MODES", "VARIABLE", "register", "unregister"]

VARIABLE = "ATTN_SELECTOR_VLLM"
MODES = ("off", "advise", "decide")
PACK = "vllm"

#: The method of a platform that chooses, and the names of its parameters after the class.
METHOD = "get_attn_backend_cls"
PARAMETERS = ("selected_backend", "attn_selector_config", "num_heads")

#: Class paths that vLLM returns for a backend without a name of its own, and the name that asks for it.
PATHS = {"vllm.v1.attention.backends.mla.flashattn_mla.XPUFlashAttnMLABackend": "FLASH_ATTN_MLA"}

#: Where the wrapper keeps the method that it stands before.
KEPT = "__attention_selector__"

#: Distinct questions that are remembered as logged.
REMEMBERED = 4096

# A child of vLLM's logger, so that its handler, format and level apply.
logger = logging.getLogger("vllm.attention_selector")


def register() -> None:
    """The plug-in: stand before the current platform's choice. May be called any number of times; never raises."""
    try:
        mode = _mode()
        if mode != "off":
            _install(mode)
    except _Unlike as why:
        logger.warning("attention-selector stays off: %s", why)
    except Exception as error:
        logger.warning("attention-selector stays off: %s: %s", type(error).__name__, error)


def unregister() -> None:
    """Give the platform its own method back."""
    cls: Any = type(import_module("vllm.platforms").current_platform)
    original = getattr(vars(cls).get(METHOD), KEPT, None)
    if original is None:
        return
    if original is _INHERITED:
        delattr(cls, METHOD)
    else:
        setattr(cls, METHOD, original)


class _Unlike(Exception):
    """This vLLM is not the one that the pack describes."""


class _Wrapper(classmethod):  # type: ignore[type-arg]
    """A class method that knows what it replaced, and what answers."""

    answers: Answers


def answers_of(method: object) -> Answers:
    """What answers behind an installed method. Raises TypeError for a method of somebody else."""
    if not isinstance(method, _Wrapper):
        raise TypeError(f"{method!r} is not the plug-in's")
    return method.answers


_INHERITED = object()


def _mode() -> str:
    said = os.environ.get(VARIABLE, "").strip().lower() or "advise"
    if said not in MODES:
        raise _Unlike(f"{VARIABLE}={said!r} is none of {', '.join(MODES)}")
    return said


def _install(mode: str) -> None:
    from selector.catalog import Catalog

    platform: Any = import_module("vllm.platforms").current_platform
    cls: Any = type(platform)
    if hasattr(vars(cls).get(METHOD), KEPT):
        return
    catalog = Catalog.load(PACK)
    check(platform, catalog)
    original = getattr(cls, METHOD)  # bound to the class
    answers = Answers(mode, catalog, platform, original)

    def get_attn_backend_cls(
        cls: Any, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> Any:
        return answers(selected_backend, attn_selector_config, num_heads)

    wrapper = _Wrapper(get_attn_backend_cls)
    setattr(wrapper, KEPT, vars(cls).get(METHOD, _INHERITED))
    wrapper.answers = answers
    setattr(cls, METHOD, wrapper)
    logger.info("attention-selector: mode %s, pack %s (%s)", mode, PACK, catalog.packs[0].version)


def check(platform: Any, catalog: Catalog) -> None:
    """Raise `_Unlike` where this vLLM's interface or version is not the one that the pack describes."""
    if device_of(platform) is None:
        raise _Unlike(f"the pack knows no platform like {type(platform).__name__}")
    version = getattr(import_module("vllm"), "__version__", None)
    described = (catalog.packs[0].version or "").rpartition(" ")[2]
    if not _same_release(version, described):
        raise _Unlike(f"this is vLLM {version}, and the pack describes {described}")
    found = tuple(inspect.signature(getattr(type(platform), METHOD)).parameters)
    if found != PARAMETERS:
        raise _Unlike(f"{METHOD} takes {', '.join(found)}, and not {', '.join(PARAMETERS)}")
    config = import_module("vllm.v1.attention.selector").AttentionSelectorConfig
    unknown = [f for f in config._fields if (a := catalog.vocabulary.find(f)) is None or a.of != "request"]
    if unknown:
        raise _Unlike(f"AttentionSelectorConfig has fields that the pack does not know: {', '.join(unknown)}")
    if not hasattr(import_module("vllm.v1.attention.backends.registry").AttentionBackendEnum, "get_path"):
        raise _Unlike("its registry of backends gives no class paths")


def _same_release(version: object, described: str) -> bool:
    """Whether two versions have major and minor in common; a build that does not know its version counts as the same."""
    if not isinstance(version, str) or not version[:1].isdigit():
        return True
    return version.split(".")[:2] == described.split(".")[:2]


class Answers:
    """The answers of one process. The machine is asked about once, with the first question."""

    def __init__(self, mode: str, catalog: Catalog, platform: Any, original: Callable[..., Any]) -> None:
        self.mode, self.catalog, self.platform, self.original = mode, catalog, platform, original
        self._machine: Environment | None = None
        self._said: dict[object, None] = {}
        self._failed = False

    def __call__(self, selected: Any, config: Any, num_heads: int | None) -> Any:
        """The class path for one question; raises what vLLM raises, and in mode decide ValueError where nothing fits."""
        report = self.report(selected, config, num_heads)
        if report is None:
            return self.original(selected, config, num_heads)
        if self.mode == "decide" and selected is None:
            return self.decide(report, config, num_heads)
        return self.advise(report, selected, config, num_heads)

    def forget(self) -> None:
        """Ask about the machine again, and log what was logged."""
        self._machine, self._failed = None, False
        self._said.clear()

    def report(self, selected: Any, config: Any, num_heads: int | None) -> Report | None:
        """Our report, insisting on a backend that was asked for; None where it cannot be made, which is said once."""
        from selector.preferences import Preference
        from selector.selection import decide

        try:
            if self._machine is None:
                self._machine = environment_of(self.platform, self.catalog)
            current = import_module("vllm.config").get_current_vllm_config_or_none()
            request = self.catalog.request(fields_of(config, num_heads, current))
            pins: tuple[Preference, ...] = ()
            if selected is not None:
                if not self.catalog.find(selected.name):
                    return None  # registered by somebody else
                pins = (Preference("pin", (selected.name,), "call", "--attention-backend"),)
            return decide(request, self.catalog, self._machine, pins)
        except Exception as error:
            if not self._failed:
                self._failed = True
                logger.warning(
                    "attention-selector cannot answer, and vLLM decides alone: %s: %s",
                    type(error).__name__,
                    error,
                )
                if not isinstance(error, SelectorError):
                    logger.debug("where it failed", exc_info=True)
            return None

    def advise(self, report: Report, selected: Any, config: Any, num_heads: int | None) -> Any:
        """vLLM's answer; ours is logged where it is another one."""
        try:
            path = self.original(selected, config, num_heads)
        except Exception as error:
            if self.first(report, None):
                kind = type(error).__name__
                fits = f", and {report.selected} fits by the pack" if report.selected is not None else ""
                self.log(logging.WARNING, f"vLLM has no attention backend here ({kind}){fits}", report)
            raise
        theirs, ours = self.name_of(path), _backend(report)
        if theirs != ours and self.first(report, theirs):
            self.log(logging.WARNING, self.difference(report, selected, theirs), report)
        return path

    def difference(self, report: Report, selected: Any, theirs: str) -> str:
        """One line: what vLLM takes, and what the pack says instead."""
        if selected is not None and theirs != selected.name:
            return f"{selected.name} was asked for, and vLLM takes {theirs} in its place{self.because(report, selected.name)}"
        what = f"would take {report.selected}" if report.selected is not None else "finds nothing that fits"
        return f"vLLM takes {theirs}, and the pack {what}{self.because(report, theirs)}"

    def decide(self, report: Report, config: Any, num_heads: int | None) -> Any:
        """Our answer as vLLM's registry has it."""
        ours = _backend(report)
        if ours is None:
            raise ValueError(f"attention-selector: no attention backend fits\n{report.to_text()}")
        path = self.path_of(ours)
        if path is None:
            return self.original(None, config, num_heads)
        if self.first(report, ours):
            self.log(logging.INFO, f"{report.selected} is taken for this layer", report)
        return path

    def path_of(self, name: str) -> str | None:
        """The class path of a backend, overrides included; None where its name does not stand for one class here."""
        if self.platform.is_xpu() and name in PATHS.values():
            return next(path for path, stands in PATHS.items() if stands == name)
        registry: Any = import_module("vllm.v1.attention.backends.registry")
        member = registry.AttentionBackendEnum.__members__.get(name)
        if member is None:
            return None
        try:
            path: str = member.get_path()
        except ValueError:  # nothing is registered under the name
            return None
        return path

    def name_of(self, path: Any) -> str:
        """The name of the backend that a class path stands for; the path itself where it has none."""
        registry: Any = import_module("vllm.v1.attention.backends.registry")
        for name in registry.AttentionBackendEnum.__members__:
            if self.path_of(name) == path:
                return str(name)
        return PATHS.get(str(path), str(path))

    def because(self, report: Report, theirs: str) -> str:
        """What the pack says against vLLM's choice, or for its own."""
        refused = [r for c in self.catalog.find(theirs) for r in report.reasons(c.id)]
        ranked = {r.id.partition("/")[0]: r.rank for r in report.ranked}
        if theirs in ranked:
            return f": {theirs} fits too, in place {ranked[theirs]}"
        if theirs in {i.partition("/")[0] for i in report.excluded}:
            return f": {theirs} fits, and no order of the pack has it here"
        return f": {theirs} is refused, {refused[0].message}" if refused else ""

    def first(self, report: Report, theirs: str | None) -> bool:
        """Whether this question was not logged before; one process a machine speaks."""
        key = (report.request, report.preferences, theirs)
        if key in self._said or not _speaks():
            return False
        if len(self._said) >= REMEMBERED:
            self._said.clear()
        self._said[key] = None
        return True

    def log(self, level: int, headline: str, report: Report) -> None:
        """A line, and the report below it."""
        from selector.log import fields_of as fields

        logger.log(level, "attention-selector: %s\n%s", headline, report.to_text(), extra=fields(report))


def _backend(report: Report) -> str | None:
    return None if report.selected is None else report.selected.partition("/")[0]


def _speaks() -> bool:
    """Whether this process is the first of its machine, as far as vLLM knows by now."""
    try:
        return bool(import_module("vllm.distributed.parallel_state").is_local_first_rank())
    except Exception:
        return True
