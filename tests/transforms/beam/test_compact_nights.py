"""An index whose candidates are scored again: by the files beside its segments, from night to
night.
"""

from pathlib import Path

import numpy as np
import pytest
from helpers.nights import Nights, nearest

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index import upkeep
from sentence_beam.transforms.store.verification import faults

pytest.importorskip("faiss")

pytestmark = pytest.mark.usefixtures("plain_beam")

FILES = {
    f"f{file}": [(f"{file}-{row}", f"{'abcd'[row % 4]} {file} {row}") for row in range(100)]
    for file in range(4)
}
COMPACT = IndexRequest("IVF4,RaBitQ")


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "store")


def check_near(nights: Nights, files: dict[str, list[tuple[str, str]]]) -> None:
    """What is found has the scores of the nearest rows, but for float16."""
    assert list(faults(nights.manifest)) == []
    for text in ("a question", "d question"):
        for k in (1, 10, 100):
            (rows,) = nights.search([text], k, nprobe=4)
            np.testing.assert_allclose(
                [score for score, _ in rows], nearest(files, text, k), atol=0.02 if k > 90 else 2e-3
            )
    (rows,) = nights.search(["a question"], 999)
    assert sorted(row_id for _, row_id in rows) == sorted(
        row_id for rows in files.values() for row_id, _ in rows
    )


def test_candidates_are_scored_by_vectors_beside_the_segments(nights: Nights) -> None:
    index = nights.commit(FILES, COMPACT)
    assert all(segment["refine"]["path"].endswith(".refine") for segment in index["segments"])
    check_near(nights, FILES)


def test_more_candidates_are_asked_for_where_the_target_needs_them(nights: Nights) -> None:
    few, many = (
        nights.commit(FILES, IndexRequest("IVF4,RaBitQ", target_recall=target))
        for target in (0.1, 1.0)
    )
    assert (few["nprobe"], few["rerank"], many["rerank"]) == (1, 50, 400)
    for index in (few, many):
        assert index["recall"]["rerank"] == index["rerank"]
    files = {**FILES, "new": [(f"n{row}", f"b new {row}") for row in range(5)]}
    assert nights.commit(files)["recall"]["rerank"] == 400


def test_deltas_and_rewritten_segments_have_the_vectors_of_their_rows(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.commit(FILES, COMPACT)
    files = {
        **FILES,
        "f0": FILES["f0"][5:],
        "new": [(f"n{row}", f"b new {row}") for row in range(20)],
    }
    index = nights.commit(files)
    assert [segment["kind"] for segment in index["segments"]].count("delta") == 1
    check_near(nights, files)
    monkeypatch.setattr(upkeep, "MOST_WORN", 0)
    files["more"] = [(f"m{row}", f"c more {row}") for row in range(5)]
    assert nights.commit(files)["change"]["what"] == "rewritten"
    check_near(nights, files)


@pytest.mark.parametrize("how", ["gone", "cut", "changed"])
def test_a_damaged_file_of_vectors_is_named_and_made_again(nights: Nights, how: str) -> None:
    path = nights.root / nights.commit(FILES, COMPACT)["segments"][0]["refine"]["path"]
    data = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(data[:-9] if how == "cut" else bytes(byte ^ 1 for byte in data))
    with pytest.raises(
        DamagedIndexError, match=f"{path.name} (is missing|was changed).*builds it again"
    ):
        nights.search(["a question"], 10)
    assert path.name in nights.commit(FILES)["change"]["why"]
    assert path.read_bytes() == data
    check_near(nights, FILES)
