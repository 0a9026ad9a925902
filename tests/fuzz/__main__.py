"""`python -m tests.fuzz [--target NAME] [--inputs N] [--seed S] [--minutes M] [--atheris]`: inputs by the million, by hand.

Every finding is made smaller, written into tests/data/fuzz/NAME and told; the run goes on. A finding of the same kind at the
same place is told once. With `--atheris` (`pip install atheris`) libFuzzer draws instead, led by what the code has not done yet.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from random import Random

#: Seconds after which a hanging input shows where it hangs.
PATIENCE = 30


def main() -> int:
    """The command; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--target", action="append", metavar="NAME", help="one of them; repeatable (default: all)"
    )
    parser.add_argument("--inputs", type=int, default=10_000, metavar="N", help="inputs for each target")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--minutes", type=float, metavar="M", help="stop a target after this time")
    parser.add_argument("--atheris", action="store_true", help="coverage-led, with one --target")
    given = parser.parse_args()
    if given.atheris:
        from tests.fuzz.guided import guided

        return guided(given.target, given.inputs, given.seed)
    from tests.fuzz.targets import TARGETS

    unknown = [name for name in given.target or () if name not in TARGETS]
    if unknown:
        parser.error(f"no target is called {unknown[0]}: {', '.join(TARGETS)}")
    total = found = 0
    for name in given.target or TARGETS:
        inputs, findings = drive(name, given.inputs, given.seed, given.minutes)
        total += inputs
        found += findings
    print(f"{total} inputs, {found} findings")
    return 1 if found else 0


def drive(name: str, inputs: int, seed: int, minutes: float | None) -> tuple[int, int]:
    """(inputs run, findings) of one target."""
    from tests.fuzz.findings import keep, place
    from tests.fuzz.targets import TARGETS, check

    target = TARGETS[name]
    mutator = target.mutator()
    random = Random(f"{name} {seed}")
    told: set[str] = set()
    began = time.monotonic()
    worst = 0.0
    done = 0
    while done < inputs and (minutes is None or time.monotonic() - began < minutes * 60):
        data = mutator.draw(random)
        done += 1
        if done % 50 == 1:
            faulthandler.dump_traceback_later(PATIENCE, exit=False)
        try:
            worst = max(worst, check(target, data))
        except Exception as error:
            where = place(error)
            if where not in told:
                told.add(where)
                keep(name, data, where)
    faulthandler.cancel_dump_traceback_later()
    spent = time.monotonic() - began
    print(
        f"{name}: {done} inputs in {spent:.0f} s ({done / spent:.0f}/s), slowest {worst:.3f} s, {len(told)} findings",
        flush=True,
    )
    return done, len(told)


if __name__ == "__main__":
    sys.exit(main())
