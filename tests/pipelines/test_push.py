"""push of what embed made: pieces of documents, in few bits."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet

from sentence_beam import open_store

Piece = tuple[str, int]


def in_postgres(pgvector: str) -> dict[Piece, tuple[tuple, np.ndarray]]:
    """What the table holds, by id and piece."""
    import psycopg

    with psycopg.connect(pgvector) as connection:
        query = 'SELECT id, piece, pieces, start, "end", text, lang, embedding::real[] FROM docs'
        return {row[:2]: (row[2:-1], np.array(row[-1])) for row in connection.execute(query)}


def in_lance(folder: Path) -> dict[Piece, tuple[tuple, np.ndarray]]:
    """What the table holds, by id and piece."""
    import lancedb

    rows = lancedb.connect(str(folder)).open_table("docs").to_arrow().to_pylist()
    names = ("pieces", "start", "end", "text", "lang")
    return {
        (r["id"], r["piece"]): (tuple(r[n] for n in names), np.array(r["embedding"])) for r in rows
    }


def in_qdrant(folder: Path) -> dict[Piece, tuple[tuple, np.ndarray]]:
    """What the collection holds, by id and piece."""
    from qdrant_client import QdrantClient

    client = QdrantClient(path=str(folder))
    points = client.scroll("docs", limit=1000, with_payload=True, with_vectors=True)[0]
    client.close()
    names = ("pieces", "start", "end", "text", "lang")
    rows = [(point.payload or {}, point.vector) for point in points]
    return {
        (p["id"], p["piece"]): (tuple(p[n] for n in names), np.array(vector)) for p, vector in rows
    }


def test_pieces_of_documents_follow_their_store(
    run: Run, embed: Run, store: Path, inputs: Path, pgvector: str, tmp_path: Path
) -> None:
    pytest.importorskip("lancedb", reason="lancedb is not installed")
    pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    targets = [
        f"{pgvector}#docs",
        f"lance:{tmp_path / 'lance'}#docs",
        f"qdrant:{tmp_path / 'qdrant'}#docs",
    ]
    texts = [" ".join(sentences(6, start)) for start in (0, 20, 40)]
    for night in (texts, [texts[0], " ".join(sentences(3, 20))]):
        ids = [f"d{n}" for n in range(len(night))]
        write_parquet(inputs / "a.parquet", night, id=ids, lang=["en"] * len(night))
        options = (
            "--id-column",
            "id",
            "--keep-columns",
            "lang",
            "--chunks",
            "budget:tokens=12",
            "--precision",
            "int8",
        )
        embed(inputs, *options, "--max-deletes", "1").ok()
        table = open_store(str(store)).dataset().to_table()
        vectors = open_store(str(store)).vectors(table["embedding"])
        names = ("pieces", "start", "end", "text", "lang")
        rows = table.select(["id", "piece", *names]).to_pylist()
        wanted = {
            (r["id"], r["piece"]): (tuple(r[n] for n in names), v)
            for r, v in zip(rows, vectors, strict=True)
        }
        for to in targets:
            assert json.loads(run("push", "--store", store, "--to", to, "--json").ok().out)[
                "rows"
            ] == len(wanted)
        for held in (
            in_postgres(pgvector),
            in_lance(tmp_path / "lance"),
            in_qdrant(tmp_path / "qdrant"),
        ):
            assert held.keys() == wanted.keys()
            for key, (kept, vector) in wanted.items():
                assert held[key][0] == kept
                np.testing.assert_allclose(held[key][1], vector, rtol=0, atol=1e-6)
