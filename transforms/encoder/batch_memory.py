"""Memory for a forward pass: the largest batch, and halving batches that were too large."""

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.space.model_files import ModelFiles


class Divisible(Protocol):
    """Work on `rows` that can be halved: a batch of texts, or pieces of documents."""

    @property
    def rows(self) -> np.ndarray:
        """Indices of the rows in this batch."""

    def halves(self) -> "tuple[Any, Any]":
        """Split work on two rows or more into two parts."""


Part = TypeVar("Part", bound=Divisible)
Result = TypeVar("Result")
# The words of CUDA's libraries for it. If they cannot make a handle, lack of memory is nearly
# always the reason; so it is if torch fails to ask the driver for the free memory, which it does
# after a failed allocation.
_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "_status_alloc_failed",
    "_allocation_failed",
    "cublas_status_not_initialized",
    "cudnn_status_not_initialized",
    "memoryallocation",
    "nvml_success == r",
)
_NEXT_LIMIT = 5 / 8  # of the tokens of a batch that was too large: a little more than its half
_SHARE = 0.5  # of the free memory, for one pass
LEAST_TOKENS = 1024


class MemoryLimit:
    """The most tokens for which a device has memory, learnt from passes that failed."""

    def __init__(self) -> None:
        self._most = math.inf

    def run(
        self,
        batch: Part,
        tokens: Callable[[Part], int],
        work: Callable[[Part], Result],
        again: bool = False,
    ) -> list[Result]:
        """Do the work on a batch, in halves down to single rows if there is no memory for all.

        `tokens` counts those of a batch, padding included. A batch is halved without a try if as
        many tokens failed before, unless it is half of one that has just failed (`again`).
        """
        if len(batch.rows) == 1:
            return [work(batch)]
        is_tried = again or tokens(batch) <= self._most
        if is_tried:
            try:
                return [work(batch)]
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # outside of the handler, so that the failed pass's tensors are free
            self._most = min(self._most, _NEXT_LIMIT * tokens(batch))
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
        first, second = batch.halves()
        results = self.run(first, tokens, work, is_tried)
        return results + self.run(second, tokens, work, is_tried)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a failed forward pass may succeed with a smaller batch."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY)


def measure_free_memory(device: torch.device) -> int:
    """Return the bytes of a GPU that a pass may take: the free ones, and torch's cache."""
    unused, _ = torch.cuda.mem_get_info(device)
    return unused + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def total_memory(device: torch.device) -> int:
    """Return the bytes of a GPU, used or not."""
    return int(torch.cuda.get_device_properties(device).total_memory)


def find_capability(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of a GPU; None for another device."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_capability(device)


def token_bytes(files: ModelFiles, model: Any, needs: Needs, longest: int) -> int:
    """Estimate the bytes of a pass for each token of a batch, beside the weights.

    They are a block's queries, keys, values and sums, the activations between its two linear
    layers, the states that are kept for the pooler, and its float32 copies of them. If the model's
    attention keeps the scores of all heads, those too: `longest` is the tokens of a text.
    """
    config = model.config
    size = model.get_input_embeddings().weight.element_size()
    inner = getattr(config, "intermediate_size", None) or 4 * files.hidden
    if not isinstance(inner, int):  # Gemma 3n has one for each block
        inner = max(inner)
    block = 8 * files.hidden + 3 * inner
    kept = len(needs.layers) * files.hidden
    states = size * (block + kept) + 3 * 4 * files.hidden
    if getattr(config, "_attn_implementation", None) == "eager":
        states += 2 * 4 * (files.heads or 1) * longest
    return states


def count_fitting_tokens(free: int, each: int, most: int) -> int:
    """Return the tokens of a batch for which there is memory, if one takes `each` bytes.

    The number is a power of two, at most `most`.

    >>> tokens_that_fit(80 * 10**9, 12_000, 65536), tokens_that_fit(2 * 10**9, 40_000, 65536)
    (65536, 16384)
    """
    fitting = max(LEAST_TOKENS, int(_SHARE * free / each))
    return min(most, 1 << (fitting.bit_length() - 1))
