"""What is fuzzed: every reader of something that other people write, each with the contract that it must keep.

A target takes bytes and returns, whatever they are; what it raises is a finding. Errors of the package's own classes are part
of the contract and are looked at here: their text is one screen and can be printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from selector import Catalog, Environment, Request, explain
from selector.cli.app import run
from selector.cli.batch import _Answerer
from selector.cli.lint_files import _faults
from selector.cli.options import request_of
from selector.constraints import ConstraintError, parse_condition, parse_declared
from selector.error_text import read_error
from selector.errors import ManifestError, SelectorError
from selector.loader import Loader
from selector.locations import manifests_root
from selector.model_config import read_config
from selector.model_config.errors import ConfigError
from selector.versions import contains, is_specifier, is_version
from selector.vocabulary import Vocabulary
from selector.yaml_loader import load_text
from tests.fuzz.mutate import Mutator

__all__ = ["LIMIT", "TARGETS", "Slow", "Target", "check"]

#: Seconds of processor time that one input may take.
LIMIT = 1.0

ROOT = manifests_root()
DATA = Path(__file__).resolve().parents[1] / "data"
REQUEST = {"head_size": 64, "dtype": "bf16"}


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


def check(target: Target, data: bytes) -> float:
    """Run one input and return its seconds. Raises what the target raised, or Slow."""
    began = time.thread_time()
    target.run(data)
    spent = time.thread_time() - began
    if spent > LIMIT:
        raise Slow(f"{spent:.2f} s of processor time")
    return spent


def _sound(error: BaseException) -> None:
    """What holds of the text of every error."""
    text = str(error)
    text.encode("utf-8")
    assert text.strip()
    assert "Traceback" not in text
    if isinstance(error, ManifestError):
        assert error.faults
        assert all(f.at.line >= 1 and f.at.column >= 1 for f in error.faults)
        assert len(text) < 100_000


@cache
def _core() -> Catalog:
    return Catalog.load("core")


@cache
def _vllm() -> Catalog:
    return Catalog.load("vllm")


@cache
def _h100() -> Environment:
    return Environment.preset("h100")


def _words() -> list[str]:
    """The names of axes and of their values."""
    found: dict[str, None] = {}
    for axis in _vllm().vocabulary.axes:
        found.update(dict.fromkeys((axis.name, *axis.aliases)))
        if axis.type == "choice":
            found.update(dict.fromkeys(map(str, axis.spellings())))
    return [w for w in found if w]


def _none() -> list[str]:
    return []


def _yaml(data: bytes) -> Any:
    return load_text(data, "seed.yaml").data


def _files(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(Path(ROOT).glob(pattern))]


# -- files ------------------------------------------------------------------------------------------------------------


def run_yaml(data: bytes) -> None:
    """Any text is read, or refused with places in it."""
    try:
        document = load_text(data, "f.yaml")
    except ManifestError as error:
        _sound(error)
    else:
        json.dumps(document.data, allow_nan=False)


STUB = """
manifest: 1
name: {name}
title: {name}
requires: {{device: any}}
supports: {{dtype: any, head_size: any}}
"""
PACK = b"pack: 1\nname: p\ntitle: P\nversion: x\nunlisted: last\npolicy: []\n"
FOLDER = os.path.join(ROOT, "p")


@cache
def _base() -> bytes:
    return Path(ROOT, "vocabulary.yaml").read_bytes()


@cache
def _schemas() -> Any:
    loader = Loader(
        ROOT, _pack({"pack.yaml": PACK, "a.yaml": STUB.format(name="a").encode()}), folders=[FOLDER]
    )
    loader.load(("p",))
    return loader.schemas


def _pack(files: dict[str, bytes]) -> dict[str, bytes]:
    return {
        os.path.join(ROOT, "vocabulary.yaml"): _base(),
        **{os.path.join(FOLDER, n): d for n, d in files.items()},
    }


def _load(files: dict[str, bytes], *, own_words: bool = False) -> None:
    """Load a pack of these files and, where that is possible, decide and explain with it."""
    loader = Loader(ROOT, _pack(files), folders=[FOLDER])
    if not own_words:
        loader.schemas = _schemas()
    try:
        catalog = loader.load(("p",))
    except ManifestError as error:
        _sound(error)
        return
    try:
        report = explain(REQUEST, catalog=catalog, environment=_h100())
    except SelectorError as error:
        _sound(error)
        return
    report.to_text(verbose=True)
    json.dumps(report.to_dict(), allow_nan=False)


def run_manifest(data: bytes) -> None:
    """A manifest in a pack of its own."""
    _load({"pack.yaml": PACK, "m.yaml": data})


@cache
def _stubs() -> dict[str, bytes]:
    return {f"{m.name}.yaml": STUB.format(name=m.name).encode() for m in _vllm().manifests}


def run_pack(data: bytes) -> None:
    """A pack's policy, with manifests of the names that it uses."""
    _load({"pack.yaml": data, **_stubs()})


def run_vocabulary(data: bytes) -> None:
    """A vocabulary alone."""
    try:
        vocabulary = Loader(ROOT, {os.path.join(ROOT, "vocabulary.yaml"): data}).base()
    except ManifestError as error:
        _sound(error)
        return
    try:
        Request(REQUEST, vocabulary=vocabulary)
    except SelectorError as error:
        _sound(error)


def _some_axes() -> list[bytes]:
    """The shipped vocabularies cut into pieces: an axis and all that it is made from."""
    found: dict[bytes, None] = {}
    for path in sorted(Path(ROOT).glob("**/vocabulary.yaml")):
        axes: Any = {**_yaml(_base())["axes"], **_yaml(path.read_bytes())["axes"]}
        vocabulary = Vocabulary({"vocabulary": 1, "axes": {k: v for k, v in axes.items() if "type" in v}})
        for axis in vocabulary.axes:
            wanted, pending = {axis.index}, [axis.index]
            while pending:
                fresh = [i for i in vocabulary.depends[pending.pop()] if i not in wanted]
                wanted.update(fresh)
                pending.extend(fresh)
            if len(wanted) <= 12:
                part = {vocabulary.axes[i].name: axes[vocabulary.axes[i].name] for i in sorted(wanted)}
                found[json.dumps({"vocabulary": 1, "axes": part}).encode()] = None
    return list(found)


def run_file(data: bytes) -> None:
    """Any file that `lint` knows, judged by itself: environments, software, fleets, invariants, packs, manifests."""
    try:
        document = load_text(data, "f.yaml")
        faults = _faults(document, os.path.join(ROOT, "f.yaml"), _core().vocabulary, ROOT)
    except SelectorError as error:
        _sound(error)
        return
    if faults:
        _sound(ManifestError(faults))


# -- requests ---------------------------------------------------------------------------------------------------------


def _explained(request: Request) -> None:
    try:
        report = explain(request, environment=_h100(), catalog=_core())
    except SelectorError as error:
        _sound(error)
        return
    report.to_text()


def run_words(data: bytes) -> None:
    """`AXIS=VALUE` words, one a line."""
    words = [word for word in data.decode("utf-8", "surrogateescape").split("\n") if word]
    try:
        request = request_of(words, _core().vocabulary)
    except SelectorError as error:
        assert str(error)
        return
    _explained(request)


def run_command(data: bytes) -> None:
    """The whole command with any arguments, one a line. Nothing is written: options that write are left out."""
    words = [w for w in data.decode("utf-8", "surrogateescape").split("\n") if "\0" not in w]
    words = [w for w in words if not w.startswith(("--h", "--sa", "--se", "--w"))]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    kept = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(), "utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(["explain", "--on", "h100", *words])
    finally:
        sys.stdin = kept
    err.flush()
    said = err.buffer.getvalue().decode()
    assert code in (0, 2, 3), (code, said)
    assert "Traceback" not in said
    assert "unexpected" not in said
    assert len(said.splitlines()) <= 60, said


@cache
def _answerer() -> _Answerer:
    return _Answerer(_core(), _h100(), (), strict=False, reasons=True)


def run_lines(data: bytes) -> None:
    """One line of `explain --requests`."""
    try:
        answer = _answerer().answer(data)
    except (SelectorError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        assert str(error)
    except ValueError as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        own = where is not None and where.tb_frame.f_code.co_filename.endswith("batch.py")
        digits = "integer string conversion" in str(error)  # Python's own limit, said in its own words
        if not own and not digits:
            raise
    else:
        assert answer.endswith("\n")
        json.loads(answer)
        answer.encode("utf-8", "surrogatepass")


def _request_lines() -> list[bytes]:
    common = {"head_size": 128, "dtype": "bf16", "num_heads": 32, "num_kv_heads": 8}
    lines: list[dict[str, Any]] = [
        {"request": common},
        {"request": {**common, "kv_cache_dtype": "fp8", "per_head_scales": True}, "environment": "h100"},
        {
            "request": {**common, "mla": True, "head_size": 576},
            "environment": "b200",
            "backend": "flashinfer",
        },
        {
            "request": {**common, "sinks": True},
            "avoid": ["flash_attn"],
            "prefer": "flashinfer",
            "strict": True,
        },
        {"request": common, "environment": {"device": "cuda", "compute_capability": "9.0", "packages": {}}},
        {
            "request": common,
            "environment": {
                "name": "x",
                "facts": {
                    "device": "cuda",
                    "packages": {"torch": "2.13.0", "flash-attn": {"version": None, "state": "unknown"}},
                },
            },
        },
    ]
    return [json.dumps(line).encode() for line in lines]


def _words_seeds() -> list[bytes]:
    return [
        b"head_size=128\ndtype=bf16\nkv_cache_dtype=fp8\nper_head_scales",
        b"head_size=576\nmla\nnum_heads=128\nnum_kv_heads=1",
        b"head_dim=64\ndtype=torch.float32\ncausal\nsinks=true\nalibi=no\nwindow=128",
        b"dtype=half\nmask=padding_causal\nblock_size=16\nsoft_cap",
        *(f"{axis.name}={axis.allowed()}"[:80].encode() for axis in _core().vocabulary.axes),
    ]


def _command_seeds() -> list[bytes]:
    head = b"head_size=128\ndtype=bf16\n"
    return [
        head + b"--json",
        head + b"--backend\nflashinfer\n--strict",
        head + b"--avoid\nflash_attn\n--prefer\ntorch_sdpa,flex_attention\n-v",
        head + b"--env\ncompute_capability=8.0\n--env\npackages.flash-attn=2.8.3",
        head + b"--with\nflash-attn==2.8.3\n--without\nflashinfer-python\n--profile\nbare",
        head + b"--why-not\nflash_attn/fa2",
        head + b"--pack\ntransformer_engine\n--on\ncpu",
        head + b"--requests\n-",
        head + b"--from-error\n-",
    ]


# -- versions ---------------------------------------------------------------------------------------------------------


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
    axis = _core().vocabulary.find(name)
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


def _version_seeds() -> list[bytes]:
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


def _constraint_seeds() -> list[bytes]:
    found = []
    for axis in _core().vocabulary.axes:
        for raw in ("true", "128", '">=9.0"', '["a", "b"]', '{"min": 1, "max": 256, "multiple_of": 8}',
                    '{"in": [1, 2], "required": true}', '{"not_in": ["auto"]}', '{"tagged": "causal"}',
                    '{"given": true}', '{"torch": ">=2.4", "x": "absent"}', "[[1, 2], [3, 4]]"):  # fmt: skip
            found.append(f"{axis.name}|{raw}|8".encode())
    return found


# -- model configurations and error texts ---------------------------------------------------------------------------------


@cache
def _place() -> Path:
    shared = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="attention-selector-fuzz-", dir=shared if shared.is_dir() else None)
    import atexit
    import shutil

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
            Request(dict(kind.request), vocabulary=_core().vocabulary)


def _config_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((DATA / "configs").glob("*/config.json"))]


def run_error_text(data: bytes) -> None:
    """A log in which an error of another project may stand."""
    catalog = _vllm()
    form = next(p.error for p in catalog.packs if p.error is not None)
    reading = read_error(
        data.decode("utf-8", "replace"),
        form,
        catalog.vocabulary,
        {m.name.lower(): m.name for m in catalog.manifests},
    )
    catalog.request(reading.fields)


def _error_seeds() -> list[bytes]:
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


TARGETS = {
    target.name: target
    for target in (
        Target("yaml", run_yaml, lambda: _files("core/*.yaml", "*.yaml"), _yaml, _words),
        Target("manifest", run_manifest, lambda: _files("core/[!p]*.yaml", "vllm/[!pv]*.yaml"), _yaml, _words),
        Target("pack", run_pack, lambda: _files("*/pack.yaml"), _yaml, _words),
        Target("vocabulary", run_vocabulary, _some_axes, json.loads, _words),
        Target("file", run_file, lambda: _files("environments/*.yaml", "*.yaml", "core/*.yaml"), _yaml, _words),
        Target("words", run_words, _words_seeds, None, _words),
        Target("command", run_command, _command_seeds, None, _words),
        Target("lines", run_lines, _request_lines, json.loads, _words),
        Target("versions", run_versions, _version_seeds, None, _none),
        Target("constraints", run_constraints, _constraint_seeds, None, _words),
        Target("config", run_config, _config_seeds, json.loads, _none),
        Target("error_text", run_error_text, _error_seeds, None, _words),
    )
}  # fmt: skip
