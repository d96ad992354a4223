"""Copies of tensors from main memory to a model's device while the model computes."""

import threading

import torch
from torch import Tensor


class _OwnStreams(threading.local):
    """A thread's streams for copies, by device and way."""

    def __init__(self) -> None:
        self.streams: dict[tuple[torch.device, str], torch.cuda.Stream] = {}


_OWN = _OwnStreams()


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on `device`, without waiting for a GPU.

    A GPU copies from pinned memory on a stream of its own. Work that the thread's current stream
    gets afterwards sees the copy.
    """
    if device.type != "cuda" or values.device.type == "cuda":
        return values.to(device)
    computing = torch.cuda.current_stream(device)
    copying = copy_stream(device, "in")
    with torch.cuda.stream(copying):
        moved = values.pin_memory().to(device, non_blocking=True)
    computing.wait_stream(copying)
    moved.record_stream(computing)
    return moved


def copy_stream(device: torch.device, way: str) -> torch.cuda.Stream:
    """The calling thread's own stream for copies to (`in`) or from (`out`) a GPU."""
    if (device, way) not in _OWN.streams:
        _OWN.streams[device, way] = torch.cuda.Stream(device)
    return _OWN.streams[device, way]
