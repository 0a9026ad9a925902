"""What can go wrong, as values.

Every error of the package derives from `SelectorError` and knows the exit code of the command. Errors carry their
evidence as plain records (`Fault`, `Problem`), compare by value and survive pickling; their text is made when it is
read. Importing it imports no other module of the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: Exit codes of the command: wrong usage or broken manifests, and "nothing fits".
EXIT_USAGE = 2
EXIT_NOTHING_FITS = 3

#: How many faults `ManifestError` prints before it only counts; one screen.
SHOWN = 20

#: Columns of a source line that are printed around a fault.
WIDTH = 100


class Mark(NamedTuple):
    """A place in a file; `line` and `column` start at 1 and count characters, not bytes. Line 0: the whole file."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Fault(NamedTuple):
    """One mistake in one file.

    `path` names the place inside the data (`rules[2].when.head_size`; empty for the whole file), `line_text` is the
    line itself without its line break (None where there is none: an unreadable file), `severity` is `error` or
    `warning`.
    """

    at: Mark
    path: str
    message: str
    hint: str | None = None
    line_text: str | None = None
    severity: str = "error"

    def __str__(self) -> str:
        return "\n".join(_fault_lines(self))


class Problem(NamedTuple):
    """One mistake in a request: the field as the caller wrote it, what is wrong, and what to write instead."""

    field: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


def format_path(path: Iterable[str | int]) -> str:
    """`("rules", 2, "when")` as `rules[2].when`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def printable(text: str) -> str:
    """`text` with tabs as one space and everything a terminal could act upon, or fail to encode, escaped."""
    text = text.replace("\t", " ")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _excerpt(line: str, column: int) -> tuple[str, int]:
    """At most `WIDTH` columns of `line` around `column` (from 1), and where the column lies in them (from 0)."""
    at = max(column - 1, 0)
    start = 0 if len(line) <= WIDTH or at < WIDTH - 20 else at - WIDTH // 2
    end = start + WIDTH
    head, tail = ("..." if start else ""), ("..." if end < len(line) else "")
    before = head + printable(line[start:at])
    return before + printable(line[at:end]) + tail, len(before)


def _fault_lines(fault: Fault) -> list[str]:
    from selector.locations import opened

    mark = "" if fault.severity == "error" else f"{fault.severity}: "
    place = str(fault.at._replace(file=opened(fault.at.file)))
    lines = [f"{printable(place)}: {mark}{printable(fault.message)}"]
    if fault.line_text is not None and fault.line_text.strip():
        text, at = _excerpt(fault.line_text, fault.at.column)
        lines += [f"    {text}", f"    {' ' * at}^"]
    if fault.hint is not None:
        lines.append(f"    {printable(fault.hint)}")
    return lines


class SelectorError(Exception):
    """Base of every error of this package; `exit_code` is what the command ends with."""

    exit_code = EXIT_USAGE

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, SelectorError):
            return NotImplemented
        return self.args == other.args and self._extra() == other._extra()

    def __hash__(self) -> int:
        return hash((type(self), self.args))

    def _extra(self) -> object:
        """What belongs to the value of the error beside its arguments."""
        return None


class ManifestError(SelectorError):
    """Files that cannot be used: broken YAML, or YAML that says something the language does not know."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return render_faults(self.faults)


class RequestError(SelectorError):
    """A request, an environment value or a flag that names an unknown axis or a value the axis cannot have."""

    def __init__(self, problems: Iterable[Problem | tuple[str, str, str | None]]) -> None:
        self.problems: tuple[Problem, ...] = tuple(Problem(*problem) for problem in problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class EnvironmentFileError(SelectorError):
    """No such preset, or an environment that does not describe a machine."""

    def __init__(self, message: str, hint: str | None = None, faults: Iterable[Fault] = ()) -> None:
        self.message = message
        self.hint = hint
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__(message, hint, self.faults)

    def __str__(self) -> str:
        lines = [self.message if self.hint is None else f"{self.message} ({self.hint})"]
        if self.faults:
            lines.append(render_faults(self.faults))
        return "\n".join(lines)


class NoBackendError(SelectorError):
    """No candidate accepts the request. `report` holds every reason; it is set by whoever raises.

    Without a message of its own the error says what its report says, worked out when somebody reads it.
    """

    exit_code = EXIT_NOTHING_FITS

    def __init__(self, message: str | None = None, report: object = None) -> None:
        self._message = message
        self.report = report
        super().__init__(*(() if message is None else (message,)))

    @property
    def message(self) -> str:
        """The whole text."""
        if self._message is None:
            self._message = str(self.report)
        return self._message

    def __str__(self) -> str:
        return self.message

    def _extra(self) -> object:
        return self.report


class PinError(NoBackendError):
    """The candidate that the caller, a process variable or a configuration file insists on cannot be used."""


class RefusedCall(Exception):
    """A kernel wrapper cannot honour a call that its manifest accepts; ``reason`` says why. Raised by kernel modules."""

    reason: str


def render_faults(faults: Iterable[Fault], limit: int = SHOWN) -> str:
    """Faults in file order as one screen: place and message, the line, a caret, the hint; then how many more."""
    ordered = sorted(faults, key=lambda fault: fault.at)
    lines = [line for fault in ordered[:limit] for line in _fault_lines(fault)]
    if len(ordered) > limit:
        lines.append(f"... and {len(ordered) - limit} more")
    return "\n".join(lines)
