import hashlib
import io
import subprocess
import sys

import numpy as np
import pytest
from index_data import FACTORIES, trained, unit_vectors

from transforms.errors import OptionError
from transforms.index import build_segment, choose_index, flat_segment, load_faiss, train, write_segment

DIM = 32


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("factory", FACTORIES)
def test_training_gives_the_same_bytes_at_any_thread_count(factory: str, metric: str) -> None:
    plan = choose_index(1000, DIM, factory, metric=metric)
    assert train(plan, unit_vectors(1000, DIM, seed=7), threads=2) == trained(factory, metric, DIM)


def test_training_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib; from index_data import trained;"
        f"print(hashlib.sha256(trained('IVF4,SQ8', 'ip', {DIM})).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert run.stdout.strip() == hashlib.sha256(trained("IVF4,SQ8", "ip", DIM)).hexdigest()


@pytest.mark.parametrize("factory", FACTORIES)
def test_segment_bytes_depend_on_rows_not_on_blocks_or_threads(factory: str) -> None:
    start, vectors = trained(factory, "ip", DIM), unit_vectors(500, DIM)
    whole = build_segment(start, [vectors], threads=1)
    assert build_segment(start, [vectors[:1], vectors[1:1], vectors[1:333], vectors[333:]], threads=2) == whole


def test_centroids_for_inner_products_lie_on_the_sphere() -> None:
    faiss = load_faiss()
    index = faiss.deserialize_index(np.frombuffer(trained("IVF4,Flat", "ip", DIM), np.uint8))
    centroids = index.quantizer.reconstruct_n(0, 4)
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-6)
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT


def test_written_and_returned_segments_are_equal() -> None:
    start, file = trained("IVF4,SQ8", "ip", DIM), io.BytesIO()
    assert write_segment(start, [unit_vectors(70, DIM), unit_vectors(30, DIM, seed=1)], file) == 100
    assert file.getvalue() == build_segment(start, [unit_vectors(70, DIM), unit_vectors(30, DIM, seed=1)])


def test_a_flat_segment_is_a_flat_training_filled() -> None:
    vectors = unit_vectors(9, DIM)
    assert flat_segment([vectors], DIM, "l2") == build_segment(trained("Flat", "l2", DIM), [vectors])


def test_float16_and_strided_blocks_are_taken() -> None:
    start, vectors = trained("IVF4,SQ8", "ip", DIM), unit_vectors(40, DIM).astype(np.float16)
    wide = np.concatenate([vectors, vectors], axis=1).astype(np.float64)
    assert build_segment(start, [vectors]) == build_segment(start, [wide[:, :DIM]])


@pytest.mark.parametrize(("value", "word"), [(0.0, "zero"), (np.nan, "not finite"), (np.inf, "not finite")])
def test_rows_without_a_direction_are_refused(value: float, word: str) -> None:
    vectors = unit_vectors(5, DIM)
    vectors[3] = value
    with pytest.raises(OptionError, match=f"row 3 is {word}"):
        build_segment(trained("SQ8", "ip", DIM), [vectors])


def test_another_dim_is_refused() -> None:
    with pytest.raises(OptionError, match=r"expected \[rows, 32\]"):
        build_segment(trained("Flat", "ip", DIM), [unit_vectors(5, DIM + 1)])


def test_too_few_training_rows_are_refused() -> None:
    with pytest.raises(OptionError, match="only 3 rows to train on"):
        train(choose_index(1000, DIM, "IVF4,SQ8"), unit_vectors(3, DIM))
    with pytest.raises(OptionError, match="training on 100 rows failed"):
        train(choose_index(1000, DIM, "IVF4,PQ8"), unit_vectors(100, DIM))
