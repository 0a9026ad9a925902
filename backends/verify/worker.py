"""The child process that runs calls: one JSON object a line in, one out. A crash costs the call that it was at.

Standard output carries answers only: what kernels print goes to standard error, which the parent keeps for crashes.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import warnings
from typing import BinaryIO

__all__ = ["main"]


def main() -> int:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    from backends.verify.judge import judge, refusal_elsewhere

    _say(answers, {"ready": True})
    for line in sys.stdin.buffer:
        task = json.loads(line)
        ask = judge if task["ran"] else refusal_elsewhere
        verdict = ask(task["kernel"], task["variant"], task["draw"], task["device"])
        lost = task["ran"] and task["device"] != "cpu" and _lost(task["device"])
        _say(answers, {**verdict._asdict(), "lost": lost})
        if lost:
            return 0
    return 0


def _say(answers: BinaryIO, value: object) -> None:
    answers.write(json.dumps(value).encode() + b"\n")
    answers.flush()


def _lost(device: str) -> bool:
    """Whether the last call has left the device unusable for this process."""
    import torch

    try:
        torch.accelerator.synchronize()
        return bool(torch.ones(1, device=device).item() != 1.0)
    except RuntimeError:
        return True


if __name__ == "__main__":
    sys.exit(main())
