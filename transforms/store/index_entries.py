"""The entry of a manifest for its index, and the entries of that index's files."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.json_entries import (
    SPARSE,
    JsonEntry,
    count,
    fail,
    positive,
    text,
)
from sentence_beam.transforms.index.index_spec import AUTO, RANGE_BYTES, IndexSpec
from sentence_beam.transforms.store.entries import Digest, stored

IndexPath = Annotated[str, stored("index")]


def _read_list_bounds(value: Any, where: str) -> tuple[int, int]:
    """Read the first of some lists, and the list after the last."""
    if not isinstance(value, list) or len(value) != 2:
        fail(where, "two counts")
    first, stop = (count(item, where) for item in value)
    if first >= stop:
        fail(where, "two counts, the first less than the second")
    return first, stop


def _read_index_name(value: Any, where: str) -> str:
    """Read `auto`, `compact` or a factory string."""
    name: str = text(value, where)
    try:
        IndexSpec.parse(name)
    except OptionError:
        fail(where, "an index that this version builds")
    return name


ListBounds = Annotated[tuple[int, int], _read_list_bounds]


@dataclass(frozen=True)
class IndexRequest(JsonEntry):
    """The index to build: `auto`, `compact` or a faiss factory string.

    `metric` is `cosine`, `ip`, `l2` or `auto`: the metric of the current index, else the one that
    the model's vectors are for. `target_recall` is the recall to tune for (None: 0.95); a build
    that misses a given one fails. If `max_bytes_per_row` or `max_latency_ms` is given, kinds of
    index are compared. A range of lists has at most `range_bytes`.
    """

    index: Annotated[str, _read_index_name] = AUTO
    metric: str = "auto"
    target_recall: float | None = None
    max_bytes_per_row: int | None = None
    max_latency_ms: float | None = None
    range_bytes: Annotated[int, positive] = field(default=RANGE_BYTES, metadata=SPARSE)

    def __post_init__(self) -> None:
        _ = self.spec  # a wrong name is told here
        if type(self.range_bytes) is not int or self.range_bytes < 1:
            raise OptionError(f"range_bytes: {self.range_bytes!r} is not a number of bytes above 0")

    @cached_property
    def spec(self) -> IndexSpec:
        """The index that is named. Raises OptionError if there is none of this name."""
        return IndexSpec.parse(self.index)

    @property
    def target(self) -> float:
        """The recall to tune for."""
        return 0.95 if self.target_recall is None else self.target_recall

    @property
    def kind(self) -> tuple[object, ...]:
        """The fields that decide the kind of index and its tuning.

        Without `range_bytes`: the next training will do.
        """
        return self.index, self.target, self.max_bytes_per_row, self.max_latency_ms


@dataclass(frozen=True)
class IndexFileEntry(JsonEntry):
    """A file of an index; its path is "" if the index has none.

    `checksum` is the storage's, "" if it has none or if the file is always read.
    """

    path: IndexPath = ""
    sha256: str = ""
    checksum: str = field(default="", metadata=SPARSE)


@dataclass(frozen=True)
class SegmentEntry(JsonEntry):
    """A written segment and its locator.

    `number` never changes. It orders the segments and is not used again before all is built from
    the shards. `kind` is base, delta or held-out; `rows` includes deleted rows; `closeness` is the
    mean score with the nearest centroid. The checksums are the storage's for both files, "" if it
    has none. `locator_bytes` and `locator_footer` (sha256) let parts of a locator be read. `refine`
    has the rows' vectors if candidates are scored again.

    A range has all rows of the base in `lists` [first, stop), in their order; `first_id` is the id
    of its first row, `header_sha256` the digest of its header. A segment by rows has none of these.
    """

    number: int
    kind: str
    rows: int
    deleted: int
    path: IndexPath
    sha256: str
    bytes: int
    locator: IndexPath
    locator_sha256: str
    closeness: float | None = None
    checksum: str = ""
    locator_checksum: str = ""
    locator_bytes: int = 0
    locator_footer: str = ""
    refine: IndexFileEntry | None = None
    lists: ListBounds | None = field(default=None, metadata=SPARSE)
    first_id: int = field(default=0, metadata=SPARSE)
    header_sha256: str = field(default="", metadata=SPARSE)

    @property
    def live(self) -> int:
        """Rows that are not deleted."""
        return self.rows - self.deleted

    @property
    def files(self) -> list[str]:
        """The paths of its files."""
        paths = [self.path, self.locator]
        if self.refine:
            paths.append(self.refine.path)
        return paths


@dataclass(frozen=True)
class TrainedEntry(IndexFileEntry):
    """The quantizer: its rows, and how well it served them then.

    It was trained on `rows` rows, for a corpus of `corpus` rows. `times` counts how often all was
    built from the shards, with this quantizer and those before it.

    Texts are held out whose key is below `held_out_below` (hex).
    """

    times: int = 1
    rows: int = 0
    corpus: int = 0
    held_out_below: Digest = "0"
    recall: float | None = None
    imbalance: float | None = None
    closeness: float | None = None


@dataclass(frozen=True)
class RecallEntry(JsonEntry):
    """Recall at `k` with its 95 % interval over `queries` queries."""

    k: int
    value: float
    low: float
    high: float
    queries: int


@dataclass(frozen=True)
class TunedRecallEntry(RecallEntry):
    """Recall of an index at its search settings, and the recall that it was tuned for."""

    nprobe: int = 0
    rerank: int = 0
    target: float = 0.0


@dataclass(frozen=True)
class ChangeEntry(JsonEntry):
    """A run's change of an index, why, and its rows.

    `what` is "trained", "followed" or "rewritten". If all was built from the shards, no rows are
    counted, or if it was trained too, all of them as added.
    """

    what: str
    why: str
    added: int
    deleted: int
    moved: int


@dataclass(frozen=True)
class TriedEntry(JsonEntry):
    """A kind of index on a sample: its recall at 10 and at 100.

    `row_bytes` is its size for a row, `query_bytes` what a query reads.
    """

    factory: str
    row_bytes: int
    query_bytes: int
    nprobe: int
    recall: float | None
    recall_100: float | None


@dataclass(frozen=True)
class ChoiceEntry(JsonEntry):
    """Why an index has its kind, the kinds compared, and its bytes for a row and a query."""

    why: str
    row_bytes: int
    query_bytes: int = 0
    tried: tuple[TriedEntry, ...] = ()


@dataclass(frozen=True)
class IndexEntry(JsonEntry):
    """The index of a snapshot; `queries` are the held-out texts whose true neighbours are known.

    `layout` is "lists" if the base is cut into ranges of lists, None if all segments are by rows.
    """

    segments: tuple[SegmentEntry, ...]
    factory: str
    metric: str
    request: IndexRequest
    recall: TunedRecallEntry | None
    nprobe: int
    rerank: int
    rows: int
    trained: TrainedEntry = TrainedEntry()
    queries: IndexFileEntry = IndexFileEntry()
    recall_changed: RecallEntry | None = None
    recall_100: TunedRecallEntry | None = None
    change: ChangeEntry | None = None
    choice: ChoiceEntry | None = None
    layout: str | None = field(default=None, metadata=SPARSE)

    @cached_property
    def spec(self) -> IndexSpec:
        """The index that was built."""
        return IndexSpec.parse(self.factory)

    def choose_nprobe(self, k: int) -> int:
        """Return the number of lists to search for k rows.

        It was tuned for 10 rows, and for 100 if k is above 10.
        """
        if k > 10 and self.recall_100:
            return max(self.nprobe, self.recall_100.nprobe)
        return self.nprobe

    @property
    def files(self) -> list[tuple[str, str]]:
        """Path (relative to the store) and sha256 of every file of the index."""
        named = [(entry.path, entry.sha256) for entry in (self.trained, self.queries) if entry.path]
        for segment in self.segments:
            named += [(segment.path, segment.sha256), (segment.locator, segment.locator_sha256)]
            if segment.refine:
                named.append((segment.refine.path, segment.refine.sha256))
        return named
