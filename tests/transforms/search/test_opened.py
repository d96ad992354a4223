"""The opened index of the next snapshot holds what is the same in both once."""

from pathlib import Path

import numpy as np
import pytest
from helpers.nights import Nights, vector_of
from helpers.snapshots import units_of

from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index.range_file import RangeHeader
from sentence_beam.transforms.search import Searcher

pytest.importorskip("faiss")

TOPICS = "abcdefgh"
FILES = {
    f"f{i}": [(f"{i}-{j}", f"{TOPICS[j % 8]} {i} {j}") for j in range(100)] for i in range(1, 5)
}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    nights = Nights(tmp_path / "store")
    nights.commit(FILES, IndexRequest("IVF16,SQ8", range_bytes=3000))
    return nights


def test_the_next_snapshot_shares_quantizer_and_headers(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = Searcher(nights.manifest)
    query = np.array([vector_of("a question")])
    searcher.nearest(query, 5)
    nights.commit({"f0": [("new", "a new row")], **FILES})
    parsed: list[str] = []
    from_bytes = RangeHeader.from_bytes

    def noted(data: bytes, path: str) -> RangeHeader:
        parsed.append(path)
        return from_bytes(data, path)

    monkeypatch.setattr(RangeHeader, "from_bytes", noted)
    following = searcher.of(nights.manifest)
    following.nearest(query, 5)
    assert searcher.index.trained is following.index.trained
    assert not parsed
    # without the previous one they are read
    del searcher, following
    Searcher(nights.manifest).nearest(query, 5)
    assert parsed


def test_shards_are_numbered_by_the_units_themselves(nights: Nights) -> None:
    manifest = nights.manifest
    for number, unit in enumerate(units_of(nights.root)):
        assert manifest.find_shard_number(unit["path"]) == number
