"""Our transforms in a graph say nothing about type hints, and what they give has a type."""

import logging
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.typehints import typehints
from helpers.jobs import embed_job

from sentence_beam import (
    BuildIndex,
    Chunks,
    Commit,
    Embed,
    EmbedRows,
    IndexRequest,
    Neighbours,
    NeighboursJob,
    Plan,
    Settle,
)
from sentence_beam.transforms.steps.joins.nearest_rows import BlockRecord, StoredBlock
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.runs.run_result import Result


@pytest.mark.parametrize("partition", ["file", "content"])
def test_the_steps_of_a_run(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, partition: str
) -> None:
    job = embed_job(tmp_path / "store", model, tmp_path / "*.jsonl", partition=partition)
    with caplog.at_level(logging.WARNING):
        pipeline = beam.Pipeline("FnApiRunner")
        planned = pipeline | beam.Create(list(job.run.globs)) | Plan(job)
        embedded = planned.spans | Embed(job)
        known = (embedded.units, embedded.problems, planned.problems)
        settled = known | Settle(job.run)
        index = settled | BuildIndex(job.run, IndexRequest())
        result = (settled, index) | Commit(job.run)
    assert not caplog.messages
    found: list[Any] = [each.element_type for each in (*known, settled, index, result)]
    assert found == [UnitRecord, Problem, Problem, RunFact, RunFact, Result]


def test_all_others(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        pipeline = beam.Pipeline("FnApiRunner")
        documents = pipeline | beam.Create([{"text": "One. Two."}])
        pieces = documents | Chunks("sentences", model=str(model))
        rows = (pieces | EmbedRows(str(model), dtype="float32")).rows
        job = NeighboursJob(str(tmp_path), "run", "digest", str(tmp_path / "out"), k=1)
        blocks = pipeline | "Blocks" >> beam.Create([]).with_output_types(StoredBlock)
        found = blocks | Neighbours(job)
    assert not caplog.messages
    assert found.element_type == typehints.Union[BlockRecord, Problem]
    assert pieces.element_type == rows.element_type == typehints.Dict[str, typehints.Any]
