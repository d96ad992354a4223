"""Some rows of segments searched: never another row, and nearly all of the true neighbours wherever
these lie.
"""

from pathlib import Path

import numpy as np
import pytest
from helpers.examples import examples
from helpers.index_data import (
    FACTORIES,
    brute_force,
    global_rows,
    open_cut,
    small_integers,
    trained,
    unit_vectors,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index import (
    SegmentedIndex,
    SegmentFile,
    SegmentWriter,
    choose_index,
    filtered,
    train,
)
from sentence_beam.transforms.index.filtered import FilteredIndex
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.metric_vectors import choose_scoring_metric

ROWS, DIM, K = 12_000, 24, 10


@settings(max_examples=examples(25))
@given(
    factory=st.sampled_from(FACTORIES),
    metric=st.sampled_from(["ip", "l2"]),
    share=st.sampled_from([0.0, 0.03, 0.5, 1.0]),
    few=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_no_row_outside_the_filter_and_as_many_as_there_are(
    tmp_path_factory: pytest.TempPathFactory,
    factory: str,
    metric: str,
    share: float,
    few: bool,
    seed: int,
) -> None:
    draws = np.random.default_rng(seed)
    vectors, queries = small_integers(150, 8, seed), unit_vectors(3, 8, seed)
    keep, wanted, cuts = draws.random(150) < 0.8, draws.random(150) < share, [40, 100]
    index = open_cut(
        tmp_path_factory.mktemp("cut"), trained(factory, metric, 8), vectors, cuts, keep
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtered, "FEW", 50_000 if few else -1)
        found = FilteredIndex(index, np.split(wanted, cuts)).search(queries, K, nprobe=1)
        patch.setattr(filtered, "MOST_BYTES", -1)
        tested = FilteredIndex(index, np.split(wanted, cuts)).search(queries, K, nprobe=1)
    # copies of the wanted rows' codes give what testing each row gives
    assert all((a == b).all() for a, b in zip(found, tested, strict=True))
    rows, live = global_rows(found, cuts), np.flatnonzero(keep & wanted)
    assert set(rows[rows >= 0].tolist()) <= set(live.tolist())
    assert ((rows >= 0).sum(axis=1) == min(K, len(live))).all()
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in rows)
    if "Flat" in factory and len(live):
        exact = brute_force(vectors[live], queries, min(K, len(live)), metric)[0]
        if few or factory == "Flat":
            np.testing.assert_allclose(found.scores[:, : exact.shape[1]], exact, atol=1e-5)


@pytest.fixture(scope="module")
def clusters() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors in clusters, the cluster of each, and queries near the first half of the clusters."""
    draws = np.random.default_rng(3)
    centres = unit_vectors(80, DIM, 5)
    of = draws.integers(0, 80, ROWS)
    vectors = centres[of] + 0.12 * draws.standard_normal((ROWS, DIM))
    queries = centres[draws.integers(0, 40, 60)] + 0.12 * draws.standard_normal((60, DIM))
    return tuple(
        (a / np.linalg.norm(a, axis=1, keepdims=True)).astype(np.float32)
        for a in (vectors, queries)
    ) + (of,)  # type: ignore[return-value]


@pytest.fixture(scope="module", params=["IVF128,SQ8", "IVF128_HNSW8,Flat"])
def index(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    clusters: tuple[np.ndarray, ...],
) -> SegmentedIndex:
    """An index of the vectors, in two segments."""
    vectors, folder = clusters[0], tmp_path_factory.mktemp("clusters")
    start = train(
        choose_index(
            ROWS, DIM, IndexSpec.parse(request.param), metric=choose_scoring_metric("cosine")
        ),
        vectors[::3],
    )
    segments = []
    for number, part in enumerate(np.split(vectors, [9000])):
        writer = SegmentWriter(start)
        writer.add(part)
        path = Path(folder) / f"{number}"
        path.write_bytes(writer.to_bytes())
        segments.append(SegmentFile(path))
    return SegmentedIndex.open(segments, writer.trained)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.001, "far", "far and few"])
def test_recall_among_the_matches(
    index: SegmentedIndex,
    clusters: tuple[np.ndarray, np.ndarray, np.ndarray],
    share: float | str,
    few: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vectors, queries, of = clusters
    monkeypatch.setattr(filtered, "FEW", 50_000 if few else 0)
    random = np.random.default_rng(1).random(ROWS)
    far = {"far": of >= 72, "far and few": (of >= 60) & (random < 0.01)}
    wanted = far[share] if isinstance(share, str) else random < share
    found = FilteredIndex(index, np.split(wanted, [9000])).search(queries, K, nprobe=4)
    rows, live = global_rows(found, [9000]), np.flatnonzero(wanted)
    true = live[brute_force(vectors[live], queries, min(K, len(live)), "ip")[1]]
    assert wanted[rows[rows >= 0]].all()
    recall = np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(rows, true, strict=True)])
    assert recall >= 0.95, recall


def test_candidates_are_made_more_until_the_vectors_agree(
    tmp_path: Path,
    clusters: tuple[np.ndarray, np.ndarray, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vectors, queries, of = clusters
    monkeypatch.setattr(filtered, "FEW", 0)
    start = train(choose_index(ROWS, DIM, IndexSpec.parse("IVF64,RaBitQ")), vectors[::3])
    index, wanted = open_cut(tmp_path, start, vectors, [9000]), of >= 60
    some = FilteredIndex(
        index, np.split(wanted, [9000]), lambda segment, row: vectors[9000 * segment + row]
    )
    found = some.search(queries, K, nprobe=4, depth=20)
    live = np.flatnonzero(wanted)
    scores, true = brute_force(vectors[live], queries, K, "ip")
    rows = global_rows(found, [9000])
    assert (
        np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(rows, live[true], strict=True)])
        >= 0.95
    )
    assert (found.scores <= scores + 1e-5).all()


@pytest.mark.parametrize("place", [0.3, 0.45, 0.5, 0.6, 0.7])  # in codes and in ids
def test_a_list_that_was_changed_is_named_before_its_rows_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: float
) -> None:
    monkeypatch.setattr(filtered, "FEW", -1)
    vectors = unit_vectors(400, 8, 1)
    start = trained("IVF4,SQ8", "ip", 8)
    writer = SegmentWriter(start)
    writer.add(vectors)
    written = writer.finish()
    path = tmp_path / "segment"
    data = bytearray(written.data)
    data[int(place * len(data))] ^= 8
    path.write_bytes(data)
    index = SegmentedIndex.open([SegmentFile(path, None, written.checks)], writer.trained)
    some = FilteredIndex(index, [np.arange(400) % 3 == 0])
    for _ in range(2):  # a list that was refused is not taken for copied
        with pytest.raises(DamagedIndexError, match="segment was changed"):
            some.search(vectors[:5], K, nprobe=4)
