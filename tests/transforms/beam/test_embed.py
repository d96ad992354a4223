"""Spans to written units, by list in and list out."""

import faulthandler
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import eager
from helpers.corpora import sentences, write_jsonl
from helpers.jobs import embed_job
from helpers.settled import finish
from helpers.snapshots import parts_of, small_parts, watch_parts
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms.beam import Embed, Plan
from sentence_beam.transforms.corpus import UnitRows
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import Recipe
from sentence_beam.transforms.steps.embed import crash_guard
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.records import UnitRecord

TEXTS = [*sentences(11), sentences(1)[0], None]  # one twice, one that is rejected
OUTPUTS = ("units", "problems")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The texts in two files; the glob."""
    rows = [{"id": str(i), "text": text, "lang": "en"} for i, text in enumerate(TEXTS)]
    write_jsonl(tmp_path / "in" / "a.jsonl", rows[:5])
    write_jsonl(tmp_path / "in" / "b.jsonl", rows[5:])
    return tmp_path / "in" / "*"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def embedded(job: EmbedJob) -> dict[str, list]:
    """What Embed makes of the spans that Plan found."""
    spans = eager.outputs(Plan(job), list(job.run.globs), names=("spans",))["spans"]
    return eager.outputs(Embed(job), spans, names=OUTPUTS)


def rows_of(store: Path, units: list[UnitRecord]) -> dict[str, np.ndarray]:
    """Vector by id."""
    tables = [pq.read_table(store / unit.path) for unit in units if unit.path]
    pairs = [
        zip(t.column("id").to_pylist(), t.column("embedding").to_pylist(), strict=True)
        for t in tables
    ]
    return {row_id: np.array(vector) for found in pairs for row_id, vector in found}


@pytest.mark.parametrize("partition", ["file", "content"])
def test_every_row_has_the_encoders_vector(
    store: Path, model: Path, files: Path, partition: str
) -> None:
    found = embedded(embed_job(store, model, files, partition=partition))
    units: list[UnitRecord] = found["units"]
    assert found["problems"] == []
    assert (
        sum(u.read for u in units),
        sum(u.rows for u in units),
        sum(u.rejected for u in units),
    ) == (13, 12, 1)
    assert sum(u.embedded + u.duplicates for u in units) == 12
    if partition == "content":  # wherever its copy was
        assert sum(u.duplicates for u in units) == 1
    vectors = rows_of(store, units)
    expected = Encoder.load(str(model), dtype="float32", device="cpu").encode(TEXTS[:-1])
    assert vectors.keys() == {str(i) for i in range(12)}
    np.testing.assert_allclose([vectors[str(i)] for i in range(12)], expected, rtol=0, atol=1e-5)


def test_finished_units_are_found_and_not_embedded_again(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = embed_job(store, model, files)
    first = embedded(job)["units"]
    monkeypatch.setattr(
        "sentence_beam.transforms.beam.embed.load_checked_encoder",
        lambda job: pytest.fail("the model was loaded"),
    )
    again = embedded(replace(job, run=replace(job.run, id="run2")))["units"]
    assert {unit.unit: (unit.path, unit.sha256, unit.embedded) for unit in again} == {
        unit.unit: (unit.path, unit.sha256, unit.embedded) for unit in first
    }


@pytest.mark.parametrize("partition", ["file", "content"])
def test_another_model_than_the_spaces_is_a_problem(
    store: Path, model: Path, files: Path, tmp_path: Path, partition: str
) -> None:
    other = save_tiny_model("bert", tmp_path / "other", initializer_range=0.2)
    found = embedded(
        replace(
            embed_job(store, model, files, partition=partition),
            recipe=Recipe(str(other), dtype="float32"),
        )
    )
    assert found["units"] == []
    assert {problem.exit_code for problem in found["problems"]} == {2}
    assert all("weights differ" in problem.message for problem in found["problems"])


def test_without_spans_no_model_is_loaded(
    store: Path, model: Path, files: Path, tmp_path: Path
) -> None:
    job = replace(embed_job(store, model, files), recipe=Recipe(str(tmp_path / "none")))
    assert eager.outputs(Embed(job), [], names=OUTPUTS) == {"units": [], "problems": []}


def test_an_embedding_worker_reads_of_a_long_manifest_what_has_its_units(
    store: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    rows = [
        [{"id": f"{n}-{i}", "text": f"{i} {n}", "lang": "en"} for i in range(3)] for n in range(16)
    ]
    for n, some in enumerate(rows):
        write_jsonl(tmp_path / "in" / f"{n}.jsonl", some)
    first = embed_job(store, model, tmp_path / "in" / "*", unit_tokens=60)
    assert finish(first.run, embedded(first)["units"], []).exit_code == 0
    changed = ("7", "8")
    for n in changed:
        write_jsonl(
            tmp_path / "in" / f"{n}.jsonl",
            [*rows[int(n)], {"id": "new", "text": f"new {n}", "lang": "en"}],
        )
    job = embed_job(store, model, tmp_path / "in" / "*", run="run2", unit_tokens=60)
    spans = eager.outputs(Plan(job), list(job.run.globs), names=("spans",))["spans"]
    read = watch_parts(monkeypatch)
    units: list[UnitRecord] = eager.outputs(Embed(job), spans, names=OUTPUTS)["units"]
    assert {unit.file: (unit.reused, unit.embedded) for unit in units} == {
        f"{n}.jsonl": (3, 1) for n in changed
    }
    assert len(parts_of(store)) >= 6
    assert 1 <= len(read) <= len(changed), "one part for each file"


def test_a_worker_that_dies_of_reading_names_the_files(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_guard, "PROCESSES", multiprocessing.get_context("fork"))
    job = replace(embed_job(store, model, files), retried=True)
    spans = eager.outputs(Plan(job), list(job.run.globs), names=("spans",))["spans"]
    for _ in range(2):
        for name in sorted({some[0].name for some in spans}):
            with pytest.raises(ZeroDivisionError):
                with crash_guard.mark_work(str(store), job.run.id, name, dying):
                    _ = 1 / 0  # the worker is lost on the way
    monkeypatch.setattr("sentence_beam.transforms.beam.embed.read_units", read_and_die)
    made = eager.outputs(Embed(job), spans, names=OUTPUTS)
    path = files.parent / "a.jsonl"
    assert f"reading {path}" in made["problems"][0].message
    assert "the worker died of it (SIGSEGV)" in made["problems"][0].message


def dying(_: object) -> None:
    """Die of a library's fault."""
    faulthandler.disable()  # what a forked child would print is of no use
    os.kill(os.getpid(), signal.SIGSEGV)


def read_and_die(*_: object) -> Iterator[UnitRows]:
    """Die of reading the first unit."""
    dying(None)
    yield from ()
