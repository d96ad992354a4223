"""How many tokens go through a model at once."""

from collections.abc import Sequence

import torch

from transforms.base.errors import OptionError
from transforms.encoder.layer_hooks import TIME_FIRST
from transforms.encoder.memory import free_memory, tokens_that_fit
from transforms.encoder.probe import BatchSharing
from transforms.encoder.replica import Replica

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 65536}
# without padding a larger batch costs nothing; of two cores one idles for half a batch at the end
# of a unit
TOKENS_PER_PACKED_BATCH = 2048
# a unit's batches are made smaller, down to this, until each core has several: the last ones end at
# about one time
LEAST_TOKENS_PER_BATCH, BATCHES_PER_CORE = 512, 4
# a unit ends with one batch that is not full for every length of text
TOKENS_PER_ALIKE_BATCH = {"cpu": 512, "cuda": 16384}


def tokens_per_batch(asked: int | None, replicas: Sequence[Replica]) -> int:
    """The most tokens of a batch, padding included: those `asked` for, else as suits the devices
    and their memory.
    """
    if asked is not None:
        if asked < 1:
            raise OptionError(f"tokens per batch {asked}: give 1 or more")
        return asked
    first = replicas[0]
    if first.device.type == "cpu":
        packed = first.forward.together is BatchSharing.PACKED
        return TOKENS_PER_PACKED_BATCH if packed else TOKENS_PER_BATCH["cpu"]
    most = TOKENS_PER_BATCH[first.device.type]
    return min(
        tokens_that_fit(free_memory(each.device), each.forward.token_bytes, most)
        for each in replicas
    )


def tokens_per_alike_batch(asked: int | None, replica: Replica, family: str) -> int:
    """The tokens of a batch that depends on nothing, whatever the machine and its memory."""
    if asked is not None:
        raise OptionError(
            f"tokens per batch {asked}: deterministic batches have a size of their own"
        )
    # where texts lie side by side in memory, a text's place among them decides how its sums are
    # rounded
    alone = replica.forward.together is BatchSharing.ALONE or family in TIME_FIRST
    return 1 if alone else TOKENS_PER_ALIKE_BATCH[replica.device.type]


def spread(budget: int, tokens: int) -> int:
    """The tokens of a batch, at most `budget`, such that there is work for every core."""
    return min(
        budget, max(LEAST_TOKENS_PER_BATCH, tokens // (BATCHES_PER_CORE * torch.get_num_threads()))
    )
