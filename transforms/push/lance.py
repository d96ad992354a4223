"""LanceDB: batches are merged by id; what is remembered is metadata of the column `id`."""

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import lancedb
import pyarrow as pa

from transforms.base.errors import OptionError, first_line
from transforms.push.state import Notes, PushRecord, State
from transforms.push.target import Table, refused
from transforms.push.turn import Turn

DELETED = 1_000  # keys in one condition
MISSING = "was not found"
# where in LanceDB's code an error arose, which it says at the end
SOURCE = re.compile(r",? ?/\S+\.rs:\d+:\d+")


@contextlib.contextmanager
def opened(place: str, name: str, where: str) -> Iterator["LanceTarget"]:
    """The target: in a folder, or at a URL that LanceDB takes."""
    try:
        target = LanceTarget(lancedb.connect(place), name, where)
        try:
            yield target
        finally:
            target.turn.give_up()
    except (RuntimeError, ValueError, OSError) as error:
        what = SOURCE.sub("", first_line(error))
        raise refused(where, what, "check the folder or URL, then push again") from error


class LanceTarget:
    """A table of LanceDB.

    What is written is based on the version of the table that `read_notes` opened. LanceDB refuses
    it if the table was restored since, even to its last version: `fence` does that.
    """

    def __init__(self, database: Any, name: str, where: str) -> None:
        self.where = where
        self._database = database
        self._name = name
        self._table: Any = None
        self._found: State | None = None
        self._keys: list[str] = []
        self.turn = Turn(where, self)

    def state(self) -> State | None:
        """Return what the metadata of the column `id` says."""
        self._found = self.turn.look()
        return self._found

    def read_notes(self) -> Notes | None:
        """Open the table's last version, and read the metadata of its column `id`."""
        try:
            self._table = self._database.open_table(self._name)
        except (ValueError, OSError) as error:
            if MISSING in str(error):
                return None
            raise
        fields = self._table.schema
        metadata = None
        if "id" in fields.names:
            metadata = fields.field("id").metadata
        return {name.decode(): text.decode() for name, text in (metadata or {}).items()}

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        """Write metadata of the column `id`; LanceDB refuses it if some was written since
        `read_notes`.
        """
        self._table.update_field_metadata({"path": "id", "metadata": dict(notes)})

    def fence(self, push: str, others: Collection[str]) -> None:
        """Have LanceDB refuse what is based on earlier versions of the table."""
        if others:
            self._table.restore(self._table.version)

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the keys of all rows."""
        yield from self._table.search().select(list(keys)).to_batches()

    def begin(self, table: Table, record: PushRecord) -> None:
        """Create the table, or take its turn and change its columns."""
        for field in table.columns:
            if "." in field.name:
                raise OptionError(
                    f"--to {self.where}: LanceDB takes no column name with a dot ({field.name!r});"
                    " rename it in the input, or leave it out of --keep-columns"
                )
        self._keys = list(table.keys)
        self.turn.take(table, record, lambda notes: self._create(table.columns, notes))
        if self._found is not None:
            self._change_columns(table.columns, record.columns, self._found)

    def _create(self, columns: pa.Schema, notes: Notes) -> None:
        told = columns.field("id").with_metadata(notes)
        schema = columns.set(columns.get_field_index("id"), told)
        self._table = self._database.create_table(self._name, schema=schema, mode="create")

    def _change_columns(self, columns: pa.Schema, wanted: Mapping[str, str], found: State) -> None:
        """Drop the columns that some push wrote and that are not wanted, and add those that
        lack.
        """
        written = [record.columns for record in found.live.values()]
        there = self._table.schema.names
        unwanted = [
            n for n in there if any(n in names and names[n] != wanted.get(n) for names in written)
        ]
        lacking = [field for field in columns if field.name in unwanted or field.name not in there]
        with self.turn.writing():
            if unwanted:
                self._table.drop_columns(unwanted)
            if lacking:
                self._table.add_columns(pa.schema(lacking))

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Merge rows, in the place of those with the same keys."""
        with self.turn.writing():
            merge = (
                self._table.merge_insert(self._keys)
                .when_matched_update_all()
                .when_not_matched_insert_all()
            )
            merge.execute(pa.Table.from_batches([rows]))

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows of these keys."""
        rows = keys.to_pylist()
        key = "id"
        if "piece" in self._keys:
            key = "(id || '#' || CAST(piece AS STRING))"
        for start in range(0, len(rows), DELETED):
            named = [
                f"{row['id']}#{row['piece']}" if "piece" in row else row["id"]
                for row in rows[start:][:DELETED]
            ]
            quoted = ", ".join("'" + name.replace("'", "''") + "'" for name in named)
            with self.turn.writing():
                self._table.delete(f"{key} IN ({quoted})")

    def count(self) -> int:
        """Return the number of rows."""
        rows = int(self._table.count_rows())
        self.turn.check()
        return rows

    def finish(self) -> None:
        """Remember that the push is done, and give the turn back."""
        self.turn.finish()
