import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers.examples import examples
from helpers.index_data import (
    FACTORIES,
    brute_force,
    build_segment,
    global_rows,
    open_cut,
    small_integers,
    trained,
    unit_vectors,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.index import (
    SegmentedIndex,
    SegmentFile,
    TrainedIndex,
    exact_search,
    flat_segment,
    rerank,
)
from sentence_beam.transforms.index.faiss_module import use_threads

DIM = 16


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("factory", FACTORIES)
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_segments_answer_as_one_index(factory: str, metric: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 80), "rows")
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=5), "cuts"))
    k, nprobe = data.draw(st.integers(1, 90), "k"), data.draw(st.integers(1, 5), "nprobe")
    seed = data.draw(st.integers(0, 99), "seed")
    make = data.draw(st.sampled_from([small_integers, unit_vectors]), "kind")
    vectors, queries = (
        make(n, DIM, seed),
        make(data.draw(st.integers(1, 30), "queries"), DIM, seed + 1),
    )
    keep = np.random.default_rng(seed).random(n) < data.draw(st.sampled_from([0, 0.5, 1]), "kept")
    start = trained(factory, metric, DIM)
    with tempfile.TemporaryDirectory() as folder:
        one = open_cut(Path(folder), start, vectors, [], keep).search(queries, k, nprobe=nprobe)
        many = open_cut(Path(folder), start, vectors, [*cuts, n], keep).search(
            queries, k, nprobe=nprobe
        )
    np.testing.assert_array_equal(many.scores, one.scores)
    np.testing.assert_array_equal(global_rows(many, cuts + [n]), one.row)
    assert keep[one.row[one.row >= 0]].all()


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat"])
@settings(max_examples=examples(25), deadline=None)
@given(n=st.integers(1, 120), k=st.integers(1, 130), seed=st.integers(0, 99))
def test_exact_kinds_agree_with_brute_force_ties_included(
    factory: str, metric: str, n: int, k: int, seed: int
) -> None:
    vectors, queries = small_integers(n, DIM, seed), small_integers(5, DIM, seed + 1)
    scores, rows = brute_force(vectors, queries, k, metric)
    with tempfile.TemporaryDirectory() as folder:
        found = open_cut(Path(folder), trained(factory, metric, DIM), vectors, [n // 3]).search(
            queries, k, nprobe=4
        )
    np.testing.assert_array_equal(global_rows(found, [n // 3])[:, :n], rows)
    np.testing.assert_array_equal(found.scores[:, :n], scores)


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="tells what is mapped on Linux alone"
)
@pytest.mark.parametrize("factory", ["Flat", "IVF4,SQ8"])
def test_an_opened_segment_is_mapped_and_not_copied(factory: str, tmp_path: Path) -> None:
    vectors = unit_vectors(3000, DIM)
    index = open_cut(tmp_path, trained(factory, "ip", DIM), vectors, [])
    (segment,) = tmp_path.rglob("*.faiss")
    assert str(segment) in Path("/proc/self/maps").read_text()
    assert index.search(vectors[:1], 1, nprobe=4).row[0, 0] == 0


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("factory", FACTORIES)
def test_scores_and_order_are_those_of_faiss(factory: str, metric: str, tmp_path: Path) -> None:
    import faiss

    vectors, queries = unit_vectors(3000, DIM), unit_vectors(100, DIM, seed=1)
    start = trained(factory, metric, DIM)
    index = faiss.deserialize_index(np.frombuffer(start, np.uint8))
    index.add(vectors)
    if factory.startswith("IVF"):
        faiss.extract_index_ivf(index).nprobe = 2
    scores, rows = index.search(queries, 10)
    found = open_cut(tmp_path, start, vectors, [10, 1500]).search(queries, 10, nprobe=2)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-6)
    assert (global_rows(found, [10, 1500]) == rows).mean() > 0.999


@pytest.mark.parametrize("factory", ["Flat", "IVF4,SQ8", "IVF4,RaBitQ", "SQ8"])
def test_a_thousand_copies_come_lowest_row_first(factory: str, tmp_path: Path) -> None:
    vectors = unit_vectors(1300, DIM)
    vectors[100:1100] = vectors[100]
    order = np.random.default_rng(0).permutation(1300)
    copies = np.flatnonzero((order >= 100) & (order < 1100))
    found = open_cut(tmp_path, trained(factory, "ip", DIM), vectors[order], [400, 900]).search(
        vectors[100:101], 20
    )
    rows = global_rows(found, [400, 900])[0]
    there = rows[np.isin(rows, copies)]
    assert there.tolist() == copies[: len(there)].tolist()
    assert len(there) == 20 or "RaBitQ" in factory  # whose scores may place another row among them


def test_a_query_is_answered_alike_alone_and_in_a_crowd(tmp_path: Path) -> None:
    vectors, queries = unit_vectors(3000, DIM), unit_vectors(200, DIM, seed=1)
    for factory in FACTORIES:
        index = open_cut(tmp_path, trained(factory, "ip", DIM), vectors, [1000])
        crowd = index.search(queries, 10, nprobe=2)
        with use_threads(1):
            alone = index.search(queries[7:8], 10, nprobe=2)
        np.testing.assert_array_equal(alone.scores[0], crowd.scores[7])
        np.testing.assert_array_equal(alone.row[0], crowd.row[7])


def test_held_out_rows_are_found_whatever_the_lists(tmp_path: Path) -> None:
    vectors, held_out = unit_vectors(2000, DIM), unit_vectors(50, DIM, seed=3)
    paths = tmp_path / "lists", tmp_path / "held-out"
    start = trained("IVF4,SQ8", "ip", DIM)
    paths[0].write_bytes(build_segment(start, [vectors]))
    paths[1].write_bytes(flat_segment([held_out], DIM))
    index = SegmentedIndex.open(
        [SegmentFile(path) for path in paths], TrainedIndex.from_bytes(start)
    )
    found = index.search(held_out, 1, nprobe=1)
    assert found.segment[:, 0].tolist() == [1] * 50
    assert found.row[:, 0].tolist() == list(range(50))


def test_a_sweep_is_a_search_at_each_nprobe(tmp_path: Path) -> None:
    index = open_cut(tmp_path, trained("IVF4,RaBitQ", "l2", DIM), unit_vectors(900, DIM), [300])
    queries = unit_vectors(20, DIM, seed=1)
    for nprobe, found in zip([1, 2, 4, 9], index.sweep(queries, 10, [1, 2, 4, 9]), strict=True):
        for a, b in zip(found, index.search(queries, 10, nprobe=nprobe), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("factory", ["Flat", "IVF64,SQ8", "IVF64,RaBitQ"])
def test_k_rows_are_found_however_few_the_lists_hold_and_all_rows_where_k_is_more(
    factory: str, tmp_path: Path
) -> None:
    vectors, queries = unit_vectors(1000, DIM), unit_vectors(3, DIM, seed=1)
    index = open_cut(tmp_path, trained(factory, "ip", DIM), vectors, [400], np.arange(1000) % 5 > 0)
    for k in (10, 200, 799, 800, 900):
        found = index.search(queries, k, nprobe=1)
        assert ((found.row >= 0).sum(axis=1) == min(k, 800)).all()
        assert (np.diff(found.scores[:, : min(k, 800)], axis=1) <= 0).all()
    few = index.search(queries, 300, nprobe=1, least=5).row
    assert factory == "Flat" or (few[:, -1] < 0).all()


def test_nothing_to_find(tmp_path: Path) -> None:
    empty = open_cut(tmp_path, trained("IVF4,SQ8", "ip", DIM), unit_vectors(0, DIM), [0])
    for index in (SegmentedIndex.open([]), empty):
        found = index.search(unit_vectors(2, DIM), 3)
        assert found.segment.tolist() == found.row.tolist() == [[-1] * 3] * 2
        assert np.isneginf(found.scores).all()
        assert index.rows == 0


def test_no_queries(tmp_path: Path) -> None:
    index = open_cut(tmp_path, trained("IVF4_HNSW4,SQ8", "ip", DIM), unit_vectors(50, DIM), [20])
    assert index.search(np.empty((0, DIM), np.float32), 3).row.shape == (0, 3)


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_rerank_puts_the_exact_scores_in_order(metric: str, tmp_path: Path) -> None:
    vectors, queries = unit_vectors(600, DIM), unit_vectors(9, DIM, seed=1)
    index = open_cut(tmp_path, trained("IVF4,RaBitQ", metric, DIM), vectors, [200])
    asked: list[int] = []

    def fetch(segment: np.ndarray, row: np.ndarray) -> np.ndarray:
        asked.extend((np.array([0, 200])[segment] + row).tolist())
        return vectors[np.array([0, 200])[segment] + row]

    found = rerank(queries, index.search(queries, 600, nprobe=4), 10, fetch, metric)
    scores, rows = brute_force(vectors, queries, 10, metric)
    np.testing.assert_array_equal(global_rows(found, [200]), rows)
    np.testing.assert_allclose(found.scores, scores, atol=1e-6)
    assert asked == list(range(600))


def test_rerank_of_nothing() -> None:
    queries = unit_vectors(2, DIM)
    found = rerank(
        queries,
        SegmentedIndex.open([]).search(queries, 5),
        3,
        lambda s, r: np.empty((0, DIM)),
        "l2",
    )
    assert found.row.tolist() == [[-1] * 3] * 2
    assert np.isposinf(found.scores).all()


@pytest.mark.parametrize("metric", ["ip", "l2"])
@settings(max_examples=examples(25), deadline=None)
@given(
    n=st.integers(0, 200), cut=st.integers(0, 200), k=st.integers(1, 210), seed=st.integers(0, 99)
)
def test_exact_search_by_blocks(metric: str, n: int, cut: int, k: int, seed: int) -> None:
    cut = min(cut, n)
    vectors, queries = small_integers(n, DIM, seed), small_integers(30, DIM, seed + 1)
    blocks = [(vectors[cut:], 1000 + cut), (vectors[:cut], 1000)]
    scores, rows = exact_search(iter(blocks), queries, k, metric)
    expected = brute_force(vectors, queries, k, metric)
    np.testing.assert_array_equal(rows[:, :n], expected[1] + 1000)
    np.testing.assert_array_equal(scores[:, :n], expected[0])
    assert (rows[:, n:] == -1).all()


def test_exact_scores_do_not_depend_on_the_blocks() -> None:
    vectors, queries = unit_vectors(5000, 100), unit_vectors(64, 100, seed=1)
    whole = exact_search([(vectors, 0)], queries, 10, "ip")
    cut = exact_search(((vectors[i : i + 37], i) for i in range(0, 5000, 37)), queries, 10, "ip")
    np.testing.assert_array_equal(cut[0], whole[0])
    np.testing.assert_array_equal(cut[1], whole[1])


def _anonymous() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous"))


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="no /proc/self/smaps_rollup here"
)
@pytest.mark.parametrize(
    "factory", ["Flat", "IVF4,SQ8", pytest.param("IVF4,RaBitQ", marks=pytest.mark.slow)]
)
def test_opening_maps_the_codes(factory: str, tmp_path: Path) -> None:
    path = tmp_path / "big.faiss"
    blocks = [np.tile(unit_vectors(1000, 256), (20, 1))] * 10
    start = TrainedIndex.from_bytes(trained(factory, "ip", 256))
    path.write_bytes(build_segment(trained(factory, "ip", 256), blocks))
    SegmentedIndex.open([SegmentFile(path)], start)
    before = _anonymous()
    index = SegmentedIndex.open([SegmentFile(path)], start)
    assert index.rows == 200_000
    assert _anonymous() - before < max(4_000_000, path.stat().st_size // 10) < path.stat().st_size


@pytest.mark.parametrize("content", [b"", b"not an index at all", None])
def test_damaged_files_are_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "damaged.faiss"
    whole = build_segment(trained("IVF4,SQ8", "ip", DIM), [unit_vectors(500, DIM)])
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(
        SentenceBeamError, match=r"damaged\.faiss: not a readable index segment"
    ) as error:
        SegmentedIndex.open([SegmentFile(path)])
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SentenceBeamError, match=r"gone\.faiss"):
        SegmentedIndex.open([SegmentFile(tmp_path / "gone.faiss")])


def test_a_locator_of_another_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(flat_segment([unit_vectors(5, DIM)], DIM))
    with pytest.raises(SentenceBeamError, match="5 rows, but the locator table has 4"):
        SegmentedIndex.open([SegmentFile(tmp_path / "s", np.ones(4, bool))])


def test_queries_without_a_direction_or_of_another_dim_are_refused(tmp_path: Path) -> None:
    index = open_cut(tmp_path, trained("Flat", "ip", DIM), unit_vectors(5, DIM), [])
    with pytest.raises(OptionError, match="queries: row 0 is zero"):
        index.search(np.zeros((1, DIM), np.float32), 1)
    with pytest.raises(OptionError, match="queries: shape"):
        index.search(unit_vectors(1, DIM + 1), 1)
    with pytest.raises(OptionError, match="k=0"):
        index.search(unit_vectors(1, DIM), 0)
