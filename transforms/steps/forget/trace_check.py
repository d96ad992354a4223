"""A check that no file of a store has an erased row, by the keyed hashes alone.

Where rows have ids of their own, an erased row is known by its id, and in files without ids by the
hash of its text, unless another row has that text. Where ids are made of places, which other rows
may take, it is known by its text.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.columns import sum_column
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite, refuse_damage
from sentence_beam.transforms.corpus.rows import FORGOTTEN
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.forget.select import list_reject_files
from sentence_beam.transforms.steps.index.held_out import KnownQueries
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRows,
    hash_id,
    hash_text,
    read_rows,
)
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.reject_files import read_rejects
from sentence_beam.transforms.store.shards.shard_reading import read_shard

HASHES = ("row_hash", "doc_hash", "text_hash")
TABLES = ("shards", "rejects", "index", "watch", "changes")


@dataclass
class _ErasedHashes:
    """The keyed hashes to look for.

    `texts` are those of rows known by their text, `pieces` those of their pieces, `of_ids` those of
    the texts of rows known by their id. `live` are those of the latter two that rows have now.
    """

    key: bytes
    ids: frozenset[str]
    texts: frozenset[str]
    pieces: frozenset[str]
    of_ids: frozenset[str]
    live: set[str] = field(default_factory=set)

    @classmethod
    def from_rows(cls, rows: ForgottenRows) -> "_ErasedHashes":
        by_id = [row for row in rows.rows if row.by_id]
        by_text = [row for row in rows.rows if not row.by_id]
        return cls(
            key=rows.key_bytes,
            ids=frozenset(row.id for row in by_id),
            texts=frozenset(text for row in by_text for text in (row.documents or row.texts)),
            pieces=frozenset(text for row in by_text if row.documents for text in row.texts),
            of_ids=frozenset(text for row in by_id for text in (*row.texts, *row.documents)),
        )

    def has_id(self, table: pa.Table) -> bool:
        """Return whether a row of a table has the id of an erased one."""
        if not self.ids or "id" not in table.column_names:
            return False
        ids = table.column("id").drop_null().to_pylist()
        return any(hash_id(self.key, name) in self.ids for name in ids)

    def hash_texts(self, values: Iterable[bytes | None]) -> set[str]:
        """Return the keyed hashes of texts that may be of erased rows."""
        names = {hash_text(self.key, value) for value in values if value is not None}
        return names & (self.texts | self.pieces | self.of_ids)


def find_forgotten_traces(manifest: Manifest) -> list[str]:
    """Return a line for each file of a store that has an erased row, and for counts that differ.

    Files that cannot be read have a line too. Raises OptionError if no row was erased.
    """
    root = manifest.root
    if manifest.forgotten is None:
        raise OptionError(f"{cite('forgotten')}: no row of {root} was erased; leave it out")
    rows = read_rows(root, manifest.forgotten)
    wanted = _ErasedHashes.from_rows(rows)
    files = list_store_files(root)
    tables = [path for path in files if layout.kind(path) in TABLES]
    faults = []
    late: list[tuple[str, set[str]]] = []
    with progress.stage("looking for erased rows", len(tables), "files"):
        for path in sorted(tables, key=lambda path: layout.kind(path) != "shards"):
            full = storage.join(root, path)
            is_shard = layout.kind(path) == "shards"
            try:
                for table in _read_columns(full, is_shard):
                    if wanted.has_id(table):
                        faults.append(f"{full} has the id of an erased row")
                        break
                    late.append((full, _find_texts(table, wanted, is_shard)))
            except SentenceBeamError:
                faults.append(f"{full} cannot be read, and was not checked")
            progress.step()
    faults += dict.fromkeys(
        f"{full} has the hash of an erased row's text"
        for full, traces in late
        if traces - wanted.live
    )
    return [*faults, *_find_stray_hashes(root, files), *_compare_counts(manifest, rows)]


def _find_texts(table: pa.Table, wanted: _ErasedHashes, is_shard: bool) -> set[str]:
    """Return the keyed hashes of erased texts in a table.

    A text of a shard that is none of a row known by its text is another row's, which came later.
    """
    hashed: set[str] = set()
    for name in HASHES:
        if name in table.column_names:
            hashed |= wanted.hash_texts(table.column(name).to_pylist())
    if not is_shard and "text" in table.column_names:  # of queries
        texts = [text for text in table.column("text").to_pylist() if text is not None]
        hashed |= wanted.hash_texts(row_hashes(texts))
    if is_shard:
        wanted.live |= hashed - wanted.texts
    elif "id" in table.column_names and "text" not in table.column_names:
        hashed &= wanted.texts | wanted.pieces  # rows known by their id have it here
    return hashed


def _read_columns(path: str, is_shard: bool) -> Iterator[pa.Table]:
    """Yield ids, hashes and texts of queries of a file, those columns that it has."""
    with refuse_damage(f"{path} cannot be read", "see verify"):
        if is_shard:
            names = ["id", "row_hash", "doc_hash"]
            yield from (pa.Table.from_batches([batch]) for batch in read_shard(path, names))
        elif path.endswith(".parquet"):
            file = pq.ParquetFile(pa.BufferReader(storage.read_bytes(path)))
            wanted = ("id", *HASHES, "text")
            names = [name for name in file.schema_arrow.names if name in wanted]
            yield file.read(names, use_threads=False)
        elif path.endswith(".queries"):
            queries = KnownQueries.from_bytes(storage.read_bytes(path))
            hashes = np.concatenate([queries.texts, queries.crowded])
            yield pa.table({"row_hash": [text.tobytes() for text in hashes]})


def _find_stray_hashes(root: str, files: list[str]) -> Iterator[str]:
    """Yield a line for hashes of ids without their shard."""
    shards = {layout.stem(path) for path in files if layout.kind(path) == "shards"}
    for path in files:
        if layout.kind(path) == "ids" and layout.stem(path) not in shards:
            yield f"{storage.join(root, path)} has hashes of ids of a shard that is gone"


def _compare_counts(manifest: Manifest, rows: ForgottenRows) -> Iterator[str]:
    """Yield a line if the erased rows that were rejected are not those that units count."""
    counted = sum_column(manifest.read_units("forgotten"), "forgotten")
    traces = rows.ids | {text for row in rows.rows for text in (*row.texts, *row.documents)}
    names: list[str | None] = []
    for path, sha256 in list_reject_files(manifest):
        try:
            rejects = read_rejects(storage.join(manifest.root, path), sha256)
        except SentenceBeamError:  # it is among the files that cannot be read
            return
        names += [reject.id for reject in rejects if reject.reason == FORGOTTEN]
    if len(names) != counted:
        yield f"ledger: {len(names)} rejected rows were erased, the units count {counted}"
    if not traces.issuperset(names):
        yield f"{manifest.root}: a rejected row is said to be erased, and is none of those listed"


def list_store_files(root: str) -> list[str]:
    """Return the paths of all files of a store, relative to it."""
    with progress.stage("listing the store's files"):
        entries = storage.storage_of(root).below(root)
    return [entry.path.removeprefix(f"{root}/") for entry in entries]


def find_unlisted(root: str) -> list[str]:
    """Return the full paths of files in a store that are none of those that it may hold.

    Folders of runs may have any name, and locks of local stores are empty.
    """
    return [storage.join(root, path) for path in list_store_files(root) if _is_unlisted(path)]


def _is_unlisted(path: str) -> bool:
    if layout.kind(path) is not None or path in layout.BESIDE:
        return False
    of_run = path.startswith(f"{layout.RUNS}/") or layout.snapshot_run(path) is not None
    return not of_run and not path.rpartition("/")[2].startswith(".")
