"""Rows of a snapshot that match a filter, found by reading only the columns that it names."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, first_line
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.dataset import open_dataset

if TYPE_CHECKING:
    import pyarrow.dataset as ds

REQUESTS = 16  # shards of a remote store that are read at once


@dataclass(frozen=True)
class Matches:
    """The rows that a filter matches: for each shard, in the manifest's order, bool [rows]."""

    where: pc.Expression
    shards: tuple[np.ndarray, ...]

    @cached_property
    def count(self) -> int:
        """The number of matching rows."""
        return sum(int(np.count_nonzero(shard)) for shard in self.shards)


def matches(manifest: Manifest, where: pc.Expression) -> Matches:
    """Return the rows of a snapshot that match a filter, which `where.checked` has passed.

    Raises SentenceBeamError naming a shard that cannot be read.
    """
    dataset = open_dataset(manifest)
    fragments = list(dataset.get_fragments()) if len(manifest.shards) else []
    local = storage.is_local(manifest.root)

    def read(fragment: "ds.Fragment") -> np.ndarray:
        return match_rows(fragment, dataset.schema, where, threads=local)

    if local:
        return Matches(where, tuple(map(read, fragments)))
    with ThreadPoolExecutor(REQUESTS) as pool:
        return Matches(where, tuple(pool.map(read, fragments)))


def match_rows(
    fragment: "ds.Fragment", schema: pa.Schema, where: pc.Expression, threads: bool
) -> np.ndarray:
    """Return bool [rows of a shard], True for rows that match."""
    try:
        table = fragment.to_table(schema=schema, columns={"wanted": where}, use_threads=threads)
    except (pa.ArrowException, OSError) as error:
        raise SentenceBeamError(
            f"{fragment.path} cannot be filtered ({first_line(error)}); sentence-beam verify lists"
            " damage"
        ) from error
    return np.asarray(table.column(0).fill_null(False).to_numpy(), bool)
