"""Searches among filtered rows when the index and the snapshot do not fit each other."""

from pathlib import Path

import pytest
from helpers.nights import Nights, vector_of
from helpers.snapshots import changed, edit_units, units_of

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.store.index_entries import IndexRequest


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    """A store of four shards with an index."""
    made = Nights(tmp_path / "store")
    rows = {f"f{n}": [(f"{n}-{i}", f"text {n} {i}") for i in range(3)] for n in range(4)}
    made.commit(rows, IndexRequest("Flat"))
    return made


def test_a_filter_finds_its_rows_of_all_shards(nights: Nights) -> None:
    queries = vector_of("text 0 0")[None]
    [hits] = Searcher(nights.manifest).search(vectors=queries, k=9, where="id in ('0-1', '3-2')")
    assert sorted(hit["id"] for hit in hits) == ["0-1", "3-2"]


def test_a_shard_of_the_index_that_the_snapshot_lacks_is_named(nights: Nights) -> None:
    path = units_of(nights.root)[1]["path"]
    other = path.replace(path[-24:-8], "0" * 16)
    (nights.root / other).write_bytes((nights.root / path).read_bytes())
    edit_units(nights.root, changed(1, path=other))
    queries = vector_of("text 0 0")[None]
    with pytest.raises(DamagedIndexError, match=f"{path} is none of the snapshot's shards"):
        Searcher(nights.manifest).search(vectors=queries, k=9, where="id in ('0-1', '3-2')")
