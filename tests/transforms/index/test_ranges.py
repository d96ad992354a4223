"""An index cut by its lists against one index of all rows.

Covers transforms/index/range_file.py.
Covers transforms/index/range_readers.py.
"""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from helpers.examples import examples
from helpers.index_data import small_integers, trained, unit_vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index import SegmentedIndex, SegmentFile, TrainedIndex
from sentence_beam.transforms.index import filtered as filtered_index
from sentence_beam.transforms.index.by_lists import scan, search_coarse
from sentence_beam.transforms.index.filtered import FilteredIndex
from sentence_beam.transforms.index.range_file import (
    RangeHeader,
    count_header_bytes,
    cut_blocks,
    range_bytes,
)
from sentence_beam.transforms.index.range_readers import MappedRange, RangeFile
from sentence_beam.transforms.index.segment import ListedRows, SegmentWriter

DIM = 16
FACTORIES = ("IVF4,Flat", "IVF4,SQ8", "IVF4,RaBitQ", "IVF4_HNSW4,SQ8", "IVF4,PQ4x4", "IVF4,SQfp16")


def listed(start: bytes, vectors: np.ndarray) -> tuple[SegmentWriter, ListedRows]:
    writer = SegmentWriter(start)
    writer.add(vectors)
    return writer, writer.list_rows()


def ranges_of(
    folder: Path, rows: ListedRows, bounds: list[int], keep: np.ndarray | None = None
) -> tuple[list[RangeFile], list[np.ndarray]]:
    """The ranges that end at the bounds, written; and the row that each of their rows was."""
    files, origins = [], []
    starts = np.concatenate([[0], np.cumsum(rows.sizes)])
    first_id = 0
    for number, (first, stop) in enumerate(pairwise([0, *bounds, len(rows.sizes)])):
        here = slice(starts[first], starts[stop])
        data, header = range_bytes(first, first_id, rows.sizes[first:stop], rows.codes[here])
        path = folder / f"{number}.lists"
        path.write_bytes(data)
        kept = None if keep is None else keep[rows.rows[here]]
        n = int(header.starts[-1])
        file = RangeFile(MappedRange(path, header.sha256), first, stop, n, first_id)
        if kept is not None:
            gone = int(np.count_nonzero(~kept))
            file = replace(file, deleted=gone, keep=lambda kept=kept: kept)
        files.append(file)
        origins.append(rows.rows[here])
        first_id += -(-n // 8) * 8
    return files, origins


def as_rows(found: tuple[np.ndarray, np.ndarray], origins: list[np.ndarray]) -> np.ndarray:
    """The rows of the one index that segments and local rows are, -1 for none."""
    segment, row = found
    rows = np.full(row.shape, -1)
    for place, origin in enumerate(origins):
        here = (segment == place) & (row >= 0)
        rows[here] = origin[row[here]]
    return rows


def check_equal(scores: np.ndarray, rows: np.ndarray, others: np.ndarray, same: np.ndarray) -> None:
    """Scores are equal to the bit, rows too if no other row has their score."""
    np.testing.assert_array_equal(scores, others)
    for query in range(len(scores)):
        _, counts = np.unique(scores[query], return_counts=True)
        values = np.unique(scores[query])[counts == 1]
        alone = np.isin(scores[query], values) & (scores[query] != scores[query, -1])
        np.testing.assert_array_equal(rows[query][alone], same[query][alone])


@given(
    st.sampled_from(FACTORIES),
    st.sampled_from(["ip", "l2"]),
    st.integers(0, 60),
    st.sets(st.integers(1, 3)),
    st.integers(1, 70),
    st.integers(1, 4),
    st.integers(0, 9),
    st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_ranges_equal_one_index(
    factory: str,
    metric: str,
    rows: int,
    bounds: set[int],
    k: int,
    nprobe: int,
    deleted: int,
    filtered: bool,
) -> None:
    start = trained(factory, metric, DIM)
    vectors = small_integers(rows, DIM, 3)
    queries = small_integers(5, DIM, 4)
    rng = np.random.default_rng(deleted)
    keep = rng.integers(0, 10, rows) >= deleted if deleted else None
    wanted = rng.integers(0, 2, rows).astype(bool)
    writer, found = listed(start, vectors)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one"
        path.write_bytes(writer.to_bytes())
        files, origins = ranges_of(Path(folder), found, sorted(bounds), keep)
        one = SegmentedIndex.open([SegmentFile(path, keep)], TrainedIndex.from_bytes(start))
        many = SegmentedIndex.open(files, TrainedIndex.from_bytes(start))
        if filtered:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(filtered_index, "FEW", -1)
                single = FilteredIndex(one, [wanted]).search(queries, k, nprobe=nprobe)
                cut = FilteredIndex(many, [wanted[origin] for origin in origins])
                several = cut.search(queries, k, nprobe=nprobe)
        else:
            single = one.search(queries, k, nprobe=nprobe)
            several = many.search(queries, k, nprobe=nprobe)
        assert many.rows == one.rows
        check_equal(several.scores, as_rows(several[1:], origins), single.scores, single.row)
        if rows and not filtered:
            coarse = search_coarse(TrainedIndex.from_bytes(start), queries, nprobe)
            gains, positions = scan(many.parts, queries, k, coarse, TrainedIndex.from_bytes(start))
            others, theirs = scan(one.parts, queries, k, coarse, TrainedIndex.from_bytes(start))
            split = positions >> 32, np.where(positions >= 0, positions & 0xFFFFFFFF, -1)
            check_equal(gains, as_rows(split, origins), others, theirs)


@pytest.mark.parametrize("where", ["header", "list", "end"])
def test_damage_is_noticed_if_it_is_read(tmp_path: Path, where: str) -> None:
    start = trained("IVF4,SQ8", "ip", DIM)
    _, rows = listed(start, unit_vectors(50, DIM))
    files, _ = ranges_of(tmp_path, rows, [2])
    path = Path(files[1].path)
    data = bytearray(path.read_bytes())
    if where == "end":
        del data[-1]
    else:
        data[20 if where == "header" else count_header_bytes(2) + 3] ^= 4
    path.write_bytes(data)
    index = SegmentedIndex.open(files, TrainedIndex.from_bytes(start))
    with pytest.raises(DamagedIndexError, match=f"{path} was changed"):
        index.search(unit_vectors(5, DIM, 1), 3, nprobe=4)


def test_only_probed_ranges_are_opened(tmp_path: Path) -> None:
    start = trained("IVF4,SQ8", "ip", DIM)
    _, rows = listed(start, unit_vectors(50, DIM))
    files, _ = ranges_of(tmp_path, rows, [1, 2, 3])
    queries = unit_vectors(1, DIM, 1)
    near = int(search_coarse(TrainedIndex.from_bytes(start), queries, 1).lists[0, 0])
    for number, file in enumerate(files):
        if number != near:
            Path(file.path).unlink()
    index = SegmentedIndex.open(files, TrainedIndex.from_bytes(start))
    assert (index.search(queries, 3, nprobe=1).segment == near).all()
    with pytest.raises(DamagedIndexError, match="is missing"):
        index.search(queries, 3, nprobe=4)


def test_headers_of_many_ranges_are_as_small_as_that_of_one() -> None:
    assert 64 * count_header_bytes(1 << 12) <= 1.1 * count_header_bytes(1 << 18)


def test_a_header_is_small() -> None:
    sizes = np.full(1000, 3)
    data, header = range_bytes(7, 8, sizes, np.zeros((3000, 5), np.uint8))
    assert header.length <= 40 * 1000 + 2000
    read = RangeHeader.from_bytes(data[: header.length], "x")
    assert (read.first, read.stop, read.first_id) == (7, 1007, 8)
    np.testing.assert_array_equal(read.sizes, sizes)
    with pytest.raises(DamagedIndexError, match="x was changed"):
        RangeHeader.from_bytes(data[: header.length - 1], "x")


@pytest.mark.parametrize(
    ("spare", "runs"), [(0.0, [(0, 0), (2, 2), (5, 5)]), (0.34, [(0, 2), (5, 5)]), (9.0, [(0, 5)])]
)
def test_lists_between_two_are_read_with_them_up_to_a_share(
    spare: float, runs: list[tuple[int, int]]
) -> None:
    sizes = np.array([2, 2, 2, 2, 50, 2], np.uint32)
    header = RangeHeader(0, 8, 0, sizes, np.zeros(6, np.uint32))
    assert list(cut_blocks(header, np.array([0, 2, 5]), spare)) == runs
