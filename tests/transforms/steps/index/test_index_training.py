"""Training an index in several elements: the same lists whatever the order, each element with a
share of the work.

Covers transforms/steps/index/index_build.py.
Covers transforms/steps/index/training_sample.py.
Covers transforms/steps/index/index_training.py.
"""

import random
import tracemalloc
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.common_urns import resource_hints
from helpers.nights import Nights, nearest, train_steps, vector_of
from helpers.settled import settled

from sentence_beam.transforms.beam import BuildIndex, IndexRequest
from sentence_beam.transforms.index import cells, choose_index
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.steps.index import index_build, index_training
from sentence_beam.transforms.steps.index import index_folder as index_files
from sentence_beam.transforms.steps.index import training_sample as index_sample
from sentence_beam.transforms.steps.index.decisions import RequestedIndex, choose_work
from sentence_beam.transforms.steps.index.kind_choice import find_least_ram
from sentence_beam.transforms.steps.index.training_sample import (
    CellWork,
    SamplePart,
    TrainingItem,
    sample,
    select_cells,
    select_groups,
)
from sentence_beam.transforms.store.verification import faults

pytest.importorskip("faiss")

REQUEST = IndexRequest("IVF16,SQ8")
FILES = {
    name: [(f"{name}{i}", f"{'abcdefgh'[i % 8]} {name} {i}") for i in range(200)]
    for name in ("x", "y", "z")
}


@pytest.fixture(autouse=True)
def two_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few lists are many, and a group of two hundred rows has parts of fifty."""
    monkeypatch.setattr(cells, "ONE_LEVEL", 6)
    monkeypatch.setattr(index_files, "SEGMENT_ROWS", 200)
    monkeypatch.setattr(index_sample, "PART_BYTES", 50 * 4 * 16)
    monkeypatch.setattr(index_sample, "PIECE_BYTES", 1000)


def sampled(
    nights: Nights, files: dict[str, list[tuple[str, str]]], request: IndexRequest = REQUEST
) -> list[Any]:
    """The groups of a first build, sampled."""
    run, units = nights.begin(files)
    return [
        sample(group) for group in choose_work(settled(run, units), run, RequestedIndex(request))
    ]


def test_an_engine_and_steps_in_any_order_that_are_tried_again_train_the_same(
    tmp_path: Path,
) -> None:
    nights = Nights(tmp_path / "store")
    every_bundle_twice = PipelineOptions(["--direct_runner_bundle_repeat=1"])
    by_beam = nights.commit(
        FILES, REQUEST, pipeline=beam.Pipeline("FnApiRunner", options=every_bundle_twice)
    )
    assert list(faults(nights.manifest)) == []
    (rows,) = nights.search(["b question"], 1000, nprobe=16)
    assert len(rows) == 600
    assert [score for score, _ in rows[:5]] == pytest.approx(
        nearest(FILES, "b question", 5), abs=0.01
    )
    assert {path.name for path in (nights.root / "runs" / "run1").iterdir()} == {
        "plan.parquet",
        "result.json",
    }
    groups, rng = sampled(Nights(tmp_path / "again"), FILES), random.Random(1)
    works = list(index_training.divide(rng.sample(groups, len(groups))))
    clustered: list[Any] = []
    for turn in range(1 + cells.PASSES):
        works = list(index_training.again(clustered)) if turn else works
        for work in works:
            assert index_training.assign(work) == index_training.assign(work)
        found = list(index_training.allot(rng.sample(works, len(works))))
        clustered = [index_training.cluster(work) for work in rng.sample(found, len(found))]
        assert index_training.cluster(found[0]) in clustered
        assert len(clustered) > 1
    (trained,) = {work.trained.file.sha256 for work in index_training.finish([*clustered, *groups])}
    assert trained == by_beam["trained"]["sha256"]


def test_copies_of_a_row_take_no_lists(tmp_path: Path) -> None:
    copies = {**FILES, "n": [(f"n{i}", "N/A") for i in range(1500)]}
    groups = sampled(Nights(tmp_path / "store"), copies)
    works = list(index_training.divide(groups))
    found = list(index_training.allot([index_training.assign(work) for work in works]))
    rows = sum(len(index_training.read_rows_of_cell(cell, 0)[0]) for cell in select_cells(found))
    assert sum(cell.last - cell.first for cell in select_cells(found)) == 16
    assert rows < sum(sum(group.parts) for group in select_groups(groups)) / 2


def test_rows_with_fewer_texts_than_lists_are_indexed(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "store")
    nights.commit({"x": [(f"x{i}", f"text {i % 5}") for i in range(200)]}, REQUEST)
    (rows,) = nights.search(["a question"], 300, nprobe=16)
    assert len(rows) == 200


def test_a_list_has_its_rows_when_all_of_them_are_needed_to_train(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "store")
    nights.commit({"x": FILES["x"][:16]}, REQUEST)
    assert nights.index["trained"]["rows"] == 16


def test_no_element_has_more_than_its_share_of_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distances of k-means: in proportion to rows and the root of the lists, the largest element's
    to one cell's.
    """
    distances: list[int] = []
    kmeans = cells.kmeans

    def counted(rows: np.ndarray, lists: int, metric: str) -> np.ndarray:
        distances.append(len(rows) * lists)
        return kmeans(rows, lists, metric)

    monkeypatch.setattr(cells, "kmeans", counted)
    groups = sampled(Nights(tmp_path / "store"), FILES, IndexRequest("IVF64,Flat"))
    rows = sum(sum(group.parts) for group in select_groups(groups))
    train_steps(groups)
    assert sum(distances) < 2 * rows * 64**0.5
    assert max(distances) < rows * 64 / 8


def test_the_whole_sample_is_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "ONE_LEVEL", 64)
    nights, rng = Nights(tmp_path / "store"), np.random.default_rng(1)
    (group,) = select_groups(sampled(nights, {"x": FILES["x"][:100]}))
    folder, dim = group.job.folder, group.job.plan.dim
    index_sample.leave_rows(folder, "big", rng.standard_normal((200_000, dim)).astype(np.float32))
    monkeypatch.setattr(
        index_training, "read_known_parts", lambda folder: [SamplePart("big", 200_000)]
    )
    monkeypatch.setattr(index_sample, "PIECE_BYTES", 1 << 20)
    tracemalloc.start()
    index_training.cluster(TrainingItem(cell=CellWork(group.job, 0, 0, 4)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * 200_000 * dim * 4


@pytest.mark.parametrize(
    ("lists", "wanted"), [(131_072, 64 * 131_072), (1_048_576, 39 * 1_048_576)]
)
def test_a_list_has_39_rows_of_the_sample_or_more(lists: int, wanted: int) -> None:
    plan = choose_index(10**9, 16, IndexSpec.parse(f"IVF{lists}_HNSW32,SQ8"))
    job = index_build.IndexJob("s", "r", plan, 10**9, REQUEST, "ip", "")
    assert plan.train_rows == wanted
    # some are held out
    assert job.sample_below * 10**9 // 2**64 == pytest.approx(1.2 * wanted, rel=0.01)


def test_only_the_steps_that_train_ask_for_an_accelerator(tmp_path: Path) -> None:
    run, units = Nights(tmp_path / "store").begin(FILES)
    pipeline = beam.Pipeline("FnApiRunner")
    given = pipeline | "Settled" >> beam.Create([settled(run, units)])
    _ = given | "Index" >> BuildIndex(run, REQUEST, hints={"accelerator": "type:nvidia-l4;count:1"})
    proto = pipeline.to_runner_api()
    hinted = {
        t.unique_name
        for t in proto.components.transforms.values()
        if t.environment_id
        and not t.subtransforms
        and any(
            "accelerator" in urn
            for urn in proto.components.environments[t.environment_id].resource_hints
        )
    }
    assert {name.split("/")[3] for name in hinted} == {
        "Divide",
        *(f"Cluster{turn}" for turn in range(3)),
    }
    assert {name.split("/")[2] for name in hinted} == {"Lists"}


def test_every_step_asks_for_the_memory_that_is_named(tmp_path: Path) -> None:
    run, units = Nights(tmp_path / "store").begin(FILES)
    pipeline = beam.Pipeline("FnApiRunner")
    given = pipeline | "Settled" >> beam.Create([settled(run, units)])
    _ = given | "Index" >> BuildIndex(run, REQUEST, hints={"min_ram": "7GB"})
    components = pipeline.to_runner_api().components
    of_index = [
        each
        for each in components.transforms.values()
        if each.unique_name.startswith("Index/") and each.environment_id and not each.subtransforms
    ]
    assert len(of_index) > 20
    for each in of_index:
        hints = components.environments[each.environment_id].resource_hints
        assert hints[resource_hints.MIN_RAM_BYTES.urn] == b"7000000000", each.unique_name


@pytest.mark.parametrize(
    ("index", "rows", "ram"),
    [
        ("auto", 0, None),
        ("auto", 100_000, None),
        ("IVF64,Flat", 10, None),
        ("IVF65536_HNSW32,SQ8", 10**7, "4GB"),
        ("auto", 10**9, "7GB"),
    ],
)
def test_the_memory_that_a_large_index_needs_is_asked_for(
    index: str, rows: int, ram: str | None
) -> None:
    assert find_least_ram(IndexRequest(index), rows, 384) == ram
    assert find_least_ram(IndexRequest(index), rows, 384, "1 GB") == ram or "1 GB"
    assert find_least_ram(IndexRequest(index), rows, 384, "2TiB") == "2TiB"


def test_vectors_come_back_as_they_were_left(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "store")
    groups = select_groups(sampled(nights, {"x": FILES["x"][:100]}, IndexRequest("IVF4,Flat")))
    parts = index_sample.list_parts(groups)
    rows = index_sample.read_rows(
        groups[0].job.folder, [(part.name, 0, part.rows) for part in parts], 16
    )
    known = {vector_of(text).tobytes() for _, text in FILES["x"][:100]}
    assert {row.tobytes() for row in rows} <= known
    assert len(rows) > 50
