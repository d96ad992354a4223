"""NVIDIA's driver, as this process finds it. No torch."""

import contextlib
import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

NODE = Path("/dev/nvidiactl")  # exists if a process may use a GPU of NVIDIA
VERSION = Path("/proc/driver/nvidia/version")
VISIBLE = "CUDA_VISIBLE_DEVICES"
_LIBRARY = "libcuda.so.1"


@dataclass(frozen=True)
class Driver:
    """The driver: its `version` ("535.104.05"), and the newest `cuda` (12, 2) that it supports.

    `has_library` says whether its library can be loaded, `gpus` is the number of GPUs that it
    shows to this process. `version` is "" and `cuda` is (0, 0) if they cannot be read.
    """

    version: str
    has_library: bool
    cuda: tuple[int, int]
    gpus: int


def hides_gpus() -> bool:
    """Whether the environment hides all GPUs from this process."""
    return os.environ.get(VISIBLE, "0").strip() in ("", "-1", "NoDevFiles")


def sees_gpu() -> bool:
    """Whether the driver shows a GPU to this process.

    The driver has the answer at once; importing torch for it takes seconds.
    """
    return _ask_library()[1] > 0


def find_driver() -> Driver | None:
    """Return the driver; None if this process finds neither its file nor a GPU."""
    cuda, gpus = _ask_library()
    if not gpus and not NODE.exists():
        return None
    return Driver(_read_version(), _load_library() is not None, cuda, gpus)


def explain_unseen(driver: Driver, torch: str, cuda: str | None) -> str:
    """Return why this torch, built for `cuda` (None: without), sees no GPU, and what mends it."""
    name = f"NVIDIA driver {driver.version}" if driver.version else "an NVIDIA driver"
    if driver.cuda > (0, 0):
        name += f" (up to CUDA {'.'.join(map(str, driver.cuda))})"
    if cuda is None:
        return (
            f"{name} is here, but torch {torch} is built without CUDA; install a torch with CUDA"
            " (the image `cuda`)"
        )
    built = f"torch {torch} (CUDA {cuda})"
    if not driver.has_library:
        return (
            f"{name} is here, but {built} does not find {_LIBRARY}; add its folder to"
            " LD_LIBRARY_PATH (/usr/local/nvidia/lib64 on GKE and Dataflow)"
        )
    if (0, 0) < driver.cuda and driver.cuda[0] < int(cuda.split(".")[0]):
        return (
            f"{name} is older than {built} needs; install a newer driver, or a torch for CUDA"
            f" {driver.cuda[0]}"
        )
    return (
        f"{name} is here, but {built} sees no GPU; run nvidia-smi, and check that this process"
        f" may open /dev/nvidia* and what {VISIBLE} says"
    )


def _load_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        return None


def _ask_library() -> tuple[tuple[int, int], int]:
    """Return the newest CUDA that the driver supports, and the number of GPUs that it shows."""
    driver = _load_library()
    if driver is None:
        return (0, 0), 0
    number = ctypes.c_int(0)
    cuda = (0, 0)
    if not driver.cuDriverGetVersion(ctypes.byref(number)):
        cuda = (number.value // 1000, number.value % 1000 // 10)
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return cuda, 0
    return cuda, count.value


def _read_version() -> str:
    """Return the version in the first line of the driver's file.

    NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ...
    """
    with contextlib.suppress(OSError):
        version = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", VERSION.read_text())
        if version is not None:
            return version[0]
    return ""
