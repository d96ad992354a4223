"""One quantizer for all segments: stored once, put into a segment when it is opened."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from helpers.index_data import build_segment, trained, unit_vectors

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index import SegmentedIndex, SegmentFile, SegmentWriter, TrainedIndex
from sentence_beam.transforms.index.faiss_module import load_faiss

DIM = 64
QUERIES = unit_vectors(20, DIM, seed=1)


@pytest.mark.parametrize("codec", ["Flat", "SQ8", "SQbf16", "RaBitQ"])
def test_a_segment_has_codes_ids_and_list_sizes_and_little_else(codec: str) -> None:
    start, rows = trained(f"IVF64,{codec}", "ip", DIM), 300
    needed = rows * (SegmentWriter(start).code_size + 8) + 64 * 8
    assert len(build_segment(start, [unit_vectors(rows, DIM)])) <= 1.05 * needed + 600


PQ = "PQ8x4"  # takes seconds to train
QUICK = {("IVF8", "ip", PQ), ("IVF8_HNSW4", "l2", PQ)}
KINDS = itertools.product(("IVF8", "IVF8_HNSW4"), ("ip", "l2"), ("Flat", "SQ8", "RaBitQ", PQ))


@pytest.mark.parametrize(
    ("lists", "metric", "codec"),
    [
        pytest.param(*kind, marks=[] if kind[2] != PQ or kind in QUICK else [pytest.mark.slow])
        for kind in KINDS
    ],
)
def test_segments_answer_as_faiss(lists: str, codec: str, metric: str, tmp_path: Path) -> None:
    faiss, start = load_faiss(), trained(f"{lists},{codec}", metric, DIM)
    vectors = unit_vectors(900, DIM)
    for name, part in (("first", vectors[:400]), ("second", vectors[400:])):
        (tmp_path / name).write_bytes(build_segment(start, [part]))
    (tmp_path / "trained").write_bytes(start)
    files = [SegmentFile(tmp_path / "first"), SegmentFile(tmp_path / "second")]
    found = SegmentedIndex.open(files, TrainedIndex.open(tmp_path / "trained")).search(
        QUERIES, 10, nprobe=3
    )
    plain = faiss.deserialize_index(np.frombuffer(start, np.uint8))
    plain.add(vectors)
    faiss.extract_index_ivf(plain).nprobe = 3
    scores, rows = plain.search(QUERIES, 10)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-6)
    assert (np.array([0, 400])[found.segment] + found.row == rows).mean() > 0.98


def test_lists_without_their_quantizer_or_with_another_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(build_segment(trained("IVF8,SQ8", "ip", DIM), [unit_vectors(50, DIM)]))
    with pytest.raises(DamagedIndexError, match="segment: its lists need the index's quantizer"):
        SegmentedIndex.open([SegmentFile(path)])
    for other in ("IVF4,SQ8", "IVF8,Flat"):
        with pytest.raises(
            DamagedIndexError, match="segment: its lists are not of the index's quantizer"
        ):
            SegmentedIndex.open(
                [SegmentFile(path)], TrainedIndex.from_bytes(trained(other, "ip", DIM))
            )
    (tmp_path / "trained").write_bytes(b"nothing")
    with pytest.raises(DamagedIndexError, match="trained: not a readable trained index"):
        TrainedIndex.open(tmp_path / "trained")
