"""Files that the steps of a join leave for each other: queries, and candidates of a group."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import refuse_damage
from sentence_beam.transforms.index.array_bytes import pack, unpack
from sentence_beam.transforms.index.exact import sort_best_first, start_results
from sentence_beam.transforms.index.index_parts import TopK


def write_arrays(path: str, **arrays: Any) -> None:
    """Write a file of the work, in place of one of an earlier run."""
    storage.ensure(path, pack(**arrays))


def take_arrays(path: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file of the work. Raises SentenceBeamError if it is damaged."""
    data = storage.read_bytes(path)
    with refuse_damaged_work(path):
        return unpack(data)


def refuse_damaged_work(path: str) -> AbstractContextManager[None]:
    """Raise SentenceBeamError if the block meets bytes that the job did not write."""
    return refuse_damage(f"{path} is not what the job wrote", "run again to go on")


def find_best(queries: int, paths: Iterable[str]) -> TopK:
    """Return the best candidates of all groups, as many for a query as one group has.

    A file has gains and positions [m, any] of the queries `which`, int64 [m].
    """
    best: TopK | None = None
    for path in paths:
        arrays = take_arrays(path)
        which = arrays["which"]
        most = arrays["gains"].shape[1]
        if best is None:
            best = start_results(queries, most)
        gains = np.concatenate([best[0][which], arrays["gains"]], axis=1)
        positions = np.concatenate([best[1][which], arrays["positions"]], axis=1)
        best[0][which], best[1][which] = sort_best_first(gains, positions, most)
    assert best is not None, "a block is compared with one group at least"
    return best
