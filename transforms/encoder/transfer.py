"""Moving arrays to where a model computes, and vectors from there."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transforms.pooling import transfer


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor on the device; a GPU goes on working while it is copied."""
    return transfer.to_device(torch.from_numpy(values), device)


def to_host(values: Sequence[Tensor]) -> tuple[list[Tensor], torch.cuda.Event]:
    """Copies of a GPU's tensors in pinned main memory, and what is over when they are whole.

    They are made on a stream for copies, once the current one has come so far.
    """
    device = values[0].device
    computing, copying = torch.cuda.current_stream(device), transfer.copy_stream(device, "out")
    copying.wait_stream(computing)
    with torch.cuda.stream(copying):
        copies = [each.to("cpu", non_blocking=True) for each in values]
    for each in values:
        each.record_stream(copying)
    # who waits for it sleeps: the cores are the tokenizer's
    copied = torch.cuda.Event(blocking=True)
    copied.record(copying)
    return copies, copied
