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


@dataclass(frozen=True)
class PendingCounts(JsonEntry):
    """The files that a snapshot leaves to later runs, because the budget was used up.

    `bytes` are their sizes, `tokens` the estimated tokens that embedding them takes.
    """

    files: int = 0
    bytes: int = 0
    tokens: int = 0


NONE_PENDING = PendingCounts()


@dataclass(frozen=True)
class TokenEstimate(JsonEntry):
    """The tokens that plans of a store's runs estimated, and those that the tokenizer `made`."""

    planned: int = 0
    made: int = 0

    @property
    def share(self) -> float:
        """Tokens made for an estimated one; 1 before the first run."""
        return self.made / self.planned if self.planned and self.made else 1.0

    def after(self, planned: int, made: int) -> "TokenEstimate":
        """Return the sums after another run."""
        return TokenEstimate(self.planned + planned, self.made + made)


NO_ESTIMATE = TokenEstimate()
