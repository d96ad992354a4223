"""What a process finds of NVIDIA's driver, without one."""

import ctypes
from typing import Any

import pytest

from sentence_beam.transforms.base import nvidia
from sentence_beam.transforms.base.nvidia import (
    Driver,
    explain_unseen,
    find_driver,
    hides_gpus,
    sees_gpu,
)

OLD = Driver("470.82.01", True, (11, 4), 1)
BLIND = Driver("535.104.05", False, (0, 0), 0)
GOOD = Driver("580.65.06", True, (13, 0), 0)


class Library:
    """The driver's library: CUDA 12.2, and some GPUs."""

    def __init__(self, gpus: int, failed: int = 0) -> None:
        self._gpus = gpus
        self._failed = failed

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12020
        return 0

    def cuInit(self, flags: int) -> int:
        return self._failed

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self._gpus
        return 0


@pytest.fixture
def version_file(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia, "NODE", tmp_path / "nvidiactl")
    monkeypatch.setattr(nvidia, "VERSION", tmp_path / "version")
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    return tmp_path


def test_a_machine_without_a_driver_has_none(version_file):
    assert find_driver() is None
    assert not sees_gpu()


def test_a_driver_whose_library_is_not_found(version_file):
    (version_file / "nvidiactl").touch()
    assert find_driver() == BLIND


@pytest.mark.parametrize(("library", "gpus"), [(Library(2), 2), (Library(2, failed=999), 0)])
def test_a_driver_with_its_library(library, gpus, version_file, monkeypatch):
    (version_file / "nvidiactl").touch()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert find_driver() == Driver("535.104.05", True, (12, 2), gpus)
    assert sees_gpu() == bool(gpus)


def test_a_gpu_without_the_usual_file_is_found_by_the_library(version_file, monkeypatch):
    (version_file / "version").unlink()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library(1))
    assert find_driver() == Driver("", True, (12, 2), 1)


@pytest.mark.parametrize(
    ("driver", "cuda", "said"),
    [
        (OLD, None, "built without CUDA; install a torch with CUDA"),
        (BLIND, "12.6", "LD_LIBRARY_PATH (/usr/local/nvidia/lib64 on GKE and Dataflow)"),
        (OLD, "12.6", "470.82.01 (up to CUDA 11.4) is older than torch 2.13.0 (CUDA 12.6) needs"),
        (GOOD, "12.6", "sees no GPU; run nvidia-smi"),
    ],
)
def test_an_unseen_gpu_has_a_reason_and_a_remedy(driver, cuda, said):
    assert said in explain_unseen(driver, "2.13.0", cuda)


@pytest.mark.parametrize(
    ("visible", "hidden"), [(None, False), ("0,1", False), ("", True), ("-1", True)]
)
def test_the_environment_may_hide_all_gpus(visible, hidden, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert hides_gpus() == hidden
