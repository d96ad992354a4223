"""What cannot be pushed: one line each that says what would mend it, and nothing was written."""

import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.commands import Run
from helpers.gcs import free_port
from helpers.pushes import Kept, files_of

from sentence_beam.transforms.base.extras import format_pip_line
from sentence_beam.transforms.push import redact


@pytest.mark.parametrize(
    ("to", "what"),
    [
        ("postgresql://localhost/db", "no table or collection is named; write postgresql://"),
        ("lance:folder#", "no table or collection is named"),
        ("lance:#docs", "no such kind of database"),
        ("mysql://me:secret@localhost/db#docs", "no such kind of database; write postgresql://"),
    ],
)
def test_a_name_of_no_database(run: Run, store: Kept, to: str, what: str) -> None:
    assert "secret" not in run("push", "--store", store.root, "--to", to).failed(2, what)


def test_an_extra_that_is_missing(run: Run, store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    monkeypatch.delitem(sys.modules, "sentence_beam.transforms.push.lance", raising=False)
    line = run("push", "--store", store.root, "--to", "lance:folder#docs").failed(2)
    assert line.endswith(f"needs lancedb, which is not installed; {format_pip_line('push')}")


def test_databases_that_cannot_be_reached(run: Run, store: Kept, pgvector: str) -> None:
    port = free_port()
    push = ("push", "--store", store.root, "--to")
    line = run(*push, f"postgresql://me:secret@127.0.0.1:{port}/db#docs").failed(
        1, "refused", "check host, port"
    )
    assert "secret" not in line
    line = run(*push, pgvector.replace("secret", "wrong") + "#docs").failed(
        1, "password authentication failed"
    )
    assert "wrong" not in line
    run(*push, pgvector.rpartition("/")[0] + "/nothing#docs").failed(
        1, 'database "nothing" does not exist'
    )
    pytest.importorskip("qdrant_client")
    run(*push, f"qdrant:http://127.0.0.1:{port}#docs").failed(1, "refused", "check the URL")


def test_a_table_that_no_push_made(run: Run, store: Kept, pgvector: str, quick: Path) -> None:
    import lancedb
    import psycopg
    from qdrant_client import QdrantClient, models

    with psycopg.connect(pgvector) as connection:
        connection.execute("CREATE TABLE theirs (id text, n int)")
        connection.execute("COMMENT ON TABLE theirs IS 'what we sell'")
    lancedb.connect(str(quick / "lance")).create_table("theirs", pa.table({"id": ["a"]}))
    client = QdrantClient(path=str(quick / "qdrant"))
    client.create_collection(
        "theirs", models.VectorParams(size=16, distance=models.Distance.COSINE)
    )
    client.close()
    for place in (pgvector, f"lance:{quick}/lance", f"qdrant:{quick}/qdrant"):
        for how in ((), ("--full",)):
            line = run("push", "--store", store.root, "--to", f"{place}#theirs", *how).failed(
                2, redact(f"{place}#theirs")
            )
            assert "push did not make it" in line


def test_a_run_that_is_gone(run: Run, store: Kept, to: str) -> None:
    run("push", "--store", store.root, "--to", to).ok()
    store.commit_without_index(files_of({"i1": "one"}))
    (store.root / "manifests" / "run1.json").unlink()
    # all rows are compared, and their deletion is gated
    run("push", "--store", store.root, "--to", to).failed(3, "8 of its 9 rows", "--max-deletes 1")
    run("push", "--store", store.root, "--to", to, "--full", "--max-deletes", "1").ok()


def test_rows_that_somebody_else_wrote(run: Run, store: Kept, pgvector: str) -> None:
    import psycopg

    push = ("push", "--store", store.root, "--to", f"{pgvector}#disturbed", "--max-deletes", "1")
    run(*push).ok()
    with psycopg.connect(pgvector) as connection:
        connection.execute(
            "INSERT INTO disturbed SELECT 'x' || id, embedding, text, size FROM disturbed"
        )
    store.commit_without_index(files_of({"i1": "one"}))
    run(*push).failed(4, "it holds 10 rows", "has 1", "push with --full")
    with psycopg.connect(pgvector) as connection:
        assert connection.execute("SELECT count(*) FROM disturbed").fetchone() == (18,)
    run(*push, "--full").ok()


class Rich(Kept):
    """A store with a kept column of every type."""

    def kept(self, texts: list[str]) -> pa.Table:
        """One value and one null of each."""
        when = datetime(2026, 3, 14, 3, 15, 0, 123456)
        values = {
            "flag": (pa.bool_(), True), "tiny": (pa.int8(), -3), "small": (pa.uint8(), 200), "word": (pa.uint16(), 65535),
            "whole": (pa.uint32(), 4_000_000_000), "huge": (pa.uint64(), 1 << 63), "real": (pa.float32(), 0.5),
            "half": (pa.float16(), 0.5), "number": (pa.float64(), 0.1), "day": (pa.date32(), date(2026, 3, 14)),
            "at": (pa.timestamp("ms"), when.replace(microsecond=123000)), "then": (pa.timestamp("us", "UTC"), when),
            "price": (pa.decimal128(8, 2), Decimal("12.50")), "bytes": (pa.binary(), b"\0\1"), "of two": (pa.binary(2), b"ab"),
            "tags": (pa.list_(pa.string()), ["a", 'b"']), "end": (pa.struct([("x", pa.int64())]), {"x": 1}),
        }  # fmt: skip
        return pa.table(
            {k: pa.array([v] * (len(texts) - 1) + [None], t) for k, (t, v) in values.items()}
        )


def test_every_type_of_a_kept_column_in_postgres(run: Run, quick: Path, pgvector: str) -> None:
    import psycopg

    store = Rich(quick / "rich")
    store.commit_without_index({"a": [("i1", "one"), ("i2", "two")]})
    run("push", "--store", store.root, "--to", f"{pgvector}#rich").ok()
    with psycopg.connect(pgvector) as connection:
        cursor = connection.execute("SELECT * FROM rich ORDER BY id")
        names = [column.name for column in cursor.description or ()]
        found = [dict(zip(names, row, strict=True)) for row in cursor]
    when = datetime(2026, 3, 14, 3, 15, 0, 123456)
    del found[0]["embedding"]
    assert found[0] == {
        "id": "i1", "flag": True, "tiny": -3, "small": 200, "word": 65535, "whole": 4_000_000_000, "huge": 1 << 63,
        "real": 0.5, "half": 0.5, "number": 0.1, "day": date(2026, 3, 14), "at": when.replace(microsecond=123000),
        "then": when.replace(tzinfo=UTC), "price": Decimal("12.50"), "bytes": b"\0\1", "of two": b"ab", "tags": ["a", 'b"'],
        "end": {"x": 1},
    }  # fmt: skip
    assert [value for name, value in found[1].items() if name not in ("id", "embedding")] == [
        None
    ] * 17


def test_every_type_of_a_kept_column_in_the_others(run: Run, quick: Path) -> None:
    import lancedb
    from qdrant_client import QdrantClient

    store = Rich(quick / "rich")
    store.commit_without_index({"a": [("i1", "one"), ("i2", "two")]})
    for kind in ("lance", "qdrant"):
        run("push", "--store", store.root, "--to", f"{kind}:{quick}/{kind}#rich").ok()
    assert lancedb.connect(str(quick / "lance")).open_table("rich").to_arrow()["price"].to_pylist()[
        0
    ] == Decimal("12.50")
    client = QdrantClient(path=str(quick / "qdrant"))
    payload = next(
        p.payload or {} for p in client.scroll("rich")[0] if (p.payload or {})["id"] == "i1"
    )
    client.close()
    assert (payload["price"], payload["day"], payload["bytes"]) == ("12.50", "2026-03-14", "0001")


def test_values_that_postgres_cannot_hold(run: Run, quick: Path, pgvector: str) -> None:
    store = Kept(quick / "nul")
    store.commit_without_index(files_of({"i1": "one", "i2": "t\0wo"}))
    line = run("push", "--store", store.root, "--to", f"{pgvector}#nul").failed(
        3, "the column 'text' of row 'i2' has a NUL"
    )
    assert "mend it in the input" in line
