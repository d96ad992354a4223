"""The machine that `benchmarks.gpu_check` runs on: its GPUs, and what their products reach."""

import csv
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.common import seconds
from sentence_beam.transforms.encoder.devices import resolve_devices

SIDE = 8192  # of the matrices whose product shows the peak
_SECONDS = 1.0  # that products run, after one second in which the clocks rise
_TENSOR_CORES_FOR_BFLOAT16 = (8, 0)  # compute capability; torch's attention kernel needs it too
_FACTS = (
    "index", "name", "driver_version", "compute_cap", "clocks.sm", "clocks.max.sm", "power.draw",
    "power.limit", "temperature.gpu", "memory.used", "memory.total",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where it runs: the device as an option, that of the peer, the number of GPUs, the 16-bit
    dtype, whether texts can be computed without padding, the peak in TFLOP/s (None: no share of it
    is said).
    """

    device: str
    peer: str
    peak: float | None
    gpus: int = 1
    dtype: str = "bfloat16"
    packs: bool = True


def gpu_place() -> Place:
    """Return the first GPU, without its peak; below compute capability 8.0 it gets float16."""
    resolve_devices("cuda")  # sets the environment, which torch reads when it first uses a GPU
    is_recent = torch.cuda.get_device_capability(0) >= _TENSOR_CORES_FOR_BFLOAT16
    dtype = "bfloat16" if is_recent else "float16"
    return Place("cuda:0", "cuda:0", None, torch.cuda.device_count(), dtype, is_recent)


def facts_of_gpus() -> list[dict[str, Any]]:
    """Return what torch and nvidia-smi say of each GPU now, as far as they do.

    nvidia-smi also names GPUs that the process does not see.
    """
    if not torch.cuda.is_available():
        return []
    found = []
    for number in range(torch.cuda.device_count()):
        each = torch.cuda.get_device_properties(number)
        found.append(
            {
                "name": each.name,
                "bytes": each.total_memory,
                "cuda": torch.version.cuda,
                "capability": f"{each.major}.{each.minor}",
                "reserved_at_most": torch.cuda.max_memory_reserved(number),
            }
        )
    return [*found, *_facts_of_driver()]


def _facts_of_driver() -> list[dict[str, Any]]:
    """Return driver, clocks, power and memory of all GPUs by nvidia-smi, none without it."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_FACTS)}", "--format=csv,noheader"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = csv.reader(printed.stdout.splitlines(), skipinitialspace=True)
    return [dict(zip(_FACTS, row, strict=False)) for row in rows]


def measure_peak(device: str, dtype: str, side: int = SIDE, least: float = _SECONDS) -> float:
    """Return the TFLOP/s of products of two `side` x `side` matrices, the better of two times."""
    where = torch.device(device)
    one, other = (torch.randn(side, side, device=where).to(getattr(torch, dtype)) for _ in "ab")
    product = partial(torch.mm, one, other, out=torch.empty_like(one))
    work = partial(_times, product, 1, where)
    work()
    count = max(1, round(least / seconds(work)))
    took = min(seconds(partial(_times, product, count, where)) for _ in range(2))
    return 2 * side**3 * count / took / 1e12


def _times(work: Callable[[], Any], count: int, device: torch.device) -> None:
    for _ in range(count):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
