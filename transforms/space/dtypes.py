"""The floating-point type that this machine computes natively. No torch."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sentence_beam.transforms.base import nvidia
from sentence_beam.transforms.base.errors import OptionError, cite

DTYPES = ("float32", "bfloat16", "float16", "int8")
# Families that are quantised: others were not measured.
INT8_FAMILIES = frozenset(("bert", "roberta", "xlm-roberta", "camembert", "electra"))
# Families whose masks, positions or transforms are float32 for any dtype of weights.
FLOAT32_ONLY = frozenset(("xlnet", "deberta", "mra", "fnet", "xlstm", "static-embedding"))
DRIVER = nvidia.NODE
# Prints what nvidia-smi would, of the GPUs that CUDA_VISIBLE_DEVICES leaves. It runs in its own
# process, since a process that has used the driver must not fork.
ASK_DRIVER = """
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
        return "float32" if family in FLOAT32_ONLY else native_dtype(device)
    if dtype not in DTYPES:
        raise OptionError(f"dtype {dtype!r} is not known; allowed: auto, {', '.join(DTYPES)}")
    if dtype != "float32" and family in FLOAT32_ONLY:
        raise OptionError(
            f"dtype {dtype}: {family} computes in float32 alone; say {cite('dtype')} float32"
        )
    if dtype == "int8" and family and family not in INT8_FAMILIES:
        quantised = ", ".join(sorted(INT8_FAMILIES))
        raise OptionError(
            f"dtype int8: {family} is not quantised, only {quantised}; say {cite('dtype')} float32"
        )
    return dtype


def describe_slow_dtype(dtype: str, family: str, capability: tuple[int, int]) -> str | None:
    """Return why a GPU of this compute capability is slow in a dtype; None if it is not.

    Matrices of float32 are multiplied without tensor cores, which GPUs have from 7.0 on;
    bfloat16 is emulated below 8.0.
    """
    better = "bfloat16" if capability >= (8, 0) else "float16"
    if dtype == "float32" and capability >= (7, 0) and family not in FLOAT32_ONLY:
        return (
            f"float32 leaves the tensor cores of this GPU unused; --dtype {better} is several"
            " times as fast"
        )
    if dtype == "bfloat16" and better != dtype:
        return (
            f"a GPU of compute capability {capability[0]}.{capability[1]} emulates bfloat16;"
            " --dtype float16 is several times as fast"
        )
    return None


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
    if nvidia.hides_gpus():
        return False
    capabilities: list[float] = []
    if DRIVER.exists():
        capabilities = _ask([sys.executable, "-I", "-S", "-c", ASK_DRIVER])
    if not capabilities and shutil.which("nvidia-smi") is not None:
        capabilities = _ask(_make_query())
    return bool(capabilities) and min(capabilities) >= 8


def _make_query() -> list[str]:
    """Return the command that prints the compute capabilities of the visible GPUs."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    visible = os.environ.get(nvidia.VISIBLE)
    if visible is not None:
        query.append(f"--id={visible.replace(' ', '')}")
    return query


def _ask(query: Sequence[str]) -> list[float]:
    """Return the numbers that a command prints, none if it fails."""
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return [float(capability) for capability in answer.stdout.split()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
