"""The types of kept columns that a plan decides: one for all files, whoever reads which of them
first.

Covers transforms/steps/plan/footers.py.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.corpora import write_bytes, write_jsonl, write_lines, write_parquet
from helpers.snapshots import SPACE

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import Columns, match_inputs
from sentence_beam.transforms.space import Recipe
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.footers import open_file
from sentence_beam.transforms.steps.plan.kept_types import choose_types
from sentence_beam.transforms.steps.plan.planned import make_planned_rows
from sentence_beam.transforms.steps.plan.whole_plan import make_notes, write_rows
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.runs.carried_check import STATES
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.recorded_plan import list_spans, read_plan
from sentence_beam.transforms.store.runs.run_result import now

Types = dict[str, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of three rows; the name says which values `n` has."""
    values: dict[str, list[Any]] = {
        "ints": [1, 2, None],
        "floats": [1.5, 2.5, None],
        "flags": [True, None, False],
        "words": ["one", None, "two"],
        "mixed": [1, "two", None],
        "lists": [[1], [2, 3], None],
        "nulls": [None, None, None],
    }
    for name, column in values.items():
        rows = [{"text": f"row {place}", "n": value} for place, value in enumerate(column)]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    write_jsonl(tmp_path / "absent.jsonl", [{"text": "row"}])
    write_bytes(tmp_path / "a.csv", b"text,n\nrow,1\n")
    write_parquet(tmp_path / "small.parquet", ["row"], n=pa.array([1], pa.int16()))
    write_parquet(tmp_path / "int64.parquet", ["row"], n=pa.array([1]))
    write_parquet(tmp_path / "string.parquet", ["row"], n=pa.array(["1"]))
    write_lines(tmp_path / "a.txt", ["row"])
    return tmp_path


def job_with(columns: Columns, root: str = "s") -> EmbedJob:
    run = Run(
        root=root, id="r1", space=SPACE, partition="file", unit_tokens=100, globs=(), options=RememberedOptions(),
        versions={}, started=now(),
    )  # fmt: skip
    return EmbedJob(run, columns, Recipe("m"))


def opened(
    folder: Path, names: Sequence[str], types: Types | None = None
) -> tuple[pa.Table, EmbedJob]:
    """The rows of the plan of files that were opened."""
    job = job_with(Columns(keep=("n",), types=tuple((types or {}).items())))
    files = [file for name in names for file in match_inputs(str(folder / name))]
    return make_planned_rows([open_file(file, job).row() for file in files]), job


def decided(folder: Path, names: Sequence[str], types: Types | None = None) -> Any:
    """The types that the plan of files decides."""
    rows, job = opened(folder, names, types)
    return choose_types(rows, job, None)


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["ints.jsonl"], "int"),
        (["floats.jsonl"], "float"),
        (["flags.jsonl"], "bool"),
        (["words.jsonl"], "str"),
        (["mixed.jsonl"], "str"),
        (["lists.jsonl"], "str"),
        (["nulls.jsonl"], "null"),
        (["nulls.jsonl", "absent.jsonl"], "null"),
        (["nulls.jsonl", "absent.jsonl", "ints.jsonl"], "int"),
        (["ints.jsonl", "floats.jsonl"], "float"),
        (["words.jsonl", "lists.jsonl"], "str"),
        (["a.csv"], "str"),
        (["a.csv", "int64.parquet"], "int"),
        (["ints.jsonl", "int64.parquet"], "int"),
        (["a.csv", "ints.jsonl"], "int"),
        (["ints.jsonl", "string.parquet"], "str"),
        (["words.jsonl", "int64.parquet"], "str"),
        (["floats.jsonl", "int64.parquet"], "float"),
        (["ints.jsonl", "words.jsonl"], "str"),
        (["words.jsonl", "floats.jsonl"], "str"),
        (["flags.jsonl", "ints.jsonl"], "str"),
        (["mixed.jsonl", "ints.jsonl"], "str"),
        (["small.parquet", "int64.parquet"], "arrow:int64"),
        (["small.parquet", "ints.jsonl"], "int"),
        (["small.parquet", "nulls.jsonl"], "arrow:int16"),
        (["small.parquet"], "arrow:int16"),
        (["small.parquet", "string.parquet"], "arrow:string"),
    ],
)
def test_the_type_of_a_new_column(folder: Path, names: list[str], word: str) -> None:
    for order in itertools.permutations(names):  # whichever file is listed first
        rows, job = opened(folder, order)
        types = choose_types(rows, job, None)
        assert types == (("n", word),)
        assert {span.file.types for span in list_spans(rows, types=types)} == {types}


@pytest.mark.parametrize("word", ["int", "str"])
def test_a_type_that_is_given_holds_for_every_format(folder: Path, word: str) -> None:
    names = ["ints.jsonl", "words.jsonl", "lists.jsonl", "a.csv", "small.parquet", "string.parquet"]
    rows, job = opened(folder, names, {"n": word})
    kept = [json.loads(text) for text in rows.column("kept").to_pylist()]
    assert kept == [[["n", word]]] * len(names)
    assert choose_types(rows, job, None) == ()


def test_files_without_the_column_are_counted(folder: Path) -> None:
    write_parquet(folder / "none.parquet", ["row"])
    write_bytes(folder / "none.csv", b"text\nrow\n")
    write_parquet(folder / "empty.parquet", pa.nulls(0), other=pa.nulls(0))
    names = ["ints.jsonl", "absent.jsonl", "none.parquet", "none.csv", "empty.parquet"]
    rows, _ = opened(folder, names)
    assert rows.column("lacks").to_pylist() == [[], ["n"], ["n"], ["n"], []]
    assert make_notes(rows).lacking == {"n": 3}
    with pytest.raises(OptionError, match="has no column n"):
        decided(folder, names[1:])


def test_a_table_that_cannot_be_read_as_the_type_given(folder: Path) -> None:
    write_parquet(folder / "list.parquet", ["row"], n=pa.array([[1]]))
    with pytest.raises(
        OptionError, match=r"list.parquet: column n is list<.*int64>, which is not read as int"
    ):
        decided(folder, ["list.parquet"], {"n": "int"})


def test_the_types_stand_in_the_plan_on_record(folder: Path, tmp_path: Path) -> None:
    rows, job = opened(folder, ["ints.jsonl"])
    job = replace(job, run=replace(job.run, root=str(tmp_path / "store")))
    write_rows(job, rows, make_notes(rows, choose_types(rows, job, None)), STATES.empty_table())
    plan = read_plan(job.root, "r1")
    assert plan.notes.types == {"n": "int"}
    (span,) = plan.list_spans_to_embed()
    assert span.file.types == (("n", "int"),)
