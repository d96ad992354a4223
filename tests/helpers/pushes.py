"""Stores to push, databases to push into, and what these then hold."""

import os
from typing import Any

import numpy as np
import pyarrow as pa
from helpers import qdrant
from helpers.nights import Nights, vector_of

Held = dict[str, tuple[dict[str, Any], np.ndarray]]  # by id: text and kept columns, and the vector


class Kept(Nights):
    """A store that keeps the text of its rows, and a column that is made of the text."""

    def kept(self, texts: list[str]) -> pa.Table:
        """The text and its length, null for empty ones."""
        return pa.table(
            {"text": texts, "size": pa.array([len(t) or None for t in texts], pa.int64())}
        )


def expected(files: dict[str, list[tuple[str, str]]]) -> Held:
    """What a database of these rows holds."""
    rows = [row for part in files.values() for row in part]
    return {i: ({"text": text, "size": len(text) or None}, vector_of(text)) for i, text in rows}


def check(found: Held, wanted: Held) -> None:
    """Check that a database holds these rows; Qdrant gives vectors of length 1 that last digit
    anew.
    """
    assert found.keys() == wanted.keys()
    for i, (kept, vector) in wanted.items():
        assert found[i][0] == kept, i
        np.testing.assert_allclose(found[i][1], vector, rtol=0, atol=1e-6)


def in_postgres(url: str) -> Held:
    """What a table of PostgreSQL holds."""
    import psycopg

    place, _, name = url.rpartition("#")
    with psycopg.connect(place) as connection:
        rows = connection.execute(
            f"SELECT id, text, size, embedding::real[] FROM {name}"
        ).fetchall()
    return {
        i: ({"text": text, "size": size}, np.array(vector, np.float32))
        for i, text, size, vector in rows
    }


def in_qdrant(url: str) -> Held:
    """What a collection of Qdrant holds."""
    from qdrant_client import QdrantClient

    place, _, name = url.removeprefix("qdrant:").rpartition("#")
    client = qdrant.client_of(place) if "://" in place else QdrantClient(path=place)
    points = client.scroll(name, limit=10_000, with_payload=True, with_vectors=True)[0]
    client.close()
    held = {}
    for point in points:
        payload: dict[str, Any] = dict(point.payload or {})
        held[payload.pop("id")] = payload, np.array(point.vector, np.float32)
    return held


def in_lance(url: str) -> Held:
    """What a table of LanceDB holds."""
    import lancedb

    place, _, name = url.removeprefix("lance:").rpartition("#")
    rows = lancedb.connect(place).open_table(name).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {
        r["id"]: ({"text": r["text"], "size": r["size"]}, np.array(r["embedding"], np.float32))
        for r in rows
    }


READ = {"postgresql": in_postgres, "qdrant": in_qdrant, "lance": in_lance}


def held_by(url: str) -> Held:
    """What a database holds, read by its own client."""
    return READ[url.partition(":")[0]](url)


def files_of(texts: dict[str, str], per_file: int = 3) -> dict[str, list[tuple[str, str]]]:
    """Rows in files: a changed row moves no other."""
    files: dict[str, list[tuple[str, str]]] = {}
    for row_id, text in texts.items():
        files.setdefault(f"f{int(row_id[1:]) // per_file}", []).append((row_id, text))
    return files


def in_memory() -> str | None:
    """A folder that is in memory where there is one: SQLite and stores wait for the disk at every
    step.
    """
    return "/dev/shm" if os.path.isdir("/dev/shm") else None
