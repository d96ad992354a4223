"""The types of kept columns that a plan decides: one for all files, whoever reads which of them
first.

Covers transforms/steps/plan/footers.py.
"""

import itertools
from collections.abc import Sequence
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
from sentence_beam.transforms.steps.plan.footers import read_footer
from sentence_beam.transforms.steps.plan.kept_types import with_types
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.runs.plan_file import write_plan
from sentence_beam.transforms.store.runs.plan_work import RecordedWork
from sentence_beam.transforms.store.runs.recorded_plan import read_plan
from sentence_beam.transforms.store.runs.result import now

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


def decided(folder: Path, names: Sequence[str], types: Types | None = None) -> list[PlannedFile]:
    job = job_with(Columns(keep=("n",), types=tuple((types or {}).items())))
    files = [file for name in names for file in match_inputs(str(folder / name))]
    return with_types([read_footer(PlannedFile(file), job) for file in files], job, None)


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
        found = decided(folder, order)
        assert [item.file.types for item in found] == [(("n", word),)] * len(names)
        assert all(span.file == item.file for item in found for span in item.spans)


@pytest.mark.parametrize("word", ["int", "str"])
def test_a_type_that_is_given_holds_for_every_format(folder: Path, word: str) -> None:
    names = ["ints.jsonl", "words.jsonl", "lists.jsonl", "a.csv", "small.parquet", "string.parquet"]
    found = decided(folder, names, {"n": word})
    assert [item.kept for item in found] == [(("n", word),)] * len(names)
    assert all(item.file.types == () for item in found)


def test_files_without_the_column_are_counted(folder: Path, tmp_path: Path) -> None:
    write_parquet(folder / "none.parquet", ["row"])
    write_bytes(folder / "none.csv", b"text\nrow\n")
    write_parquet(folder / "empty.parquet", pa.nulls(0), other=pa.nulls(0))
    names = ["ints.jsonl", "absent.jsonl", "none.parquet", "none.csv", "empty.parquet"]
    found = decided(folder, names)
    assert [item.lacks for item in found] == [(), ("n",), ("n",), ("n",), ()]
    root = str(tmp_path / "store")
    write_plan(root, "r1", found)
    assert read_plan(root, "r1").lacking == {"n": 3}
    with pytest.raises(OptionError, match="has no column n"):
        decided(folder, names[1:])


def test_a_table_that_cannot_be_read_as_the_type_given(folder: Path) -> None:
    write_parquet(folder / "list.parquet", ["row"], n=pa.array([[1]]))
    with pytest.raises(
        OptionError, match=r"list.parquet: column n is list<.*int64>, which is not read as int"
    ):
        decided(folder, ["list.parquet"], {"n": "int"})


def test_the_types_stand_in_the_plan_on_record(folder: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    write_plan(root, "r1", decided(folder, ["ints.jsonl"]))
    assert read_plan(root, "r1").types == {"n": "int"}
    (span,) = RecordedWork(root, "r1").spans()
    assert span.file.types == (("n", "int"),)
