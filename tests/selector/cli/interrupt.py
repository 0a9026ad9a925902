"""Ctrl-C in a real process: the signal arrives when standard error has said something."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.selector.cli.command import ROOT, Ran


def interrupted(said: str, *arguments: str, times: int = 1) -> Ran:
    """`attn-select` as a process of its own, interrupted when ``said`` was on standard error ``times`` times."""
    process = subprocess.Popen(
        [sys.executable, "-m", "selector.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        # a shell's background job ignores the signal, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if said in line:
            times -= 1
            if times == 0:
                break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return Ran(process.returncode, out, "".join(lines) + err)
