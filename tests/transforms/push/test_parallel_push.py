"""A push that writes several units at once.

Covers transforms/push/postgres_stages.py.
"""

import threading
from typing import Any

import pytest
from helpers import qdrant
from helpers.commands import Run
from helpers.pushes import Kept

UNITS = 3  # of the store


@pytest.fixture(autouse=True)
def _as_many_cores_as_units(monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, UNITS)


def cores(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let the machine have so many cores."""
    patch.setattr("sentence_beam.transforms.push.push_snapshot.os.cpu_count", lambda: number)


def test_units_are_written_at_once(run: Run, store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    from sentence_beam.transforms.push.qdrant import QdrantTarget

    together = threading.Barrier(UNITS, timeout=60)
    upsert = QdrantTarget.upsert

    def meeting(self: QdrantTarget, rows: Any) -> None:
        together.wait()  # fails unless all units are here
        upsert(self, rows)

    monkeypatch.setattr(QdrantTarget, "upsert", meeting)
    monkeypatch.setenv("QDRANT_API_KEY", qdrant.KEY)
    with qdrant.running() as (url, client):
        run("push", "--store", store.root, "--to", f"qdrant:{url}#docs").ok()
        assert client.count("docs").count == 9
        assert client.get_aliases().aliases == []


def test_the_first_error_ends_it_and_the_next_push_corrects_it(
    run: Run, store: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    from sentence_beam.transforms.push.qdrant import QdrantTarget

    monkeypatch.setenv("QDRANT_API_KEY", qdrant.KEY)
    upsert = QdrantTarget.upsert
    calls = iter(range(99))

    def failing(self: QdrantTarget, rows: Any) -> None:
        if next(calls) == 1:
            raise OSError("the network is gone")
        upsert(self, rows)

    with qdrant.running() as (url, client):
        push = ("push", "--store", store.root, "--to", f"qdrant:{url}#docs")
        with monkeypatch.context() as patch:
            patch.setattr(QdrantTarget, "upsert", failing)
            outcome = run(*push)
            assert outcome.status == 1
            assert "the network is gone" in outcome.err
        run(*push).ok()
        assert client.count("docs").count == 9


def tables(url: str) -> list[str]:
    """The tables of a database that a push wrote or left."""
    import psycopg

    with psycopg.connect(url) as connection:
        query = "SELECT relname FROM pg_class WHERE relname ~ '^sentence_beam|^at_once' AND relkind = 'r'"
        return sorted(name for (name,) in connection.execute(query).fetchall())


def held(url: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(url) as connection:
        query = "SELECT id, text, embedding::text FROM at_once ORDER BY id"
        return connection.execute(query).fetchall()


def test_connections_of_postgresql_write_one_transaction(
    run: Run, store: Kept, pgvector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from sentence_beam.transforms.push.postgres import PostgresTarget
    from sentence_beam.transforms.push.postgres_stages import Stages

    together = threading.Barrier(UNITS, timeout=60)
    write = Stages.write

    def meeting(self: Stages, rows: Any) -> None:
        together.wait()  # fails unless all units are here
        write(self, rows)

    push = ("push", "--store", store.root, "--to", f"{pgvector}#at_once")
    with monkeypatch.context() as patch:
        patch.setattr(Stages, "write", meeting)
        run(*push).ok()
        first = held(pgvector)
        assert len(first) == 9
        run(*push, "--full").ok()
    with monkeypatch.context() as patch:
        cores(patch, 1)
        run(*push, "--full").ok()
    assert held(pgvector) == first, "the same rows as by one connection"
    with monkeypatch.context() as patch:
        patch.setattr(Stages, "close", lambda _: 1 / 0)
        patch.setattr(Stages, "drop", lambda _: None)  # as if it was killed
        assert run(*push, "--full").status == 1
    assert held(pgvector) == first
    assert len(tables(pgvector)) == 1 + UNITS
    with monkeypatch.context() as patch:
        patch.setattr(PostgresTarget, "begin", lambda *_: 1 / 0)
        assert run(*push, "--full").status == 1
    with psycopg.connect(pgvector) as connection:
        connection.execute("UPDATE at_once SET text = 'another'")
    run(*push, "--full").ok()
    assert held(pgvector) == first
    assert tables(pgvector) == ["at_once"]
