"""Spans that one worker reads into files, and others embed: the units of a run without that."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import eager
from helpers.corpora import sentences, write_bytes
from helpers.jobs import embed_job

from sentence_beam.transforms.beam import Embed, Plan
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store import layout

pytestmark = pytest.mark.usefixtures("plain_beam")

TEXTS: list[str | None] = [*sentences(60), sentences(1)[0], None, ""]


@pytest.fixture
def glob(tmp_path: Path) -> Path:
    """A compressed file, which cannot be cut, and another one."""
    rows = [{"id": f"r{i}", "text": text, "lang": "en"} for i, text in enumerate(TEXTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows) + '{"id": 5, "text": 5}\n'
    write_bytes(tmp_path / "in" / "a.jsonl.gz", lines.encode())
    write_bytes(tmp_path / "in" / "b.jsonl", b'{"id": "b", "text": "one row", "lang": null}\n')
    return tmp_path / "in" / "*"


def units_of(job: EmbedJob) -> tuple[list[tuple], list[str]]:
    """What is committed of the units that Embed makes, and the messages of its problems."""
    spans = eager.outputs(Plan(job), list(job.run.globs), names=("spans",))["spans"]
    made = eager.outputs(Embed(job), spans, names=("units", "problems"))
    units = sorted(
        (unit.unit, unit.range, unit.read, unit.rows, unit.rejected, unit.path)
        for unit in made["units"]
    )
    return units, [problem.message for problem in made["problems"]]


@pytest.fixture
def reading_once(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Several workers, for which any span of more than 300 bytes is long."""
    monkeypatch.setattr("sentence_beam.transforms.beam.embed.count_slots", lambda pipeline: 2)
    monkeypatch.setattr("sentence_beam.transforms.corpus.unit_files.LONG_BYTES", 300)
    return monkeypatch


@pytest.mark.parametrize(
    "chunks",
    [
        "none",
        "late:window=8",
        pytest.param("budget:tokens=4", marks=pytest.mark.slow),
        pytest.param("budget:tokens=4,combine=mean", marks=pytest.mark.slow),
    ],
)
def test_units_do_not_depend_on_who_reads_them(
    tmp_path: Path, model: Path, glob: Path, request: pytest.FixtureRequest, chunks: str
) -> None:
    def job(store: str) -> EmbedJob:
        job = embed_job(tmp_path / store, model, glob, unit_tokens=100)
        recipe = replace(job.recipe, chunks=ChunksSpec.parse(chunks))
        run = replace(job.run, space=recipe.space(recipe.files()))
        return replace(job, recipe=recipe, run=run)

    expected, problems = units_of(job("one"))
    assert len(expected) > 3
    assert not problems
    request.getfixturevalue("reading_once")
    assert units_of(job("two")) == (expected, [])
    files = list((tmp_path / "two" / layout.units_scratch("run1")).iterdir())
    assert len(files) == len(expected) - 1
    assert units_of(replace(job("two"), retried=True))[0] == expected


@pytest.mark.parametrize("name", ["a.json.gz", "a.json", "a.csv"])
def test_what_cannot_be_cut_is_read_once(
    tmp_path: Path, model: Path, request: pytest.FixtureRequest, name: str
) -> None:
    rows = [{"id": f"r{i}", "text": text, "lang": "en"} for i, text in enumerate(TEXTS)]
    data = json.dumps(rows).encode()
    if name == "a.csv":
        lines = (f'{row["id"]},"{row["text"] or ""}\n",en\n' for row in rows)
        data = ("id,text,lang\n" + "".join(lines)).encode()
    path = write_bytes(tmp_path / "whole" / name, data)
    expected = units_of(embed_job(tmp_path / "one", model, path, unit_tokens=100))
    request.getfixturevalue("reading_once")
    assert units_of(embed_job(tmp_path / "two", model, path, unit_tokens=100)) == expected
    files = list((tmp_path / "two" / layout.units_scratch("run1")).iterdir())
    assert len(files) == len(expected[0]) > 3


def test_a_file_that_changes_before_it_is_cut_is_a_problem(
    tmp_path: Path, model: Path, glob: Path, reading_once: pytest.MonkeyPatch
) -> None:
    job = embed_job(tmp_path / "store", model, glob, unit_tokens=100)
    spans = eager.outputs(Plan(job), list(job.run.globs), names=("spans",))["spans"]
    write_bytes(tmp_path / "in" / "a.jsonl.gz", b'{"id": "r", "text": "other"}\n')
    made = eager.outputs(Embed(job), spans, names=("units", "problems"))
    (problem,) = made["problems"]
    assert "a.jsonl.gz changed while the run read it" in problem.message
    assert [unit.file for unit in made["units"]] == ["b.jsonl"]
