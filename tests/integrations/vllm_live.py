"""The plug-in inside a real vLLM that takes its process for another machine: does it see what vLLM's selection sees?

    PYTHON -m tests.integrations.vllm_live [--rows N] [--seed S] [--platform cuda ...]

PYTHON is the interpreter of an environment with vLLM in it (the wheel for CPUs will do; nothing runs on a device). Requests
and machines are drawn as for `tests.parity.vllm_draw`, but the machine and the question are read by the plug-in itself, out of
vLLM's own probes and configuration. Prints the questions that come out otherwise, and exits 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

#: Differences that are printed of one kind of machine.
SHOWN = 5


def inside(task: Mapping[str, Any]) -> dict[str, Any]:
    """Decide the rows of one kind of machine in this process; the differences, and how many questions there were."""
    from tests.parity import vllm_stubs
    from tests.parity.vllm_decide import Decider

    decider = Decider(task["platform"], task["installed"], task["arch"])
    from backends.integrations import vllm as plugin

    logging.getLogger("vllm.attention_selector").setLevel(logging.CRITICAL)
    os.environ[plugin.VARIABLE] = "advise"
    told: list[str] = []
    plugin.logger.warning = lambda text, *more, **_: told.append(text % more)  # type: ignore[method-assign]
    plugin.register()
    method = vars(type(decider.platform)).get(plugin.METHOD)
    if not hasattr(method, plugin.KEPT):
        raise SystemExit(f"the plug-in is off: {told}")
    answers: Any = plugin.answers_of(method)
    found: dict[str, Any] = {"asked": 0, "raised": 0, "replaced": 0, "differences": [], "warnings": told}
    for row in task["rows"]:
        decider.prepare(row["env"], row["request"])
        decider.config._current_vllm_config = vllm_stubs.configuration(
            row["request"], row["env"], row["model"]
        )
        wanted = decider.selector(
            **{**row["request"], "dtype": getattr(decider.torch, row["request"]["dtype"])}
        )
        asked = None if row["explicit"] is None else decider.backends[row["explicit"]]
        answers.forget()
        report = answers.report(asked, wanted, row["env"].get("num_heads"))
        try:
            path = answers.original(asked, wanted, row["env"].get("num_heads"))
            theirs: str | None = answers.name_of(path)
        except (ValueError, NotImplementedError):
            theirs = None
        except Exception:  # a class of another platform, say, which this wheel cannot even import
            found["raised"] += 1
            continue
        found["asked"] += 1
        if theirs is not None and row["explicit"] not in (None, theirs):
            found["replaced"] += 1  # quietly, which no pack says of a backend
            continue
        ours = None if report is None else report.selected
        if report is None or theirs != (None if ours is None else ours.partition("/")[0]):
            found["differences"].append(
                {"row": row, "vllm": theirs, "pack": ours, "made": report is not None}
            )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Draw, ask, compare."""
    from tests.parity.vllm_draw import PLATFORMS, backend_names, draw_row, machines

    parser = argparse.ArgumentParser(prog="python -m tests.integrations.vllm_live")
    parser.add_argument("--rows", type=int, default=400, help="how many of each platform")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--platform", choices=PLATFORMS, nargs="+", default=PLATFORMS)
    parser.add_argument("--inside", action="store_true", help="answer the task on standard input")
    options = parser.parse_args(argv)
    if options.inside:
        out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # what vLLM prints is no answer
        json.dump(inside(json.load(sys.stdin)), out)
        out.close()
        return 0
    wrong = 0
    for platform in options.platform:
        places = machines(platform)
        counts = dict.fromkeys(("asked", "raised", "replaced"), 0)
        differ = 0
        for number, (installed, arch) in enumerate(places):
            rng = random.Random(f"{options.seed} {platform} {number}")
            names = backend_names()
            rows = [
                draw_row(platform, installed, arch, rng, names)
                for _ in range(options.rows // len(places) + 1)
            ]
            task = {"platform": platform, "installed": list(installed), "arch": arch, "rows": rows}
            done = subprocess.run(
                [sys.executable, "-m", "tests.integrations.vllm_live", "--inside"],
                input=json.dumps(task), stdout=subprocess.PIPE, check=True, cwd=ROOT, text=True,
            )  # fmt: skip
            found = json.loads(done.stdout)
            counts = {name: number + found[name] for name, number in counts.items()}
            differ += len(found["differences"])
            for text in dict.fromkeys(found["warnings"]):
                print(f"{platform} {installed} {arch}: {text}")
            for difference in found["differences"][:SHOWN]:
                print(json.dumps(difference, sort_keys=True))
        print(
            f"{platform}: {counts['asked']} questions on {len(places)} machines, {differ} answered otherwise; not compared: "
            f"{counts['replaced']} choices that vLLM replaced, {counts['raised']} that ended in another exception"
        )
        wrong += differ
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
