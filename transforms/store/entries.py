"""The parts of a manifest and the checks of their fields; every path must be one of `layout`."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from sentence_beam.transforms.base.json_entries import SPARSE, JsonEntry, Reader, fail, hex_digest
from sentence_beam.transforms.space import DEFAULT_MODEL
from sentence_beam.transforms.store import layout


def stored(kind: str) -> Reader:
    """Return the reader of a path of a file of one kind, relative to the store."""

    def read(value: Any, where: str) -> str:
        if not layout.is_a(kind, value):
            fail(where, f"a path of this store's {kind}")
        path: str = value
        return path

    return read


def _read_run(value: Any, where: str) -> str:
    return value if layout.is_run(value) else fail(where, "the name of a run")


RunName = Annotated[str, _read_run]  # part of paths
TEXT = "text"  # the column of a shard with the text of its rows
Digest = Annotated[str, hex_digest]  # in hex, part of paths


@dataclass(frozen=True)
class RememberedOptions(JsonEntry):
    """The options that a store remembers.

    The defaults are those of a new store. `keep_types` are the words for the types of kept columns
    that were given, or found in JSON, by name. `own_prompts` names those prompts that were not
    given and are the model's.
    """

    format: str = "auto"
    delimiter: str | None = None
    csv: str | None = field(default=None, metadata=SPARSE)
    json_rows: str | None = field(default=None, metadata=SPARSE)
    text_column: str = "text"
    text_template: str | None = None
    id_column: str | None = None
    keep_columns: tuple[str, ...] = ()
    keep_types: dict[str, str] = field(default_factory=dict, metadata=SPARSE)
    keep_text: bool = True
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
    max_answer_change: float | None = field(default=None, metadata=SPARSE)
    budget: int | None = field(default=None, metadata=SPARSE)
    deterministic: bool = False
    query_prompt: str | None = None
    own_prompts: tuple[str, ...] = field(default=(), metadata=SPARSE)
    hidden: bool = False
    dtype: str = "auto"
    metric: str | None = None

    @property
    def user_prompts(self) -> tuple[str | None, str | None]:
        """The prompts of rows and queries that a user gave; None for one that is the model's."""
        prompt = None if "prompt" in self.own_prompts else self.prompt
        query_prompt = None if "query_prompt" in self.own_prompts else self.query_prompt
        return prompt, query_prompt

    @property
    def kept_text(self) -> str | None:
        """The column of a shard with the rows' text; None if none has it.

        This is the kept column itself, else `text`.
        """
        if self.keeps_text_column:
            return self.text_column
        return TEXT if self.keep_text else None

    @property
    def keeps_text_column(self) -> bool:
        """Whether the text is one of the kept columns."""
        return self.text_template is None and self.text_column in self.keep_columns


@dataclass(frozen=True)
class Input(JsonEntry):
    """The patterns that name a snapshot's input.

    `tables` are the versions of those patterns that name a table.
    """

    globs: tuple[str, ...]
    tables: dict[str, str] = field(default_factory=dict, metadata=SPARSE)


@dataclass(frozen=True)
class TablePart(JsonEntry):
    """A file with rows of a table: how many, and the keys of its first and last row."""

    path: Annotated[str, stored("parts")]
    sha256: Digest
    rows: int
    first: str
    last: str

    def __hash__(self) -> int:
        return hash(self.sha256)


@dataclass(frozen=True)
class TableEntry(JsonEntry):
    """A table of a snapshot, `files` or `units`: its rows, and the parts that have them."""

    rows: int = 0
    parts: tuple[TablePart, ...] = ()

    @classmethod
    def from_parts(cls, parts: Iterable[TablePart]) -> "TableEntry":
        """Return the table of some parts, with the sum of their rows."""
        every = tuple(parts)
        return cls(sum(part.rows for part in every), every)


@dataclass(frozen=True)
class RangesEntry(JsonEntry):
    """The bounds between which whole numbers count.

    `digest` is that of the file, `space` the id of the floats' space.
    """

    path: Annotated[str, stored("ranges")]
    digest: str
    space: str


@dataclass(frozen=True)
class CanaryEntry(JsonEntry):
    """The file of the texts by which a store notices a changed model."""

    path: Annotated[str, stored("canary")]
    sha256: str


@dataclass(frozen=True)
class WatchFileEntry(JsonEntry):
    """A file of the watched queries, named by its bytes."""

    path: Annotated[str, stored("watch")]
    sha256: Digest


@dataclass(frozen=True)
class WatchEntry(JsonEntry):
    """The queries that a store watches, and this snapshot's answers.

    Each query has `k` answers. `digest` covers queries and `k`, but not the vectors of the queries,
    which change with the model.
    """

    queries: WatchFileEntry
    answers: WatchFileEntry
    count: int
    k: int
    digest: Digest

    @property
    def files(self) -> list[WatchFileEntry]:
        """All files that the entry names."""
        return [self.queries, self.answers]


@dataclass(frozen=True)
class ChangedRowsEntry(JsonEntry):
    """A file with changed rows, their number, and the file's sha256."""

    path: Annotated[str, stored("changes")]
    sha256: Digest
    rows: int


@dataclass(frozen=True)
class ChangesEntry(JsonEntry):
    """All files that list the rows which changed since the snapshot of the run `since`.

    They exist as long as that snapshot does.
    """

    since: RunName
    files: tuple[ChangedRowsEntry, ...] = ()


@dataclass(frozen=True)
class ForgottenEntry(JsonEntry):
    """The list of the rows that were erased: a file named by its bytes, and how many there are.

    `run` erased rows last.
    """

    path: Annotated[str, stored("forgotten")]
    sha256: Digest
    rows: int
    run: str


@dataclass(frozen=True)
class LikeEntry(JsonEntry):
    """The store like which this one was made, and what that store had then, by option."""

    store: str
    options: dict[str, Any]


def _read_calibration(value: Any, where: str) -> str:
    """Return the folder of a calibration, relative to the store."""
    if isinstance(value, str) and layout.is_a("calibrations", f"{value}/calibration.json"):
        return value
    return fail(where, "the folder of a calibration of this store")


@dataclass(frozen=True)
class CalibrationEntry(JsonEntry):
    """The folder of a store's calibration, named by the digest."""

    digest: Digest
    path: Annotated[str, _read_calibration]
