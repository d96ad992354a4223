"""What the steps of a run share: collections made one, and how much work an element lists."""

import os
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.runners.portability.prism_runner import PrismRunner
from helpers import eager
from helpers.jobs import embed_job

from sentence_beam.transforms.beam import BuildIndex, Commit, Embed, Plan, Settle, graph
from sentence_beam.transforms.beam.graph import Merge, Together, count_slots, flat_map
from sentence_beam.transforms.steps.plan.elements import count_spans_per_element


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--runner=FnApiRunner"], 1),
        (
            [
                "--runner=FnApiRunner",
                "--direct_num_workers=2",
                "--direct_running_mode=multi_processing",
            ],
            2,
        ),
        (["--runner=FnApiRunner", "--direct_num_workers=0"], os.cpu_count()),
        (["--runner=FlinkRunner", "--parallelism=400"], 400),
        (["--runner=FlinkRunner"], None),
        (
            [
                "--runner=DataflowRunner",
                "--max_num_workers=200",
                "--number_of_worker_harness_threads=2",
            ],
            400,
        ),
        (["--runner=DataflowRunner", "--max_num_workers=200"], None),
    ],
)
def test_slots_are_what_works_at_once(flags: list[str], expected: int | None) -> None:
    options = PipelineOptions(flags)
    runner = "FnApiRunner" if flags[0].endswith("FnApiRunner") else PrismRunner()
    assert count_slots(beam.Pipeline(runner, options=options)) == expected


@pytest.mark.parametrize(
    ("spans", "slots", "expected"),
    [
        (1, None, 1), (1000, None, 1), (8192, None, 4), (100_000, None, 8),
        (512, 400, 1), (2000, 400, 1), (3200, 400, 2), (100_000, 400, 8), (256, 2, 8),
        (100, 1, 64), (100_000, 1, 64),
    ],
)  # fmt: skip
def test_an_element_has_few_spans_where_slots_would_wait(
    spans: int, slots: int | None, expected: int
) -> None:
    assert count_spans_per_element(spans, slots) == expected


def test_four_hundred_slots_work_hardly_longer_than_if_all_could_be_shared_out() -> None:
    for spans in (512, 1000, 2000, 5000, 15_000, 100_000):
        elements = -(-spans // count_spans_per_element(spans, 400))
        rounds = -(-elements // 400) * count_spans_per_element(spans, 400)
        assert rounds / -(-spans // 400) <= 1.2, spans


@pytest.mark.parametrize("apart", [False, True])
def test_collections_become_one(monkeypatch: pytest.MonkeyPatch, apart: bool) -> None:
    if apart:  # as for other runners
        monkeypatch.setattr(graph, "FnApiRunner", type(None))
    assert sorted(eager.run(Merge(), [1, 2], [], [2, 3])) == [1, 2, 2, 3]


def test_together_all_elements_are_one_list() -> None:
    (found,) = eager.run(Together(), [3, 1, 2, 1])
    assert sorted(found) == [1, 1, 2, 3]
    assert eager.run(Together(), []) == []


def test_results_go_to_the_output_of_their_type() -> None:
    step = flat_map(
        _parts, 10, outputs={str: "words", bool: "words", float: "fractions"}, main="rest"
    )
    found = eager.outputs(step, [1, 2], names=("rest", "words", "fractions"))
    assert sorted(found["rest"]) == [11, 12]
    assert sorted(map(str, found["words"])) == ["1", "2", "True", "True"]
    assert sorted(found["fractions"]) == [0.5, 1.0]


def _parts(number: int, more: int) -> list[object]:
    return [number + more, str(number), number / 2, True]


def flink_job(folder: Path, model: Path, partition: str) -> beam.Pipeline:
    """The graph of a run of embed for Flink, not run."""
    job = embed_job(folder / "store", model, folder / "*", partition=partition)
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FlinkRunner", "--parallelism=4"]))
    planned = pipeline | "Inputs" >> beam.Create(["*"]) | "Plan" >> Plan(job)
    made = planned.spans | "Embed" >> Embed(job)
    settled = (made.units, made.problems, planned.problems) | "Settle" >> Settle(job.run)
    _ = (settled, settled | "Index" >> BuildIndex(job.run)) | "Commit" >> Commit(job.run, ids=True)
    return pipeline


@pytest.mark.parametrize("partition", [pytest.param("file", marks=pytest.mark.slow), "content"])
def test_what_runs_as_one_has_few_outputs(tmp_path: Path, model: Path, partition: str) -> None:
    """Flink holds 16 MB of a worker's network memory for each, and has 64 MB for a slot where
    nobody gave it more.
    """
    pipeline = flink_job(tmp_path, model, partition)
    outputs = outputs_of_stages(pipeline)
    assert len(outputs) > 20
    assert max(map(len, outputs)) == 3, max(outputs, key=len)


@pytest.mark.parametrize("partition", [pytest.param("file", marks=pytest.mark.slow), "content"])
def test_merged_collections_are_coded_as_their_result(
    tmp_path: Path, model: Path, partition: str
) -> None:
    """Flink hands on the bytes of what it merges."""
    pipeline = flink_job(tmp_path, model, partition)
    found = pipeline.to_runner_api().components
    merges = [
        step
        for step in found.transforms.values()
        if step.spec.urn == common_urns.primitives.FLATTEN.urn
    ]
    assert len(merges) >= 4
    for step in merges:
        (merged,) = step.outputs.values()
        coder = found.pcollections[merged].coder_id
        parts = {found.pcollections[part].coder_id for part in step.inputs.values()}
        assert parts == {coder}, step.unique_name


def outputs_of_stages(pipeline: beam.Pipeline) -> list[list[str]]:
    """For all steps that are connected without an exchange: the exchanges that take an output of
    theirs.
    """
    transforms = pipeline.to_runner_api().components.transforms
    steps = {
        name: step
        for name, step in transforms.items()
        if step.spec.urn == common_urns.primitives.PAR_DO.urn
    }
    maker = {made: name for name, step in steps.items() for made in step.outputs.values()}
    taken = {
        name: maker.get(given, given)
        for name, step in steps.items()
        for given in step.inputs.values()
    }

    def first(name: str) -> str:
        while name in taken:
            name = taken[name]
        return name

    outputs: dict[str, list[str]] = {}
    for name, step in transforms.items():
        for given in step.inputs.values() if name not in steps and not step.subtransforms else ():
            if given in maker:
                outputs.setdefault(first(maker[given]), []).append(step.unique_name)
    return list(outputs.values())
