"""What every worker of a run is told: plain values that pickle small."""

from dataclasses import dataclass, field
from typing import Any

from transforms.store.commit import Snapshot
from transforms.store.corpus import Columns

SPANS_PER_ELEMENT = 8
ELEMENTS_WANTED = 64


@dataclass(frozen=True)
class EmbedJob:
    """One run of `embed`.

    `encoder` are keyword arguments for `Encoder.load`; `model` is loaded by workers and may differ from the
    submitting machine's path. `carry` says that unchanged files are taken over unread from the last snapshot, `reuse`
    that texts which it holds take their vectors from it. `calibration` is the folder of the one to apply, `max_drift`
    the cosine distance by which the canary's vectors may have moved.
    """

    snapshot: Snapshot
    columns: Columns
    model: str
    encoder: dict[str, Any] = field(default_factory=dict)
    input_format: str = "auto"
    limit: int | None = None
    carry: bool = False
    reuse: bool = False
    calibration: str | None = None
    max_drift: float = 0.0

    @property
    def root(self) -> str:
        """The store."""
        return self.snapshot.root

    @property
    def run(self) -> str:
        """The run's id."""
        return self.snapshot.run


@dataclass(frozen=True)
class IndexRequest:
    """What index to build: `auto`, `compact` or a faiss factory string; `ip` or `l2`; the recall@10 to tune for.

    `merge` makes one segment of all rows.
    """

    index: str = "auto"
    metric: str = "ip"
    target_recall: float = 0.95
    merge: bool = False


def spans_per_element(spans: int) -> int:
    """How many spans one element lists: enough to overlap reading, encoding and writing, few enough to spread."""
    return max(1, min(SPANS_PER_ELEMENT, spans // ELEMENTS_WANTED))
