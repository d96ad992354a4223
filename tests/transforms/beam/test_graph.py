"""What the steps of a run share: collections made one, and how much work an element lists."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers import eager

from transforms.beam import graph
from transforms.beam.graph import Merge, is_one_process
from transforms.steps.plan_files import spans_per_element


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--runner=FnApiRunner"], True),
        (["--runner=FnApiRunner", "--direct_num_workers=2", "--direct_running_mode=multi_processing"], False),
        (["--runner=FnApiRunner", "--direct_num_workers=0"], False),
        (["--runner=FlinkRunner"], False),
    ],
)
def test_one_process_is_beams_own_runner_with_one_worker(flags: list[str], expected: bool) -> None:
    assert is_one_process(beam.Pipeline(options=PipelineOptions(flags))) is expected


@pytest.mark.parametrize(
    ("spans", "one_process", "expected"),
    [(1, False, 1), (100, False, 1), (256, False, 4), (100_000, False, 8), (100, True, 64), (100_000, True, 64)],
)
def test_one_process_takes_more_at_once_than_each_of_many(spans: int, one_process: bool, expected: int) -> None:
    assert spans_per_element(spans, one_process) == expected


@pytest.mark.parametrize("apart", [False, True])
def test_collections_become_one(monkeypatch: pytest.MonkeyPatch, apart: bool) -> None:
    if apart:  # as for other runners
        monkeypatch.setattr(graph, "FnApiRunner", type(None))
    assert sorted(eager.run(Merge(), [1, 2], [], [2, 3])) == [1, 2, 2, 3]
