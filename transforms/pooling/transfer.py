"""Copies of arrays and tensors to a model's device and back while the model computes."""

import threading
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class _OwnStreams(threading.local):
    """A thread's streams for copies, by device and way."""

    def __init__(self) -> None:
        self.streams: dict[tuple[torch.device, str], torch.cuda.Stream] = {}


OWN_STREAMS = _OwnStreams()


def to_device(values: Tensor | np.ndarray, device: torch.device) -> Tensor:
    """Return a tensor or an array as a tensor on `device`, without waiting for a GPU.

    A GPU copies from pinned memory on a stream of its own. Work that the thread's current stream
    gets afterwards sees the copy.
    """
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(values)
    if device.type != "cuda" or values.device.type == "cuda":
        return values.to(device)
    computing = torch.cuda.current_stream(device)
    copying = get_copy_stream(device, "in")
    with torch.cuda.stream(copying):
        moved = values.pin_memory().to(device, non_blocking=True)
    computing.wait_stream(copying)
    moved.record_stream(computing)
    return moved


def to_host(values: Sequence[Tensor]) -> tuple[list[Tensor], torch.cuda.Event]:
    """Return copies of a GPU's tensors in pinned main memory, and the event that completes them.

    A stream for copies makes them after the work that is queued on the current stream.
    """
    device = values[0].device
    computing, copying = torch.cuda.current_stream(device), get_copy_stream(device, "out")
    copying.wait_stream(computing)
    with torch.cuda.stream(copying):
        copies = [each.to("cpu", non_blocking=True) for each in values]
    for each in values:
        each.record_stream(copying)
    # who waits for it sleeps: the cores are the tokenizer's
    copied = torch.cuda.Event(blocking=True)
    copied.record(copying)
    return copies, copied


def get_copy_stream(device: torch.device, way: str) -> torch.cuda.Stream:
    """The calling thread's own stream for copies to (`in`) or from (`out`) a GPU."""
    if (device, way) not in OWN_STREAMS.streams:
        OWN_STREAMS.streams[device, way] = torch.cuda.Stream(device)
    return OWN_STREAMS.streams[device, way]
