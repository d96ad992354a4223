"""Questions about the files of a snapshot and of a plan, answered over their columns.

Files are compared by marks of their content: format, compression, size, checksum, and the values
that the run reads from their paths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import make_index_array
from sentence_beam.transforms.base.columns import (
    as_numbers,
    as_whole,
    find_equals,
    get_column,
    get_numbers,
    is_valid,
    look_up,
    make_places,
    rank_equals,
    replace_column,
    sum_by_place,
    take_rows_at,
    texts,
)
from sentence_beam.transforms.corpus.formats.registry import FORMATS
from sentence_beam.transforms.corpus.path_values import choose_values
from sentence_beam.transforms.store.tables.names import Owners
from sentence_beam.transforms.store.tables.table_columns import FILE_COUNTS, FILES

PLACED = ["path", "folder", "source"]  # the columns of full paths
MARKED = [*PLACED, "format", "size", "checksum"]  # the columns of marks of content
COMPRESSED = r"(?i)(?P<suffix>\.(?:gz|zst|bz2|xz))$"  # names, as `files.split_compression` has them


def get_full_path(row: dict[str, Any]) -> str:
    """Return where the file of a row of `files` is, or was."""
    if row["source"] is not None:
        source: str = row["source"]
        return source
    return f"{row['folder'] or ''}{row['path']}"


def split_place(source: str, path: str) -> dict[str, str | None]:
    """Return the columns `folder` and `source` of a file with this full path."""
    if source.endswith(path):
        return {"folder": source.removesuffix(path), "source": None}
    return {"folder": None, "source": source}


def count_written(units: pa.Table) -> np.ndarray:
    """Return the input rows that each unit has written, int64 [n]: its documents, else its rows."""
    return np.where(
        is_valid(units, "documents"), get_numbers(units, "documents"), get_numbers(units, "rows")
    )


def count_units(owners: Owners, files: int, units: pa.Table) -> dict[str, np.ndarray]:
    """Return the counts (`FILE_COUNTS`) that units give to each of so many files, int64 [files]."""
    if not len(units):
        return {name: np.zeros(files, np.int64) for name in FILE_COUNTS}
    at = owners.of(get_column(units, "unit"))
    return {
        "units": sum_by_place(at, files),
        "rows": sum_by_place(at, files, get_numbers(units, "rows")),
        "read": sum_by_place(at, files, get_numbers(units, "read")),
        "written": sum_by_place(at, files, count_written(units)),
    }


def set_counts(files: pa.Table, counts: Mapping[str, np.ndarray]) -> pa.Table:
    """Return files with other counts."""
    for name, values in counts.items():
        place = files.schema.get_field_index(name)
        files = files.set_column(place, FILES.field(name), pa.array(values, pa.int64()))
    return files


def list_full_paths(files: pa.Table) -> pa.Array:
    """Return where files are, or were."""
    joined = pc.binary_join_element_wise(
        pc.fill_null(files.column("folder"), ""), files.column("path"), ""
    )
    return as_whole(pc.coalesce(files.column("source"), joined))


def find_compressions(files: pa.Table) -> pa.Array:
    """Return the suffix by which each file is compressed, or ""."""
    endings = pc.extract_regex(files.column("path"), COMPRESSED)
    suffix = pc.fill_null(pc.utf8_lower(pc.struct_field(as_whole(endings), [0])), "")
    packed = [name for name, format in FORMATS.items() if format.is_packed]
    is_packed = pc.is_in(files.column("format"), value_set=pa.array(packed, pa.string()))
    return pc.if_else(as_whole(is_packed), "", suffix)


def make_content_marks(files: pa.Table, names: Sequence[str] = ()) -> pa.Array:
    """Return marks that are equal for files with the same rows.

    `names` are columns that the run may take from a file's path.
    """
    parts = [
        files.column("format"),
        find_compressions(files),
        files.column("size").cast(pa.string()),
        files.column("checksum"),
    ]
    if names:
        parts.append(make_path_marks(files, names))
    return as_whole(pc.binary_join_element_wise(*parts, " "))


def make_path_marks(files: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return marks that are equal for files with the same values of columns in their paths."""
    return texts([repr(choose_values(path, names)) for path in list_full_paths(files).to_pylist()])


@dataclass(frozen=True)
class Compared:
    """Files beside those of the last snapshot: `at` int64 [n] is the place of the file of the same
    name, -1 without one; `is_same` bool [n] says that it has the same bytes.
    """

    at: np.ndarray
    is_same: np.ndarray


def compare(listed: pa.Table, last: pa.Table, names: Sequence[str] = ()) -> Compared:
    """Compare files by name: the same have the same version, else the same content.

    `checksum` of a listed file is "" until somebody has read it. `names` as for `make_content_marks`.
    """
    at = look_up(listed.column("path"), last.column("path"))
    before = take_rows_at(last.select([*PLACED, "version"]), at)
    is_same = find_equals(listed.column("version"), before.column("version"))
    if names and is_same.any():
        before = replace_column(before, "path", pc.fill_null(before.column("path"), ""))
        is_same &= find_equals(make_path_marks(listed, names), make_path_marks(before, names))
    is_read = as_numbers(pc.not_equal(listed.column("checksum"), ""))
    other = np.flatnonzero(~is_same & (at >= 0) & is_read)
    if len(other):
        marks = [
            make_content_marks(take_rows_at(table.select(MARKED), places), names)
            for table, places in ((listed, other), (last, at[other]))
        ]
        is_same[other] = find_equals(*marks)
    return Compared(at, is_same)


def match_bytes(
    listed: pa.Table,
    wanted: np.ndarray,
    last: pa.Table,
    free: np.ndarray,
    names: Sequence[str] = (),
) -> np.ndarray:
    """Return for each wanted file the place of a free one with its content, int64 [n]; else -1.

    `wanted` are some of the listed files, `free` some of the last snapshot, bool. A free file goes
    to one file, because no two units may share a shard.
    """
    want = np.flatnonzero(wanted)
    give = np.flatnonzero(free)
    places = np.full(len(listed), -1)
    if not len(want) or not len(give):
        return places
    marks = [
        make_content_marks(take_rows_at(table.select(MARKED), at), names)
        for table, at in ((listed, want), (last, give))
    ]
    codes = pa.concat_arrays(marks).unique()
    of_want, of_give = (look_up(mark, codes) for mark in marks)
    most = len(want) + len(give)  # more than there are equal ones
    numbered = [make_index_array(code * most + rank_equals(code)) for code in (of_want, of_give)]
    place = look_up(*numbered)
    places[want[place >= 0]] = give[place[place >= 0]]
    return places


def find_moved_files(listed: pa.Table, last: pa.Table) -> np.ndarray:
    """Return the place in the last snapshot of each file with another name now, int64 [n]; else -1.

    Such files have the same full path, or equal bytes.
    """
    is_new = (look_up(listed.column("path"), last.column("path")) < 0) & (
        get_numbers(listed, "size") > 0
    )
    is_gone = (look_up(last.column("path"), listed.column("path")) < 0) & (
        get_numbers(last, "size") > 0
    )
    places = np.full(len(listed), -1)
    new = np.flatnonzero(is_new)
    gone = np.flatnonzero(is_gone)
    if not len(new) or not len(gone):
        return places
    place = look_up(
        list_full_paths(take_rows_at(listed.select(PLACED), new)),
        list_full_paths(take_rows_at(last.select(PLACED), gone)),
    )
    places[new[place >= 0]] = gone[place[place >= 0]]
    is_gone[places[places >= 0]] = False
    by_bytes = match_bytes(listed, is_new & (places < 0), last, is_gone)
    return np.where(places < 0, by_bytes, places)


def must_make_way(own: np.ndarray, shards_of: np.ndarray, is_carried: np.ndarray) -> np.ndarray:
    """Return which carried files must be read too, bool [n].

    Their shards are named after a file that is read, which could write over them. `own` and
    `shards_of` are keys, uint64 [n]: of the file, and of the one that its shards are named after.
    """
    moving = np.zeros(len(own), bool)
    while True:
        is_read = ~is_carried | moving
        more = ~is_read & (shards_of != own) & np.isin(shards_of, own[is_read])
        if not more.any():
            return moving
        moving |= more


def count_rows_of_files_gone(last: pa.Table, is_there: np.ndarray) -> int:
    """Return the rows of files that left; `is_there` bool [n] says which did not.

    Rows of a group count if all its files left.
    """
    groups = last.column("group")
    group = look_up(groups, groups.unique().drop_null())
    is_held = np.zeros(int(group.max(initial=-1)) + 2, bool)
    is_held[group[is_there]] = True
    is_held[-1] = False  # of files in no group
    return int(get_numbers(last, "written")[~is_there & ~is_held[group]].sum())


def compare_groups(groups: pa.Array, compared: Compared, last: pa.Table) -> np.ndarray:
    """Return for each file whether its group has the same files as before, all unchanged; bool [n].

    `groups` has the name of each file's group now; null without one.
    """
    before = as_whole(last.column("group")).take(make_places(compared.at))
    is_same = compared.is_same & find_equals(groups, before)
    names = groups.unique().drop_null()
    now = look_up(groups, names)
    had = look_up(last.column("group"), names)
    counts = [sum_by_place(at, len(names)) for at in (now, had, np.where(is_same, now, -1))]
    return np.append((counts[0] == counts[1]) & (counts[0] == counts[2]), False)[now]
