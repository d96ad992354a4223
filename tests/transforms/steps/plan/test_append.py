"""Plans of runs that append: files that the store has are brought up to date, all others stay as
they are.
"""

import shutil
from pathlib import Path

import pytest
from helpers.corpora import write_jsonl, write_parquet
from helpers.plans import ids_in, night
from helpers.snapshots import files_of

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import name_keywords
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.runs.run_result import Result

LARGE, ROWS = 60, 3


def write(path: Path, name: str, rows: int = ROWS) -> Path:
    """A file of rows whose ids begin with a name."""
    write_jsonl(
        path, [{"id": f"{name}-{row}", "text": f"text {name} {row}"} for row in range(rows)]
    )
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def folder(tmp_path: Path, store: Path) -> Path:
    """A folder of two files with units of their own, of which the store has the rows; the second is
    below another.
    """
    write(tmp_path / "in" / "a.jsonl", "a", LARGE)
    write(tmp_path / "in" / "sub" / "b.jsonl", "b", LARGE)
    assert night(store, tmp_path / "in" / "**" / "*.jsonl").message == "committed"
    return tmp_path / "in"


@pytest.fixture
def small(tmp_path: Path, store: Path) -> Path:
    """A folder of twenty files that share units, of which the store has the rows."""
    for number in range(20):
        write(tmp_path / "in" / f"{number:02d}.jsonl", f"{number:02d}")
    assert night(store, tmp_path / "in" / "*.jsonl").message == "committed"
    return tmp_path / "in"


def append(store: Path, *globs: object, **values: object) -> Result:
    """A run that appends files."""
    runs = store / "runs"
    number = len([*runs.iterdir()]) if runs.exists() else 0
    return night(store, *globs, number=number, append=True, **values)


def names_in(store: Path) -> dict[str, int]:
    """The number of rows by what their ids begin with."""
    names = [row.rpartition("-")[0] for row in ids_in(store)]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def paths_in(store: Path) -> list[str]:
    """The relative paths of the store's files."""
    return [file["path"] for file in files_of(store)]


@pytest.mark.parametrize("glob", ["sub/b.jsonl", "sub/*.jsonl", "*/b.jsonl", "**/b.jsonl", "sub"])
def test_a_file_that_has_changed_is_brought_up_to_date_by_its_full_path(
    folder: Path, store: Path, glob: str
) -> None:
    (folder / "a.jsonl").unlink()
    write(folder / "sub" / "b.jsonl", "new", LARGE + 1)
    result = append(store, folder / glob)
    assert result.message == "committed"
    assert names_in(store) == {"a": LARGE, "new": LARGE + 1}
    assert paths_in(store) == ["a.jsonl", "sub/b.jsonl"]
    assert (result.ledger["carried"], result.ledger["embedded"]) == (LARGE, LARGE + 1)


@pytest.mark.parametrize("glob", ["sub/b.jsonl", "sub/*.jsonl", "**/b.jsonl"])
def test_a_file_that_has_not_is_carried_over_whatever_pattern_names_it(
    folder: Path, store: Path, glob: str
) -> None:
    result = append(store, folder / glob)
    assert result.ledger["carried"] == 2 * LARGE == len(ids_in(store))
    assert paths_in(store) == ["a.jsonl", "sub/b.jsonl"]


def test_an_equal_relative_path_under_another_root_is_refused(
    folder: Path, store: Path, tmp_path: Path
) -> None:
    before = read_manifest(str(store))
    other = write(tmp_path / "other" / "a.jsonl", "other", LARGE)
    result = append(store, other)
    assert (
        result.exit_code,
        "append: the store has the relative path a.jsonl of" in name_keywords(result.message),
    ) == (2, True)
    shutil.copy(folder / "a.jsonl", other)
    assert append(store, other).message == "committed"
    assert read_manifest(str(store)).rows == before.rows


def test_rows_in_memory_are_replaced_by_others_of_the_same_name(store: Path) -> None:
    with storage.folder_of_rows() as rows:
        for name in ("first", "second"):
            write_parquet(Path(rows) / "batch.parquet", ["a text"], id=[f"{name}-0"])
            found = append(store, f"{storage.ROWS}batch.parquet")
            assert found.status == "committed", found.message
    assert names_in(store) == {"second": 1}


def test_rows_that_go_with_a_change_count_towards_those_that_may_be_deleted(
    folder: Path, store: Path
) -> None:
    write(folder / "a.jsonl", "a", 2)
    result = append(store, folder / "a.jsonl", max_deletes=0.1)
    assert (
        result.exit_code,
        "would be deleted, more than max_deletes 0.1" in name_keywords(result.message),
    ) == (3, True)
    assert append(store, folder / "a.jsonl", max_deletes=0.5).message == "committed"
    assert names_in(store) == {"a": 2, "b": LARGE}
    (folder / "a.jsonl").write_text("")
    assert append(store, folder / "a.jsonl").message == "committed"
    assert names_in(store) == {"b": LARGE}


def test_a_small_file_is_brought_up_to_date_with_the_group_that_it_is_in(
    small: Path, store: Path
) -> None:
    write(small / "03.jsonl", "new", ROWS + 2)
    write(small / "20.jsonl", "20")
    result = append(store, small / "03.jsonl", small / "20.jsonl")
    assert result.message == "committed"
    assert names_in(store) == {
        **{f"{number:02d}": ROWS for number in range(21) if number != 3},
        "new": ROWS + 2,
    }
    groups = {file["path"]: file["group"] for file in files_of(store)}
    assert (groups["03.jsonl"], groups["04.jsonl"], groups["20.jsonl"]) == ("f0-0", "f0-0", None)
    assert night(store, small / "*.jsonl", number=2).ledger["read"] == 21 * ROWS + 2
    assert set(night(store, small / "*.jsonl", number=3).ledger.items()) >= {
        ("carried", 21 * ROWS + 2)
    }


@pytest.mark.parametrize("what", ["is gone", "has changed too"])
def test_a_group_whose_other_files_are_not_as_they_were_cannot_be_written_again(
    small: Path, store: Path, what: str
) -> None:
    before = read_manifest(str(store))
    write(small / "03.jsonl", "new")
    if what == "is gone":
        (small / "07.jsonl").unlink()
    else:
        write(small / "07.jsonl", "other")
    result = append(store, small / "03.jsonl")
    assert result.exit_code == 2
    assert f"{small / '07.jsonl'} {what}, and is to be read again" in result.message
    assert "03.jsonl has changed, and shares units with it; name all files" in result.message
    assert read_manifest(str(store)) == before
    (small / "03.jsonl").unlink()
    assert append(store, write(small / "new.jsonl", "new")).message == "committed"


def test_a_small_file_that_grows_leaves_its_group_with_the_next_run_that_names_all(
    small: Path, store: Path
) -> None:
    write(small / "03.jsonl", "new", LARGE)
    for run in (
        lambda: append(store, small / "03.jsonl"),
        lambda: night(store, small / "*.jsonl", number=2),
    ):
        assert run().message == "committed"
        assert names_in(store) == {**{f"{n:02d}": ROWS for n in range(20) if n != 3}, "new": LARGE}


@pytest.mark.parametrize("bad", ["03.jsonl", "05.jsonl"])
def test_a_group_with_a_file_that_cannot_be_read_stays_as_it_is(
    small: Path, store: Path, bad: str
) -> None:
    before = ids_in(store)
    write(small / "03.jsonl", "new")
    (small / bad).unlink()
    (small / bad).symlink_to(small / "nothing")
    result = append(store, small / "0[35].jsonl", max_bad_files=1)
    assert result.message == "committed"
    assert ids_in(store) == before
    assert bad in result.input["bad"]


def test_an_object_is_brought_up_to_date_by_its_url(s3: str, store: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        storage.overwrite(
            f"{s3}/in/{name}.jsonl", write(tmp_path / f"{name}.jsonl", name).read_bytes()
        )
    assert night(store, f"{s3}/**.jsonl").message == "committed"
    storage.overwrite(f"{s3}/in/b.jsonl", write(tmp_path / "b.jsonl", "new").read_bytes())
    assert append(store, f"{s3}/in/b.jsonl").message == "committed"
    assert names_in(store) == {"a": ROWS, "new": ROWS}
    assert paths_in(store) == ["in/a.jsonl", "in/b.jsonl"]
