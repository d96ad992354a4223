"""Telling a lack of memory from other failures."""

import torch

_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a failed forward pass may succeed with a smaller batch."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _WORDS)


def release_memory(device: torch.device) -> None:
    """Give cached blocks of the device back to its allocator."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
