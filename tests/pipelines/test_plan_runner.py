"""`plan --runner`: the workers of a pipeline count what one process counts.

Covers transforms/steps/plan/look.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.corpora import write_jsonl
from helpers.plans import job_of, night
from helpers.snapshots import small_parts

from sentence_beam.pipelines.plan import look_by_workers
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.plan.look import MEASURED_SPANS, look

HERE = PipelineOptions(["--runner=FnApiRunner"])


@pytest.fixture(scope="module", autouse=True)
def _plain_beam(cached_beam_options: None) -> None:
    """Beam's own runner: it is part of what is tested."""


def write(path: Path, name: str, rows: int = 60) -> None:
    write_jsonl(path, [{"id": f"{name}-{row}", "text": f"text {row} " * 9} for row in range(rows)])


@pytest.mark.parametrize(
    ("partition", "is_new"), [("file", False), ("file", True), ("content", True)]
)
def test_workers_count_what_one_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: str, is_new: bool
) -> None:
    small_parts(monkeypatch)
    glob = tmp_path / "in" / "*.jsonl"
    for name in "abcdef":
        write(glob.parent / f"{name}.jsonl", name)
    values: dict[str, Any] = {"unit_tokens": 500}
    if not is_new:
        assert night(tmp_path / "store", glob, **values).message == "committed"
        write(glob.parent / "c.jsonl", "changed", 70)
        (glob.parent / "d.jsonl").unlink()
    job = job_of(tmp_path / "store", glob, number=1, partition=partition, **values)
    here = look(job)
    found = look_by_workers(job, HERE)
    assert replace(found, spans=()) == replace(here, spans=())
    assert 0 < len(found.spans) <= MEASURED_SPANS
    assert set(found.spans) <= set(here.spans)
    assert not list((tmp_path / "store").rglob("plan-*"))
    if not is_new:
        assert found.carried_units == here.carried_units >= 4


def test_the_problem_of_a_job_is_raised_here(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(b"no Parquet")
    job = job_of(tmp_path / "store", tmp_path / "in" / "*")
    with pytest.raises(Exception, match=r"a\.parquet is not a readable Parquet file"):
        look_by_workers(job, HERE)
    assert not (tmp_path / "store").exists()
    with pytest.raises(OptionError, match="plan waits for its job"):
        look_by_workers(job, PipelineOptions(["--no_wait_until_finish"]))


def test_a_new_store_is_left_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", "a")
    job = job_of(tmp_path / "store", tmp_path / "in" / "*")
    assert look_by_workers(job, HERE).files == 1
    assert not (tmp_path / "store").exists()
    (tmp_path / "store" / "embeddings").mkdir(parents=True)
    look_by_workers(job, HERE)
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["embeddings"]
