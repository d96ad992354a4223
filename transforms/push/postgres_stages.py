"""Tables of PostgreSQL into which several connections copy the rows of a push at once.

They are outside of the push's transaction, which takes the rows at its end, so that a push is still
one. A push that is killed leaves its tables; the next push into the same table removes them.
"""

import contextlib
import hashlib
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

from transforms.push.state import MARK

FLOATS = "float4[]"  # the vectors: the type of pgvector may be new in the push's transaction
FLOATS_OID = 1021
FLOAT_OID = 700
Copy = Callable[[psycopg.Connection, sql.Identifier, pa.RecordBatch], None]


class Stages:
    """The tables of one push, one for each thread that writes.

    `table` are the parts of the pushed table's name, `kinds` the types of its columns.
    """

    def __init__(self, url: str, table: Sequence[str], kinds: Mapping[str, str], copy: Copy):
        self._url = url
        self._kinds = {**kinds, "embedding": FLOATS}
        self._schema = list(table[:-1])
        self._prefix = f"{prefix_of(table)}{uuid.uuid4().hex[:12]}"
        self._copy = copy
        self._lock = threading.Lock()
        self._made: dict[int, tuple[psycopg.Connection, sql.Identifier]] = {}

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [*self._kinds]

    def write(self, rows: pa.RecordBatch) -> None:
        """Copy rows into the table of this thread."""
        connection, table = self._of_this_thread()
        self._copy(connection, table, rows)

    def _of_this_thread(self) -> tuple[psycopg.Connection, sql.Identifier]:
        thread = threading.get_ident()
        with self._lock:
            if thread not in self._made:
                self._made[thread] = self._new(len(self._made))
            return self._made[thread]

    def _new(self, number: int) -> tuple[psycopg.Connection, sql.Identifier]:
        connection = psycopg.connect(
            self._url, autocommit=True, fallback_application_name="sentence-beam push"
        )
        connection.adapters.register_dumper(np.ndarray, _FloatsDumper)
        table = sql.Identifier(*self._schema, f"{self._prefix}_{number}")
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in self._kinds.items()
        ]
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(table, sql.SQL(", ").join(columns))
        )
        return connection, table

    def tables(self) -> list[sql.Identifier]:
        """Return the tables, and close their connections."""
        for connection, _ in self._made.values():
            connection.close()
        return [table for _, table in self._made.values()]

    def drop(self) -> None:
        """Remove the tables of a push that failed, as far as the server answers."""
        for connection, table in self._made.values():
            with contextlib.suppress(psycopg.Error):
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
            connection.close()


def prefix_of(table: Sequence[str]) -> str:
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
