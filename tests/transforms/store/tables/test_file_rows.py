"""Full paths of files, the counts that units give to them, and questions about two lists of files:
which are the same, were renamed, left or share a group.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.unit_records import unit_record
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.tables.file_rows import (
    Compared,
    compare,
    compare_groups,
    count_rows_of_files_gone,
    count_units,
    count_written,
    find_compressions,
    find_moved_files,
    get_full_path,
    list_full_paths,
    make_content_marks,
    match_bytes,
    must_make_way,
    set_counts,
    split_place,
)
from sentence_beam.transforms.store.tables.names import Owners
from sentence_beam.transforms.store.tables.table_columns import FILE_COUNTS, FILES, make_units_table


@pytest.mark.parametrize(
    ("source", "path", "folder"),
    [
        ("/in/a/b.txt", "a/b.txt", "/in/"),
        ("gs://bucket/b.txt", "b.txt", "gs://bucket/"),
        ("b.txt", "b.txt", ""),
        ("rows of a program", "rows", None),
    ],
)
def test_a_full_path_is_the_folder_and_the_path_or_itself(
    source: str, path: str, folder: str | None
) -> None:
    place = split_place(source, path)
    assert place["folder"] == folder
    assert get_full_path({**place, "path": path}) == source


@given(st.text(), st.text(min_size=1))
def test_every_full_path_comes_back(source: str, path: str) -> None:
    for whole in (source, source + path):
        assert get_full_path({**split_place(whole, path), "path": path}) == whole


def unit(name: str, rows: int, **values: object) -> UnitRecord:
    return unit_record(rows, unit=name, read=rows + 1, rejected=1, **values)


UNITS = make_units_table(
    [
        unit(f"{make_key('a')}-{0:012d}", 3),
        unit(f"{make_key('a')}-{5:012d}.0", 4),
        unit(f"{make_key('c')}-{0:012d}", 8, documents=2),
        unit("f0-0.0", 5),
        unit("f0-0.1", 6),
        unit(f"{make_key('gone')}-{0:012d}", 7),
    ]
)


def test_units_count_for_their_file_and_those_of_a_group_for_its_first() -> None:
    owners = Owners(pa.array(["a", "b", "c", "d"]), pa.array([None, "f0-0", None, "f0-0"]))
    found = {name: values.tolist() for name, values in count_units(owners, 4, UNITS).items()}
    assert found == {
        "units": [2, 2, 1, 0],
        "rows": [7, 11, 8, 0],
        "read": [9, 13, 9, 0],
        "written": [7, 11, 2, 0],
    }
    nothing = count_units(owners, 4, UNITS.slice(0, 0))
    assert {name: values.tolist() for name, values in nothing.items()} == {
        name: [0, 0, 0, 0] for name in FILE_COUNTS
    }


def test_a_unit_of_documents_wrote_these_and_not_their_pieces() -> None:
    wanted = {f"{make_key('c')}-{0:012d}": 2}
    names = UNITS["unit"].to_pylist()
    rows = [
        wanted.get(name, row) for name, row in zip(names, UNITS["rows"].to_pylist(), strict=True)
    ]
    assert count_written(UNITS).tolist() == rows


def test_files_with_other_counts_are_the_same_otherwise() -> None:
    row = dict.fromkeys(FILES.names) | dict.fromkeys(FILE_COUNTS, 1)
    row |= {"format": "text", "checksum": "c", "version": "v", "size": 3}
    files = pa.Table.from_pylist([row | {"path": path} for path in "abc"], FILES)
    counts = {name: np.arange(3) + place for place, name in enumerate(FILE_COUNTS)}
    found = set_counts(files, counts)
    assert found.schema == FILES
    for name in FILES.names:
        wanted = counts[name].tolist() if name in counts else files[name].to_pylist()
        assert found[name].to_pylist() == wanted


def file_row(path: str, checksum: str = "", **values: Any) -> dict[str, Any]:
    """A file of three bytes whose rows a unit of its own has, in the folder `/in/`."""
    row = dict.fromkeys(FILES.names) | dict.fromkeys(FILE_COUNTS, 1)
    row |= {"format": "jsonl", "version": f"version of {path}", "size": 3, "folder": "/in/"}
    return row | {"path": path, "checksum": checksum} | values


def table(*rows: dict[str, Any]) -> pa.Table:
    """Files of a snapshot, or listed ones."""
    return pa.Table.from_pylist(list(rows), FILES)


def mask(*values: int) -> np.ndarray:
    """Which files are meant, by 1 and 0."""
    return np.array(values, bool)


NO_FILES = table()


def test_full_paths_of_a_table_are_those_of_its_rows() -> None:
    files = table(
        file_row("a/b.txt"),
        file_row("b.txt", folder=None),
        file_row("rows", folder=None, source="rows of a program"),
    )
    assert list_full_paths(files).to_pylist() == ["/in/a/b.txt", "b.txt", "rows of a program"]
    assert list_full_paths(files).to_pylist() == [get_full_path(row) for row in files.to_pylist()]


@pytest.mark.parametrize(
    ("path", "file_format", "suffix"),
    [
        ("a.jsonl", "jsonl", ""),
        ("a.jsonl.gz", "jsonl", ".gz"),
        ("a.JSONL.GZ", "jsonl", ".gz"),
        ("a.csv.zst", "csv", ".zst"),
        ("a.txt.bz2", "text", ".bz2"),
        ("a.txt.xz", "text", ".xz"),
        ("a.gz.jsonl", "jsonl", ""),
        ("a_gz", "jsonl", ""),
        ("a.parquet.gz", "parquet", ""),  # its content is never packed once more
    ],
)
def test_compression_follows_from_the_end_of_the_name(
    path: str, file_format: str, suffix: str
) -> None:
    assert find_compressions(table(file_row(path, format=file_format))).to_pylist() == [suffix]


@pytest.mark.parametrize(
    "other",
    [
        {"format": "text"},
        {"path": "b.jsonl.gz"},
        {"size": 4},
        {"checksum": "d"},
    ],
)
def test_marks_of_content_differ_for_other_content_alone(other: dict[str, Any]) -> None:
    one = file_row("a.jsonl", "c")
    same = file_row("b.jsonl", "c", folder="/other/", group="f0-0", cut=7, version="x", rows=9)
    first, second, third = make_content_marks(table(one, same, one | other)).to_pylist()
    assert first == second != third


def test_marks_of_content_have_the_values_in_paths_that_a_run_reads() -> None:
    paths = ["lang=en/day=1/a.jsonl", "lang=en/day=2/b.jsonl", "lang=de/day=1/a.jsonl"]
    files = table(*(file_row(path, "c") for path in paths))

    def differing(*names: str) -> int:
        return len(make_content_marks(files, names).unique())

    assert [differing(), differing("lang"), differing("lang", "day"), differing("n")] == [
        1, 2, 3, 1,
    ]  # fmt: skip


def test_files_are_compared_by_name_then_by_version_then_by_content() -> None:
    last = table(
        file_row("changed", "c"),
        file_row("copied again", "c"),
        file_row("gone", "c"),
        file_row("same", "c"),
        file_row("unread", "c"),
    )
    listed = table(
        file_row("changed", "d", version="new"),
        file_row("copied again", "c", version="new"),
        file_row("new", "c", version="version of gone"),
        file_row("same", ""),
        file_row("unread", "", version="new"),
    )
    found = compare(listed, last)
    assert found.at.tolist() == [0, 1, -1, 3, 4]
    assert found.is_same.tolist() == [False, True, False, True, False]


def test_a_checksum_that_nobody_has_worked_out_equals_no_other() -> None:
    """A snapshot can have a file that was left out, whose checksum is "" too."""
    last = table(file_row("empty", "", size=0))
    assert not compare(table(file_row("empty", "", size=0, version="new")), last).is_same.any()
    read = table(file_row("empty", "c", size=0, version="new"))
    assert not compare(read, last).is_same.any()


def test_without_a_last_snapshot_no_file_is_the_same() -> None:
    found = compare(table(file_row("a", "c"), file_row("b")), NO_FILES, ["lang"])
    assert (found.at.tolist(), found.is_same.tolist()) == ([-1, -1], [False, False])
    assert len(compare(NO_FILES, table(file_row("a"))).at) == 0


@pytest.mark.parametrize("version", ["version of a.jsonl", "new"])
def test_a_file_below_a_folder_with_another_value_is_another_one(version: str) -> None:
    """The pattern begins below the folder, whose name is no part of the file's."""
    last = table(file_row("a.jsonl", "c", folder="/in/lang=en/"), file_row("b.jsonl", "c"))
    listed = table(
        file_row("a.jsonl", "c", folder="/in/lang=de/", version=version),
        file_row("b.jsonl", "c"),
        file_row("c.jsonl", "c"),
    )
    assert compare(listed, last).is_same.tolist() == [True, True, False]
    assert compare(listed, last, ["n"]).is_same.tolist() == [True, True, False]
    assert compare(listed, last, ["lang"]).is_same.tolist() == [False, True, False]


def test_each_wanted_file_gets_a_free_one_with_its_content() -> None:
    last = table(*(file_row(f"old {n}", checksum) for n, checksum in enumerate("ccdxc")))
    listed = table(*(file_row(f"new {n}", checksum) for n, checksum in enumerate("dcecc")))
    free = mask(1, 0, 1, 1, 1)
    every = match_bytes(listed, mask(1, 1, 1, 1, 1), last, free)
    assert every.tolist() == [2, 0, -1, 4, -1], "two free files have the content of three"
    some = match_bytes(listed, mask(0, 0, 1, 0, 1), last, free)
    assert some.tolist() == [-1, -1, -1, -1, 0]
    none, all_five = mask(0, 0, 0, 0, 0), mask(1, 1, 1, 1, 1)
    assert match_bytes(listed, none, last, free).tolist() == [-1] * 5
    assert match_bytes(listed, all_five, last, none).tolist() == [-1] * 5


def test_equal_files_below_folders_of_other_values_are_not_the_same() -> None:
    last = table(file_row("lang=de/a", "c"), file_row("lang=en/a", "c"))
    listed = table(file_row("lang=en/b", "c"), file_row("lang=fr/b", "c"))
    wanted = free = mask(1, 1)
    assert match_bytes(listed, wanted, last, free).tolist() == [0, 1]
    assert match_bytes(listed, wanted, last, free, ["lang"]).tolist() == [1, -1]


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_no_two_files_get_one_and_none_is_left_over(new: list[str], old: list[str]) -> None:
    listed = table(*(file_row(f"new {n}", checksum) for n, checksum in enumerate(new)))
    last = table(*(file_row(f"old {n}", checksum) for n, checksum in enumerate(old)))
    found = match_bytes(listed, np.ones(len(new), bool), last, np.ones(len(old), bool))
    pairs = [(checksum, int(at)) for checksum, at in zip(new, found, strict=True) if at >= 0]
    assert len({at for _, at in pairs}) == len(pairs)
    assert all(old[at] == checksum for checksum, at in pairs)
    for checksum in "abc":
        given_away = sum(one == checksum for one, _ in pairs)
        assert given_away == min(new.count(checksum), old.count(checksum))


def test_moved_files_have_the_same_full_path_or_equal_bytes() -> None:
    last = table(
        file_row("a", "c1"),
        file_row("copied", "c2"),
        file_row("renamed", "c3"),
        file_row("stays", "c4"),
        file_row("sub/b", "c5"),
    )
    listed = table(
        file_row("b", "other", folder="/in/sub/"),  # the pattern begins further down now
        file_row("copy", "c2"),
        file_row("name", "c3"),
        file_row("new", "c4"),  # of one that is still there
        file_row("stays", "c4"),
    )
    assert find_moved_files(listed, last).tolist() == [4, 1, 2, -1, -1]


def test_a_file_at_its_old_place_is_not_another_one_too() -> None:
    """It has the bytes of two files that left: the one at its place counts for it alone."""
    last = table(file_row("sub/a", "c"), file_row("z", "d"))
    listed = table(file_row("a", "d", folder="/in/sub/"), file_row("b", "c"), file_row("y", "d"))
    assert find_moved_files(listed, last).tolist() == [0, -1, 1]


def test_files_without_bytes_do_not_move() -> None:
    full, empty = file_row("b", "c"), file_row("b", "c", size=0)
    assert find_moved_files(table(full), table(full | {"path": "a"})).tolist() == [0]
    assert find_moved_files(table(empty), table(empty | {"path": "a"})).tolist() == [-1]
    moved = {"path": "in/b", "folder": "/"}
    assert find_moved_files(table(full | moved), table(full)).tolist() == [0]
    assert find_moved_files(table(empty | moved), table(full)).tolist() == [-1]
    assert find_moved_files(table(full | moved), table(empty)).tolist() == [-1]
    one_byte = file_row("b", "c", size=1)
    assert find_moved_files(table(one_byte), table(one_byte | {"path": "a"})).tolist() == [0]


def test_nothing_moves_without_a_new_and_a_missing_file() -> None:
    files = table(file_row("a", "c"), file_row("b", "c"))
    assert find_moved_files(files, NO_FILES).tolist() == [-1, -1]
    assert find_moved_files(NO_FILES, files).tolist() == []
    assert find_moved_files(files, files).tolist() == [-1, -1]
    assert find_moved_files(files.slice(0, 1), files).tolist() == [-1]
    assert find_moved_files(files, files.slice(0, 1)).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("shards_of", "is_carried", "moving"),
    [
        # the shards of file 2 are named after file 1
        ([1, 1, 3, 4], [1, 1, 1, 1], [0, 0, 0, 0]),
        ([1, 1, 3, 4], [0, 1, 1, 1], [0, 1, 0, 0]),
        ([1, 1, 3, 4], [0, 0, 1, 1], [0, 0, 0, 0]),  # it is read anyway
        ([1, 1, 3, 4], [1, 0, 1, 1], [0, 0, 0, 0]),
        ([9, 2, 3, 4], [0, 0, 0, 1], [0, 0, 0, 0]),  # the file of that name is gone
        # each file has the shards of the one before
        ([9, 1, 2, 3], [1, 1, 1, 1], [0, 0, 0, 0]),
        ([9, 1, 2, 3], [0, 1, 1, 1], [0, 1, 1, 1]),
        ([9, 1, 2, 3], [1, 1, 0, 1], [0, 0, 0, 1]),
        ([9, 1, 2, 3], [1, 0, 1, 1], [0, 0, 1, 1]),
        # two files have changed names
        ([2, 1, 3, 4], [1, 1, 0, 0], [0, 0, 0, 0]),
        ([2, 1, 3, 4], [0, 1, 1, 1], [0, 1, 0, 0]),
        # two files have shards named after one
        ([1, 1, 1, 4], [0, 1, 1, 1], [0, 1, 1, 0]),
    ],
)
def test_a_file_makes_way_for_the_one_that_its_shards_are_named_after(
    shards_of: list[int], is_carried: list[int], moving: list[int]
) -> None:
    own = np.arange(1, 5, dtype=np.uint64)
    found = must_make_way(own, np.array(shards_of, np.uint64), mask(*is_carried))
    assert found.tolist() == mask(*moving).tolist()


def test_no_file_makes_way_for_none() -> None:
    none = np.empty(0, np.uint64)
    assert must_make_way(none, none, np.empty(0, bool)).tolist() == []


@pytest.mark.parametrize(
    ("is_there", "rows"),
    [
        ([1, 1, 1, 1, 1, 1], 0),
        ([0, 1, 1, 1, 1, 1], 1),
        ([1, 0, 1, 1, 1, 1], 0),
        ([1, 1, 0, 1, 1, 1], 0),
        ([1, 0, 0, 1, 1, 1], 10),
        ([1, 1, 1, 0, 1, 1], 0),
        ([1, 1, 1, 0, 0, 1], 1000),
        ([0, 0, 1, 0, 0, 0], 101_001),
        ([0, 0, 0, 0, 0, 0], 101_011),
    ],
)
def test_rows_of_a_group_count_as_gone_with_the_last_of_its_files(
    is_there: list[int], rows: int
) -> None:
    groups = [None, "f1-0", "f1-0", "f1-1", "f1-1", None]
    written = [1, 10, 0, 1000, 0, 100_000]
    last = table(
        *(
            file_row(str(place), group=group, written=count, rows=7, read=8)
            for place, (group, count) in enumerate(zip(groups, written, strict=True))
        )
    )
    assert count_rows_of_files_gone(last, mask(*is_there)) == rows


def test_rows_without_any_group_are_gone_with_their_files() -> None:
    last = table(file_row("a", written=3), file_row("b", written=5))
    assert count_rows_of_files_gone(last, mask(0, 1)) == 3
    assert count_rows_of_files_gone(last, mask(0, 0)) == 8
    assert count_rows_of_files_gone(NO_FILES, mask()) == 0


OF_GROUPS = table(
    *(
        file_row(name, group=group)
        for name, group in zip("abcde", ["x", "x", "y", "y", None], strict=True)
    )
)


@pytest.mark.parametrize(
    ("at", "is_same", "groups", "as_before"),
    [
        ([0, 1, 2, 3, 4], [1, 1, 1, 1, 1], "xxyy ", [1, 1, 1, 1, 0]),
        ([0, 1, 2, 3, 4], [1, 0, 1, 1, 1], "xxyy ", [0, 0, 1, 1, 0]),
        ([0, 1, 2, 3, 4], [0, 1, 1, 1, 1], "xxyy ", [0, 0, 1, 1, 0]),
        ([0, 1, 2, 3, 4], [1, 1, 1, 1, 1], "xxyyy", [1, 1, 0, 0, 0]),  # a file more
        ([0, 1, 2, 3, 4], [1, 1, 1, 1, 1], "xx y ", [1, 1, 0, 0, 0]),  # a file less
        ([0, 1, 2, -1, 4], [1, 1, 1, 0, 1], "xxyy ", [1, 1, 0, 0, 0]),  # a new file for a gone one
        ([0, 1, 2, 4], [1, 1, 1, 1], "xxy ", [1, 1, 0, 0]),  # a file is gone
        ([0, 1, 2, 3, 4, -1], [1, 1, 1, 1, 1, 0], "xxyy x", [0, 0, 1, 1, 0, 0]),
        ([0, 1, 2, 3, 4], [1, 1, 1, 1, 1], "yyxx ", [0, 0, 0, 0, 0]),
        ([0, 1, 2, 3, 4], [1, 1, 1, 1, 1], "zzyy ", [0, 0, 1, 1, 0]),
        ([0, 1, 2, 3, 4], [1, 1, 1, 1, 1], "     ", [0, 0, 0, 0, 0]),
        ([-1, -1], [0, 0], "xx", [0, 0]),
    ],
)
def test_a_group_is_as_before_if_it_has_its_files_unchanged(
    at: list[int], is_same: list[int], groups: str, as_before: list[int]
) -> None:
    names = pa.array([None if name == " " else name for name in groups], pa.string())
    found = compare_groups(names, Compared(np.array(at), mask(*is_same)), OF_GROUPS)
    assert found.tolist() == mask(*as_before).tolist()


def test_no_group_is_as_before_in_a_new_store() -> None:
    names = pa.array(["x", None], pa.string())
    compared = Compared(np.array([-1, -1]), mask(0, 0))
    assert compare_groups(names, compared, NO_FILES).tolist() == [False, False]
