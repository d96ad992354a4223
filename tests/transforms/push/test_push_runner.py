"""A push whose rows the workers of a pipeline write.

Covers transforms/push/push_parts.py.
Covers transforms/push/postgres_values.py.
Covers transforms/push/pushed_rows.py.
"""

import os
import shutil
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pytest
from helpers import qdrant
from helpers.commands import Run
from helpers.pushes import Kept, files_of

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.push import push
from sentence_beam.transforms.push import push_parts as parts
from sentence_beam.transforms.push.push_snapshot import RowsToWrite
from sentence_beam.transforms.push.pushed_rows import find_columns, read_chosen
from sentence_beam.transforms.store import layout, open_store

RUNNER = ("--runner", "FnApiRunner")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, cached_beam_options: None) -> None:
    """A part for each unit, of Beam's own runner."""
    monkeypatch.setattr("sentence_beam.transforms.push.push_parts.PART_ROWS", 1)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    monkeypatch.setenv("QDRANT_API_KEY", qdrant.KEY)
    with qdrant.running() as (url, client):
        yield url, client


def has_no_files(store: Kept) -> bool:
    return not list(store.root.rglob("push-*"))


def test_workers_write_into_qdrant(run: Run, store: Kept, server: tuple[str, Any]) -> None:
    url, client = server
    push = ("push", "--store", store.root, "--to", f"qdrant:{url}#docs", *RUNNER)
    run(*push).ok()
    assert client.count("docs").count == 9
    assert client.get_aliases().aliases == []
    store.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(3, 11)}))
    outcome = run(*push, "--max-deletes", "1").ok()
    assert "2 added, 0 changed, 3 deleted" in outcome.out
    points, _ = client.scroll("docs", limit=99)
    assert {point.payload["id"] for point in points} == {f"i{n}" for n in range(3, 11)}
    assert has_no_files(store)


def test_a_worker_that_fails_leaves_the_mark_to_the_next_push(
    run: Run, store: Kept, server: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_beam.transforms.push.qdrant import PointWriter

    url, client = server
    push = ("push", "--store", store.root, "--to", f"qdrant:{url}#docs", *RUNNER)
    write = PointWriter.write
    calls = iter(range(99))

    def failing(self: PointWriter, batches: Any) -> None:
        write(self, batches)
        if next(calls) == 1:
            raise OSError("the network is gone")

    with monkeypatch.context() as patch:
        patch.setattr(PointWriter, "write", failing)
        outcome = run(*push)
        assert outcome.status == 1
        assert "the network is gone" in outcome.err
    assert client.get_aliases().aliases == []
    assert has_no_files(store)
    run(*push).ok()
    assert client.count("docs").count == 9


class Discarded:
    """A writer into no database, which counts the rows."""

    rows = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.rows += sum(batch.num_rows for batch in batches)


def planned(store: Kept) -> tuple[parts.PushJob, Discarded]:
    """A push of some rows of the first two units, in a part each."""
    manifest = open_store(str(store.root)).manifest
    writer = Discarded()
    rows = RowsToWrite(manifest, find_columns(manifest), {0: [0, 2], 1: [1]})
    return parts.plan_parts(rows, writer), writer


def test_a_part_that_is_written_shows_vacuum_that_the_push_is_alive(store: Kept) -> None:
    job, writer = planned(store)
    for number in range(2):
        os.utime(job.part(number), (0, 0))
    for _ in range(2):  # a worker that is asked again
        assert parts.write_part(0, job) == parts.WrittenRows(2)
    assert writer.rows == 4
    ages = [time.time() - os.stat(job.part(number)).st_mtime for number in range(2)]
    assert ages[0] < 3600 < ages[1]
    parts.delete_files(job)
    assert has_no_files(store)


def test_a_part_that_was_removed_is_one_line_at_the_end(store: Kept) -> None:
    job, _ = planned(store)
    os.remove(job.part(1))
    parts.conclude([parts.write_part(number, job) for number in range(2)], job)
    with pytest.raises(SentenceBeamError, match=rf"{job.part(1)} was removed while the push ran"):
        parts.check_concluded(job)


def test_a_push_names_the_snapshot_that_vacuum_removed(store: Kept) -> None:
    first = open_store(str(store.root)).manifest
    target = MagicMock(where="memory", **{"state.return_value": None})

    def write_late(_: object, wanted: RowsToWrite) -> None:
        store.commit_without_index(files_of({"i1": "another text"}))
        os.remove(store.root / layout.snapshot(first.run))  # as vacuum does, manifests first
        shutil.rmtree(store.root / layout.EMBEDDINGS)
        for number, rows in wanted.rows.items():
            found = read_chosen(first, number, wanted.columns, np.array(rows))
            assert list(found)

    gone = f"vacuum removed snapshot {first.run} meanwhile; push again"
    with pytest.raises(SentenceBeamError, match=gone):
        push(lambda: first, target, by_workers=write_late)
    target.finish.assert_not_called()


@pytest.fixture
def database(pgvector: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of PostgreSQL without its password, which the environment has."""
    parts = urlsplit(pgvector)
    monkeypatch.setenv("PGPASSWORD", unquote(parts.password or ""))
    return f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"


def held(url: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(url) as connection:
        query = "SELECT id, text, embedding::text FROM by_workers ORDER BY id"
        return connection.execute(query).fetchall()


def tables(url: str) -> list[str]:
    import psycopg

    with psycopg.connect(url) as connection:
        query = (
            "SELECT relname FROM pg_class WHERE relname ~ 'sentence_beam_stage' AND relkind = 'r'"
        )
        return [name for (name,) in connection.execute(query).fetchall()]


def test_workers_write_one_transaction_of_postgresql(
    run: Run, store: Kept, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from sentence_beam.transforms.push.postgres_stages import StageWriter

    push = ("push", "--store", store.root, "--to", f"{database}#by_workers")
    write = StageWriter.write
    written: list[int] = []

    def twice(self: StageWriter, batches: Any) -> None:
        """Write a part as a worker does that is asked again after it has written."""
        rows = list(batches)
        written.append(sum(batch.num_rows for batch in rows))
        write(self, rows)
        write(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(StageWriter, "write", twice)
        run(*push, *RUNNER).ok()
    assert written == [3, 3, 3]
    first = held(database)
    assert len(first) == 9
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE by_workers SET text = 'another'")
    with monkeypatch.context() as patch:
        patch.setattr(
            "sentence_beam.transforms.push.postgres.PostgresTarget.count", lambda _: 1 / 0
        )  # killed
        assert run(*push, *RUNNER, "--full").status == 1
    assert {text for _, text, _ in held(database)} == {"another"}
    assert len(tables(database)) == 3
    run(*push, *RUNNER, "--full").ok()
    assert held(database) == first
    assert tables(database) == []
    assert has_no_files(store)


def test_a_value_that_the_database_cannot_hold_is_one_line(
    run: Run, store: Kept, database: str
) -> None:
    store.commit_without_index(files_of({"i1": "text", "i2": "a \0 here"}))
    outcome = run("push", "--store", store.root, "--to", f"{database}#nul", *RUNNER)
    outcome.failed(3, "the column 'text' of row 'i2' has a NUL")
    assert has_no_files(store)


def test_workers_are_told_no_password(run: Run, store: Kept) -> None:
    to = "postgresql://me:secret@localhost/db#t"
    run("push", "--store", store.root, "--to", to, *RUNNER).failed(2, "password", "PGPASSWORD")


def test_a_table_that_one_process_writes(run: Run, store: Kept) -> None:
    pytest.importorskip("lancedb")
    to = f"lance:{store.root}-lance#docs"
    run("push", "--store", store.root, "--to", to, *RUNNER).failed(2, "--runner is for PostgreSQL")
