"""The rows to erase, found by reading ids and hashes alone; nothing is written.

If ids come from a column, a shard whose hashes of ids are kept is read only if one of them is asked
for: the work grows with the files that hold the rows. Earlier snapshots tell which ids the store
had, and the texts of their rows.
"""

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DataGateError, OptionError, SentenceBeamError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.where import parse_filter
from sentence_beam.transforms.steps.options.store import ForgetOptions
from sentence_beam.transforms.store.manifest import Manifest, read_manifest, snapshots
from sentence_beam.transforms.store.matches import matches
from sentence_beam.transforms.store.shards.dataset import open_dataset
from sentence_beam.transforms.store.shards.id_hashes import hash_ids, read_kept_hashes
from sentence_beam.transforms.store.shards.reject_files import read_rejects
from sentence_beam.transforms.store.shards.shard_reading import check_shard, read_shard

READ_AT_ONCE = 8
NAMED = 5
COLUMNS = ["id", "row_hash", "doc_hash"]


@dataclass
class TextHashes:
    """The hashes of an erased row's texts, and of its documents if texts are pieces."""

    rows: set[bytes] = field(default_factory=set)
    documents: set[bytes] = field(default_factory=set)


@dataclass
class SelectedRows:
    """The rows to erase.

    `texts` of each row by its id. `masks` bool [rows] of each shard of the current snapshot that
    has such rows, by its path; `rejects` the files of its rejected rows that have any. `partly` is
    the number of documents of which an expression matched some pieces alone. With `by_id`, rows
    have ids of their own; otherwise all rows with an equal text are among them.
    """

    by_id: bool
    texts: dict[str, TextHashes] = field(default_factory=dict)
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    rejects: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    shared: set[bytes] = field(default_factory=set)
    partly: int = 0

    @property
    def rows(self) -> int:
        """The number of rows, or of pieces, in the current snapshot."""
        return sum(int(mask.sum()) for mask in self.masks.values())

    @property
    def hashes(self) -> set[bytes]:
        """The hashes of the rows' texts, without those of pieces that other documents have."""
        return {text for texts in self.texts.values() for text in texts.rows} - self.shared

    @property
    def documents(self) -> set[bytes]:
        """The hashes of the rows' documents."""
        return {text for texts in self.texts.values() for text in texts.documents}

    def units(self, manifest: Manifest) -> list[str]:
        """Return the units of the current snapshot with such rows, written or rejected."""
        table = manifest.read_units("unit", "path", "rejects")
        holds = np.zeros(len(table), bool)
        for name, paths in (("path", self.masks), ("rejects", self.rejects)):
            wanted = pa.array(sorted(paths), pa.string())
            holds |= pc.is_in(table.column(name), wanted).to_numpy()
        return table.column("unit").filter(pa.array(holds)).to_pylist()


def select(current: Manifest, options: ForgetOptions, already: set[str]) -> SelectedRows:
    """Return the rows to erase. `already` are those of the ids that were erased before.

    Raises OptionError for ids that no row has, DataGateError if too many rows would be erased, and
    SentenceBeamError naming a shard or a file of rejected rows that cannot be read.
    """
    selected = SelectedRows(by_id=current.options.id_column is not None)
    ids = set(options.id)
    if options.where is not None:
        ids |= _match_ids(current, options.where, selected)
    selected.texts = {name: TextHashes() for name in ids}
    sizes = {unit["path"]: unit for unit in current.shards.to_pylist()}
    wanted = pa.array(sorted(ids), pa.string())
    _find(current.root, _list_holders(current.root, sizes, wanted), selected, wanted)
    _find_earlier(current, _list_earlier_shards(current) - sizes.keys(), selected)
    if not selected.by_id:
        _find_same_texts(current.root, [*sizes], selected)
    _find_rejects(current, selected)
    _check_missing(current, selected, options, already)
    if selected.rows > options.max_deletes * current.rows.stored:
        raise DataGateError(
            f"{format_count(selected.rows, 'row')} of {current.rows.stored:,} would be erased, more"
            f" than {cite('max_deletes')} {options.max_deletes:g} allows; nothing was changed,"
            " narrow it or raise the limit"
        )
    for path in selected.masks:
        with name_damage(storage.join(current.root, path)):
            check_shard(storage.join(current.root, path), sizes[path]["sha256"].hex())
    return selected


@contextlib.contextmanager
def name_damage(path: str) -> Iterator[None]:
    """Raise SentenceBeamError with what to do if a file of the store cannot be read."""
    try:
        yield
    except SentenceBeamError as error:
        raise SentenceBeamError(
            f"{path} is missing or damaged, and may hold one of the rows; nothing was erased:"
            " remove it, run embed, which makes it again, then forget"
        ) from error


def _list_earlier_shards(current: Manifest) -> set[str]:
    """Return the shards of all other snapshots that can be read."""
    shards: set[str] = set()
    for run in snapshots(current.root):
        with contextlib.suppress(SentenceBeamError):
            manifest = read_manifest(current.root, run)
            if manifest is not None:
                shards |= {*manifest.shards.column("path").to_pylist()}
    return shards


def _match_ids(current: Manifest, where: str, selected: SelectedRows) -> set[str]:
    """Return the ids of the rows of the current snapshot that match an expression."""
    expression = parse_filter(where, open_dataset(current).schema)
    ids: set[str] = set()
    others: set[str] = set()
    paths = current.shards.column("path").to_pylist()
    is_cut = current.rows.pieces is not None
    for path, mask in zip(paths, matches(current, expression).shards, strict=True):
        if not mask.any() and not is_cut:
            continue
        names = _read(storage.join(current.root, path)).column("id")
        ids |= {*names.filter(pa.array(mask)).to_pylist()}
        if is_cut:
            others |= {*names.filter(pa.array(~mask)).to_pylist()}
    selected.partly = len(ids & others)
    return ids


def _read(path: str) -> pa.Table:
    """Return ids and hashes of all rows of a shard."""
    with name_damage(path):
        batches = list(read_shard(path, COLUMNS))
    if batches:
        return pa.Table.from_batches(batches)
    return pa.table({"id": pa.array([], pa.string()), "row_hash": pa.array([], pa.binary(16))})


def _list_holders(root: str, paths: Iterable[str], ids: pa.StringArray) -> list[str]:
    """Return the shards that may hold a row with one of the ids, by the kept hashes of their ids.

    A shard without kept hashes may hold any row.
    """
    wanted = hash_ids(ids)

    def may_hold(path: str) -> bool:
        hashes = read_kept_hashes(root, path)
        return hashes is None or bool(np.isin(hashes, wanted).any())

    every = list(paths)
    with (
        progress.stage("reading hashes of ids", len(every), "shards"),
        ThreadPoolExecutor(READ_AT_ONCE) as pool,
    ):
        return [path for path, holds in zip(every, pool.map(may_hold, every), strict=True) if holds]


def _read_tables(root: str, paths: list[str]) -> Iterator[tuple[str, pa.Table]]:
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:
        tables = pool.map(lambda path: _read(storage.join(root, path)), paths)
        for path, table in zip(paths, tables, strict=True):
            progress.step()
            yield path, table


def _find(
    root: str, paths: list[str], selected: SelectedRows, wanted: pa.Array, column: str = "id"
) -> None:
    """Add the rows of some shards that have any of the wanted values of a column."""
    with progress.stage("finding the rows", len(paths), "shards"):
        for path, table in _read_tables(root, paths):
            if column not in table.column_names:
                continue
            mask = pc.is_in(table.column(column), wanted).to_numpy()
            if mask.any():
                selected.masks[path] = mask | selected.masks.get(path, False)
                _note(selected, table.filter(pa.array(mask)))


def _find_earlier(current: Manifest, paths: Iterable[str], selected: SelectedRows) -> None:
    """Note the texts that the rows had in earlier snapshots, whose shards are removed.

    An id that is made of a place may have been another row's, and only tells rows that are gone.
    """
    ids = [name for name, texts in selected.texts.items() if selected.by_id or not texts.rows]
    wanted = pa.array(sorted(ids), pa.string())
    if not len(wanted):
        return
    for path in _list_holders(current.root, paths, wanted):
        with contextlib.suppress(SentenceBeamError):
            table = _read(storage.join(current.root, path))
            _note(selected, table.filter(pc.is_in(table.column("id"), wanted)))


def _note(selected: SelectedRows, rows: pa.Table) -> None:
    documents: list[Any] = [None] * len(rows)
    if "doc_hash" in rows.column_names:
        documents = rows.column("doc_hash").to_pylist()
    columns = (rows.column(name).to_pylist() for name in ("id", "row_hash"))
    for name, text, document in zip(*columns, documents, strict=True):
        texts = selected.texts.setdefault(name, TextHashes())
        texts.rows.add(text)
        if document is not None:
            texts.documents.add(document)


def _find_same_texts(root: str, paths: list[str], selected: SelectedRows) -> None:
    """Add the rows with the texts of those that were found.

    Ids that are made of places change with the input, so an erased row is known by its text. Notes
    the pieces that other documents have too.
    """
    hashes = selected.documents or selected.hashes
    column = "doc_hash" if selected.documents else "row_hash"
    if not hashes:
        return
    _find(root, paths, selected, pa.array(sorted(hashes), pa.binary(16)), column)
    if column == "row_hash":
        return
    pieces = pa.array(sorted(selected.hashes), pa.binary(16))
    with progress.stage("finding pieces of other documents", len(paths), "shards"):
        for path, table in _read_tables(root, paths):
            mask = pc.is_in(table.column("row_hash"), pieces).to_numpy()
            others = mask & ~selected.masks.get(path, np.zeros(len(mask), bool))
            selected.shared |= {*table.column("row_hash").filter(pa.array(others)).to_pylist()}


def _find_rejects(current: Manifest, selected: SelectedRows) -> None:
    """Note the files of rejected rows with the rows, and the ids among these.

    An excerpt that cannot be compared may be of one of the rows (`embed.erased`).
    """
    for path, sha256 in list_reject_files(current):
        full = storage.join(current.root, path)
        with name_damage(full):
            rows = read_rejects(full, sha256)
        ids = {row.id for row in rows if row.id in selected.texts}
        unknown = [row for row in rows if row.excerpt and (row.id is None or not selected.by_id)]
        if ids or unknown:
            selected.rejects.add(path)
        selected.rejected |= {name for name in ids if name is not None}


def list_reject_files(manifest: Manifest) -> list[tuple[str, str]]:
    """Return path and sha256 of the reject files of a snapshot."""
    units = manifest.read_units("unit", "rejects", "rejects_sha256")
    return [
        (unit["rejects"], unit["rejects_sha256"].hex())
        for unit in units.filter(units.column("rejects").is_valid()).to_pylist()
    ]


def _check_missing(
    current: Manifest, selected: SelectedRows, options: ForgetOptions, already: set[str]
) -> None:
    """Raise OptionError for ids that the store never had, unless they are allowed."""
    missing = [
        name
        for name in options.id
        if not selected.texts[name].rows and name not in selected.rejected and name not in already
    ]
    if not missing or options.missing_ok:
        return
    shown = ", ".join(repr(name) for name in missing[:NAMED])
    if len(missing) > NAMED:
        shown = f"{shown} and {len(missing) - NAMED:,} more"
    raise OptionError(
        f"{current.root} has no row with the id {shown}; leave it out, or say"
        f" {cite('missing_ok=True')}"
    )
