"""Tables of PostgreSQL into which several connections copy the rows of a push at once.

They are outside of the push's transaction, which takes the rows at its end, so that a push is still
one. A push that is killed leaves its tables; the next push into the same table removes them.
"""

import contextlib
import hashlib
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

from sentence_beam.transforms.push.postgres_values import copy_rows
from sentence_beam.transforms.push.state import MARK

FLOATS = "float4[]"  # the vectors: the type of pgvector may be new in the push's transaction
FLOATS_OID = 1021
FLOAT_OID = 700


@dataclass(frozen=True)
class StageWriter:
    """Copies rows into tables of the database at `url`.

    Their names begin with `prefix`, in the schema `schema` if there is one. `columns` are the names
    and types of the columns, `where` is the target in messages.
    """

    url: str
    schema: tuple[str, ...]
    prefix: str
    columns: tuple[tuple[str, str], ...]
    where: str

    @classmethod
    def from_url(
        cls, url: str, table: Sequence[str], kinds: Mapping[str, str], where: str
    ) -> "StageWriter":
        """Return the writer of a new push into a table, by the parts of the table's name."""
        prefix = f"{make_prefix(table)}{uuid.uuid4().hex[:12]}"
        columns = {**kinds, "embedding": FLOATS}
        return cls(url, tuple(table[:-1]), prefix, tuple(columns.items()), where)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self.columns]

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Copy rows into a table of their own, which other connections see when it has all."""
        with self.connect(autocommit=False) as connection:
            table = self.new_table(connection, uuid.uuid4().hex[:12])
            for rows in batches:
                self.copy(connection, table, rows)

    def connect(self, autocommit: bool) -> psycopg.Connection:
        """Open a connection that can write vectors."""
        connection = psycopg.connect(
            self.url, autocommit=autocommit, fallback_application_name="sentence-beam push"
        )
        connection.adapters.register_dumper(np.ndarray, _FloatsDumper)
        return connection

    def new_table(self, connection: psycopg.Connection, name: str) -> sql.Identifier:
        """Create a table whose name ends so."""
        table = sql.Identifier(*self.schema, f"{self.prefix}_{name}")
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind))
            for column, kind in self.columns
        ]
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(table, sql.SQL(", ").join(columns))
        )
        return table

    def copy(
        self, connection: psycopg.Connection, table: sql.Identifier, rows: pa.RecordBatch
    ) -> None:
        """Copy rows into a table."""
        copy_rows(connection, table, rows, self.where, FLOATS)


class Stages:
    """The tables of one push, one for each thread that writes."""

    def __init__(self, writer: StageWriter):
        self.writer = writer
        self._lock = threading.Lock()
        self._made: dict[int, tuple[psycopg.Connection, sql.Identifier]] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Copy rows into the table of this thread."""
        thread = threading.get_ident()
        with self._lock:
            if thread not in self._made:
                connection = self.writer.connect(autocommit=True)
                table = self.writer.new_table(connection, str(len(self._made)))
                self._made[thread] = connection, table
            connection, table = self._made[thread]
        self.writer.copy(connection, table, rows)

    def close(self) -> None:
        """Close the connections to the database."""
        for connection, _ in self._made.values():
            connection.close()

    def drop(self) -> None:
        """Remove the tables of a push that failed, as far as the server answers."""
        for connection, table in self._made.values():
            with contextlib.suppress(psycopg.Error):
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
            connection.close()


def make_prefix(table: Sequence[str]) -> str:
    """Return the beginning of the names of a table's stages."""
    digest = hashlib.sha256(".".join(table).encode()).hexdigest()[:12]
    return f"{MARK}_stage_{digest}_"


class _FloatsDumper(Dumper):
    """A vector as an array of floats: its shape, then each component after its length."""

    format = Format.BINARY
    oid = FLOATS_OID

    def dump(self, obj: Any) -> Buffer:
        shape = np.array([1, 0, FLOAT_OID, len(obj), 1], ">i4")
        values = np.empty(len(obj), [("length", ">i4"), ("value", ">f4")])
        values["length"] = 4
        values["value"] = obj
        return shape.tobytes() + values.tobytes()
