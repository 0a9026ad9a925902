"""Fresh rows from an installed vLLM, in the format of the recorded ones.

    PYTHON -m tests.parity.vllm_draw --out FILE.jsonl.gz [--rows N] [--seed S] [--platform cuda ...]
    PYTHON -m tests.parity.vllm_draw --replay FILE.jsonl.gz [--limit N]

PYTHON is the interpreter of an environment with vLLM in it (the wheel for CPUs will do; nothing runs on a device). The
first form draws requests and machines and writes what vLLM decides, to be compared with `python -m tests.parity vllm
FILE.jsonl.gz`: the rows that differ are what has changed between the version the pack describes and the one installed.
The second form decides recorded rows again and prints those that come out otherwise.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

Row: TypeAlias = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[2]
PLATFORMS: Final = ("cuda", "rocm", "xpu", "cpu")
CAPABILITIES: Final = (
    "7.0",
    "7.5",
    "8.0",
    "8.6",
    "8.7",
    "8.9",
    "9.0",
    "10.0",
    "10.3",
    "11.0",
    "12.0",
    "12.1",
)
ARCHITECTURES: Final = {
    "gfx90a": "9.0",
    "gfx942": "9.4",
    "gfx950": "9.5",
    "gfx1100": "11.0",
    "gfx1151": "11.5",
    "gfx1200": "12.0",
    "gfx1201": "12.0",
}
WHEEL: Final = ("fa2", "fa3", "fa4", "flashmla", "cutlass")
EXTRA: Final = ("flashinfer", "flashinfer-cubin", "tokenspeed_mla", "hpc")
INSTALLED: Final = (
    WHEEL + EXTRA,
    WHEEL,
    ("cutlass",),
    (*WHEEL, "tokenspeed_mla"),
    ("fa2", *EXTRA, "cutlass"),
    ("fa2", "fa3", "flashmla", "cutlass", "flashinfer", "flashinfer-cubin"),
)
KV_CACHE_DTYPES: Final = (
    *("auto",) * 8,
    *("fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float16") * 2,
    None,
    "fp8_inc",
    "fp8_ds_mla",
    "nvfp4_ds_mla",
    "nvfp4",
    "nvfp4_4over6",
    "turboquant_k8v4",
    "turboquant_4bit_nc",
    "turboquant_k3v4_nc",
    "turboquant_3bit_nc",
    "ultraquant_4bit",
    "int4_per_token_head",
    "int8_per_token_head",
    "fp8_per_token_head",
)
HEADS: Final = (
    128,
    128,
    64,
    64,
    256,
    256,
    512,
    72,
    80,
    96,
    112,
    160,
    192,
    32,
    24,
    40,
    100,
    260,
    288,
    384,
    520,
)
MLA_HEADS: Final = (576, 576, 576, 576, 512, 512, 320, 128)
BLOCKS: Final = (None, None, None, None, 16, 32, 48, 64, 128, 256, 1)
ATTN_TYPES: Final = (*("decoder",) * 8, "encoder", "encoder_only", "encoder_decoder")
FLAGS: Final = (
    "has_sink",
    "use_mm_prefix",
    "use_per_head_quant_scales",
    "has_sliding_window",
    "use_non_causal",
    "use_batch_invariant",
    "use_kv_connector",
    "use_pcp",
    "use_adaptive_verification",
    "use_dcp",
    "use_rswa",
)
MODELS: Final = (
    {"num_heads": 32, "num_kv_heads": 8},
    {"num_heads": 16, "num_kv_heads": 8, "softcap": True},
    {"num_heads": 32, "num_kv_heads": 32},
    {"num_heads": 30, "num_kv_heads": 4},
    {"num_heads": 32, "num_kv_heads": 8, "is_diffusion": True},
    {"num_heads": 16, "num_kv_heads": 16, "is_encoder_decoder": True},
)


def _mla(heads: int, rank: int, nope: int, rope: int, value: int, topk: int | None) -> Row:
    fields = {
        "num_heads": heads,
        "num_kv_heads": 1,
        "kv_lora_rank": rank,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": value,
    }
    return fields if topk is None else {**fields, "index_topk": topk}


MLA_MODELS: Final = (
    _mla(128, 512, 128, 64, 128, None),
    _mla(40, 256, 96, 32, 96, None),
    _mla(128, 512, 128, 64, 128, 2048),
    _mla(64, 512, 256, 0, 256, 2048),
    _mla(64, 512, 192, 64, 128, 512),
    _mla(64, 512, 64, 64, 128, None),
    _mla(64, 256, 128, 0, 128, 2048),
)


def draw_request(rng: random.Random) -> Row:
    """A request with few of its flags set, so that a good part of the requests is valid somewhere."""
    mla = rng.random() < 0.4
    likely = rng.choice((0.0, 0.05, 0.1, 0.2))
    request: Row = {
        "head_size": rng.choice(MLA_HEADS if mla else HEADS),
        "dtype": rng.choice(("bfloat16", "bfloat16", "bfloat16", "float16", "float32")),
        "kv_cache_dtype": rng.choice(KV_CACHE_DTYPES),
        "block_size": rng.choice(BLOCKS),
        "use_mla": mla,
        "use_sparse": rng.random() < (0.4 if mla else 0.03),
        "attn_type": rng.choice(ATTN_TYPES) if rng.random() < 0.6 else "decoder",
    }
    return {**request, **{flag: rng.random() < likely for flag in FLAGS}}


def suited(request: Row, name: str, rng: random.Random) -> Row:
    """The request moved towards what a backend of this name is likely to take."""
    suited: Row = {"use_mla": "MLA" in name or "DSV4" in name, "attn_type": "decoder", "dtype": "bfloat16"}
    suited["use_sparse"] = any(part in name for part in ("SPARSE", "DSV4", "MSA"))
    if not suited["use_mla"]:
        suited["head_size"] = rng.choice((64, 128, 256))
    else:
        suited["head_size"] = 512 if "DSV4" in name else rng.choice((576, 512))
    if "QUANT" in name:
        suited["kv_cache_dtype"] = "ultraquant_4bit" if "ULTRA" in name else "turboquant_k8v4"
    elif rng.random() < 0.5:
        suited["kv_cache_dtype"] = rng.choice(("auto", "bfloat16", "fp8", "fp8_e4m3"))
    return {**request, **suited}


def draw_row(
    platform: str, installed: Sequence[str], arch: str, rng: random.Random, names: Sequence[str]
) -> Row:
    """A row without its decision. Half of them ask for a backend by name, from `names`."""
    request = draw_request(rng)
    env: Row = {"platform": platform, "num_heads": rng.choice((None, 8, 16, 32, 64, 128))}
    model = None
    if platform == "cuda":
        env.update(
            capability=rng.choice(CAPABILITIES),
            installed=list(installed),
            flash_attn_version_override=rng.choice((None,) * 9 + (2, 3, 4)),
            use_trtllm_attention=rng.choice((None,) * 8 + (True, False)),
        )
        if rng.random() < 0.6:
            model = rng.choice(MLA_MODELS if request["use_mla"] else MODELS)
    elif platform == "rocm":
        env.update(capability=ARCHITECTURES[arch], gcn_arch=arch, aiter=rng.choice(("none", "off", "on")))
    elif platform == "cpu":
        machine = rng.choice(("x86", "arm"))
        env.update(arch=machine, amx=machine == "x86" and rng.random() < 0.5)
    explicit = rng.choice(names) if names and rng.random() < 0.5 else None
    if explicit and rng.random() < 0.7:
        request = suited(request, explicit, rng)
        model = None
    return {"env": env, "model": model, "request": request, "explicit": explicit}


def machines(platform: str) -> list[tuple[Sequence[str], str]]:
    """The sets of packages and the architectures to draw from; each is a process."""
    if platform == "cuda":
        return [(installed, "") for installed in INSTALLED]
    if platform == "rocm":
        return [(("aiter",), arch) for arch in ARCHITECTURES]
    return [((), "")]


def decided(platform: str, installed: Sequence[str], arch: str, rows: Sequence[Row]) -> list[Row]:
    """The rows with the decisions of the installed vLLM. CalledProcessError where it could not be started."""
    task = {"platform": platform, "installed": list(installed), "arch": arch, "rows": list(rows)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.parity.vllm_decide"],
        input=json.dumps(task),
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
        text=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def backend_names() -> list[str]:
    """The names of the backends that the pack describes."""
    found = (ROOT / "manifests" / "vllm").glob("*.yaml")
    lines = (line for path in sorted(found) for line in path.read_text(encoding="utf-8").splitlines())
    return [
        line.removeprefix("name: ") for line in lines if line.startswith("name: ") and line != "name: vllm"
    ]


def draw(platforms: Sequence[str], count: int, seed: int) -> Iterator[Row]:
    """`count` decided rows of each platform."""
    names = backend_names()
    for platform in platforms:
        places = machines(platform)
        for number, (installed, arch) in enumerate(places):
            rng = random.Random(f"{seed} {platform} {number}")
            rows = [draw_row(platform, installed, arch, rng, names) for _ in range(count // len(places) + 1)]
            yield from decided(platform, installed, arch, rows)


def replay(rows: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """The recorded rows that come out otherwise, each with the new one."""
    groups: dict[tuple[str, tuple[str, ...], str], list[Row]] = {}
    for row in rows:
        env = row["env"]
        installed = tuple(env["installed"]) if env["platform"] == "cuda" else ()
        if env["platform"] == "rocm":
            installed = ("aiter",)
        groups.setdefault((env["platform"], installed, env.get("gcn_arch", "")), []).append(row)
    for (platform, installed, arch), group in groups.items():
        for old, new in zip(group, decided(platform, installed, arch, group), strict=True):
            if any(old.get(field) != new.get(field) for field in ("winner", "valid", "order")):
                yield old, new


def read(path: Path, limit: int | None) -> list[Row]:
    """The rows of a compressed file."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream][:limit]


def main(argv: Sequence[str] | None = None) -> int:
    """Draw or replay."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.parity.vllm_draw", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=Path, help="where to write the drawn rows")
    parser.add_argument("--rows", type=int, default=2000, help="how many of each platform")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--platform", choices=PLATFORMS, nargs="+", default=PLATFORMS)
    parser.add_argument("--replay", type=Path, help="recorded rows to decide again")
    parser.add_argument("--limit", type=int, help="how many of them")
    options = parser.parse_args(argv)
    if options.replay:
        rows = read(options.replay, options.limit)
        changed = list(replay(rows))
        for old, new in changed:
            print(json.dumps({"recorded": old, "now": new}, sort_keys=True))
        print(f"{len(rows) - len(changed)} of {len(rows)} rows come out the same", file=sys.stderr)
        return 1 if changed else 0
    if not options.out:
        parser.error("give --out or --replay")
    count, raised = 0, 0
    with gzip.open(options.out, "wt", encoding="utf-8") as stream:
        for row in draw(options.platform, options.rows, options.seed):
            if "raised" in row:
                raised += 1
                print(json.dumps(row, sort_keys=True), file=sys.stderr)
                continue
            count += 1
            print(json.dumps(row, sort_keys=True), file=stream)
    print(f"{count} rows in {options.out}; {raised} ended in an exception (above)", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
