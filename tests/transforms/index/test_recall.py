import json
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from helpers.examples import examples
from helpers.index_data import (
    brute_force,
    build_segment,
    open_cut,
    small_integers,
    trained,
    unit_vectors,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.index import (
    Candidates,
    ExactNeighbours,
    SegmentedIndex,
    SegmentFile,
    TrainedIndex,
    choose_index,
    measure_recall,
    nprobe_grid,
    train,
)
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.recall import (
    interval,
    measure_known_recall,
    measure_recall_among,
    recall_at_k,
    split_halves,
)

DIM, K, CUTS = 24, 10, (0, 900, 900, 2500)


def _measure(
    folder: Path, factory: str, metric: str, depth: int, target: float = 0.8
) -> tuple[dict, np.ndarray, np.ndarray]:
    """A report made segment by segment; vectors and queries."""
    vectors, queries = unit_vectors(4000, DIM), unit_vectors(101, DIM, seed=1)
    plan = choose_index(4000, DIM, IndexSpec.parse(factory), metric=metric)
    start, grid, parts = train(plan, vectors[::2]), nprobe_grid(plan.nlist), []
    for number, part in enumerate(np.split(vectors, CUTS)):
        path = folder / f"{number}.faiss"
        path.write_bytes(build_segment(start, [part]))
        exact = ExactNeighbours(queries, K, metric)
        for low in range(0, len(part), 500):
            exact.add(part[low : low + 500], (number << 32) + low)
        index = SegmentedIndex.open([SegmentFile(path)], TrainedIndex.from_bytes(start))
        parts.append((exact, Candidates.search(index, queries, depth, grid, segment=number)))
    return _merged(parts, queries, target), vectors, queries


def _merged(parts: list, queries: np.ndarray, target: float) -> dict:
    """Through bytes, and not in the order of the segments."""
    exact, found = ExactNeighbours(queries, K, parts[0][0].metric), parts[-1][1]
    for other_exact, other_found in reversed(parts):
        exact = ExactNeighbours.from_bytes(other_exact.to_bytes(), queries).merge(exact)
        found = (
            found
            if other_found is parts[-1][1]
            else Candidates.from_bytes(other_found.to_bytes()).merge(found)
        )
    report = measure_recall(exact, found, target=target)
    assert report is not None
    return json.loads(json.dumps(report))


@pytest.mark.parametrize(
    ("factory", "depth", "metric"),
    [
        ("IVF16,SQ8", K, "ip"),
        ("IVF16,RaBitQ", 100, "l2"),
        pytest.param("IVF16,SQ8", K, "l2", marks=pytest.mark.slow),
        pytest.param("IVF16,RaBitQ", 100, "ip", marks=pytest.mark.slow),
    ],
)
def test_recall_is_what_an_independent_recount_gives(
    factory: str, depth: int, metric: str, tmp_path: Path
) -> None:
    report, vectors, queries = _measure(tmp_path, factory, metric, depth)
    plan = choose_index(4000, DIM, IndexSpec.parse(factory), metric=metric)
    one = open_cut(tmp_path, train(plan, vectors[::2]), vectors, [])
    found = one.search(queries, depth, nprobe=report["nprobe"]).row
    true = brute_force(vectors, queries, K, metric)[1]
    recalls = [len(set(a.tolist()) & set(b.tolist())) / K for a, b in zip(found, true, strict=True)]
    assert report["value"] == pytest.approx(np.mean(recalls[1::2]), abs=1e-9)
    assert report["low"] < report["value"] < report["high"] or report["value"] == 1
    assert (report["k"], report["queries"], report["rerank"]) == (K, 50, 0 if depth == K else 100)


def test_the_cheapest_nprobe_that_reaches_the_target_is_chosen(tmp_path: Path) -> None:
    chosen = [
        _measure(tmp_path, "IVF16,Flat", "ip", K, target)[0]["nprobe"]
        for target in (0.0, 0.5, 0.9, 1.01)
    ]
    assert chosen[0] == 1
    assert chosen == sorted(chosen)
    assert chosen[-1] == 16
    assert len(set(chosen)) > 2


def test_every_list_scanned_finds_everything(tmp_path: Path) -> None:
    report = _measure(tmp_path, "IVF16,Flat", "l2", K, target=1.01)[0]
    assert (report["value"], report["high"]) == (1.0, 1.0)
    assert report["low"] == pytest.approx(50 / (50 + 1.959963984540054**2))


def test_another_copy_of_a_neighbour_counts() -> None:
    vectors, queries = unit_vectors(50, DIM), unit_vectors(3, DIM, seed=1)
    vectors[10:30] = queries[0]
    exact = ExactNeighbours(queries, 5)
    exact.add(vectors, 0)
    found = np.tile(np.arange(14, 19), (3, 1))
    assert recall_at_k(exact, found)[0] == 1.0
    assert recall_at_k(exact, np.tile(np.arange(40, 45), (3, 1)))[0] == 0.0


@pytest.mark.parametrize("depth", [5, 40])
def test_a_long_run_of_copies_does_not_lower_recall(depth: int, tmp_path: Path) -> None:
    vectors, queries = unit_vectors(800, DIM), unit_vectors(4, DIM, seed=1)
    vectors[100:700] = 0.9 * queries[0] + 0.1 * unit_vectors(1, DIM, seed=5)[0]
    exact = ExactNeighbours(queries, 5)
    exact.add(vectors, 0)
    index = open_cut(tmp_path, trained("IVF4,SQ8", "ip", DIM), vectors, [])
    found = Candidates.search(index, queries, depth, [4]).positions(4)
    assert recall_at_k(exact, found)[0] == 1.0


def test_fewer_rows_than_k_are_all_there_is_to_find() -> None:
    queries = unit_vectors(2, DIM)
    exact = ExactNeighbours(queries, K)
    exact.add(unit_vectors(3, DIM, seed=1), 7)
    assert recall_at_k(exact, np.array([[7, 8, 9, -1], [7, -1, -1, -1]])).tolist() == [1.0, 1 / 3]


def test_without_queries_or_rows_there_is_no_report(tmp_path: Path) -> None:
    index = open_cut(tmp_path, trained("IVF4,SQ8", "ip", DIM), unit_vectors(20, DIM), [])
    empty = open_cut(tmp_path, trained("IVF4,SQ8", "ip", DIM), unit_vectors(0, DIM), [0])
    none, two = np.empty((0, DIM), np.float32), unit_vectors(2, DIM)
    exact = ExactNeighbours(none, K)
    exact.add(unit_vectors(20, DIM), 0)
    assert measure_recall(exact, Candidates.search(index, none, K, [1, 4])) is None
    assert measure_recall(ExactNeighbours(two, K), Candidates.search(empty, two, K, [1, 4])) is None


def test_parts_turn_into_the_same_bytes_every_time() -> None:
    exact = ExactNeighbours(unit_vectors(3, DIM), 2, "l2")
    exact.add(unit_vectors(9, DIM, seed=1), 5)
    again = ExactNeighbours.from_bytes(exact.to_bytes(), unit_vectors(3, DIM))
    assert again.to_bytes() == exact.to_bytes()
    assert (again.k, again.metric) == (2, "l2")


def uneven(mean: float, correlation: float, queries: int, rng: np.random.Generator) -> np.ndarray:
    """Recalls at 10 whose hits have this correlation within a query; 0: queries are equally
    hard.
    """
    if not correlation:
        return rng.binomial(10, mean, queries) / 10
    a, b = (share * (1 - correlation) / correlation for share in (mean, 1 - mean))
    return rng.binomial(10, rng.beta(a, b, queries)) / 10


@pytest.mark.parametrize(
    ("mean", "correlation", "queries"),
    [
        (0.995, 0.6, 200),
        (0.98, 0.6, 50),
        (0.999, 0.6, 1000),
        (0.95, 0.3, 100),
        (0.95, 0.1, 500),
        (0.95, 0.0, 500),
    ],
)
def test_the_interval_covers_the_true_recall(mean: float, correlation: float, queries: int) -> None:
    """Near 1 with uneven queries too, where most samples have no query that loses much."""
    rng = np.random.default_rng(0)
    intervals = [interval(uneven(mean, correlation, queries, rng), 10) for _ in range(1000)]
    below, above = (
        np.mean([mean < low for _, low, _ in intervals]),
        np.mean([mean > high for *_, high in intervals]),
    )
    assert below <= 0.045  # decides nprobe
    assert below + above <= 0.07


def test_the_low_end_costs_little_where_queries_are_even() -> None:
    """Half a query more: 0.0067 below 0.99 with 200 queries instead of 0.0055."""
    recalls = np.repeat([0.9, 1.0], [20, 180])
    mean, low, high = interval(recalls, 10)
    assert mean == pytest.approx(0.99)
    assert 0.005 < mean - low < 0.008
    assert high <= 1
    assert interval(np.ones(200), 10)[1] == pytest.approx(0.9812, abs=1e-4)


@pytest.mark.parametrize(("nlist", "last"), [(0, 1), (1, 1), (6, 6), (64, 64), (4096, 256)])
def test_the_grid_goes_by_tenths_to_the_last_list(nlist: int, last: int) -> None:
    grid = nprobe_grid(nlist)
    assert (grid[0], grid[-1]) == (1, last)
    assert all(low < high <= max(low + 1, 1.1 * low) for low, high in pairwise(grid))
    assert len(grid) < 50


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 99), depth=st.integers(1, 60), cut=st.integers(0, 300))
def test_candidates_of_segments_are_a_search_at_each_nprobe(
    seed: int, depth: int, cut: int
) -> None:
    vectors, queries = small_integers(300, DIM, seed), unit_vectors(7, DIM, seed=seed + 1)
    start, grid = trained("IVF16,SQ8", "ip", DIM), nprobe_grid(16)
    with tempfile.TemporaryDirectory() as folder:
        one = open_cut(Path(folder), start, vectors, [cut])
        apart = [open_cut(Path(folder), start, part, []) for part in (vectors[:cut], vectors[cut:])]
        parts = [
            Candidates.search(index, queries, depth, grid, segment=n)
            for n, index in enumerate(apart)
        ]
        found = parts[1].merge(Candidates.from_bytes(parts[0].to_bytes()))
        for nprobe in grid:
            for shallow in {1, (depth + 1) // 2, depth}:
                wanted = one.sweep(queries, shallow, [nprobe])[0]
                rows = np.where(
                    wanted.row >= 0, wanted.segment.astype(np.int64) << 32 | wanted.row, -1
                )
                np.testing.assert_array_equal(found.positions(nprobe, shallow), rows)


def test_recall_is_reported_at_two_k_with_an_nprobe_for_each(tmp_path: Path) -> None:
    vectors, queries = unit_vectors(4000, DIM), unit_vectors(200, DIM, seed=1)
    start = train(choose_index(4000, DIM, IndexSpec.parse("IVF64,RaBitQ")), vectors[::2])
    index, exact = open_cut(tmp_path, start, vectors, []), ExactNeighbours(queries, 100)
    exact.add(vectors, 0)
    found = Candidates.search(index, queries, 400, nprobe_grid(64))
    true = brute_force(vectors, queries, 100, "ip")[1]
    for k, depth in ((10, 200), (100, 400)):
        report = measure_recall(exact.at(k), found, target=0.8, depth=depth)
        assert report is not None
        near = index.search(queries, depth, nprobe=report["nprobe"]).row
        hits = [
            len(set(a.tolist()) & set(b[:k].tolist())) / k for a, b in zip(near, true, strict=True)
        ]
        assert report["value"] == pytest.approx(np.mean(hits[1::2]), abs=1e-9)
        assert (report["k"], report["rerank"]) == (k, depth)


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 999),
    nights=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=4),
)
def test_neighbours_stay_right_while_rows_come_and_go_as_long_as_they_are_settled(
    seed: int, nights: list[tuple[int, int]]
) -> None:
    rng, k = np.random.default_rng(seed), 3
    vectors, queries = small_integers(400, DIM, seed), unit_vectors(5, DIM, seed=seed + 1)
    live = np.zeros(400, bool)
    live[:100] = True
    exact = ExactNeighbours(queries, k)
    exact.add(vectors[:100], 0)
    end = 100
    for gone, new in nights:
        live[rng.choice(np.flatnonzero(live), min(gone, live.sum()), replace=False)] = False
        gains, positions, bound = exact.lists()
        there = (positions >= 0) & live[positions]
        exact = ExactNeighbours.from_lists(
            queries, k, "ip", np.where(there, gains, -np.inf), np.where(there, positions, -1), bound
        )
        fresh = ExactNeighbours(queries, k)
        fresh.add(vectors[end : end + new], np.arange(end, end + new))
        live[end : end + new] = True
        end += new
        exact = exact.merge(ExactNeighbours.from_bytes(fresh.to_bytes(), queries))
    scores, positions = exact.result()
    settled = exact.settled
    rows = np.flatnonzero(live)
    true = np.sort(queries @ vectors[rows].T, axis=1)[:, ::-1][:, :k]
    np.testing.assert_allclose(scores[settled][:, : true.shape[1]][:, :k], true[settled], atol=1e-5)
    assert live[positions[settled][:, :k][positions[settled][:, :k] >= 0]].all()
    if sum(gone for gone, _ in nights) <= 3 * k:  # of the 4k kept, k are left for sure
        assert settled.all()


def test_queries_whose_neighbours_are_not_settled_do_not_count(tmp_path: Path) -> None:
    vectors, queries = unit_vectors(900, DIM), unit_vectors(40, DIM, seed=1)
    index = open_cut(tmp_path, trained("IVF4,Flat", "ip", DIM), vectors, [])
    exact = ExactNeighbours(queries, K)
    exact.add(vectors, 0)
    found = Candidates.search(index, queries, K, [4])
    gains, positions, bound = (array.copy() for array in exact.lists())
    gains[:30], positions[:30] = -np.inf, -1
    rest = ExactNeighbours.from_lists(queries, K, "ip", gains, positions, bound)
    assert rest.settled.tolist() == [False] * 30 + [True] * 10
    report = measure_recall(rest, found)
    assert report is not None
    assert (report["queries"], report["value"]) == (5, 1.0)
    gains[:], positions[:] = -np.inf, -1
    assert (
        measure_recall(ExactNeighbours.from_lists(queries, K, "ip", gains, positions, bound), found)
        is None
    )


def test_the_half_that_tunes_can_be_told(tmp_path: Path) -> None:
    vectors, queries = unit_vectors(900, DIM), unit_vectors(40, DIM, seed=1)
    index = open_cut(tmp_path, trained("IVF4,SQ8", "ip", DIM), vectors, [])
    exact = ExactNeighbours(queries, K)
    exact.add(vectors, 0)
    found = Candidates.search(index, queries, K, [1, 2, 4])
    tuning = np.arange(40) < 33
    report = measure_recall(exact, found, tuning=tuning)
    assert report is not None
    assert report["queries"] == 7
    assert report["value"] == pytest.approx(
        recall_at_k(exact, found.positions(report["nprobe"]))[33:].mean()
    )
    assert [len(half) for half in split_halves(exact, tuning)] == [33, 7]
    assert [len(half) for half in split_halves(exact, np.ones(40, bool))] == [40, 40]


def test_recall_over_some_rows_counts_their_share_of_the_neighbours(tmp_path: Path) -> None:
    vectors, queries = unit_vectors(900, DIM), unit_vectors(200, DIM, seed=1)
    index = open_cut(tmp_path, trained("IVF4,SQ8", "ip", DIM), vectors, [])
    exact = ExactNeighbours(queries, K)
    exact.add(vectors, 0)
    found = Candidates.search(index, queries, K, [1]).positions(1)
    every = np.ones(200, bool)
    report = measure_recall_among(exact, found, every, lambda positions: positions >= 800)
    true = brute_force(vectors, queries, K, "ip")[1]
    shares = []
    for query in range(200):
        meant = {row for row in true[query].tolist() if row >= 800}
        if meant:
            shares.append(len(meant & set(found[query].tolist())) / len(meant))
    assert report is not None
    assert report["queries"] == len(shares)
    assert report["value"] == pytest.approx(np.mean(shares))
    assert report["low"] <= report["value"] <= report["high"]
    assert measure_recall_among(exact, found, every, lambda positions: positions >= 898) is None
    whole = measure_known_recall(exact, found, every)
    assert whole is not None
    assert whole["value"] == pytest.approx(recall_at_k(exact, found).mean())
    known = np.arange(200) < 50
    some = measure_known_recall(exact, found, known)
    assert some is not None
    assert some["queries"] == 50
    assert some["value"] == pytest.approx(recall_at_k(exact, found)[:50].mean())
    assert measure_known_recall(exact, found, np.zeros(200, bool)) is None
