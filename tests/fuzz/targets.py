"""What is fuzzed: every reader of something that other people write, each with the contract that it must keep.

A target takes bytes and returns, whatever they are; what it raises is a finding. Errors of the package's own classes are part
of the contract and are looked at here: their text is one screen and can be printed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.fuzz import asked, files, texts
from tests.fuzz.common import as_yaml, files_of, no_words, words
from tests.fuzz.mutate import Mutator

__all__ = ["LIMIT", "TARGETS", "Slow", "Target", "check"]

#: Seconds of processor time that one input may take.
LIMIT = 1.0


class Slow(Exception):
    """An input that took longer than `LIMIT`."""


class Target(NamedTuple):
    """``run`` reads an input; ``seeds`` are good ones; ``load`` makes data of a seed, where changing data is worth it."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    load: Callable[[bytes], Any] | None
    words: Callable[[], Iterable[str]]

    def mutator(self) -> Mutator:
        """Where inputs come from."""
        return Mutator(self.seeds(), self.load, [word.encode() for word in self.words()])


def check(target: Target, data: bytes, limit: float = LIMIT) -> float:
    """Run one input and return its seconds. Raises what the target raised, or Slow."""
    began = time.thread_time()
    target.run(data)
    spent = time.thread_time() - began
    if spent > limit:
        raise Slow(f"{spent:.2f} s of processor time")
    return spent


TARGETS = {
    target.name: target
    for target in (
        Target("yaml", files.run_yaml, lambda: files_of("core/*.yaml", "*.yaml"), as_yaml, words),
        Target("manifest", files.run_manifest, lambda: files_of("core/[!p]*.yaml", "vllm/[!pv]*.yaml"), as_yaml, words),
        Target("pack", files.run_pack, lambda: files_of("*/pack.yaml"), as_yaml, words),
        Target("vocabulary", files.run_vocabulary, files.some_axes, json.loads, words),
        Target("file", files.run_file, lambda: files_of("environments/*.yaml", "*.yaml", "core/*.yaml"), as_yaml, words),
        Target("words", asked.run_words, asked.word_seeds, None, words),
        Target("command", asked.run_command, asked.command_seeds, None, words),
        Target("lines", asked.run_lines, asked.request_lines, json.loads, words),
        Target("versions", texts.run_versions, texts.version_seeds, None, no_words),
        Target("constraints", texts.run_constraints, texts.constraint_seeds, None, words),
        Target("config", texts.run_config, texts.config_seeds, json.loads, no_words),
        Target("error_text", texts.run_error_text, texts.error_seeds, None, words),
    )
}  # fmt: skip
