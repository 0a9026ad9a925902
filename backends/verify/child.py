"""The parent's side of the child process: start it, ask it, bound its time, survive its death."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

__all__ = ["Answer", "Child"]

#: Seconds that the child may take to start: it imports a framework.
START = 180.0

#: What the child runs. It imports nothing from the directory it was started in, unless the parent would.
WORKER = """\
import sys
sys.path[:] = [path for path in sys.path if path]
from backends.verify.worker import main
sys.exit(main())
"""


class Answer(NamedTuple):
    """What became of one call; ``outcome`` may be crash or timeout beside what `judge.Verdict` knows."""

    outcome: str
    message: str
    seconds: float

    @property
    def fails(self) -> bool:
        """Whether a call that a manifest declares may not end so."""
        return self.outcome not in ("ok", "memory")


class Child:
    """A worker process that is replaced when it dies, hangs or has lost its device."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.started = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._errors: IO[bytes] | None = None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, task: Mapping[str, Any]) -> Answer:
        """Run one call. Raises RuntimeError if no child can be started at all."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
            line = self._lines.get(timeout=self.limit)
        except queue.Empty:
            self.stop()
            return Answer("timeout", f"no answer within {self.limit:g} s", self.limit)
        except OSError:
            line = None
        if line is None:
            return Answer("crash", self._obituary(), 0.0)
        found = json.loads(line)
        if found["lost"]:
            self.stop()
        return Answer(found["outcome"], found["message"], found["seconds"])

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the child
        paths = [path or os.getcwd() for path in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        self.started += 1
        self._lines = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        try:
            ready = self._lines.get(timeout=START)
        except queue.Empty:
            ready = None
        if ready is None:
            why = self._obituary()
            raise RuntimeError(f"the process that runs the kernels does not start: {why}")

    def stop(self) -> None:
        """End the child and what it has started (a compiler)."""
        process, self._process = self._process, None
        if process is None:
            return
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._errors = None

    def _obituary(self) -> str:
        """How the child died: its signal or exit code, and the last line of its last words that names an error."""
        process = self._process
        assert process is not None and self._errors is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        code = process.returncode
        how = "it did not answer" if code is None else f"exit code {code}"
        if code is not None and code < 0:
            how = signal.Signals(-code).name
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(self._errors.tell() - 20_000, 0))
        lines = self._errors.read().decode(errors="replace").splitlines()
        words = [x.strip() for x in lines if "rror" in x and not x.startswith((" ", "\t", "Fatal Python"))]
        self.stop()
        return f"{how}: {words[-1][:300]}" if words else how


def _read(pipe: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in pipe:
            lines.put(line)
    lines.put(None)
