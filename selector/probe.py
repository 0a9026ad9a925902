"""Looking at this machine: the device, its library versions, and which distributions are installed.

Nothing is imported but the standard library: devices are found through the drivers' own interfaces (NVML through ctypes,
kernel files), packages through their metadata. Which packages are looked up is data (`manifests/software.yaml`).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from selector.vocabulary import Packages, PackageState

if TYPE_CHECKING:
    from selector.environment import Environment

__all__ = ["probe"]


#: What the driver makes on Linux: the control device, that of WSL, those of Jetson boards.
_NVIDIA_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-gpu", "/proc/driver/nvidia")


def _machine() -> str:
    """The processor's architecture, as `platform.machine` says it."""
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()


def probe(root: str | None = None) -> Environment:
    """The environment of this machine. Facts that cannot be found out are left unknown."""
    from selector.environment import Environment

    facts: dict[str, Any] = {"cpu_arch": _machine() or None}
    facts.update(_amx())
    facts.update(_nvidia() or _amd() or _intel() or _apple() or {"device": "cpu"})
    facts = {k: v for k, v in facts.items() if v is not None}
    facts["packages"] = Packages(_packages(root))
    return Environment(facts, name="this machine", title=_title(facts), origin="probed", live=True)


def _title(facts: dict[str, Any]) -> str:
    name = facts.get("device_name") or facts.get("cpu_arch", "")
    return f"this machine ({facts['device']}{', ' + name if name else ''})"


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return None


def _amx() -> dict[str, Any]:
    """AMX tiles, from the kernel's list of CPU flags (Linux on x86 only; elsewhere there are none)."""
    if _machine().lower() not in ("x86_64", "amd64"):
        return {"amx": False}
    text = _read("/proc/cpuinfo")
    if text is None:
        return {}
    flags = next(
        (line.split(":", 1)[1].split() for line in text.splitlines() if line.startswith("flags")), []
    )
    return {"amx": "amx_tile" in flags}


def _nvidia() -> dict[str, Any] | None:
    """The first visible NVIDIA GPU, through the driver's management library (NVML)."""
    # ctypes costs milliseconds: not where no driver has left a device
    if sys.platform == "linux" and not any(map(os.path.exists, _NVIDIA_DEVICES)):
        return None
    import ctypes

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1" if sys.platform != "win32" else "nvml.dll")
        if nvml.nvmlInit_v2() != 0:
            return None
    except (OSError, AttributeError):
        return None
    try:
        handle = ctypes.c_void_p()
        index = _first_visible()
        if (
            index is None
            or nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0
        ):
            return None
        major, minor = ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(96)
        driver = ctypes.c_int()
        found: dict[str, Any] = {"device": "cuda"}
        if nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) == 0:
            found["compute_capability"] = f"{major.value}.{minor.value}"
        if nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(96)) == 0:
            found["device_name"] = name.value.decode(errors="replace")
        if nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(driver)) == 0 and driver.value > 0:
            found["cuda_version"] = f"{driver.value // 1000}.{driver.value % 1000 // 10}"
        return found
    except AttributeError:
        return None
    finally:
        nvml.nvmlShutdown()


def _first_visible() -> int | None:
    """The first index of `CUDA_VISIBLE_DEVICES`; None if it hides every GPU."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return 0
    first = listed.split(",")[0].strip()
    if first in ("", "-1"):
        return None
    return int(first) if first.isdigit() else 0


def _amd() -> dict[str, Any] | None:
    """The first AMD GPU that the kernel's compute driver lists."""
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    try:
        names = sorted(os.listdir(nodes), key=lambda n: int(n) if n.isdigit() else 1 << 30)
    except OSError:
        return None
    for node in names:
        text = _read(os.path.join(nodes, node, "properties")) or ""
        properties = dict(line.split(None, 1) for line in text.splitlines() if " " in line)
        version = properties.get("gfx_target_version", "0").strip()
        if version.isdigit() and int(version) > 0:
            number = int(version)
            major, minor, step = number // 10000, number // 100 % 100, number % 100
            found = {
                "device": "rocm",
                "gcn_arch": f"gfx{major}{minor:x}{step:x}",
                "compute_capability": f"{major}.{minor}",
            }
            release = _read("/opt/rocm/.info/version")
            if release:
                found["rocm_version"] = release.strip().split("-")[0]
            return found
    return None


def _intel() -> dict[str, Any] | None:
    """An Intel GPU with the xe or i915 driver that is no integrated one."""
    base = "/sys/class/drm"
    try:
        cards = sorted(n for n in os.listdir(base) if n.startswith("card") and n[4:].isdigit())
    except OSError:
        return None
    for card in cards:
        vendor = (_read(os.path.join(base, card, "device", "vendor")) or "").strip()
        kind = (_read(os.path.join(base, card, "device", "class")) or "").strip()
        # 0x0380..: a display controller without a screen, as data-centre GPUs report themselves.
        if vendor == "0x8086" and kind.startswith("0x0380"):
            return {"device": "xpu"}
    return None


def _apple() -> dict[str, Any] | None:
    if sys.platform == "darwin" and _machine() == "arm64":
        return {"device": "mps"}
    return None


def _packages(root: str | None) -> dict[str, PackageState]:
    """State of every distribution that `software.yaml` names, by its metadata alone."""
    from selector.environment import _load, _root

    software: Any = _load(os.path.join(_root(root), "software.yaml")).data
    packages: Any = software.get("packages") if isinstance(software, dict) else None
    names = list(packages) if isinstance(packages, dict) else []
    from selector.distributions import installed

    plain = installed(names) or {}
    found: dict[str, PackageState] = {}
    for name in names:
        if name not in plain:
            found[name] = _state(name)
        else:
            version = plain[name]
            found[name] = PackageState(None, "missing") if version is None else PackageState(version)
    return found


def _state(name: str) -> PackageState:
    """One distribution's state. What an interrupted installation left behind does not hide what is really there."""
    from importlib import metadata

    problem = None
    try:
        for distribution in metadata.distributions(name=name):
            try:
                # A lack of the field is None, whatever the annotation says.
                version: object = distribution.version
            except (
                Exception
            ) as error:  # broken metadata of a foreign distribution is a state, not our failure
                problem = problem or (str(error).splitlines() or [type(error).__name__])[0]
                continue
            if isinstance(version, str) and version.strip():
                return PackageState(version.strip())
            problem = problem or "its metadata names no version"
    except Exception as error:  # a broken entry of the search path
        problem = problem or (str(error).splitlines() or [type(error).__name__])[0]
    return PackageState(None, "missing") if problem is None else PackageState(None, "unknown", problem)
