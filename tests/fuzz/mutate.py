"""Changed copies of good inputs: as bytes, and as data that is written out as JSON (which the YAML reader reads too).

Everything is drawn from one `random.Random`, so a seed repeats a run, and hypothesis can draw instead and shrink.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

__all__ = ["Mutator"]

#: Pieces that mean something to one of the readers.
WORDS = (
    b": ", b"- ", b"\n", b"\r\n", b"\t", b"{", b"}", b"[", b"]", b",", b"#", b"&a", b"*a", b"!", b"!!str ", b"|", b">", b"'",
    b'"', b"\\", b"---\n", b"...\n", b"%YAML 1.1\n", b"<<: ", b"?", b"@", b"`", b"~", b"null", b"true", b"false", b"=", b"==",
    b">=", b"<=", b"!=", b"~=", b"===", b"<", b".*", b"*", b"0", b"1", b"-1", b"9.0", b"1e999", b"NaN", b"Infinity", b"0x1f",
    b"1_000", b"9" * 18, b"9" * 40, b"9" * 4400, b"1.2.3", b"2.4.0+cu121", b"1!2", b"rc1", b".dev0", b".post1", b"any", b"all",
    b"not", b"when", b"given", b"in", b"not_in", b"required", b"min", b"max", b"multiple_of", b"accepts", b"absent",
    b"\x00", b"\x7f", b"\x80", b"\xff", b"\xef\xbb\xbf", b"\xfe\xff", b"\xed\xa0\x80", "\u2028".encode(), "\u0130".encode(),
    "\u00b2".encode(), "\u0663".encode(), "\u00df".encode(), "\U0001f600".encode(), b"\\u0000", b"\\ud800", b"\\u0130",
    b"dtype", b"head_size", b"packages", b"device", b"compute_capability", b"__class__", b"{}", b"{0}", b"%s", b"%", b"$",
)  # fmt: skip

#: Values that readers get wrong.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 8, 64, 128, 255, 256, 65_536, 65_537, 1 << 31, 1 << 63, 10**17, 10**40, 0.5, 9.0,
    -0.0, 1e30, "", " ", "any", "all", "none", "null", "true", "absent", "9.0", "==9.*", ">=2.4", ">=2.4,<3", "~=1", "===x",
    "<", "!=", "1!2", "x" * 200, "\u0130", "\u00b2", "a/b", "/", "a,b", "{0}", "%s", "{offered}", "__class__", [], {}, [[]],
    [{}], [None], [1, 2], [[1, 2]], [1, "a", None], {"in": []}, {"min": 3, "max": 1}, {"given": True}, {"given": 1},
    {"required": True}, {"required": 1}, {"multiple_of": 0}, {"multiple_of": 10**17}, {"any": []}, {"all": []}, {"not": {}},
    {"not": []}, {"any": [{}]}, {"accepts": "a"}, {"accepts": []}, {"same_as": "head_size"}, {"axis": "dtype"},
)  # fmt: skip

#: Bytes of the longest input.
LONGEST = 1 << 16


class Mutator:
    """Draws inputs: from ``seeds``, changed as bytes or, where a seed can be read as data, as data."""

    def __init__(
        self, seeds: Sequence[bytes], load: Callable[[bytes], Any] | None, words: Sequence[bytes] = ()
    ) -> None:
        self.seeds = list(seeds)
        self.words = [*WORDS, *words]
        self.data = [] if load is None else [load(seed) for seed in self.seeds]
        self.parts: list[Any] = []
        keys: dict[str, None] = {}
        for data in self.data:
            for node in _nodes(data):
                self.parts.append(node)
                if isinstance(node, dict):
                    keys.update(dict.fromkeys(node))
        self.keys = list(keys)

    def draw(self, random: Random) -> bytes:
        """One input."""
        if self.data and random.randrange(4):
            text = json.dumps(self._changed(random), ensure_ascii=False).encode("utf-8", "surrogatepass")
            return text[:LONGEST] if random.randrange(20) else self.changed_bytes(random, text)
        return self.changed_bytes(random, random.choice(self.seeds))

    # -- bytes --------------------------------------------------------------------------------------------------------

    def changed_bytes(self, random: Random, seed: bytes) -> bytes:
        """``seed`` with a few changes that know nothing of what it says."""
        text = bytearray(seed)
        for _ in range(1 + random.randrange(4) * random.randrange(3)):
            at = random.randrange(len(text) + 1)
            end = min(len(text), at + 1 + random.randrange(1 << random.randrange(7)))
            way = random.randrange(9)
            if way == 0:
                text[at:at] = random.choice(self.words)
            elif way == 1:
                text[at:end] = random.choice(self.words)
            elif way == 2:
                del text[at:end]
            elif way == 3:
                text[at:at] = text[at:end]
            elif way == 4 and text:
                text[at % len(text)] = random.randrange(256)
            elif way == 5:
                other = random.choice(self.seeds)
                there = random.randrange(len(other) + 1)
                text[at:] = other[there:]
            elif way == 6:
                other = random.choice(self.seeds)
                there = random.randrange(len(other) + 1)
                text[at:end] = other[there : there + end - at]
            elif way == 7:
                text[at:end] = text[at:end] * (1 + random.randrange(1 << random.randrange(10)))
            else:
                lines = text.split(b"\n")
                i, k = random.randrange(len(lines)), random.randrange(len(lines))
                lines[i], lines[k] = lines[k], lines[i]
                text = bytearray(b"\n".join(lines))
            del text[LONGEST:]
        return bytes(text)

    # -- data ---------------------------------------------------------------------------------------------------------

    def _changed(self, random: Random) -> Any:
        data = copy.deepcopy(random.choice(self.data))
        for _ in range(1 + random.randrange(3) * random.randrange(3)):
            places = [node for node in _nodes(data) if node and isinstance(node, (dict, list))]
            if not places:
                return self._value(random)
            self._change(random, random.choice(places))
        return data

    def _change(self, random: Random, node: Any) -> None:
        """Change one entry of a mapping or list."""
        key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        way = random.randrange(8)
        if way <= 2:
            node[key] = self._value(random)
        elif way == 3:
            del node[key]
        elif way == 4:
            value = node[key]
            node[key] = random.choice(
                (
                    [value],
                    {"any": [value]},
                    {"not": value},
                    {"all": [value, value]},
                    {"in": value},
                    [value] * 9,
                )
            )
        elif way == 5 and isinstance(node, dict):
            node[random.choice(self.keys)] = self._value(random)
        elif way == 6 and isinstance(node, dict):
            node[random.choice(self.keys)] = node.pop(key)
        elif isinstance(node, list):
            node.insert(key, self._value(random))
        elif isinstance(node[key], str):
            node[key] = self.changed_bytes(random, node[key].encode("utf-8", "surrogatepass")).decode(
                "utf-8", "replace"
            )

    def _value(self, random: Random) -> Any:
        if random.randrange(2):
            return copy.deepcopy(random.choice(VALUES))
        return copy.deepcopy(random.choice(self.parts))


def _nodes(data: Any) -> list[Any]:
    """Every value of nested data, itself first."""
    found = [data]
    for node in found:
        if isinstance(node, dict):
            found.extend(node.values())
        elif isinstance(node, list):
            found.extend(node)
    return found
