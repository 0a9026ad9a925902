"""What a comparison found: counts by field, and the rows that differ."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeAlias

from selector.errors import SelectorError

Row: TypeAlias = Mapping[str, Any]
"""One recorded decision."""


_OPENERS: Final[Mapping[str, Callable[..., IO[str]]]] = {".gz": gzip.open, ".xz": lzma.open}
"""What opens a compressed file, by the end of its name."""


class Difference(NamedTuple):
    """One field in which an answer differs from the recorded one."""

    field: str
    expected: object
    got: object


class Mismatch(NamedTuple):
    """A row (counted from 1) with its differences."""

    row: int
    differences: tuple[Difference, ...]
    recorded: Row


class Result(NamedTuple):
    """Rows compared, the fields compared in each, and the rows that differ."""

    name: str
    rows: int
    fields: tuple[str, ...]
    mismatches: tuple[Mismatch, ...]

    @property
    def agrees(self) -> bool:
        """Do all rows agree? No rows is no agreement."""
        return self.rows > 0 and not self.mismatches

    def line(self) -> str:
        """One line of rates: whole rows, then each field."""

        def rate(wrong: int) -> str:
            right = self.rows - wrong
            return f"{right}/{self.rows} ({100 * right / self.rows if self.rows else 0:.2f} %)"

        wrong = {
            field: sum(any(d.field == field for d in m.differences) for m in self.mismatches)
            for field in self.fields
        }
        parts = [f"{self.name}: rows {rate(len(self.mismatches))}"]
        return ", ".join(parts + [f"{field} {rate(count)}" for field, count in wrong.items()])


def read_rows(path: Path, limit: int | None = None) -> Iterator[Row]:
    """The recorded decisions of a file, one JSON object a line, compressed or not. ValueError for a broken line."""
    with _OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8") as stream:
        yield from islice((json.loads(line) for line in stream if line.strip()), limit)


def compare_rows(
    name: str,
    rows: Iterable[Row],
    fields: tuple[str, ...],
    compare: Callable[[Row], Iterator[Difference]],
) -> Result:
    """Compare rows one by one. A row that cannot be mapped counts as wrong in every field."""
    mismatches: list[Mismatch] = []
    count = 0
    for count, row in enumerate(rows, 1):
        try:
            differences = tuple(compare(row))
        except (KeyError, TypeError, ValueError, SelectorError) as error:
            differences = tuple(Difference(field, "an answer", f"cannot map: {error!r}") for field in fields)
        if differences:
            mismatches.append(Mismatch(count, differences, row))
    return Result(name, count, fields, tuple(mismatches))
