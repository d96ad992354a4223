"""The floating-point type that this machine computes natively. No torch."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from transforms.base.errors import OptionError

DTYPES = ("float32", "bfloat16", "float16")
# Families whose masks, positions or transforms are float32 for any dtype of weights.
FLOAT32_ONLY = frozenset(("xlnet", "deberta", "mra", "fnet", "xlstm", "static-embedding"))
_DRIVER = Path("/dev/nvidiactl")  # exists if a process may use a GPU of NVIDIA
# Prints what nvidia-smi would, if a container has the driver's library but not its tools. It runs
# in its own process, since a process that has used the driver must not fork.
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
    """`bfloat16` if the device (`auto`, `cpu`, `cuda`) has hardware for it, else `float32`."""
    if device != "cpu" and _gpu_has_bfloat16():
        return "bfloat16"
    if not device.startswith("cuda") and _cpu_has_bfloat16():
        return "bfloat16"
    return "float32"


def resolve_dtype(dtype: str, device: str = "auto", family: str = "") -> str:
    """The dtype itself; for `auto` the machine's native one, if the family supports it.

    Raises `OptionError` for any other word, and for a dtype that the family does not support.
    """
    if dtype == "auto":
        if family in FLOAT32_ONLY:
            return "float32"
        return native_dtype(device)
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
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        capabilities = [float(capability) for capability in answer.stdout.split()]
        return bool(capabilities) and min(capabilities) >= 8
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
