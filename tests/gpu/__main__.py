"""`python -m tests.gpu`: every check that needs a GPU, in under five minutes, and a report of what they showed.

1. the machine; 2. `verify`: what the manifests declare, run here for a bounded time; 3. the tests of this folder.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

from tests.gpu import VARIABLE

#: Seconds for everything, and for `verify` of them; the tests get the rest, most of it FlexAttention's compiler.
WHOLE, SECONDS = 290.0, 110.0

PACKAGES = (
    "torch", "triton", "flash-attn", "flash-attn-3", "flash-attn-4", "flashinfer-python", "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13", "nvidia-cutlass-dsl",
)  # fmt: skip


def facts(device: str) -> list[str]:
    """The machine and its packages."""
    import torch

    found = [f"python {platform.python_version()} on {platform.machine()}"]
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        capability = ".".join(str(n) for n in torch.cuda.get_device_capability(0))
        memory = properties.total_memory / 2**30
        found.append(f"{properties.name}, capability {capability}, {memory:.0f} GiB")
        cudnn: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found.append(f"CUDA {torch.version.cuda}, cuDNN {cudnn}")
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def names(device: str) -> list[str]:
    """Options of `verify`: this device, and only what it can run."""
    from backends.verify.machines import standing
    from selector.catalog import Catalog
    from selector.environment import Environment

    catalog, machine = Catalog.load("core"), Environment.probe()
    apart = device == "cpu" and machine.get("device") != "cpu"
    found = standing(catalog, machine.replace(device="cpu") if apart else machine)
    usable = ",".join(ident for ident, against in found.items() if not against)
    return ["--backend", usable, *(["--device", "cpu"] if apart else [])]


def section(lines: list[str], title: str, command: list[str], environ: dict[str, str], seconds: float) -> int:
    """Run one part in a process of its own, show what it prints, and put the end of that into the report."""
    shown: list[str] = []
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environ, errors="replace"
    ) as process:
        assert process.stdout is not None
        ended = threading.Timer(seconds, process.kill)
        ended.start()
        for line in process.stdout:
            print(line, end="", flush=True)
            shown.append(line.rstrip())
        if not ended.is_alive():
            shown.append(f"stopped after {seconds:.0f} seconds")
        ended.cancel()
    lines += [f"## {title}", "", f"exit code {process.returncode}", "", "```", *shown[-80:], "```", ""]
    return process.returncode


def main() -> int:
    """Run everything; the exit code is 0 if all of it held."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu: only to try the script itself")
    parser.add_argument("--report", type=Path, default=Path("gpu-report.md"), help="where the report goes")
    parser.add_argument("--time", type=float, default=SECONDS, help="seconds for verify")
    arguments = parser.parse_args()
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here", file=sys.stderr)
        return 3
    began = time.monotonic()
    environ = {**os.environ, VARIABLE: arguments.device}
    lines = ["# GPU report", "", *(f"- {fact}" for fact in facts(arguments.device)), ""]
    print("\n".join(lines), flush=True)
    walk = [
        "-m",
        "selector.cli",
        "verify",
        "--quick",
        "--time",
        str(arguments.time),
        *names(arguments.device),
    ]
    verified = section(lines, "verify", walk, environ, arguments.time + 60.0)
    folder = str(Path(__file__).parent)
    tests = ["-m", "pytest", "-q", "-rfE", "--color=no", "-p", "no:cacheprovider", folder]
    left = max(WHOLE - (time.monotonic() - began), 60.0) if arguments.device == "cuda" else 3600.0
    passed = section(lines, "tests/gpu", tests, environ, left)
    lines.append(f"{time.monotonic() - began:.0f} seconds in all.")
    arguments.report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"\n{lines[-1]} Report: {arguments.report}")
    return 0 if verified == 0 and passed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
