"""Memory for a forward pass: how large a batch may be, and what is done where one was too large."""

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from transforms.pooling.pooler import Needs
from transforms.space.model_files import ModelFiles


class Divisible(Protocol):
    """Work on `rows` that can be done in two parts: a batch of texts, or pieces of documents."""

    @property
    def rows(self) -> np.ndarray:
        """The places of what it is work on."""

    def halves(self) -> "tuple[Any, Any]":
        """The same work in two parts, where there are two rows or more."""


Part = TypeVar("Part", bound=Divisible)
Result = TypeVar("Result")
# CUDA's libraries have words of their own for it; a handle of theirs that cannot be made is nearly
# always this, and so is torch's failure to ask the driver's library how much memory there is, which
# it does when none was left.
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
# of the tokens for which there was no room: what half of such a batch has, and a little
_LEFT = 5 / 8
_SHARE = 0.5  # of the memory that is free, for what a pass needs at once
LEAST_TOKENS = 1024


class MemoryLimit:
    """The most tokens that a device has had room for, learnt from passes for which it had none;
    kept for good.
    """

    def __init__(self) -> None:
        self._most = math.inf

    def run(
        self,
        batch: Part,
        tokens: Callable[[Part], int],
        work: Callable[[Part], Result],
        again: bool = False,
    ) -> list[Result]:
        """What `work` makes of the batch, in parts where there is no room for all of it, down to
        single texts.

        `tokens` are those that a batch takes room for, padding included. A batch that is too large
        is halved, without a try where the device had no room for as many before, unless it is half
        of one that has just failed (`again`).
        """
        if len(batch.rows) == 1:
            return [work(batch)]
        if failed := again or tokens(batch) <= self._most:
            try:
                return [work(batch)]
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # outside of the handler, so that the failed pass's tensors are free
            self._most = min(self._most, _LEFT * tokens(batch))
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
        return [part for half in batch.halves() for part in self.run(half, tokens, work, failed)]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a failed forward pass may succeed with a smaller batch."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error).lower() for words in _OUT_OF_MEMORY
    )


def free_memory(device: torch.device) -> int:
    """The bytes of a GPU that a pass may take: those that nobody has, and those that torch keeps
    for later.
    """
    unused, _ = torch.cuda.mem_get_info(device)
    return unused + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def token_bytes(files: ModelFiles, model: Any, needs: Needs, longest: int) -> int:
    """About how many bytes a pass takes for each token of a batch, beside the weights; `longest`:
    tokens of a text.

    A block's queries, keys, values and sums, what its two linear layers have between them, the
    states that are kept for the pooler, and its float32 copies of them; the scores of all heads
    where a model's attention keeps these.
    """
    config, size = model.config, model.get_input_embeddings().weight.element_size()
    inner = getattr(config, "intermediate_size", None) or 4 * files.hidden
    inner = inner if isinstance(inner, int) else max(inner)  # Gemma 3n has one a block
    states = (
        size * (8 * files.hidden + 3 * inner + len(needs.layers) * files.hidden)
        + 3 * 4 * files.hidden
    )
    eager = getattr(config, "_attn_implementation", None) == "eager"
    return states + (2 * 4 * (files.heads or 1) * longest if eager else 0)


def tokens_that_fit(free: int, each: int, most: int) -> int:
    """The tokens of a batch for which there is room: a power of two, at most `most`, where one
    takes `each` bytes.

    >>> tokens_that_fit(80 * 10**9, 12_000, 65536), tokens_that_fit(2 * 10**9, 40_000, 65536)
    (65536, 16384)
    """
    fitting = max(LEAST_TOKENS, int(_SHARE * free / each))
    return min(most, 1 << (fitting.bit_length() - 1))
