"""Files of the last snapshot that are carried over under another path, or not: columns of paths."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import write_jsonl
from helpers.plans import handed_out, job_of, night

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.recorded_plan import read_plan

KEPT: dict[str, Any] = {"keep_columns": ("lang",), "keep_types": {"lang": "str"}}


def put(folder: Path, *names: str, rows: int = 3) -> None:
    """Files of rows whose ids begin with the file's name."""
    for name in names:
        path = folder / name
        stem = path.stem
        write_jsonl(path, [{"id": f"{stem}{i}", "text": f"text {stem} {i}"} for i in range(rows)])


def kept(store: Path) -> dict[str, str]:
    """The value of the kept column by id."""
    table = open_store(str(store)).dataset().to_table(columns=["id", "lang"])
    return dict(zip(table["id"].to_pylist(), table["lang"].to_pylist(), strict=True))


def carried_rows(job: Any) -> int:
    """The rows that the plan of a run carries over."""
    handed_out(job)
    rows = read_plan(job.root, job.run.id).files.to_pylist()
    return sum(row["rows"] for row in rows if row["carried"])


def test_a_tree_that_moves_below_another_value_is_read_again(tmp_path: Path) -> None:
    """The files' names in the store, their bytes, times and inodes are as before."""
    store = tmp_path / "store"
    put(tmp_path / "lang=en", "a.jsonl", "b.jsonl")
    night(store, tmp_path / "lang=en", **KEPT)
    (tmp_path / "lang=en").rename(tmp_path / "lang=de")
    night(store, tmp_path / "lang=de", number=1, **KEPT)
    assert set(kept(store).values()) == {"de"}
    (tmp_path / "lang=de").rename(tmp_path / "else")
    (tmp_path / "y=1").mkdir()
    (tmp_path / "else").rename(tmp_path / "y=1/lang=de")
    job = job_of(store, tmp_path / "y=1/lang=de", number=2, **KEPT)
    assert carried_rows(job) == 6  # y is not kept


def test_of_small_files_in_groups_only_the_groups_of_moved_ones_are_read(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(tmp_path / "in", *(f"lang=en/{i:03}.jsonl" for i in range(150)))
    put(tmp_path / "in", *(f"lang=fr/x{i}.jsonl" for i in range(2)))
    night(store, tmp_path / "in", **KEPT)
    (tmp_path / "in/lang=fr").rename(tmp_path / "in/lang=it")
    job = job_of(store, tmp_path / "in", number=1, **KEPT)
    assert 0 < carried_rows(job) < 450
    night(store, tmp_path / "in", number=1, **KEPT)
    found = kept(store)
    assert len(found) == 456
    assert {key: value for key, value in found.items() if key.startswith("x")} == {
        f"x{i}{row}": "it" for i in range(2) for row in range(3)
    }


def test_a_copy_below_another_value_is_no_copy_for_a_run_that_appends(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(tmp_path / "lang=en", "a.jsonl")
    night(store, tmp_path / "lang=en", **KEPT)
    shutil.copytree(tmp_path / "lang=en", tmp_path / "lang=de")
    found = handed_out(job_of(store, tmp_path / "lang=de", number=1, append=True, **KEPT))
    (problem,) = (item for item in found if isinstance(item, Problem))
    with pytest.raises(SentenceBeamError, match="already, from .*lang=en/a.jsonl"):
        raise problem.error()
    assert carried_rows(job_of(store, tmp_path / "lang=en", number=1, append=True, **KEPT)) == 3


def test_a_store_that_keeps_no_column_of_the_path_carries_its_files_anywhere(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    put(tmp_path / "in/lang=en", "a.jsonl")
    night(store, tmp_path / "in")
    (tmp_path / "in/lang=en").rename(tmp_path / "in/lang=de")
    assert carried_rows(job_of(store, tmp_path / "in", number=1)) == 3
