"""The machine that a run was measured on, in words."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.bench.harness import ROOT

__all__ = ["described"]


def described() -> dict[str, str]:
    """What the figures depend on."""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        **{name: _version(name) for name in ("torch", "transformers", "diffusers")},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "priority": f"nice {os.nice(0)}" if hasattr(os, "nice") else "unknown",
        "load at the start": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    known = {key.strip(): value.strip() for key, value in fields.items()}
    name = known.get("model name", platform.machine())
    numbers = [
        f"{word} {known[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in known
    ]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    try:
        changed = git("status", "--porcelain", "--", "selector", "backends", "manifests").strip()
        return git("rev-parse", "--short", "HEAD").strip() + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
