"""The rows of a snapshot that take part in a job: all, or those that a filter matches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.search.searcher import Searcher, Where
from sentence_beam.transforms.search.snapshot_rows import read_rows
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.matches import Matches


@dataclass(frozen=True)
class Selection:
    """The rows of a snapshot for which `matches` is true; all rows if it is None."""

    manifest: Manifest
    matches: Matches | None = None

    @classmethod
    def from_manifest(cls, manifest: Manifest, where: Where = None) -> "Selection":
        """Select the rows that a filter matches.

        Raises OptionError, naming the columns, for a filter that does not fit them.
        """
        return cls(manifest, Searcher(manifest).matches(where))

    def __len__(self) -> int:
        return self.manifest.rows.stored if self.matches is None else self.matches.count

    def check_rows(self) -> None:
        """Raise OptionError if no row is selected."""
        if not self.manifest.rows.stored:
            raise OptionError(f"{self.manifest.root} holds no rows")
        if not len(self):
            raise OptionError(f"{cite('where')} matches none of the rows of {self.manifest.root}")

    def rows_of(self, shard: int) -> np.ndarray | None:
        """Return the selected rows of a shard, int64 ascending; None if all are."""
        return None if self.matches is None else np.flatnonzero(self.matches.shards[shard])

    def read(self, columns: Sequence[str], what: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield blocks of the selected rows, as `read_rows` does."""
        return read_rows(self.manifest, columns, what, self.matches)
