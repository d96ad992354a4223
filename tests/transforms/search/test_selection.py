"""The rows that take part in a job: those of a snapshot that a filter matches.

Covers transforms/search/snapshot_rows.py.
Covers transforms/search/searcher.py.
Covers transforms/steps/joins/export_vectors.py.
Covers transforms/steps/joins/store_vectors.py.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers.nights import Nights
from helpers.snapshots import units_of

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.evaluation.diagnostics import drawn_samples
from sentence_beam.transforms.evaluation.diagnostics.drawn_samples import sample_store
from sentence_beam.transforms.search import Searcher, Selection
from sentence_beam.transforms.steps.joins.compared_rows import open_rows
from sentence_beam.transforms.steps.joins.export_vectors import export_vectors
from sentence_beam.transforms.steps.joins.near_duplicates import deduplicate
from sentence_beam.transforms.steps.joins.row_groups import group_by_number
from sentence_beam.transforms.steps.joins.store_vectors import StoreVectors
from sentence_beam.transforms.store import Store
from sentence_beam.transforms.store.shards.shard_reading import read_pooled

pytest.importorskip("faiss")
ROWS = 90


class Lettered(Nights):
    """Nights whose rows keep the first letter of their text."""

    def kept(self, texts: list[str]) -> pa.Table:
        return pa.table({"letter": [text[0] for text in texts]})


@pytest.fixture(scope="module", params=["IVF4,SQ8", "none"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Rows of three letters in two shards."""
    nights = Lettered(tmp_path_factory.mktemp("store"))
    rows = [(f"{number:03d}", f"{'abc'[number % 3]} {number // 2}") for number in range(ROWS)]
    files = {"f0": rows[:40], "f1": rows[40:]}
    if request.param == "none":
        nights.commit_without_index(files)
    else:
        nights.commit(files, IndexRequest(request.param))
    return Store(nights.manifest)


def ids_of(store: Store, letter: str) -> list[str]:
    """The ids of rows with a letter, in the order of the shards."""
    table = store.dataset().to_table(columns=["id", "letter"])
    return [row["id"] for row in table.to_pylist() if row["letter"] == letter]


def test_without_a_filter_all_rows_take_part(store: Store) -> None:
    selection = Selection.from_manifest(store.manifest)
    assert len(selection) == ROWS
    assert selection.rows_of(0) is None
    blocks = [batch for _, batch in selection.read(["id"], "reading")]
    assert sum(map(len, blocks)) == ROWS


def test_rows_of_a_filter_in_the_order_of_their_shards(store: Store, tmp_path: Path) -> None:
    selection = Selection.from_manifest(store.manifest, "letter = 'b'")
    stored = StoreVectors.read(selection, tmp_path)
    wanted = ids_of(store, "b")
    assert stored.columns.column("id").to_pylist() == wanted
    ids, vectors = store.numpy()
    places = [ids.tolist().index(name) for name in wanted]
    np.testing.assert_allclose(stored.vectors, vectors[places], atol=1e-6)
    last = len(wanted) - 1
    assert stored.names(np.array([0, last])) == [wanted[0], wanted[last]]


def test_jobs_have_the_rows_of_the_filter_alone(store: Store, tmp_path: Path) -> None:
    selection = Selection.from_manifest(store.manifest, "letter = 'c'")
    wanted = ids_of(store, "c")
    (tmp_path / "dedup").mkdir()
    (tmp_path / "cluster").mkdir()
    assert deduplicate(selection, 0.99, tmp_path / "dedup").rows["id"].to_pylist() == wanted
    assert group_by_number(selection, 3, tmp_path / "cluster").rows["id"].to_pylist() == wanted
    assert sample_store(store, 1000, "letter = 'c'").total == len(wanted)


def test_vectors_of_a_filter_are_exported(store: Store, tmp_path: Path) -> None:
    about = export_vectors(store, "npy", tmp_path, "letter = 'a'")
    wanted = ids_of(store, "a")
    assert about["rows"] == len(wanted)
    assert np.load(tmp_path / "vectors.npy").shape == (len(wanted), store.space.dim)


def test_neighbours_of_a_filter_are_those_of_brute_force(store: Store) -> None:
    ids, vectors = store.numpy()
    wanted = [ids.tolist().index(name) for name in ids_of(store, "a")]
    queries = np.ascontiguousarray(vectors[:7])
    rows = open_rows(store.manifest, Searcher(store.manifest), 4, 1, "letter = 'a'")
    found = [rows.scan(group, queries, rows.coarse(queries)) for group in rows.groups]
    assert len(found) == 1
    hits = rows.hits(queries, found[0])
    starts = np.array(
        [0, *(unit["rows"] for unit in units_of(store.root) if unit["path"])]
    ).cumsum()
    places = starts[hits.shard] + hits.row
    assert set(places.reshape(-1).tolist()) <= set(wanted)
    scores = queries @ vectors[wanted].T
    best = -np.sort(-scores, axis=1)[:, :5]
    np.testing.assert_allclose(hits.scores, best, atol=0.02)  # codes of eight bits


@pytest.mark.parametrize(
    ("where", "message"),
    [("letter = 'z'", "matches none of the rows"), ("size = 1", "letter")],
    ids=["no row", "no column"],
)
def test_a_filter_without_rows_or_columns_is_one_line(
    store: Store, tmp_path: Path, where: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        StoreVectors.read(Selection.from_manifest(store.manifest, where), tmp_path)


def test_a_sample_of_many_shards_reads_some_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_samples, "SHARDS_READ", 3)
    nights = Lettered(tmp_path)
    rows = [(f"{number:03d}", f"{'abc'[number % 3]} {number}") for number in range(ROWS)]
    files = {f"f{place}": rows[9 * place : 9 * place + 9] for place in range(10)}
    nights.commit_without_index(files)
    store = Store(nights.manifest)
    read: list[str] = []

    def noted(path: str, *others: object) -> object:
        read.append(path)
        return read_pooled(path, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(drawn_samples, "read_pooled", noted)
    few = sample_store(store, 5)
    assert (len(read), few.total) == (3, ROWS)
    assert {name: len(vectors) for name, vectors in few.vectors.items()} == {"auto": 5}
    assert sample_store(store, 5).texts == few.texts
    read.clear()
    assert len(sample_store(store, 20).vectors["auto"]) == 20
    assert len(read) == 9, "four times as many rows are read as are drawn"
    read.clear()
    assert sample_store(store, 5, "letter = 'a'").total == ROWS // 3
    assert len(read) == 10
