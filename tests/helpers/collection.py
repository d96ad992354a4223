"""A collection that changes from night to night, and what a store of it holds."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
from helpers.changes import Change, first_night
from helpers.layouts import Files, write_layout

from sentence_beam.transforms.space import row_hash
from sentence_beam.transforms.store import open_store


class Collection:
    """Files that change by night, on disk as they are: a file that has not changed is not written
    again.
    """

    def __init__(self, folder: Path, seed: int, rows: int = 60):
        self.folder, self.rng = folder, random.Random(seed)
        self.files, self._written = first_night(self.rng, rows), Files()
        self._write()

    def befalls(self, changes: list[Change]) -> None:
        """One day."""
        for change in changes:
            change(self.files, self.rng)
        self._write()

    @property
    def rows(self) -> Counter[tuple[str, bytes, str]]:
        """(id, row hash, kept value) of every good row."""
        rows = (row for rows in self.files.values() for row in rows)
        return Counter((i, row_hash(text), lang) for i, text, lang in rows if text is not None)

    @property
    def rejected(self) -> int:
        """How many rows have no text."""
        return sum(text is None for rows in self.files.values() for _, text, _ in rows)

    @property
    def glob(self) -> str:
        """What names all files."""
        return f"{self.folder}/**"

    def _write(self) -> None:
        for name in self._written.keys() - self.files.keys():
            (self.folder / name).unlink()
        for name, rows in self.files.items():
            if self._written.get(name) != rows:
                write_layout(self.folder, {name: rows}, random.Random(name))
        self._written = {name: list(rows) for name, rows in self.files.items()}


def rows_and_vectors(
    store: Path,
) -> tuple[Counter[tuple[str, bytes, str]], dict[tuple[str, bytes], np.ndarray]]:
    """What a store holds: (id, row hash, kept value) of its rows, and the vector of every id and
    text.
    """
    dataset = open_store(str(store)).dataset()
    if "embedding" not in dataset.schema.names:
        return Counter(), {}
    rows = dataset.to_table(columns=["id", "row_hash", "lang", "embedding"]).to_pylist()
    vectors = {(row["id"], row["row_hash"]): np.array(row["embedding"]) for row in rows}
    return Counter((row["id"], row["row_hash"], row["lang"]) for row in rows), vectors


def the_same(one: Path, other: Path) -> None:
    """Check that two stores hold the same rows with the same vectors."""
    (rows, vectors), (others, theirs) = rows_and_vectors(one), rows_and_vectors(other)
    assert rows == others
    for key, vector in vectors.items():
        assert np.abs(vector - theirs[key]).max() <= 2e-5 * np.abs(vector).max()
