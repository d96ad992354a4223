"""Rows of answers to watched queries: found by id or text, and the files that they are from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.columns import get_column
from sentence_beam.transforms.steps.watch.ask import name_hash_column
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.ledger import get_span_name
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.deleted_rows import PLACE
from sentence_beam.transforms.store.shards.shard_reading import read_shard
from sentence_beam.transforms.store.watched import Answer

Place = tuple[str, int]  # a shard, relative to the store, and a row in it


class FoundRow(NamedTuple):
    """A row of a shard: its id, the hash of its text, and its place."""

    id: str
    text_hash: bytes
    shard: str
    row: int

    @property
    def place(self) -> Place:
        """The shard, relative to the store, and the row in it."""
        return self.shard, self.row


@dataclass
class KnownRows:
    """Rows by id and by the hash of their text."""

    by_id: dict[str, list[FoundRow]] = field(default_factory=dict)
    by_text: dict[bytes, list[FoundRow]] = field(default_factory=dict)

    def add(self, row: FoundRow) -> None:
        """Add a row by its id and its text."""
        self.by_id.setdefault(row.id, []).append(row)
        self.by_text.setdefault(row.text_hash, []).append(row)

    def same(self, answer: Answer, by_text: bool) -> list[FoundRow]:
        """Return the rows that are an answer's, with the same text."""
        if by_text:
            return self.by_text.get(answer.text_hash, [])
        rows = self.by_id.get(answer.id, [])
        return [row for row in rows if row.text_hash == answer.text_hash]


def find_rows(manifest: Manifest, numbers: Iterable[int], wanted: Sequence[Answer]) -> KnownRows:
    """Return the rows with the ids or texts of answers, in the shards of these numbers."""
    known_rows = KnownRows()
    if not wanted:
        return known_rows
    ids = pa.array({answer.id for answer in wanted}, pa.string())
    texts = pa.array({answer.text_hash for answer in wanted}, pa.binary(16))
    text = name_hash_column(manifest)
    for number in numbers:
        shard = manifest.shard(number)
        start = 0
        for batch in read_shard(shard.full_path, ["id", text], shard.bytes):
            is_wanted = pc.or_(
                pc.is_in(batch.column("id"), ids), pc.is_in(batch.column(text), texts)
            )
            places = np.flatnonzero(is_wanted.to_numpy(zero_copy_only=False))
            rows = batch.take(pa.array(places))
            values = zip(*(part.to_pylist() for part in rows.columns), strict=True)
            for place, (row_id, text_hash) in zip(places.tolist(), values, strict=True):
                known_rows.add(FoundRow(row_id, text_hash, shard.path, start + place))
            start += batch.num_rows
    return known_rows


def are_known_by_text(one: Manifest, other: Manifest) -> bool:
    """Whether a row of two snapshots is known by its text, because ids are places in files."""
    column_of_ids = one.options.id_column
    return column_of_ids is None or column_of_ids != other.options.id_column


class AnswerFiles:
    """The input files that answers of a snapshot are from."""

    def __init__(self, manifest: Manifest):
        self._manifest = manifest

    def of(self, answer: Answer) -> Iterable[str]:
        """Return the files that may have had the row of an answer."""
        if self._manifest.options.id_column is None:
            return [PLACE.sub("", answer.id)]
        for unit in self._find_units(answer.shard):
            if unit.file:
                return [unit.file]
        name = get_span_name(layout.unit(answer.shard))
        members = self._files.filter(pc.equal(self._files.column("group"), name))
        if not len(members):
            members = self._files
        paths: list[str] = members.column("path").to_pylist()
        return paths

    @property
    def paths(self) -> pa.Array:
        """The paths of all files."""
        return get_column(self._files, "path")

    @cached_property
    def _files(self) -> pa.Table:
        return self._manifest.read_files("path", "group")

    def _find_units(self, shard: str) -> list[UnitRecord]:
        """Return the unit of a shard; none if the snapshot lacks the shard."""
        number = self._manifest.find_shard_number(shard)
        if number < 0:
            return []
        name = self._manifest.shards.column("unit")[number].as_py()
        return [unit for unit in self._manifest.read_units_of(name) if unit.path == shard]
