"""What a manifest says, part by part, with what is checked of it; a path may be nowhere but where
`layout` has it.
"""

import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from transforms.base.entries import SPARSE, JsonEntry, Reader, fail, hex_digest, text
from transforms.space import DEFAULT_MODEL
from transforms.space.model_files import has_revisions
from transforms.store import layout


def stored(kind: str) -> Reader:
    """The path of a file of one kind, relative to the store."""
    return lambda value, where: (
        value if layout.is_a(kind, value) else fail(where, f"a path of this store's {kind}")
    )


def _run(value: Any, where: str) -> str:
    if layout.is_run(value):
        return value
    return fail(where, "the name of a run")


RunName = Annotated[str, _run]  # part of paths
# one of few, of which there are millions
Word = Annotated[str, lambda value, where: sys.intern(text(value, where))]
TEXT = "text"  # the column of a shard with the text of its rows
Digest = Annotated[str, hex_digest]  # in hex, part of paths
IndexPath = Annotated[str, stored("index")]


@dataclass(frozen=True)
class RowCounts(JsonEntry):
    """The rows of a snapshot's input; if these are documents, with the `pieces` that they were
    cut into.
    """

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
    """How the written rows came by their vectors in this run."""

    embedded: int
    reused: int
    duplicates: int
    carried: int


@dataclass(frozen=True)
class TokenCounts(JsonEntry):
    """The tokens that went through the model in this run, without and with padding; rows cut off,
    and tokens lost.

    `unknown` tokens stand for text that the vocabulary lacks; None if an earlier version wrote it.
    """

    real: int
    padded: int
    truncated_rows: int
    lost: int
    unknown: int | None = field(default=None, metadata=SPARSE)


@dataclass(frozen=True)
class RememberedOptions(JsonEntry):
    """The options that a store remembers; the defaults are those of a new store, but for
    `keep_text`.

    `keep_types` are the words for the types of kept columns that were given, or found in JSON, by
    name.
    """

    format: str = "auto"
    delimiter: str | None = None
    text_column: str = "text"
    text_template: str | None = None
    id_column: str | None = None
    keep_columns: tuple[str, ...] = ()
    keep_types: dict[str, str] = field(default_factory=dict, metadata=SPARSE)
    keep_text: bool = False  # of a store by a version that knew of none
    model: str = DEFAULT_MODEL
    revision: str | None = None
    pooler: str = "auto"
    prompt: str | None = None
    max_tokens: int | None = None
    chunks: str = "none"
    chunk_prefix: str = ""
    normalize: bool | None = None
    truncate_dim: int | None = None
    precision: str = "float32"
    limit: int | None = None
    max_rejects: float = 0.01
    max_deletes: float = 0.5
    max_unknown: float | None = field(default=None, metadata=SPARSE)
    max_drift: float | None = field(default=None, metadata=SPARSE)
    check_carried: float = 0.01
    price_per_hour: float | None = None
    currency: str = ""
    deterministic: bool = False
    query_prompt: str | None = None
    hidden: bool = False
    dtype: str = "auto"
    metric: str | None = None

    def __post_init__(self) -> None:
        if self.revision is not None and not has_revisions(self.model):
            # earlier versions remembered one without using it
            object.__setattr__(self, "revision", None)

    @classmethod
    def of_a_new_store(cls) -> Self:
        """What a store remembers before its first run."""
        return cls(keep_text=True)

    @property
    def kept_text(self) -> str | None:
        """The column of a shard that has the rows' text: the kept column itself, else `text`; None
        if none has.
        """
        if self.keeps_text_column:
            return self.text_column
        return TEXT if self.keep_text else None

    @property
    def keeps_text_column(self) -> bool:
        """Whether the text is one of the kept columns."""
        return self.text_template is None and self.text_column in self.keep_columns


@dataclass(frozen=True, slots=True)
class InputEntry(JsonEntry):
    """An input file: `path` is relative to its pattern, `source` the full one.

    `group` is the name of the group of small files whose units have its rows; "" if it has units of
    its own.
    """

    path: str
    source: str
    format: Word
    checksum: str
    version: str
    size: int
    group: Word = field(default="", metadata=SPARSE)


@dataclass(frozen=True)
class Input(JsonEntry):
    """The patterns that name a snapshot's input, and its files; none here if they are in the
    manifest's parts.

    `tables` are the versions of those patterns that name a table.
    """

    globs: tuple[str, ...]
    files: tuple[InputEntry, ...]
    tables: dict[str, str] = field(default_factory=dict, metadata=SPARSE)


@dataclass(frozen=True)
class PartEntry(JsonEntry):
    """A part of a manifest, which is a file with some of its units.

    The names of these are from `first` to `last`; both are "" in a manifest of an earlier version.
    """

    path: Annotated[str, stored("parts")]
    sha256: str
    units: int
    first: str = ""
    last: str = ""


@dataclass(frozen=True)
class ManifestPart(JsonEntry):
    """The content of such a file."""

    shards: tuple[dict[str, Any], ...]
    files: tuple[InputEntry, ...]


@dataclass(frozen=True)
class RangesEntry(JsonEntry):
    """The bounds between which whole numbers count: their file, their digest, and the id of the
    floats' space.
    """

    path: Annotated[str, stored("ranges")]
    digest: str
    space: str


@dataclass(frozen=True)
class CanaryEntry(JsonEntry):
    """The file of the texts by which a store notices that its model has moved."""

    path: Annotated[str, stored("canary")]
    sha256: str


@dataclass(frozen=True)
class CalibrationEntry(JsonEntry):
    """The folder of a store's calibration, named by the digest."""

    digest: Digest
    path: str = ""


@dataclass(frozen=True)
class IndexRequest(JsonEntry):
    """What index to build: `auto`, `compact` or a faiss factory string; the metric; the recall to
    tune for.

    `metric` is `cosine`, `ip`, `l2`, or `auto`: that of the index there is, else what the model's
    vectors are for. `merge` makes one segment of all rows. Where `max_bytes_per_row` or
    `max_latency_ms` are given, kinds of index are compared. A build that misses a `target_recall`
    that is given (None: 0.95 is tuned for) fails.
    """

    index: str = "auto"
    metric: str = "auto"
    target_recall: float | None = None
    merge: bool = False
    max_bytes_per_row: int | None = None
    max_latency_ms: float | None = None

    @property
    def target(self) -> float:
        """The recall to tune for."""
        if self.target_recall is None:
            return 0.95
        return self.target_recall

    @property
    def kind(self) -> tuple[object, ...]:
        """What decides the kind of index and how it is tuned: requests that differ in it ask for
        different ones.
        """
        return self.index, self.target, self.max_bytes_per_row, self.max_latency_ms


@dataclass(frozen=True)
class IndexFileEntry(JsonEntry):
    """A file of an index; "" if an earlier version has none."""

    path: IndexPath = ""
    sha256: str = ""


@dataclass(frozen=True)
class SegmentEntry(JsonEntry):
    """A written segment and its locator.

    `number` never changes and is not given again before the quantizer is retrained; it orders the
    segments. `kind` is base, delta or held-out; `rows` counts deleted ones too; `closeness` is the
    mean score with the nearest centroid; the checksums are what the storage says of both files, ""
    if it says nothing. `locator_bytes` and the sha256 of its footer are those of a locator that
    can be read in parts: 0 and "" for one of an earlier version. `refine` has the rows' vectors
    where candidates are scored again.
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

    @property
    def live(self) -> int:
        """Rows that are not deleted."""
        return self.rows - self.deleted


@dataclass(frozen=True)
class TrainedEntry(IndexFileEntry):
    """The quantizer: trainings up to this one, rows it was trained on and for, and how well it
    served them then.

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
    """Recall at `k` with its 95 % interval, over so many queries."""

    k: int
    value: float
    low: float
    high: float
    queries: int


@dataclass(frozen=True)
class TunedRecallEntry(RecallEntry):
    """Recall of an index as it is searched, and the one it was tuned for."""

    nprobe: int = 0
    rerank: int = 0
    target: float = 0.0


@dataclass(frozen=True)
class ChangeEntry(JsonEntry):
    """What became of an index in a run: "trained", "followed" or "compacted", why, and its rows."""

    what: str
    why: str
    added: int
    deleted: int
    moved: int


@dataclass(frozen=True)
class TriedEntry(JsonEntry):
    """A kind of index as it did on a sample: bytes held for a row and read for a query, recall at
    10 and at 100.
    """

    factory: str
    row_bytes: int
    query_bytes: int
    nprobe: int
    recall: float | None
    recall_100: float | None


@dataclass(frozen=True)
class ChoiceEntry(JsonEntry):
    """Why an index is of its kind, the bytes it holds for a row and reads for a query, and the
    kinds compared.
    """

    why: str
    row_bytes: int
    query_bytes: int = 0
    tried: tuple[TriedEntry, ...] = ()


@dataclass(frozen=True)
class IndexEntry(JsonEntry):
    """The index of a snapshot; `queries` are the held-out texts whose true neighbours are known."""

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

    @classmethod
    def from_json(cls, value: Any, where: str = "index", **beside: Any) -> Self:
        """The entry, whose paths are the layout's whatever names a later version has for them."""
        found = super().from_json(value, where, **beside)
        _check_paths(value, where)
        return found

    def nprobe_for(self, k: int) -> int:
        """How many lists to search for k rows: as tuned for 10, or for 100 where more than 10 are
        wanted.
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
                named += [(segment.refine.path, segment.refine.sha256)]
        return named


def _check_paths(value: Any, where: str) -> None:
    for name, item in value.items() if isinstance(value, dict) else ():
        if name in ("path", "locator") or name.endswith("_path"):
            stored("index")(item, f"{where}.{name}")
        _check_paths(item, f"{where}.{name}")
    for place, item in enumerate(value) if isinstance(value, list) else ():
        _check_paths(item, f"{where}[{place}]")
