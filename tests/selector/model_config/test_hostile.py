"""Files nobody vouches for: an answer or one clear error, in bounded time, whatever is in them."""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selector.model_config import ConfigError, ModelConfig, read_config
from selector.model_config.source import MAX_BYTES, MAX_DEPTH, Json
from tests.selector.model_config.samples import CONFIGS, llama, only

GOOD = json.dumps(llama())


def error_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 600
    return text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON: Expecting value"),
        (b"{", "is not JSON"),
        (b"[1, 2]", "holds a list of 2 entries, a configuration is a JSON object"),
        (b"null", "holds null"),
        (b'"text"', "holds 'text'"),
        (b"\x00\x00", "is not JSON"),
        (b'{"a": "\xff"}', "is not UTF-8 text: byte 7 cannot be decoded"),
        (GOOD.encode("utf-16"), "is not UTF-8 text"),
        (b'{"a": ' + b"9" * 5000 + b"}", "holds a number of more than 4300 digits"),
        (b'{"a":' * 80 + b"1" + b"}" * 80, f"is nested deeper than {MAX_DEPTH} levels"),
        (b'{"a":' + b"[" * 100_000, f"is nested deeper than {MAX_DEPTH} levels"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", f"is nested deeper than {MAX_DEPTH} levels"),
        (b'{"hidden_size": 1, "hidden_size": 2}', "hidden_size stands twice in one mapping"),
    ],
)
def test_content(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert message in error_of(path)


def test_the_place_of_a_syntax_error(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n  "a": 1,\n  "b": oops\n}')
    assert error_of(path) == f"{path}:3:8: is not JSON: Expecting value"


def test_what_published_files_do_hold(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for prefix in (b"", b"\xef\xbb\xbf"):  # a byte order mark
        extra = b'{"time_step_limit": [0.0, Infinity], "x": NaN, "rms": 1, "rms": 1, "model_max_length": '
        path.write_bytes(prefix + extra + b"1" * 30 + b", " + GOOD.encode()[1:])
        assert only(read_config(path)).count == 4


def test_size(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.seek(100 << 20)
        file.write(b"}")
    start = time.perf_counter()
    assert f"is larger than {MAX_BYTES >> 20} MiB" in error_of(path)
    assert time.perf_counter() - start < 2


def test_paths(tmp_path: Path) -> None:
    assert "cannot be read: No such file or directory" in error_of(tmp_path / "config.json")
    assert "cannot be read" in error_of(tmp_path)
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    assert "cannot be read: Too many levels of symbolic links" in error_of(loop)
    (tmp_path / "config.json").mkdir()
    assert "is not a regular file" in error_of(tmp_path) or "Is a directory" in error_of(tmp_path)
    assert "cannot be read" in error_of(Path("nul\0byte"))
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        read_config("x" * 5000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert "is not a regular file" in error_of(tmp_path / "pipe.json")
    assert "is not a regular file" in error_of(Path("/dev/zero"))


def test_layers_are_bounded_in_time() -> None:
    start = time.perf_counter()
    layers = 10_000
    heads: Json = [8 * (1 + i % 7) for i in range(layers)]
    config = read_config(llama(num_hidden_layers=layers, num_attention_heads=heads, head_dim=64))
    assert sum(kind.count for kind in config.layers) == layers
    assert time.perf_counter() - start < 10


def test_mappings_that_are_no_configuration() -> None:
    deep: Json = 1
    for _ in range(MAX_DEPTH + 1):
        deep = {"a": deep}
    assert isinstance(deep, dict)
    with pytest.raises(ConfigError, match="nested deeper"):
        read_config(deep)
    labels = {**llama(), "id2label": {0: "LABEL_0"}}  # as the library's own classes return it
    assert only(read_config(labels)).count == 4


# -- anything at all -----------------------------------------------------------------------------------------------

ODD: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, -1, 2, 3, 64, 65_536, 1 << 31, 10**40]),
    st.floats(allow_nan=True),
    st.text(max_size=6),
    st.sampled_from(
        ["full_attention", "sliding_attention", "mamba", "bfloat16", "auto", "", "llama", "FP8", "L", "M*"]
    ),
    st.lists(st.one_of(st.none(), st.integers(-2, 70_000), st.text(max_size=4), st.booleans()), max_size=5),
    st.dictionaries(st.text(max_size=4), st.integers(-2, 9), max_size=3),
)


def published() -> dict[str, dict[str, Json]]:
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(CONFIGS.glob("*/config.json"))}


PUBLISHED = published()
FIELDS = sorted(
    {name for config in PUBLISHED.values() for name in config} | {"no_rope_layers", "block_types", "encoder"}
)


def check(config: dict[str, Json], **arguments: int) -> ModelConfig | None:
    """Reads a configuration; what comes out is well formed, or the one error that is allowed."""
    try:
        result = read_config(config, **arguments)  # type: ignore[arg-type]
    except ConfigError as error:
        text = str(error)
        assert text
        assert text.isprintable()
        assert len(text) < 1200
        return None
    for kind in result.layers:
        assert kind.count == len(kind.indices)
        assert kind.origin.keys() == kind.request.keys()
        if kind.attention:
            for axis in ("head_size", "num_heads", "num_kv_heads"):
                value = kind.request[axis]
                assert type(value) is int
                assert 1 <= value <= 65_536
            assert isinstance(kind.request["dtype"], str)
        for value in kind.request.values():
            assert isinstance(value, (bool, int, str))
            assert not (isinstance(value, float) and math.isnan(value))
    return result


def paths(node: Json, prefix: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The place of every value in a configuration."""
    found = [prefix] if prefix else []
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        found += paths(child, (*prefix, key))
    return found


PLACES = {name: paths(config) for name, config in PUBLISHED.items()}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_published_configurations_with_odd_values(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(PUBLISHED)))
    config = copy.deepcopy(PUBLISHED[name])
    for path in data.draw(st.lists(st.sampled_from(PLACES[name]), min_size=1, max_size=4)):
        node: Json = config
        for step in path[:-1]:
            if isinstance(node, dict):
                node = node.get(str(step))
            elif isinstance(node, list) and isinstance(step, int) and step < len(node):
                node = node[step]
        if isinstance(node, dict):
            node[str(path[-1])] = data.draw(ODD)
        elif isinstance(node, list) and isinstance(path[-1], int) and path[-1] < len(node):
            node[path[-1]] = data.draw(ODD)
    check(config, tp=data.draw(st.sampled_from([1, 1, 2, 3, 8])))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=12),
    st.sampled_from(
        [
            "llama",
            "jamba",
            "gemma3_text",
            "deepseek_v3",
            "llama4_text",
            "t5",
            "x",
            "mpt",
            "bert",
            "kimi_linear",
        ]
    ),
)
def test_any_fields_of_any_architecture(changes: dict[str, Json], model_type: str) -> None:
    check({**llama(model_type=model_type), **changes})


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.text(max_size=8), st.recursive(ODD, lambda inner: st.lists(inner, max_size=3), max_leaves=8)
    )
)
def test_any_mapping(config: dict[str, Json]) -> None:
    check(config)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(PUBLISHED)), st.sampled_from([2, 4, 8, 16]))
def test_splitting_divides_heads_and_nothing_else(name: str, tp: int) -> None:
    whole = check(PUBLISHED[name])
    split = check(PUBLISHED[name], tp=tp)
    if whole is None or split is None:
        return
    for one, part in zip(whole.layers, split.layers, strict=True):
        if not one.attention:
            continue
        assert isinstance(one.request["num_heads"], int)
        if not part.notes or part.notes == one.notes:
            assert part.request["num_heads"] == one.request["num_heads"] // tp
        rest = {
            axis: value for axis, value in one.request.items() if axis not in ("num_heads", "num_kv_heads")
        }
        assert rest == {axis: part.request[axis] for axis in rest}


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from selector.model_config import read_config; "
        f"read_config({str(CONFIGS / 'gemma-3-27b')!r}); "
        "print([m for m in ('torch', 'numpy', 'transformers', 'jsonschema', 'packaging') if m in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
