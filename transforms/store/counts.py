"""The counts in a manifest: rows, their work, tokens."""

from dataclasses import dataclass, field

from sentence_beam.transforms.base.json_entries import SPARSE, JsonEntry


@dataclass(frozen=True)
class RowCounts(JsonEntry):
    """The rows of a snapshot's input, and its `pieces` if the rows are documents."""

    read: int
    written: int
    rejected: int
    pieces: int | None = field(default=None, metadata=SPARSE)

    @property
    def stored(self) -> int:
        """The rows of all shards."""
        return self.written if self.pieces is None else self.pieces


@dataclass(frozen=True)
class WorkCounts(JsonEntry):
    """Counts of the written rows by the origin of their vectors in this run."""

    embedded: int
    reused: int
    duplicates: int
    carried: int


@dataclass(frozen=True)
class TokenCounts(JsonEntry):
    """The tokens that went through the model in this run, and rows and tokens cut off.

    `real` excludes padding, `padded` includes it. `unknown` tokens stand for text that the
    vocabulary lacks.
    """

    real: int
    padded: int
    truncated_rows: int
    lost: int
    unknown: int
