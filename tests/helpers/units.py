"""Units and vectors to write, without any model."""

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.corpus import InputFile, Rejected, UnitRows
from sentence_beam.transforms.space import Space, row_hashes
from sentence_beam.transforms.store.shards.shard_bytes import compute_unit_digest
from sentence_beam.transforms.store.shards.unit_store import PreparedUnit
from sentence_beam.transforms.store.shards.unit_vectors import Vectors


def make_unit(
    space: Space, texts: list[str], rejects: int = 0, name: str = "0" * 16 + "-" + "0" * 12
) -> PreparedUnit:
    """A unit with these texts, ids a0, a1, ... and some rejected rows after them."""
    n = len(texts)
    rows = UnitRows(
        name=name,
        file=InputFile("/in/a.txt", "a.txt", "text", "", 100, "sum", "v"),
        start=0,
        stop=100,
        ids=[f"a{i}" for i in range(n)],
        texts=texts,
        positions=list(range(n)),
        kept=pa.table({"n": list(range(n))}),
        rejects=[Rejected(f"r{i}", n + i, "empty text", "", "a.txt") for i in range(rejects)],
    )
    hashes = row_hashes(texts)
    return PreparedUnit(rows, hashes, compute_unit_digest(space, rows, hashes))


def make_vectors(n: int) -> Vectors:
    """Distinct vectors of four components."""
    embedding = np.arange(4 * n, dtype=np.float32).reshape(n, 4) + 1
    counts = np.full(n, 5, np.int32)
    return Vectors(
        embedding, np.ones(n, np.float32), counts, np.zeros(n, bool), np.zeros(n, np.int32)
    )
