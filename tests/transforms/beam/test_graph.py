"""What the steps of a run share: collections made one, and how much work an element lists."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers import eager

from transforms.beam import graph
from transforms.beam.graph import Merge, Together, flat_map, is_one_process
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


def test_together_all_elements_are_one_list() -> None:
    (found,) = eager.run(Together(), [3, 1, 2, 1])
    assert sorted(found) == [1, 1, 2, 3]
    assert eager.run(Together(), []) == []


def test_results_go_to_the_output_of_their_type() -> None:
    step = flat_map(_parts, 10, outputs={str: "words", bool: "words", float: "fractions"}, main="rest")
    found = eager.outputs(step, [1, 2], names=("rest", "words", "fractions"))
    assert sorted(found["rest"]) == [11, 12]
    assert sorted(map(str, found["words"])) == ["1", "2", "True", "True"]
    assert sorted(found["fractions"]) == [0.5, 1.0]


def _parts(number: int, more: int) -> list[object]:
    return [number + more, str(number), number / 2, True]
