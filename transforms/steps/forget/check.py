"""A check that no file of a store has an erased row, by the keyed hashes alone.

Where rows have ids of their own, an erased row is known by its id, and in files without ids by the
hash of its text, unless another row has that text. Where ids are made of places, which other rows
may take, it is known by its text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.columns import total
from sentence_beam.transforms.base.errors import OptionError, refuse_damage
from sentence_beam.transforms.corpus.rows import FORGOTTEN
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.forget.leftovers import files_of
from sentence_beam.transforms.steps.forget.receipt import is_unlisted
from sentence_beam.transforms.steps.forget.select import reject_digests
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRows,
    hash_of_id,
    hash_of_text,
    read_rows,
)
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.rejects import read_rejects

IDS = ("id",)
HASHES = ("row_hash", "doc_hash", "text_hash")
TABLES = ("shards", "rejects", "index", "watch", "canary")


@dataclass
class _ErasedHashes:
    """The keyed hashes to look for; `live` are texts that rows of the store have."""

    key: bytes
    by_id: bool
    ids: frozenset[str]
    texts: frozenset[str]
    live: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, rows: ForgottenRows, key: bytes) -> "_ErasedHashes":
        shared = {text for row in rows.rows for text in row.shared}
        texts = {text for row in rows.rows for text in (*row.texts, *row.documents)}
        ids = frozenset(row.id for row in rows.rows)
        return cls(key, rows.by_id, ids, frozenset(texts - shared))

    def has_id(self, values: Iterable[str | None]) -> bool:
        """Return whether one of the ids is an erased row's."""
        return any(
            value is not None and hash_of_id(self.key, value) in self.ids for value in values
        )

    def texts_in(self, values: Iterable[bytes | None]) -> set[str]:
        """Return the keyed hashes of texts of erased rows."""
        return {
            name
            for value in values
            if value is not None and (name := hash_of_text(self.key, value)) in self.texts
        }


def forgotten_faults(manifest: Manifest, given: bytes | None) -> list[str]:
    """Return a line for each file of a store that has an erased row, and for counts that differ.

    Raises OptionError if no row was erased, or the key is missing or wrong.
    """
    root = manifest.root
    if manifest.forgotten is None:
        raise OptionError(f"--forgotten: no row of {root} was erased; leave it out")
    rows = read_rows(root, manifest.forgotten)
    wanted = _ErasedHashes.of(rows, rows.key_with(given, root))
    files = files_of(root)
    tables = [path for path in files if layout.kind(path) in TABLES and path.endswith(".parquet")]
    found = []
    late: list[tuple[str, set[str]]] = []
    with progress.stage("looking for erased rows", len(tables), "files"):
        for path in sorted(tables, key=lambda path: layout.kind(path) != "shards"):
            traces = _traces(storage.join(root, path), wanted, layout.kind(path) == "shards")
            if traces is None:
                found.append(f"{storage.join(root, path)} has the id of an erased row")
            elif traces:
                late.append((path, traces))
            progress.step()
    found += [
        f"{storage.join(root, path)} has the hash of an erased row's text"
        for path, traces in late
        if traces - wanted.live
    ]
    return [*found, *_stray_hashes(root, files), *_counts(manifest, rows)]


def _traces(path: str, wanted: _ErasedHashes, is_shard: bool) -> set[str] | None:
    """Return the keyed hashes of erased texts in a Parquet file; None if it has an erased id."""
    table = _read_columns(path, (*IDS, *HASHES, "text"))
    if wanted.by_id and "id" in table.column_names:
        if wanted.has_id(table.column("id").to_pylist()):
            return None
    found: set[str] = set()
    for name in HASHES:
        if name in table.column_names:
            found |= wanted.texts_in(table.column(name).to_pylist())
    if not is_shard and "text" in table.column_names:  # of queries
        texts = [text for text in table.column("text").to_pylist() if text is not None]
        found |= wanted.texts_in(row_hashes(texts))
    if is_shard and wanted.by_id:  # another row, which came later, has the text
        wanted.live |= found
        return set()
    return found


def _read_columns(path: str, columns: Sequence[str]) -> pa.Table:
    """Read those of the columns that a Parquet file has."""
    with refuse_damage(f"{path} cannot be read", "see verify"):
        file = pq.ParquetFile(pa.BufferReader(storage.read_bytes(path)))
        names = file.schema_arrow.names
        return file.read([name for name in columns if name in names])


def _stray_hashes(root: str, files: list[str]) -> Iterator[str]:
    """Yield a line for hashes of ids without their shard."""
    shards = {layout.stem(path) for path in files if layout.kind(path) == "shards"}
    for path in files:
        if layout.kind(path) == "ids" and layout.stem(path) not in shards:
            yield f"{storage.join(root, path)} has hashes of ids of a shard that is gone"


def _counts(manifest: Manifest, rows: ForgottenRows) -> Iterator[str]:
    """Yield a line if the erased rows that were rejected are not those that units count."""
    counted = total(manifest.read_units("forgotten"), "forgotten")
    known = {row.id for row in rows.rows}
    known |= {text for row in rows.rows for text in (*row.texts, *row.documents, *row.shared)}
    names: list[str | None] = []
    for path, sha256 in reject_digests(manifest):
        rejects = read_rejects(storage.join(manifest.root, path), sha256)
        names += [reject.id for reject in rejects if reject.reason == FORGOTTEN]
    if len(names) != counted:
        yield f"ledger: {len(names)} rejected rows were erased, the units count {counted}"
    if not known.issuperset(names):
        yield f"{manifest.root}: a rejected row is said to be erased, and is none of those listed"


def unlisted(root: str) -> list[str]:
    """Return the full paths of files in a store that are none of those that it may hold."""
    return [storage.join(root, path) for path in files_of(root) if is_unlisted(path)]
