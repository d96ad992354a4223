"""Which rows `--max-deletes` counts as deleted, over files whose vectors are made up."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.corpora import sentences, write_lines, write_parquet
from helpers.plans import job_of, night

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import name_keywords
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.deleted_rows import (
    RowKeys,
    choose_replaced_keys,
    choose_row_keys,
    count_rows_gone,
)
from sentence_beam.transforms.store.tables.file_rows import find_moved_files

NO_IDS: dict[str, Any] = {"id_column": None, "keep_text": True}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Four files of five rows each, which share a unit."""
    return [
        write_lines(tmp_path / "in" / f"{name}.txt", sentences(5, 5 * i))
        for i, name in enumerate("abcd")
    ]


def manifest(store: Path) -> Manifest:
    found = read_manifest(str(store))
    assert found is not None
    return found


def test_rows_of_files_that_left_are_refused_before_anything_is_read(
    store: Path, files: list[Path]
) -> None:
    folder = files[0].parent
    night(store, folder / "*", **NO_IDS)
    for path in files:
        path.unlink()
    write_lines(folder / "e.txt", sentences(20, 50))
    refused = night(store, folder / "*", number=1, max_deletes=0.5, **NO_IDS)
    assert refused.exit_code == 3
    assert "20 of the 20 rows" in refused.message
    assert "say append=True to keep them" in name_keywords(refused.message)
    assert f"`sentence-beam rollback -1 --store {store}`" in refused.message
    assert night(store, folder / "*", number=2, max_deletes=1.0, **NO_IDS).exit_code == 0


def test_renamed_moved_and_rewritten_files_have_not_left(
    store: Path, files: list[Path], tmp_path: Path
) -> None:
    night(store, files[0].parent / "*", **NO_IDS)
    files[0].rename(files[0].with_stem("renamed"))
    write_lines(files[1], sentences(5, 70))
    other = tmp_path / "other"
    files[0].parent.rename(other)
    assert night(store, other / "*", number=1, max_deletes=0.0, **NO_IDS).exit_code == 0
    assert (
        night(store, other.parent / "oth*" / "*", number=2, max_deletes=0.0, **NO_IDS).exit_code
        == 0
    )
    write_lines(other / "c.txt", sentences(5, 90))  # by its full path it is the same
    assert night(store, other / "*", number=3, max_deletes=0.0, **NO_IDS).exit_code == 0


def file(path: str, content: str, source: str = "") -> InputFile:
    return InputFile(source or f"/in/{path}", path, "csv", "", 9, content, "v")


def rows(*files: InputFile) -> pa.Table:
    """Rows of a plan of these files."""
    return make_planned_rows([OpenedFile(one).row() for one in files])


def test_one_file_takes_the_place_of_one_that_left() -> None:
    before = [
        file("a", "1"),
        file("b", "1"),
        file("c", "2"),
        file("d", "3", "/in/x/d"),
        file("e", "4"),
    ]
    now = [
        file("b", "1"),
        file("new", "1"),
        file("x/d", "other", "/in/x/d"),
        file("copy", "4"),
        file("e", "4"),
    ]
    at = find_moved_files(rows(*now), rows(*before))
    was = {
        one.relative: before[place].relative
        for one, place in zip(now, at, strict=True)
        if place >= 0
    }
    assert was == {"new": "a", "x/d": "d"}


def keys(store: Path, *paths: str, **options: Any) -> RowKeys | None:
    given = [file(path.rpartition("/")[2], "1", path) for path in paths]
    return choose_row_keys(
        RememberedOptions(**{**NO_IDS, **options}), manifest(store), rows(*given)
    )


def test_what_rows_are_known_by(store: Path, files: list[Path]) -> None:
    night(store, files[0], **NO_IDS)
    by_text = RowKeys(by_text=True)
    assert keys(store, str(files[0])) == RowKeys(by_file=True)
    assert keys(store, storage.ROWS + "rows.parquet") == by_text
    assert keys(store, "/tmp/x/stdin.jsonl") == by_text
    assert keys(store, "/tmp/x/stdin.jsonl", text_column="body") == RowKeys(by_file=True)
    assert keys(store, str(files[0]), id_column="id") == by_text
    assert keys(store, str(files[0]), id_column="id", chunks="sentences") is None


def replaced(store: Path, *paths: Path, **options: Any) -> RowKeys | None:
    given = [file(path.name, "1", str(path)) for path in paths]
    remembered = RememberedOptions(**{**NO_IDS, **options})
    return choose_replaced_keys(remembered, manifest(store), rows(*given))


def test_files_in_other_folders_may_be_another_collection(
    store: Path, files: list[Path], tmp_path: Path
) -> None:
    night(store, files[0], **NO_IDS)
    elsewhere = tmp_path / "elsewhere" / "a.txt"
    assert replaced(store, files[0]) == RowKeys(by_file=True)
    assert replaced(store, elsewhere) == RowKeys(by_text=True)
    assert replaced(store, elsewhere, files[0]) == RowKeys(by_file=True)  # as with --append
    assert replaced(store, elsewhere, text_column="body") == RowKeys(by_file=True)
    night(store / "ids", write_parquet(tmp_path / "a.parquet", sentences(2), id=["x", "y"]))
    with_ids = {"id_column": "id", "keep_text": False}
    assert replaced(store / "ids", tmp_path / "b.parquet", **with_ids) == RowKeys()
    assert replaced(store / "ids", elsewhere, **with_ids) == RowKeys(by_row=True)


def test_a_row_is_known_by_its_id_and_its_text() -> None:
    def batch(ids: str, texts: str) -> pa.RecordBatch:
        hashes = pa.array([text.encode() * 16 for text in texts], pa.binary(16))
        return pa.record_batch({"id": pa.array(list(ids)), "row_hash": hashes})

    known = RowKeys(by_row=True)
    old = known.key_rows(batch("abc", "xyz"), is_new=False)
    new = known.key_rows(batch("abd", "xvz"), is_new=True)
    parts = [packed for part in (old, new) for _, packed in part.by_bucket(1)]
    assert count_rows_gone(parts) == 2  # b has another text, c another id


def test_ids_from_a_column_are_compared_whatever_files_they_are_in(
    store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    write_parquet(folder / "a.parquet", sentences(4), id=pa.array(list("abcd")))
    night(store, folder / "*")
    assert choose_row_keys(job_of(store, "x").run.options, manifest(store), rows()) == RowKeys()
