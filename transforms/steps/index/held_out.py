"""The held-out rows: texts, chosen by hash, with which recall is measured.

All rows of a held-out text are in one small Flat segment, which every search scans. Recall is
measured with these texts over all other rows, so their true neighbours are kept in a file of the
index: few of them change in a run that changes few rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow import (
    as_hashes,
    as_keys,
    hash_column,
    parquet_bytes,
    table_of,
)
from sentence_beam.transforms.base.errors import DamagedIndexError, refuse_damage
from sentence_beam.transforms.index import held_out_keys, sample_threshold, select

HELD_OUT = 1000
HELD_OUT_SHARE = 10  # at most one row in ten is held out
# a text with more copies stays in the lists: the held-out segment is scanned for every query
COPIES_HELD_OUT = 20
# share of held-out texts whose neighbours are not known, above which all rows are read for them
UNMEASURED = 0.2


def held_out_below(rows: int) -> int:
    """Return the threshold on `held_out_keys` for a store of so many rows."""
    return sample_threshold(min(HELD_OUT, rows // HELD_OUT_SHARE), rows)


def tuning_half(texts: np.ndarray) -> np.ndarray:
    """Return bool [q], the texts (hashes uint8 [q, 16]) that tune nprobe.

    Recall is reported on the others, in every run.
    """
    return texts[:, 15] % 2 == 0


def reporting_half(texts: np.ndarray) -> np.ndarray:
    """Return bool [q], the texts on which recall is reported; all if a half would be empty."""
    tuning = tuning_half(texts)
    if tuning.any() and not tuning.all():
        return ~tuning
    return np.ones(len(texts), bool)


def newly_held_out(
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
    total = copies + _count(held, texts)
    chosen[chosen] = (total <= COPIES_HELD_OUT)[place]
    return chosen, texts[total > COPIES_HELD_OUT]


def _count(items: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return how often each of the wanted keys is among the items."""
    ordered = np.sort(items)
    return np.searchsorted(ordered, wanted, "right") - np.searchsorted(ordered, wanted, "left")


@dataclass(frozen=True)
class KnownQueries:
    """The texts on which recall is reported, and the crowded ones.

    A crowded text has the key of a held-out one but stays in the lists. `texts` uint8 [q, 16]
    ascending; `gains` float32 and `positions` int64 [q, 4k], `bound` float32 [q] as
    `ExactNeighbours.lists` gives them; `crowded` uint8 [c, 16].
    """

    texts: np.ndarray
    gains: np.ndarray
    positions: np.ndarray
    bound: np.ndarray
    crowded: np.ndarray

    def to_bytes(self) -> bytes:
        """Return a Parquet file with a row for each text; crowded ones have no neighbours."""
        depth = self.gains.shape[1]
        columns = {
            "row_hash": hash_column(np.concatenate([self.texts, self.crowded])),
            "bound": pa.concat_arrays(
                [pa.array(self.bound), pa.nulls(len(self.crowded), pa.float32())]
            ),
            "gains": _lists(self.gains, len(self.crowded)),
            "positions": _lists(self.positions, len(self.crowded)),
        }
        metadata = {"depth": str(depth)}
        return parquet_bytes(
            pa.table(columns).replace_schema_metadata(metadata), compression="zstd"
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "KnownQueries":
        """Return the queries of a file that `to_bytes` made.

        Raises DamagedIndexError for other bytes.
        """
        with refuse_damage(
            "the queries of the index are not what was written", kind=DamagedIndexError
        ):
            table = table_of(data)
            depth = int(table.schema.metadata[b"depth"])
            hashes = as_hashes(table.column("row_hash").combine_chunks())
            known = table.column("bound").is_valid().to_numpy()
            rows = table.filter(pa.array(known))
            lists = (rows.column(name).combine_chunks() for name in ("gains", "positions"))
            gains, positions = (column.flatten().to_numpy().reshape(-1, depth) for column in lists)
            return cls(
                hashes[known], gains, positions, rows.column("bound").to_numpy(), hashes[~known]
            )


def _lists(values: np.ndarray, nulls: int) -> pa.Array:
    """Return rows of a matrix as a list column, followed by nulls."""
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1])
    lists = pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)))
    return pa.concat_arrays([lists, pa.nulls(nulls, lists.type)])
