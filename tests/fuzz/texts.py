"""Targets that read smaller texts: versions, constraints, model configurations, error texts of other projects."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from selector import Request
from selector.constraints import ConstraintError, parse_condition, parse_declared
from selector.error_text import read_error
from selector.model_config import read_config
from selector.model_config.errors import ConfigError
from selector.versions import contains, is_specifier, is_version
from tests.fuzz.common import DATA, core, vllm


def run_versions(data: bytes) -> None:
    """`SPECIFIER|VERSION`: what is a specifier answers about any text, and says what `packaging` says."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    specifier, _, version = data.decode("utf-8", "surrogateescape").partition("|")
    try:  # ValueError: also a number of more digits than Python converts
        Version(version)
        valid = True
    except ValueError:
        valid = False
    assert is_version(version) == valid
    try:
        wanted = SpecifierSet(specifier)
    except ValueError:
        assert not is_specifier(specifier)
    else:
        assert is_specifier(specifier)
        try:
            expected = wanted.contains(version, prereleases=True)
        except ValueError:
            expected = False
        assert contains(specifier, version) == expected
    _constraint("compute_capability", specifier, version)


def run_constraints(data: bytes) -> None:
    """`AXIS|JSON|JSON`: a constraint of any axis against any value."""
    name, _, rest = data.decode("utf-8", "surrogateescape").partition("|")
    raw, _, value = rest.partition("|")
    try:
        _constraint(name, json.loads(raw), json.loads(value) if value else None)
    except (json.JSONDecodeError, RecursionError):
        return
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise


def _constraint(name: str, raw: Any, value: Any) -> None:
    axis = core().vocabulary.find(name)
    if axis is None:
        return
    try:
        canonical = axis.canonical(value)
    except ValueError as error:
        assert str(error)
        canonical = None
    for parse in (parse_declared, parse_condition):
        try:
            constraint = parse(axis, raw)
        except ConstraintError as error:
            assert str(error)
            continue
        if canonical is not None:  # null is the caller's business
            assert constraint.holds(canonical) in (True, False)
        assert isinstance(constraint.describe(), str)
        hash(constraint)


def version_seeds() -> list[bytes]:
    specifiers = [
        ">=2.4",
        ">=2.4,<3",
        "==9.*",
        "~=2.4.1",
        "!=9.12",
        "===1.0",
        ">1!2",
        "",
        "<2.8.0.dev0",
        "==2.4.0+cu121",
    ]
    versions = [
        "2.13.0+cpu",
        "9.0",
        "10",
        "2.8.0a0+git123",
        "1!2.0",
        "2.4.0.post1",
        "9.0.dev3",
        "v1",
        "2.8.3-1",
    ]
    return [f"{s}|{v}".encode() for s in specifiers for v in versions]


def constraint_seeds() -> list[bytes]:
    found = []
    for axis in core().vocabulary.axes:
        for raw in ("true", "128", '">=9.0"', '["a", "b"]', '{"min": 1, "max": 256, "multiple_of": 8}',
                    '{"in": [1, 2], "required": true}', '{"not_in": ["auto"]}', '{"tagged": "causal"}',
                    '{"given": true}', '{"torch": ">=2.4", "x": "absent"}', "[[1, 2], [3, 4]]"):  # fmt: skip
            found.append(f"{axis.name}|{raw}|8".encode())
    return found


@cache
def _place() -> Path:
    shared = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="attention-selector-fuzz-", dir=shared if shared.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder) / f"config-{os.getpid()}.json"


def run_config(data: bytes) -> None:
    """A `config.json`; what comes out are requests that the vocabulary takes."""
    path = _place()
    path.write_bytes(data)
    try:
        config = read_config(path)
    except ConfigError as error:
        text = str(error)
        assert text.isprintable()
        assert len(text) < 1200
        return
    for kind in config.layers:
        if kind.attention:
            Request(dict(kind.request), vocabulary=core().vocabulary)


def config_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((DATA / "configs").glob("*/config.json"))]


def run_error_text(data: bytes) -> None:
    """A log in which an error of another project may stand."""
    catalog = vllm()
    form = next(p.error for p in catalog.packs if p.error is not None)
    reading = read_error(
        data.decode("utf-8", "replace"),
        form,
        catalog.vocabulary,
        {m.name.lower(): m.name for m in catalog.manifests},
    )
    catalog.request(reading.fields)


def error_seeds() -> list[bytes]:
    text = (
        "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. Reason: "
        "['sink setting not supported', 'kv_cache_dtype not supported']\n"
        "No valid attention backend found for cuda with AttentionSelectorConfig(head_size=64, dtype=torch.bfloat16, "
        "kv_cache_dtype='fp8', block_size=16, use_mla=False, has_sink=True, use_sparse=False, attn_type=decoder). "
        "Reasons: {FLASH_ATTN: [sink setting not supported], TRITON_ATTN: [kv_cache_dtype not supported]}.\n"
    )
    wrapped = "\n".join(
        f"\x1b[0;36m(EngineCore pid=1)\x1b[0;0m {text[i : i + 60]}" for i in range(0, len(text), 60)
    )
    return [text.encode(), wrapped.encode(), json.dumps({"log": text}).encode(), text[:260].encode()]
