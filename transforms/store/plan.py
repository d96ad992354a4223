"""The plan on record: every file and span of a run, written before anything is embedded."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from transforms import storage
from transforms.arrow import parquet_bytes, table_of
from transforms.corpus import InputFile, Span
from transforms.corpus.beside import Beside
from transforms.corpus.buckets import Buckets
from transforms.corpus.files import compression_of
from transforms.corpus.groups import AnySpan, GroupSpan
from transforms.errors import SentenceBeamError, first_line
from transforms.measures import Summary, summed
from transforms.store import layout
from transforms.store.carried import NOTHING, Checked
from transforms.store.entries import InputEntry
from transforms.store.ledger import PLAN_FIELDS, PlannedSpan, place_of, span_name
from transforms.store.records import UnitRecord
from transforms.store.runs import now

SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("path", pa.string()),
        ("format", pa.string()),
        ("size", pa.int64()),
        ("checksum", pa.string()),
        ("version", pa.string()),
        ("name", pa.string()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("rows", pa.int64()),
        ("tokens", pa.int64()),
        ("carried", pa.bool_()),
    ]
)
# in the file's metadata
BUCKETS, CHECKED, BESIDE = b"buckets", b"checked", b"beside"
MEASURES, WRITTEN = b"measures", b"written"


@dataclass(frozen=True)
class PlannedFile:
    """An input file and what a run does with it: spans to embed, or units of the last snapshot to carry over.

    Small files have none where they are in a group: the first of them has the `group`'s span, or its units.

    `kept` is the type of each kept column, None for a file that was not opened, since it has not changed; `keys` are
    those of them that it is seen to have, None where there was no row to tell. `checked` is what came of looking at the
    shards that might be carried over. `figures` say what planning it took (`measures.STAGES`).
    """

    file: InputFile
    spans: tuple[Span, ...] = ()
    carried: tuple[UnitRecord, ...] = ()
    kept: tuple[tuple[str, str], ...] | None = None
    checked: Checked = NOTHING
    figures: dict[str, float] = field(default_factory=dict, compare=False)
    keys: tuple[str, ...] | None = None
    group: GroupSpan | None = None

    @property
    def work(self) -> list[AnySpan]:
        """The spans to embed, that of a group too."""
        return [*self.spans, self.group] if self.group else [*self.spans]

    @property
    def planned(self) -> list[tuple[PlannedSpan, int]]:
        """The spans that the ledger will demand, each with its estimated tokens."""
        name = self.file.relative
        spans = [(PlannedSpan(s.name, name, s.start, s.stop, s.rows, False), s.tokens) for s in self.work]
        return spans + [(span, 0) for span in _carried_spans(name, self.carried)]


def file_of(entry: InputEntry) -> InputFile:
    """The input file of an entry in a manifest."""
    compression = compression_of(entry.path, entry.format)
    return InputFile(entry.source, entry.path, entry.format, compression, entry.size, entry.checksum, entry.version)


def rows_at_most(planned: Iterable[PlannedFile]) -> int | None:
    """The rows of all files, those that may be rejected included; None where a file's are not known."""
    items = list(planned)
    read = [span.rows for item in items for span in item.work]
    if None in read:
        return None
    return sum(filter(None, read)) + sum(unit.written for item in items for unit in item.carried)


def _carried_spans(file: str, units: tuple[UnitRecord, ...]) -> list[PlannedSpan]:
    spans: dict[str, list[UnitRecord]] = {}
    for unit in sorted(units, key=place_of):
        spans.setdefault(span_name(unit.unit), []).append(unit)
    return [
        PlannedSpan(name, file, parts[0].range[0], parts[-1].range[1], sum(p.read for p in parts), True)
        for name, parts in spans.items()
    ]


@dataclass(frozen=True)
class RecordedPlan:
    """A plan that was read back: files as manifests list them, spans or buckets as the ledger checks them.

    `measures` say what planning took, `written` when it ended ("" where an earlier version wrote it). `beside` are the
    files that lie beside those of the input and were not taken, by reason.
    """

    files: list[InputEntry]
    spans: list[PlannedSpan]
    tokens: int
    buckets: Buckets | None = None
    checked: Checked = NOTHING
    measures: dict[str, Summary] = field(default_factory=dict)
    written: str = ""
    beside: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int | None:
        """The rows of the corpus, None where the plan does not know them all."""
        rows = [span.rows for span in self.spans]
        return None if None in rows else sum(r for r in rows if r is not None)


def write_plan(
    root: str, run: str, files: Iterable[PlannedFile], buckets: Buckets | None = None, beside: Beside | None = None
) -> None:
    """Record a run's plan in its folder; `buckets` where these are the units."""
    listed = list(files)
    metadata = {CHECKED: json.dumps(asdict(Checked.sum(file.checked for file in listed)))}
    metadata |= {MEASURES: json.dumps(summed(file.figures for file in listed)), WRITTEN: now()}
    metadata |= {BUCKETS: json.dumps(asdict(buckets))} if buckets else {}
    metadata |= {BESIDE: json.dumps(beside.total())} if beside else {}
    rows = [row for file in listed for row in _table_rows(file)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(metadata))
    path = storage.join(root, layout.plan(run))
    storage.storage_of(path).put_if_absent(path, parquet_bytes(table, write_page_checksum=True))


def _table_rows(planned: PlannedFile) -> list[dict[str, Any]]:
    f = planned.file
    file = {"file": f.relative, "path": f.path, "format": f.format, "size": f.size}
    file |= {"checksum": f.checksum, "version": f.version}
    spans = [
        {**file, "tokens": tokens, **{name: getattr(span, name) for name in PLAN_FIELDS}}
        for span, tokens in planned.planned
    ]
    return spans or [file]


def has_plan(root: str, run: str) -> bool:
    """Whether a run has recorded its plan."""
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).stat(path) is not None


def read_plan(root: str, run: str) -> RecordedPlan:
    """The plan of a run. Raises SentenceBeamError where it has none, or where that was changed."""
    path = storage.join(root, layout.plan(run))
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        raise SentenceBeamError(f"{path} is missing; run again")
    try:
        return _plan_of(found[0])
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise SentenceBeamError(f"{path} is not the plan that was written ({first_line(error)}); run again") from error


def _plan_of(data: bytes) -> RecordedPlan:
    files: dict[str, InputEntry] = {}
    spans, tokens = [], 0
    table = table_of(data)
    table = table.cast(SCHEMA.with_metadata(table.schema.metadata))
    for row in table.to_pylist():
        kept = {name: row[name] for name in ("format", "size", "checksum", "version")}
        files[row["file"]] = InputEntry(row["file"], row["path"], **kept)
        if row["name"] is not None:
            spans.append(PlannedSpan(**{name: row[name] for name in PLAN_FIELDS}))
            tokens += row["tokens"]
    metadata = table.schema.metadata or {}
    return RecordedPlan(
        list(files.values()),
        spans,
        tokens,
        Buckets(**json.loads(metadata[BUCKETS])) if BUCKETS in metadata else None,
        Checked(**json.loads(metadata.get(CHECKED, b"{}"))),
        json.loads(metadata.get(MEASURES, b"{}")),
        metadata.get(WRITTEN, b"").decode(),
        json.loads(metadata.get(BESIDE, b"{}")),
    )
