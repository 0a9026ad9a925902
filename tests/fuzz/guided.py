"""The same targets driven by libFuzzer through atheris, led by what the code has not done yet.

Atheris counts what our own modules do only if it sees them being imported, so nothing of the package is imported above.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from random import Random
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from tests.fuzz.findings import keep, place

__all__ = ["guided"]


def guided(names: Sequence[str] | None, inputs: int, seed: int) -> int:
    """Run one target; libFuzzer ends the process. 2 without atheris, or without exactly one target."""
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        print("atheris is not installed: pip install atheris", file=sys.stderr)
        return 2
    if names is None or len(names) != 1:
        print("--atheris takes one --target", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["selector"]):
        targets: Any = import_module("tests.fuzz.targets")
    target = targets.TARGETS[names[0]]
    mutator = target.mutator()

    def one(data: bytes) -> None:
        try:
            targets.check(target, data)
        except Exception as error:
            keep(target.name, data, place(error))
            raise

    def mutated(data: bytes, limit: int, number: int) -> bytes:
        random = Random(number)
        if random.randrange(3):
            mutator.seeds.append(data)
            drawn = mutator.changed_bytes(random, data)
            mutator.seeds.pop()
        else:
            drawn = mutator.draw(random)
        return bytes(drawn[:limit])

    with TemporaryDirectory(prefix="attention-selector-corpus-") as corpus:
        for number, data in enumerate(mutator.seeds):
            with open(f"{corpus}/{number}", "wb") as file:
                file.write(data)
        options = [
            f"-artifact_prefix={gettempdir()}/",  # findings are kept by us
            f"-runs={inputs}",
            f"-seed={seed + 1}",
            "-max_len=65536",
            "-timeout=30",
            "-print_final_stats=1",
        ]
        atheris.Setup(["fuzz", corpus, *options], one, custom_mutator=mutated)
        atheris.Fuzz()
    return 0
