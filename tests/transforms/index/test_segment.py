"""Segments and their training: the same bytes wherever they are made, each row in its list.

Covers transforms/index/quantizer.py.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers.examples import examples
from helpers.index_data import FACTORIES, build_segment, trained, unit_vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.index import (
    SegmentFile,
    SegmentWriter,
    choose_index,
    flat_segment,
    train,
)
from sentence_beam.transforms.index.faiss_module import load_faiss, use_threads
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.segment import list_sizes, read_flat_vectors

DIM = 32


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("factory", FACTORIES)
def test_training_gives_the_same_bytes_at_any_thread_count(factory: str, metric: str) -> None:
    plan = choose_index(1000, DIM, IndexSpec.parse(factory), metric=metric)
    with use_threads(2):
        assert train(plan, unit_vectors(1000, DIM, seed=7)) == trained(factory, metric, DIM)


def test_training_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib; from helpers.index_data import trained;"
        f"print(hashlib.sha256(trained('IVF4,SQ8', 'ip', {DIM})).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert run.stdout.strip() == hashlib.sha256(trained("IVF4,SQ8", "ip", DIM)).hexdigest()


@pytest.mark.parametrize("factory", FACTORIES)
def test_segment_bytes_depend_on_rows_not_on_blocks_or_threads(factory: str) -> None:
    start, vectors = trained(factory, "ip", DIM), unit_vectors(500, DIM)
    whole = build_segment(start, [vectors])
    with use_threads(2):
        parts = [vectors[:1], vectors[1:1], vectors[1:333], vectors[333:]]
        assert build_segment(start, parts) == whole


def test_centroids_for_inner_products_lie_on_the_sphere() -> None:
    faiss = load_faiss()
    index = faiss.deserialize_index(np.frombuffer(trained("IVF4,Flat", "ip", DIM), np.uint8))
    centroids = index.quantizer.reconstruct_n(0, 4)
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-6)
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT


def test_a_flat_segment_is_a_flat_training_filled() -> None:
    vectors = unit_vectors(9, DIM)
    assert flat_segment([vectors], DIM, "l2") == build_segment(
        trained("Flat", "l2", DIM), [vectors]
    )


def test_float16_and_strided_blocks_are_taken() -> None:
    start, vectors = trained("IVF4,SQ8", "ip", DIM), unit_vectors(40, DIM).astype(np.float16)
    wide = np.concatenate([vectors, vectors], axis=1).astype(np.float64)
    assert build_segment(start, [vectors]) == build_segment(start, [wide[:, :DIM]])


@pytest.mark.parametrize(
    ("value", "word"), [(0.0, "zero"), (np.nan, "not finite"), (np.inf, "not finite")]
)
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
        train(choose_index(1000, DIM, IndexSpec.parse("IVF4,SQ8")), unit_vectors(3, DIM))
    with pytest.raises(OptionError, match="training on 100 rows failed"):
        train(choose_index(1000, DIM, IndexSpec.parse("IVF4,PQ8")), unit_vectors(100, DIM))


@pytest.mark.parametrize("factory", FACTORIES)
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_copied_segments_are_as_built_of_their_live_rows(factory: str, data: st.DataObject) -> None:
    start = trained(factory, "l2", DIM)
    lengths = data.draw(st.lists(st.integers(0, 40), max_size=4), "segments")
    writer, live = SegmentWriter(start), [np.empty((0, DIM), np.float32)]
    with tempfile.TemporaryDirectory() as folder:
        for number, length in enumerate(lengths):
            vectors = unit_vectors(length, DIM, seed=number)
            keep = np.random.default_rng(number).random(length) < data.draw(
                st.sampled_from([0, 0.5, 1]), "kept"
            )
            source = SegmentWriter(start)
            source.add(vectors)
            path = Path(folder) / str(number)
            path.write_bytes(source.to_bytes())
            writer.copy(SegmentFile(path, None if keep.all() else keep), source.closeness)
            live.append(vectors[keep])
    new = unit_vectors(data.draw(st.integers(0, 9), "new"), DIM, seed=99)
    writer.add(new)
    assert writer.rows == sum(map(len, live)) + len(new)
    assert writer.to_bytes() == build_segment(start, [*live, new])


def test_closeness_is_the_mean_score_with_the_nearest_centroid() -> None:
    faiss, vectors = load_faiss(), unit_vectors(300, DIM)
    for metric in ("ip", "l2"):
        writer = SegmentWriter(trained("IVF4,SQ8", metric, DIM))
        assert writer.closeness is None
        writer.add(vectors[:100])
        writer.add(vectors[100:])
        index = faiss.deserialize_index(np.frombuffer(trained("IVF4,SQ8", metric, DIM), np.uint8))
        assert writer.closeness == pytest.approx(
            index.quantizer.search(vectors, 1)[0].mean(), abs=1e-5
        )
    flat = SegmentWriter(trained("Flat", "ip", DIM))
    flat.add(vectors)
    assert flat.closeness is None


def test_a_copy_of_no_segment_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"nothing")
    with pytest.raises(SentenceBeamError, match=r"damaged: not a readable index segment"):
        SegmentWriter(trained("SQ8", "ip", DIM)).copy(SegmentFile(tmp_path / "damaged"))


def test_list_sizes_and_flat_vectors_are_read_from_the_file(tmp_path: Path) -> None:
    vectors = unit_vectors(70, DIM)
    for name, factory in (("lists", "IVF4,SQ8"), ("flat", "Flat")):
        (tmp_path / name).write_bytes(build_segment(trained(factory, "ip", DIM), [vectors]))
    assert list_sizes(tmp_path / "lists").sum() == 70
    assert len(list_sizes(tmp_path / "lists")) == 4
    assert len(list_sizes(tmp_path / "flat")) == 0
    np.testing.assert_array_equal(read_flat_vectors(tmp_path / "flat"), vectors)
