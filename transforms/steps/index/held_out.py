"""The held-out rows: texts, chosen by hash, with which recall is measured.

All rows of a held-out text are in one small Flat segment, which every search scans. Recall is
measured with these texts over all other rows. Their true neighbours, and what the index answers,
are kept in a file of the index, so that a run that changes few rows reads no others for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from zlib import compress, decompress

import numpy as np

from sentence_beam.transforms.base.arrow_arrays import as_keys
from sentence_beam.transforms.base.errors import DamagedIndexError, refuse_damage
from sentence_beam.transforms.index import Candidates, held_out_keys, sample_threshold, select
from sentence_beam.transforms.index.array_bytes import pack, unpack
from sentence_beam.transforms.index.exact import sort_best_first

HELD_OUT = 1000
HELD_OUT_SHARE = 10  # at most one row in ten is held out
# a text with more copies stays in the lists: the held-out segment is scanned for every query
COPIES_HELD_OUT = 20
# share of held-out texts whose neighbours are not known, above which all rows are read for them
UNMEASURED = 0.2


def held_out_below(rows: int) -> int:
    """Return the threshold on `held_out_keys` for a store of so many rows."""
    return sample_threshold(min(HELD_OUT, rows // HELD_OUT_SHARE), rows)


def select_tuning_half(texts: np.ndarray) -> np.ndarray:
    """Return bool [q], the texts (hashes uint8 [q, 16]) that tune nprobe.

    Recall is reported on the others, in every run.
    """
    return texts[:, 15] % 2 == 0


def select_reporting_half(texts: np.ndarray) -> np.ndarray:
    """Return bool [q], the texts on which recall is reported; all if a half would be empty."""
    tuning = select_tuning_half(texts)
    if tuning.any() and not tuning.all():
        return ~tuning
    return np.ones(len(texts), bool)


def choose_held_out(
    hashes: np.ndarray, below: int, crowded: np.ndarray, held: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the new rows that join the held-out segment, bool [n], and new crowded texts.

    `hashes` uint8 [n, 16] are the new rows', `crowded` texts stay in the lists because they have
    too many rows, `held` are the texts of the rows that are held out already, with repeats; both as
    keys.
    """
    keys = as_keys(hashes)
    chosen = select(held_out_keys(hashes), below) & ~np.isin(keys, crowded)
    texts, place, copies = np.unique(keys[chosen], return_inverse=True, return_counts=True)
    ordered = np.sort(held)
    total = copies + np.searchsorted(ordered, texts, "right") - np.searchsorted(ordered, texts)
    chosen[chosen] = (total <= COPIES_HELD_OUT)[place]
    return chosen, texts[total > COPIES_HELD_OUT]


@dataclass(frozen=True)
class KnownQueries:
    """The texts on which recall is reported, with what is known of them, and the crowded ones.

    A crowded text has the key of a held-out one but stays in the lists. `texts` uint8 [q, 16]
    ascending; `gains` float32 and `positions` int64 [q, 4k], `bound` float32 [q] as
    `ExactNeighbours.lists` gives them; `found` what the index answers; `crowded` uint8 [c, 16].
    `sizes` int64 [m, 3] are segment, list and number of rows, deleted ones too, of each list of a
    segment that has any.
    """

    texts: np.ndarray
    gains: np.ndarray
    positions: np.ndarray
    bound: np.ndarray
    found: Candidates
    crowded: np.ndarray
    sizes: np.ndarray

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        answers = {f"found_{name}": array for name, array in self.found.arrays().items()}
        return compress(pack(**arrays, **answers), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> "KnownQueries":
        """Return the queries of a file that `to_bytes` made.

        Raises DamagedIndexError for other bytes.
        """
        with refuse_damage(
            "the queries of the index are not what was written", kind=DamagedIndexError
        ):
            arrays = unpack(decompress(data))
            named = {name: arrays.pop(name) for name in _ARRAYS}
            answers = {name.removeprefix("found_"): array for name, array in arrays.items()}
            return cls(**named, found=Candidates.from_arrays(answers))

    def only(self, stays: Callable[[np.ndarray], np.ndarray]) -> "KnownQueries":
        """Return the queries with some of their neighbours and answers.

        `stays` takes positions, int64, and returns bool of their shape.
        """
        here = stays(self.positions) & (self.positions >= 0)
        gains = np.where(here, self.gains, np.float32(-np.inf))
        best = sort_best_first(gains, np.where(here, self.positions, -1), gains.shape[1])
        answers = self.found.only(stays(self.found.kept))
        return replace(self, gains=best[0], positions=best[1], found=answers)

    def of(self, place: np.ndarray) -> "KnownQueries":
        """Return what is known of some of the texts, by numbers int64 [m]; of -1 it is nothing."""
        blank = {"texts": 0, "gains": -np.inf, "positions": -1, "bound": -np.inf}
        arrays = {}
        for name, missing in blank.items():
            array = getattr(self, name)
            last = np.full((1, *array.shape[1:]), missing, array.dtype)
            arrays[name] = np.concatenate([array, last])[place]
        return replace(self, **arrays, found=self.found.of(place))


_ARRAYS = ("texts", "gains", "positions", "bound", "crowded", "sizes")
