"""The floating-point type that this machine computes natively. No torch."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from transforms.base.errors import OptionError

DTYPES = ("float32", "bfloat16", "float16")
# Families whose masks, positions or transforms are float32 whatever their weights are.
FLOAT32_ONLY = frozenset(("xlnet", "deberta", "mra", "fnet", "xlstm", "static-embedding"))
_DRIVER = Path("/dev/nvidiactl")  # there where a process may use a GPU of NVIDIA
# What nvidia-smi is asked for, where a container has the driver's library and not its tools; in a
# process of its own, since nobody who has begun to use a driver may fork.
_ASK_DRIVER = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
count, device, part = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
assert not driver.cuInit(0) and not driver.cuDeviceGetCount(ctypes.byref(count))
for number in range(count.value):
    parts = []
    for attribute in (75, 76):  # the major and minor compute capability
        assert not driver.cuDeviceGet(ctypes.byref(device), number)
        assert not driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
        parts.append(str(part.value))
    print(".".join(parts))
"""
_CPU_FLAGS = {
    "x86_64": ("avx512_bf16", "amx_bf16"),
    "AMD64": ("avx512_bf16", "amx_bf16"),
    "aarch64": ("bf16",),
}


def native_dtype(device: str = "auto") -> str:
    """`bfloat16` where the device (`auto`, `cpu` or `cuda`) multiplies it in hardware, else
    `float32`.
    """
    if device != "cpu" and _gpu_has_bfloat16():
        return "bfloat16"
    if not device.startswith("cuda") and _cpu_has_bfloat16():
        return "bfloat16"
    return "float32"


def resolve_dtype(dtype: str, device: str = "auto", family: str = "") -> str:
    """The dtype itself, or for `auto` the native one of the machine, where a model of this family
    can.

    Raises `OptionError` for any other word, and for a dtype that the family does not have.
    """
    if dtype == "auto":
        return "float32" if family in FLOAT32_ONLY else native_dtype(device)
    if dtype not in DTYPES:
        raise OptionError(f"dtype {dtype!r} is not known; allowed: auto, {', '.join(DTYPES)}")
    if dtype != "float32" and family in FLOAT32_ONLY:
        raise OptionError(f"dtype {dtype}: {family} computes in float32 alone; say --dtype float32")
    return dtype


def _cpu_has_bfloat16() -> bool:
    wanted = _CPU_FLAGS.get(platform.machine(), ())
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    lines = (line for line in info.splitlines() if line.startswith(("flags", "Features")))
    flags = set(next(lines, "").split())
    return any(flag in flags for flag in wanted)


def _gpu_has_bfloat16() -> bool:
    """Whether every visible GPU has compute capability 8 (Ampere) or later."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    if shutil.which("nvidia-smi") is None:
        if not _DRIVER.exists():
            return False
        query = [sys.executable, "-I", "-S", "-c", _ASK_DRIVER]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=20, check=True
        ).stdout.split()
        return bool(answer) and min(float(capability) for capability in answer) >= 8
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
