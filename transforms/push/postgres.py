"""PostgreSQL with pgvector: a push is one transaction; the state is the table's comment."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from psycopg.types import TypeInfo

from sentence_beam.transforms.base.errors import first_line
from sentence_beam.transforms.push.postgres_stages import Stages, StageWriter, make_prefix
from sentence_beam.transforms.push.postgres_values import copy_rows, find_kind, join_names
from sentence_beam.transforms.push.state import MARK, PushRecord, State
from sentence_beam.transforms.push.target import Table, explain_refusal

CONNECT_SECONDS = 10
WAIT_SECONDS = 60  # for another push into the same table
# With these, the server ends a push whose machine vanished; by default that takes two hours.
KEEPALIVES = {"tcp_keepalives_idle": 60, "tcp_keepalives_interval": 10}
LISTED = 50_000
INDEXED_DIMENSIONS = 2_000  # most components of pgvector's HNSW
OPERATORS = {"cosine": "vector_cosine_ops", "ip": "vector_ip_ops", "l2": "vector_l2_ops"}
# temporary tables
STAGE = f"{MARK}_rows"
GONE = f"{MARK}_gone"


@contextlib.contextmanager
def connect(url: str, name: str, where: str) -> Iterator["PostgresTarget"]:
    """The target in a transaction, which is rolled back unless it is finished."""
    try:
        wait = int(conninfo_to_dict(url).get("connect_timeout") or CONNECT_SECONDS)
        connection = psycopg.connect(
            url, connect_timeout=wait, fallback_application_name="sentence-beam push"
        )
    except psycopg.Error as error:
        mend = "check host, port, database, user and password, and that the server runs"
        raise explain_refusal(where, f"no connection ({_shorten(error)})", mend) from error
    target = PostgresTarget(connection, name, where, url)
    try:
        yield target
    except psycopg.Error as error:
        raise explain_refusal(where, _shorten(error), "nothing was changed") from error
    finally:
        target.close()


def _shorten(error: psycopg.Error) -> str:
    return first_line(error).removeprefix("connection failed: ")


class PostgresTarget:
    """A table of PostgreSQL; `name` may have its schema before a dot.

    Other threads than the one that made it write by connections of their own, to `url`.
    """

    takes_parallel = True

    def __init__(self, connection: psycopg.Connection, name: str, where: str, url: str) -> None:
        self.where = where
        self._url = url
        self._thread = threading.get_ident()
        self._stages: Stages | None = None
        self._connection = connection
        self._parts = name.split(".")
        self._table = sql.Identifier(*self._parts)
        self._state: State | None = None
        self._done: State | None = None
        self._keys: tuple[str, ...] = ()

    def state(self) -> State | None:
        """Return the state in the table's comment; no other push writes from here on."""
        run = self._connection.execute
        run("SET LOCAL idle_in_transaction_session_timeout = 0")  # snapshots are compared meanwhile
        run("SET LOCAL statement_timeout = 0")
        run(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
        for name, seconds in KEEPALIVES.items():
            run(f"SET LOCAL {name} = {seconds}")
        text = self._table.as_string(self._connection)
        self._lock(text)
        oid = self._fetch_value(sql.SQL("SELECT to_regclass(%s)::oid"), text)
        if oid is None:
            return None
        # a table has two names, with its schema and without
        self._lock(str(oid))
        query = sql.SQL("SELECT obj_description(%s::oid, 'pg_class')")
        self._state = State.from_text(self._fetch_value(query, oid), self.where)
        return self._state

    def close(self) -> None:
        """Roll back an unfinished push."""
        self._connection.close()
        if self._stages is not None:
            self._stages.drop()

    def _fetch_value(self, query: sql.SQL | sql.Composed, *arguments: Any) -> Any:
        """Return the value of a query for one; None without a row."""
        row = self._connection.execute(query, arguments or None).fetchone()
        return None if row is None else row[0]

    def _lock(self, what: str) -> None:
        """Stop other pushes that lock the same, until the end of the transaction."""
        try:
            self._connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{MARK} {what}"]
            )
        except psycopg.errors.LockNotAvailable as error:
            raise explain_refusal(
                self.where, "another push into it is under way", "wait for its end"
            ) from error

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the keys of all rows."""
        query = sql.SQL("SELECT {} FROM {}").format(join_names(keys), self._table)
        with self._connection.cursor(name=f"{MARK}_keys") as cursor:
            cursor.execute(query)
            while rows := cursor.fetchmany(LISTED):
                columns = [pa.array(column) for column in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, list(keys))

    def begin(self, table: Table, record: PushRecord) -> None:
        """Create the table, or give it the columns of the rows.

        Columns that no push wrote stay.
        """
        kinds = {
            field.name: find_kind(field, table.space.dim, self.where) for field in table.columns
        }
        run = self._connection.execute
        self._keys = table.keys
        self._done = State(table.space, table.metric, {record.run: replace(record, done=True)})
        self._prepare_vector_type()
        self._drop_stages()
        self._stages = Stages(StageWriter.from_url(self._url, self._parts, kinds, self.where))
        if self._state is None:
            columns: list[sql.Composed] = []
            for name, kind in kinds.items():
                columns.append(sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)))
            columns.append(sql.SQL("PRIMARY KEY ({})").format(join_names(table.keys)))
            run(sql.SQL("CREATE TABLE {} ({})").format(self._table, sql.SQL(", ").join(columns)))
        else:
            self._change_columns(self._state.columns, record.columns, kinds)
        for stage, names in ((STAGE, table.columns.names), (GONE, table.keys)):
            query = sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WHERE false")
            run(query.format(sql.Identifier(stage), join_names(names), self._table))

    def _change_columns(
        self, held: Mapping[str, str], wanted: Mapping[str, str], kinds: Mapping[str, str]
    ) -> None:
        """Drop and add the columns whose types differ.

        `kinds` are PostgreSQL's types of the wanted columns.
        """
        changes: list[sql.Composed] = []
        for name, kind in held.items():
            if wanted.get(name) != kind:
                changes.append(sql.SQL("DROP COLUMN {}").format(sql.Identifier(name)))
        for name, kind in wanted.items():
            if held.get(name) != kind:
                column = sql.SQL("ADD COLUMN {} {}")
                changes.append(column.format(sql.Identifier(name), sql.SQL(kinds[name])))
        if changes:
            self._connection.execute(
                sql.SQL("ALTER TABLE {} {}").format(self._table, sql.SQL(", ").join(changes))
            )

    def _prepare_vector_type(self) -> None:
        """Create the type `vector` if it is missing, and let this connection write it."""
        vector = TypeInfo.fetch(self._connection, "vector")
        if vector is None:
            try:
                self._connection.execute("CREATE EXTENSION vector")
            except psycopg.Error as error:
                mend = "have a superuser run CREATE EXTENSION vector in this database"
                raise explain_refusal(
                    self.where, f"no pgvector there ({_shorten(error)})", mend
                ) from error
            vector = TypeInfo.fetch(self._connection, "vector")
        assert vector is not None
        vector.register(self._connection)
        self._connection.adapters.register_dumper(
            np.ndarray, type("Vector", (_VectorDumper,), {"oid": vector.oid})
        )

    def _drop_stages(self) -> None:
        """Remove the tables of pushes that were killed; the lock says that no other push runs."""
        for table in self._find_tables(make_prefix(self._parts)):
            self._connection.execute(sql.SQL("DROP TABLE {}").format(table))

    def _find_tables(self, prefix: str) -> list[sql.Identifier]:
        """Return the tables of this user whose names begin so."""
        query = sql.SQL(
            "SELECT nspname, relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE starts_with(relname, %s) AND pg_get_userbyid(relowner) = current_user"
            " AND relkind = 'r' ORDER BY relname"
        )
        rows = self._connection.execute(query, [prefix]).fetchall()
        return [sql.Identifier(*parts) for parts in rows]

    @contextlib.contextmanager
    def written_by_workers(self) -> Iterator[StageWriter]:
        """Yield what copies rows into tables of their own, which `count` takes."""
        assert self._stages is not None, "begin comes first"
        yield self._stages.writer

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Copy rows; they replace those with the same keys.

        What other threads and workers write is in the table from `count` on.
        """
        if threading.get_ident() != self._thread:
            assert self._stages is not None, "begin comes first"
            self._stages.write(rows)
        elif self._state is None:
            self._copy(self._table, rows)
        else:
            stage = sql.Identifier(STAGE)
            self._copy(stage, rows)
            self._take_rows(stage, rows.schema.names)
            self._connection.execute(sql.SQL("TRUNCATE {}").format(stage))

    def _take_rows(self, stage: sql.Identifier, names: Sequence[str]) -> None:
        """Write the rows of another table; they replace those with the same keys."""
        others = [sql.Identifier(name) for name in names if name not in self._keys]
        sets = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
        query = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO UPDATE SET {}")
        columns = join_names(names)
        self._connection.execute(
            query.format(self._table, columns, columns, stage, join_names(self._keys), sets)
        )

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows of these keys."""
        stage = sql.Identifier(GONE)
        self._copy(stage, keys)
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} = g.{0}").format(sql.Identifier(n)) for n in keys.schema.names
        )
        self._connection.execute(
            sql.SQL("DELETE FROM {} t USING {} g WHERE {}").format(self._table, stage, same)
        )
        self._connection.execute(sql.SQL("TRUNCATE {}").format(stage))

    def _copy(self, into: sql.Identifier, rows: pa.RecordBatch) -> None:
        copy_rows(self._connection, into, rows, self.where)

    def count(self) -> int:
        """Take the rows that other threads and workers wrote, and return the number of rows."""
        self._take_staged()
        query = sql.SQL("SELECT count(*) FROM {}").format(self._table)
        return int(self._fetch_value(query))

    def _take_staged(self) -> None:
        if self._stages is None:
            return
        writer = self._stages.writer
        self._stages.close()
        for table in self._find_tables(writer.prefix):
            self._take_rows(table, writer.names)
            self._connection.execute(sql.SQL("DROP TABLE {}").format(table))
        self._stages = None

    def finish(self) -> None:
        """Index a new table's vectors, record the push, and commit."""
        assert self._done is not None
        if self._state is None and self._done.space.dim <= INDEXED_DIMENSIONS:
            query = sql.SQL("CREATE INDEX ON {} USING hnsw (embedding {})")
            self._connection.execute(
                query.format(self._table, sql.SQL(OPERATORS[self._done.metric]))
            )
        comment = sql.SQL("COMMENT ON TABLE {} IS {}").format(
            self._table, sql.Literal(self._done.text)
        )
        self._connection.execute(comment)
        self._connection.commit()


class _VectorDumper(Dumper):
    """A vector as pgvector receives it.

    It has the number of components, two zero bytes, and the components.
    """

    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        return len(obj).to_bytes(2, "big") + b"\0\0" + obj.astype(">f4").tobytes()
