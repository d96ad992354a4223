"""LanceDB: batches are merged by id; what is remembered is metadata of the column `id`."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import lancedb
import pyarrow as pa

from transforms.errors import OptionError, first_line
from transforms.push.rows import types_of
from transforms.push.target import MARK, State, Table, refused
from transforms.push.turn import Turn

DELETED = 1_000  # keys in one condition
MISSING = "was not found"
SOURCE = re.compile(r",? ?/\S+\.rs:\d+:\d+")  # where in LanceDB's code an error arose, which it says at the end


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
    """A table of LanceDB."""

    def __init__(self, database: Any, name: str, where: str) -> None:
        self.where = where
        self._database = database
        self._name = name
        self._table: Any = None
        self._keys: list[str] = []
        self.turn = Turn(where, self._read, self._remember)

    def state(self) -> State | None:
        """What the metadata of the column `id` says."""
        return self.turn.look()

    def _read(self) -> State | None:
        try:
            self._table = self._database.open_table(self._name)
        except (ValueError, OSError) as error:
            if MISSING in str(error):
                return None
            raise
        fields = self._table.schema
        metadata = fields.field("id").metadata if "id" in fields.names else None
        return State.read((metadata or {}).get(MARK.encode(), b"").decode(), self.where)

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The keys of all rows."""
        yield from self._table.search().select(list(keys)).to_batches()

    def begin(self, table: Table, state: State, anew: bool) -> None:
        """Make the table, again where it has other columns, or remember the state in it."""
        for field in table.columns:
            if "." in field.name:
                raise OptionError(
                    f"--to {self.where}: LanceDB takes no column name with a dot ({field.name!r}); rename it in the "
                    "input, or leave it out of --keep-columns"
                )
        self._keys = list(table.keys)
        self.turn.take(state, lambda told: self._made(table, told, anew))

    def _made(self, table: Table, state: State, anew: bool) -> None:
        """Have the table, with the state."""
        if self._table is not None and not (anew and types_of(self._table.schema) != state.columns):
            self._remember(state)
            return
        told = table.columns.field("id").with_metadata({MARK: state.text})
        schema = table.columns.set(table.columns.get_field_index("id"), told)
        mode = "create" if self._table is None else "overwrite"
        self._table = self._database.create_table(self._name, schema=schema, mode=mode)

    def _remember(self, state: State) -> None:
        self._table.update_field_metadata({"path": "id", "metadata": {MARK: state.text}})

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Merge rows, in the place of those with the same keys."""
        self.turn.keep()
        merge = self._table.merge_insert(self._keys).when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pa.Table.from_batches([rows]))

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows of these keys."""
        self.turn.keep()
        rows = keys.to_pylist()
        key = "(id || '#' || CAST(piece AS STRING))" if "piece" in self._keys else "id"
        for start in range(0, len(rows), DELETED):
            named = [f"{row['id']}#{row['piece']}" if "piece" in row else row["id"] for row in rows[start:][:DELETED]]
            quoted = ", ".join("'" + name.replace("'", "''") + "'" for name in named)
            self._table.delete(f"{key} IN ({quoted})")

    def count(self) -> int:
        """The number of rows."""
        return int(self._table.count_rows())

    def finish(self, state: State) -> None:
        """Write the state of the finished push into the target, and give the turn back."""
        self.turn.end(state)
