"""A model configuration as plain data, from a file nobody vouches for.

JSON as Python's reader accepts it: published configurations do hold `Infinity` and `NaN`. Size and depth
are bounded, and a key that stands twice with different values is refused, as nobody can say which one a
model was made with.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from selector.errors import printable
from selector.model_config.errors import ConfigError, shown

#: Bytes of the largest configuration that is read; lists of unquantised modules make some a few 100 kB long.
MAX_BYTES = 8 << 20
#: Levels of nested mappings and lists.
MAX_DEPTH = 64
#: The configuration in a model's directory, and the file that older ModelOpt checkpoints put beside it.
CONFIG_NAME = "config.json"
QUANTIZATION_NAME = "hf_quant_config.json"

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


class Source(NamedTuple):
    """`data` of a configuration, its `name` in messages, and the `quantization` in the file beside it."""

    data: dict[str, Json]
    name: str
    quantization: dict[str, Json] | None


def read_source(source: Mapping[str, object] | str | os.PathLike[str]) -> Source:
    """The configuration in a mapping, a file, or a model's directory.

    Raises:
        ConfigError: it cannot be read, is too large or too deep, or is not a JSON object.
    """
    if isinstance(source, Mapping):
        return Source(_checked(dict(source), CONFIG_NAME), CONFIG_NAME, None)
    path = os.fspath(source)
    if os.path.isdir(path):
        path = os.path.join(path, CONFIG_NAME)
    data = _read(path)
    beside = os.path.join(os.path.dirname(path), QUANTIZATION_NAME)
    quantization = _read(beside) if os.path.isfile(beside) else None
    return Source(data, path, quantization)


def _read(path: str) -> dict[str, Json]:
    name = printable(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(name, "", "is not a regular file")
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "is not a usable path"
        raise ConfigError(name, "", f"cannot be read: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            name,
            "",
            f"is larger than {MAX_BYTES >> 20} MiB",
            "is it a model's configuration?",
        )
    try:
        data: Json = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_pairs)
    except UnicodeDecodeError as error:
        raise ConfigError(name, "", f"is not UTF-8 text: byte {error.start} cannot be decoded") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}:{error.lineno}:{error.colno}", "", f"is not JSON: {error.msg}") from None
    except RecursionError:
        raise ConfigError(name, "", f"is nested deeper than {MAX_DEPTH} levels") from None
    except _TwiceError as error:
        raise ConfigError(name, error.key, "stands twice in one mapping, with different values") from None
    except ValueError:  # Python's own limit on the digits of a number
        raise ConfigError(name, "", "holds a number of more than 4300 digits") from None
    return _checked(data, name)


class _TwiceError(Exception):
    """A key that stands twice with different values."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        for key, value in pairs:
            if repr(result[key]) != repr(value):  # repr, as NaN differs from itself and 1 equals true
                raise _TwiceError(key)
    return result


def _checked(data: object, name: str) -> dict[str, Json]:
    """`data` when it is a JSON object of bounded depth; the walk needs no stack of its own calls."""
    if not isinstance(data, dict):
        raise ConfigError(name, "", f"holds {shown(data)}, a configuration is a JSON object")
    level: list[object] = [data]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                below.extend(child for child in node.values() if isinstance(child, (dict, list)))
            elif isinstance(node, list):
                below.extend(child for child in node if isinstance(child, (dict, list)))
        if not below:
            return data
        level = below
    raise ConfigError(name, "", f"is nested deeper than {MAX_DEPTH} levels")
