"""The rows of all kept snapshots that are to be erased, found by reading ids and hashes alone.

If ids come from a column, a shard whose hashes of ids are kept is read only if one of them is asked
for: the work grows with the files that hold the rows.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DataGateError, OptionError, SentenceBeamError
from sentence_beam.transforms.base.numbers import counted
from sentence_beam.transforms.base.where import checked
from sentence_beam.transforms.steps.forget.damage import readable_groups
from sentence_beam.transforms.steps.forget.request import ForgetRequest
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.matches import matches
from sentence_beam.transforms.store.shards.dataset import dataset_of
from sentence_beam.transforms.store.shards.id_hashes import hash_ids, kept_hashes
from sentence_beam.transforms.store.shards.reading import read_shard
from sentence_beam.transforms.store.shards.rejects import read_rejects

READ_AT_ONCE = 8
NAMED = 5
COLUMNS = ["id", "row_hash", "doc_hash"]


@dataclass
class TextHashes:
    """The hashes of an erased row's texts, and of its documents if texts are pieces."""

    rows: set[bytes] = field(default_factory=set)
    documents: set[bytes] = field(default_factory=set)


@dataclass
class ErasedRows:
    """The rows to erase.

    `masks` bool [rows] of each shard that has any, by its path; `lost` the rows of damaged shards
    that cannot be read. `texts` of each erased row by id; `shared` are those of its hashes that
    other rows have too. `rejects` are the files of rejected rows that have one of the ids. `rows`
    is the number of rows or pieces in the current snapshot. With `by_id`, rows have ids of their
    own, and others may have the same text: the index notes these, whose locators have all hashes.
    """

    masks: dict[str, np.ndarray] = field(default_factory=dict)
    lost: dict[str, np.ndarray] = field(default_factory=dict)
    texts: dict[str, TextHashes] = field(default_factory=dict)
    shared: set[bytes] = field(default_factory=set)
    rejects: set[str] = field(default_factory=set)
    rows: int = 0
    by_id: bool = True

    @property
    def ids(self) -> set[str]:
        """The ids of the rows."""
        return set(self.texts)

    @property
    def gone(self) -> set[bytes]:
        """The hashes of texts that no other row has."""
        return {text for texts in self.texts.values() for text in texts.rows} - self.shared

    def removed(self, path: str | None) -> np.ndarray | None:
        """Return the rows that leave a shard, bool [rows]; None if all stay."""
        name = path or ""
        found = [each[name] for each in (self.masks, self.lost) if name in each]
        if not found:
            return None
        return np.logical_or.reduce(found)


def select(
    current: Manifest, kept: Iterable[Manifest], request: ForgetRequest, known: set[str]
) -> ErasedRows:
    """Return the rows to erase of all kept snapshots, the current one among them.

    `known` are those of the ids that were erased before. Raises OptionError for ids that no row
    has, DataGateError if too many rows would be erased.
    """
    snapshots = list(kept)
    sizes = _shards(snapshots)
    root = current.root
    ids = set(request.ids)
    if request.where is not None:
        ids |= _matching_ids(current, request)
    by_id = current.options.id_column is not None
    found = ErasedRows(texts={name: TextHashes() for name in ids}, by_id=by_id)
    wanted = pa.array(sorted(ids), pa.string())
    holders = _holders(root, sizes, wanted)
    with progress.stage("finding the rows", len(holders), "shards"):
        _find(root, holders, found, wanted, "id")
    if not by_id:
        _find_same_texts(root, sizes, found)
        _find_shared(root, sizes, found)
    else:  # rows that had other ids, before the column was named
        _find_same_texts(root, _shards(_with_other_ids(snapshots, current)), found)
    rejected = _rejected_ids(snapshots, found)
    missing = [
        name
        for name in request.ids
        if not found.texts[name].rows and name not in rejected and name not in known
    ]
    if missing and not request.missing_ok:
        raise OptionError(
            f"{root} has no row with the id {_named(missing)}; leave it out, or say --missing-ok"
        )
    _check_share(current, found, request)
    return found


def _with_other_ids(snapshots: list[Manifest], current: Manifest) -> list[Manifest]:
    column = current.options.id_column
    return [one for one in snapshots if one.options.id_column != column]


def _shards(snapshots: list[Manifest]) -> dict[str, int]:
    found: dict[str, int] = {}
    for manifest in snapshots:
        shards = manifest.shards.to_pydict()
        found |= zip(shards["path"], shards["rows"], strict=True)
    return found


def _holders(root: str, sizes: dict[str, int], ids: pa.StringArray) -> dict[str, int]:
    """Return the shards that may hold a row with one of the ids, by the kept hashes of their ids.

    A shard without kept hashes may hold any row.
    """
    wanted = hash_ids(ids)

    def may_hold(path: str) -> bool:
        hashes = kept_hashes(root, path)
        return hashes is None or bool(np.isin(hashes, wanted).any())

    paths = list(sizes)
    with (
        progress.stage("reading hashes of ids", len(paths), "shards"),
        ThreadPoolExecutor(READ_AT_ONCE) as pool,
    ):
        return {
            path: sizes[path]
            for path, holds in zip(paths, pool.map(may_hold, paths), strict=True)
            if holds
        }


def _named(ids: list[str]) -> str:
    shown = ", ".join(repr(name) for name in ids[:NAMED])
    if len(ids) > NAMED:
        return f"{shown} and {len(ids) - NAMED:,} more"
    return shown


def _matching_ids(current: Manifest, request: ForgetRequest) -> set[str]:
    """Return the ids of the rows of the current snapshot that match the expression.

    Raises OptionError if it matches some pieces of a document and others not.
    """
    expression = checked(request.where or "", dataset_of(current).schema)
    found: set[str] = set()
    others: set[str] = set()
    paths = current.shards.column("path").to_pylist()
    cut = current.rows.pieces is not None and not request.documents
    for path, mask in zip(paths, matches(current, expression).shards, strict=True):
        if not mask.any() and not cut:
            continue
        ids = _read(storage.join(current.root, path), len(mask)).column("id")
        found |= set(ids.filter(pa.array(mask)).to_pylist())
        if cut:
            others |= set(ids.filter(pa.array(~mask)).to_pylist())
    partly = sorted(found & others)
    if partly:
        raise OptionError(
            f"--where matches some pieces of document {partly[0]!r}, and others not; say"
            " --documents to erase whole documents"
        )
    return found


def _read(path: str, rows: int) -> pa.Table:
    """Return ids and hashes of all rows of a shard; null for rows that cannot be read."""
    try:
        batches = list(read_shard(path, COLUMNS))
        if batches:
            return pa.Table.from_batches(batches)
    except SentenceBeamError:
        return readable_groups(path, rows).table(COLUMNS)
    return pa.table({"id": pa.array([], pa.string()), "row_hash": pa.array([], pa.binary(16))})


def _tables(root: str, sizes: dict[str, int]) -> Iterator[tuple[str, pa.Table]]:
    paths = list(sizes)
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:
        tables = pool.map(lambda path: _read(storage.join(root, path), sizes[path]), paths)
        for path, table in zip(paths, tables, strict=True):
            progress.step()
            yield path, table


def _find(
    root: str, sizes: dict[str, int], found: ErasedRows, wanted: pa.Array, column: str
) -> None:
    """Add the rows that have any of the wanted values of a column."""
    for path, table in _tables(root, sizes):
        lost = table.column("id").is_null().to_numpy()
        if lost.any():
            found.lost[path] = lost
        if column not in table.column_names:
            continue
        mask = pc.is_in(table.column(column), wanted).to_numpy() & ~lost
        if not mask.any():
            continue
        found.masks[path] = mask | found.masks.get(path, False)
        _note(found, table.filter(pa.array(mask)))


def _note(found: ErasedRows, rows: pa.Table) -> None:
    documents = rows.column("doc_hash").to_pylist() if "doc_hash" in rows.column_names else []
    for place, (name, text) in enumerate(
        zip(rows.column("id").to_pylist(), rows.column("row_hash").to_pylist(), strict=True)
    ):
        texts = found.texts.setdefault(name, TextHashes())
        texts.rows.add(text)
        if documents:
            texts.documents.add(documents[place])


def _find_same_texts(root: str, sizes: dict[str, int], found: ErasedRows) -> None:
    """Add the rows of shards with the texts of those that were found.

    Ids that are made of places change with the input, so an erased row is known by its text.
    """
    documents = {text for texts in found.texts.values() for text in texts.documents}
    rows = {text for texts in found.texts.values() for text in texts.rows if not texts.documents}
    for column, hashes in (("doc_hash", documents), ("row_hash", rows)):
        if hashes and sizes:
            with progress.stage("finding equal texts", len(sizes), "shards"):
                _find(root, sizes, found, pa.array(sorted(hashes), pa.binary(16)), column)


def _find_shared(root: str, sizes: dict[str, int], found: ErasedRows) -> None:
    """Note which hashes of the rows' texts other rows have too."""
    hashes = sorted({text for texts in found.texts.values() for text in texts.rows})
    if not hashes:
        return
    wanted = pa.array(hashes, pa.binary(16))
    with progress.stage("finding texts of other rows", len(sizes), "shards"):
        for path, table in _tables(root, sizes):
            mask = pc.is_in(table.column("row_hash"), wanted).to_numpy()
            removed = found.removed(path)
            if removed is not None:
                mask = mask & ~removed
            if mask.any():
                found.shared |= set(table.column("row_hash").filter(pa.array(mask)).to_pylist())


def _rejected_ids(snapshots: list[Manifest], found: ErasedRows) -> set[str]:
    """Return those of the ids that a rejected row has, and note the files of these rows."""
    ids = found.ids
    rejected: set[str] = set()
    files = dict(file for manifest in snapshots for file in reject_digests(manifest))
    for path, sha256 in files.items():
        rows = read_rejects(storage.join(snapshots[0].root, path), sha256)
        named = ids & {row.id for row in rows if row.id is not None}
        if named:
            found.rejects.add(path)
            rejected |= named
    return rejected


def reject_digests(manifest: Manifest) -> list[tuple[str, str | None]]:
    """Return path and sha256 of the reject files of a snapshot."""
    units = manifest.read_units("unit", "rejects", "rejects_sha256")
    return [
        (unit["rejects"], unit["rejects_sha256"] and unit["rejects_sha256"].hex())
        for unit in units.filter(units.column("rejects").is_valid()).to_pylist()
    ]


def _check_share(current: Manifest, found: ErasedRows, request: ForgetRequest) -> None:
    found.rows = sum(
        int(mask.sum()) for path, mask in found.masks.items() if current.shard_number(path) >= 0
    )
    stored = current.rows.stored
    if found.rows > request.max_deletes * stored:
        raise DataGateError(
            f"{counted(found.rows, 'row')} of {stored:,} would be erased, more than --max-deletes"
            f" {request.max_deletes:g} allows; nothing was changed, narrow it or raise the limit"
        )
