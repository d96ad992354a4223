"""k-means: by numpy, by faiss's GPUs, or by torch where a GPU is there that faiss does not use."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers.index_data import unit_vectors

from sentence_beam.transforms.index import kmeans as module
from sentence_beam.transforms.index.cells import find_nearest
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.kmeans import kmeans


def clustered(rows: int, dim: int = 16) -> np.ndarray:
    vectors = unit_vectors(40, dim, seed=3)[np.arange(rows) % 40] + 0.1 * unit_vectors(rows, dim)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU for every size, which is the processor in truth."""
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    monkeypatch.setattr(module, "WORTH_A_GPU", 0)
    monkeypatch.setattr(module, "use_torchs_gpu", lambda *given: module.use_torch(*given, "cpu"))


def by_faiss(sample: np.ndarray, lists: int, metric: str) -> np.ndarray:
    """The centroids of faiss's own k-means."""
    found = load_faiss().Kmeans(
        sample.shape[1], lists, niter=10, seed=1, spherical=metric == "ip", gpu=False
    )
    found.train(sample)
    return np.asarray(found.centroids, np.float32)


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_lists_are_as_good_as_those_of_faiss(metric: str) -> None:
    sample = clustered(6000)
    ours, theirs = (
        find_nearest(sample, centroids, metric)[0].mean()
        for centroids in (kmeans(sample, 100, metric), by_faiss(sample, 100, metric))
    )
    assert ours > theirs - 0.01


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_centroids_are_the_same_at_any_number_of_threads(metric: str) -> None:
    sample = unit_vectors(3001, 20)
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            faiss.omp_set_num_threads(threads)
            found.append(kmeans(sample, 37, metric))
    finally:
        faiss.omp_set_num_threads(before)
    assert all(np.array_equal(one, found[0]) for one in found)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_torch_finds_lists_as_good_as_those_of_the_processor(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = clustered(2000)
    found = [kmeans(sample, 30, metric) for _ in range(2)]
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    expected = kmeans(sample, 30, metric)
    assert np.array_equal(found[0], found[1])
    assert found[0].shape == expected.shape
    assert found[0].dtype == expected.dtype == np.float32
    if metric == "ip":
        np.testing.assert_allclose(np.linalg.norm(found[0], axis=1), 1, atol=1e-6)
    ours, theirs = (
        find_nearest(sample, centroids, metric)[0].mean() for centroids in (found[0], expected)
    )
    assert ours > theirs - 0.04


@pytest.mark.usefixtures("gpu")
def test_lists_without_rows_get_halves_of_others() -> None:
    copies = np.repeat(clustered(3), 50, axis=0)
    assert len(np.unique(kmeans(copies, 5, "l2"), axis=0)) == 5


@pytest.mark.usefixtures("gpu")
def test_gpus_of_faiss_are_used_where_it_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    faiss, given = load_faiss(), []

    def stub(*arguments: Any, gpu: bool, **options: Any) -> Any:
        given.append(gpu)
        return cpu(*arguments, **options)

    cpu = partial(faiss.Kmeans)
    monkeypatch.setattr(faiss, "Kmeans", stub)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    assert kmeans(clustered(100), 4, "ip").shape == (4, 16)
    monkeypatch.setattr(module, "WORTH_A_GPU", 401)
    kmeans(clustered(100), 4, "ip")
    assert given == [True]


@pytest.mark.parametrize("sees", [False, True])
def test_a_gpu_that_torch_does_not_see_or_that_has_no_room_is_left_alone(
    sees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    expected = kmeans(clustered(100), 4, "ip")
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    monkeypatch.setattr(module, "WORTH_A_GPU", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: sees)
    if sees:
        monkeypatch.setattr(module, "use_torch", full)
    np.testing.assert_array_equal(kmeans(clustered(100), 4, "ip"), expected)


def test_whether_there_is_a_gpu_is_known_without_torch() -> None:
    torch = pytest.importorskip("torch")
    assert module.has_gpu() == torch.cuda.is_available()


def test_a_gpu_on_which_faiss_fails_is_left_to_the_processor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = kmeans(clustered(100), 4, "ip")
    faiss = load_faiss()

    def failing(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("Error: 'err == cudaSuccess' failed: no kernel image\nmore")

    monkeypatch.setattr(module, "has_gpu", lambda: True)
    monkeypatch.setattr(module, "WORTH_A_GPU", 0)
    monkeypatch.setattr(faiss, "Kmeans", failing)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    np.testing.assert_array_equal(kmeans(clustered(100), 4, "ip"), expected)
    assert "no kernel image" in caplog.text


def test_as_many_rows_as_lists_are_the_centroids() -> None:
    sample = np.repeat(clustered(3), 2, axis=0)
    np.testing.assert_array_equal(kmeans(sample, 6, "l2"), sample)
