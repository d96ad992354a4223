"""LanceDB: batches are merged by id; the state is metadata of the column `id`."""

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

import lancedb
import pyarrow as pa

from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.push.state import Notes, PushRecord, State
from sentence_beam.transforms.push.target import Table, explain_refusal
from sentence_beam.transforms.push.turn import Turn

DELETED = 1_000  # keys in one condition
MISSING = "was not found"
# the place in LanceDB's code at the end of its errors
SOURCE = re.compile(r",? ?/\S+\.rs:\d+:\d+")


@contextlib.contextmanager
def connect(place: str, name: str, where: str) -> Iterator["LanceTarget"]:
    """The target in a folder, or at a URL that LanceDB supports."""
    try:
        target = LanceTarget(lancedb.connect(place), name, where)
        try:
            yield target
        finally:
            target.turn.give_up()
    except (RuntimeError, ValueError, OSError) as error:
        what = SOURCE.sub("", first_line(error))
        raise explain_refusal(where, what, "check the folder or URL, then push again") from error


class LanceTarget:
    """A table of LanceDB.

    Writes are based on the version of the table that `read_notes` opened. LanceDB refuses them if
    the table was restored since, even to its last version: `fence` does that.
    """

    takes_parallel = False

    def __init__(self, database: Any, name: str, where: str) -> None:
        self.where = where
        self._database = database
        self._name = name
        self._table: Any = None
        self._state: State | None = None
        self._keys: list[str] = []
        self.turn = Turn(where, self)

    def written_by_workers(self) -> NoReturn:
        """Raise AssertionError: each write is based on the version before it."""
        raise AssertionError("takes_parallel says that one process writes")

    def state(self) -> State | None:
        """Return the state in the metadata of the column `id`."""
        self._state = self.turn.look()
        return self._state

    def read_notes(self) -> Notes | None:
        """Open the table's last version, and read the metadata of its column `id`."""
        try:
            self._table = self._database.open_table(self._name)
        except (ValueError, OSError) as error:
            if MISSING in str(error):
                return None
            raise
        fields = self._table.schema
        metadata = fields.field("id").metadata if "id" in fields.names else None
        return {name.decode(): text.decode() for name, text in (metadata or {}).items()}

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        """Write metadata of the column `id`.

        LanceDB refuses it if other metadata was written since `read_notes`.
        """
        self._table.update_field_metadata({"path": "id", "metadata": dict(notes)})

    def fence(self, push: str, others: Collection[str]) -> None:
        """Make LanceDB refuse writes that are based on earlier versions of the table."""
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
                    f"{cite('to')} {self.where}: LanceDB takes no column name with a dot"
                    f" ({field.name!r}); rename it in the input, or leave it out of"
                    f" {cite('keep_columns')}"
                )
            if not _can_be_merged(field.type):
                raise OptionError(
                    f"{cite('to')} {self.where}: LanceDB merges no rows with a column of the type"
                    f" {field.type} ({field.name!r}); leave it out of {cite('keep_columns')}"
                )
        self._keys = list(table.keys)
        self.turn.take(table, record, lambda notes: self._create(table.columns, notes))
        if self._state is not None:
            self._change_columns(table.columns, record.columns, self._state)

    def _create(self, columns: pa.Schema, notes: Notes) -> None:
        field = columns.field("id").with_metadata(notes)
        schema = columns.set(columns.get_field_index("id"), field)
        self._table = self._database.create_table(self._name, schema=schema, mode="create")

    def _change_columns(self, columns: pa.Schema, wanted: Mapping[str, str], state: State) -> None:
        """Drop columns of earlier pushes that are unwanted or have other types; add missing ones.

        Columns that no push wrote stay.
        """
        written: set[tuple[str, str]] = set()
        for record in state.live.values():
            written.update(record.columns.items())
        unwanted = {name for name, kind in written if wanted.get(name) != kind}
        existing = self._table.schema.names
        dropped = [name for name in existing if name in unwanted]
        missing = [
            field for field in columns if field.name in dropped or field.name not in existing
        ]
        with self.turn.writing():
            if dropped:
                self._table.drop_columns(dropped)
            if missing:
                self._table.add_columns(pa.schema(missing))

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Merge rows; they replace those with the same keys."""
        with self.turn.writing():
            merge = (
                self._table.merge_insert(self._keys)
                .when_matched_update_all()
                .when_not_matched_insert_all()
            )
            merge.execute(pa.Table.from_batches([rows]))

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows of these keys."""
        key = "id"
        names = keys.column("id").to_pylist()
        if "piece" in self._keys:
            key = "(id || '#' || CAST(piece AS STRING))"
            pieces = keys.column("piece").to_pylist()
            names = [f"{row_id}#{piece}" for row_id, piece in zip(names, pieces, strict=True)]
        for start in range(0, len(names), DELETED):
            quoted = ", ".join(map(_quote, names[start : start + DELETED]))
            with self.turn.writing():
                self._table.delete(f"{key} IN ({quoted})")

    def count(self) -> int:
        """Return the number of rows."""
        rows = int(self._table.count_rows())
        self.turn.check()
        return rows

    def finish(self) -> None:
        """Record that the push is done, and end its turn."""
        self.turn.finish()


def _can_be_merged(kind: pa.DataType) -> bool:
    """Return whether LanceDB merges rows of a column of this type."""
    if pa.types.is_map(kind) or pa.types.is_interval(kind):
        return False
    return all(_can_be_merged(kind.field(place).type) for place in range(kind.num_fields))


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
